"""What crosses a boundary between two stages of a pipeline: activations one way, their gradients the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from ..._errors import ArgumentError
from .. import _device
from .._codec import decode
from .._cuda import inspect
from .._tensors import check_fits
from ._bucket import BucketCodec
from ._slot import ALIGN, HEADER, LEAST, Fit, empty_slot, put, read_blob

ROUND_BITS = 8
"""Bits of a residual that is rounded to nearest."""
# A rounded residual has no rate: its levels are entropy coded, and take no more than this a value, and these bytes.
_ROUND_ROOM, _ROUND_BYTES = 8.125, 2048
# The header of a blob with layers.
_LAYERS_HEADER = 128


class TensorCodec(Protocol):
    """Puts tensors into slots of a number of bytes that follows from how many values they have."""

    def room(self, values: int) -> int:
        """Bytes of a slot."""

    def fill(self, values: torch.Tensor, slot: torch.Tensor, key: str) -> None:
        """Encodes a tensor into a slot."""

    def read(self, slot: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Decodes a slot into a tensor of the shape that it was made of."""


class LayeredCodec:
    """Encodes a tensor, and what that leaves of it, as the layers of one blob.

    Errors are the same for all values, large and small: gradients of activations are summed up over tokens by what comes next.

    Args:
        bits: bits a value of the first layer.
        residual_bits: bits a value of the second; None for a residual that is rounded to nearest at 8 bits.
        effort: of the encoder.
        threads: worker threads of the CPU; 0 takes all cores.
    """

    def __init__(self, bits: float, residual_bits: float | None, effort: str, threads: int) -> None:
        for stated in (bits, residual_bits):
            if stated is not None and not 0.1 <= stated <= 32:
                raise ArgumentError(f"bits are 0.1 to 32 a value, not {stated}")
        self._bits, self._residual_bits, self._threads = bits, residual_bits, threads
        self._fit = Fit(effort, threads)

    def room(self, values: int) -> int:
        """Bytes of a slot for so many values."""
        first, second = self._rooms(values)
        return -(-(HEADER + _LAYERS_HEADER + first + second) // ALIGN) * ALIGN

    def _rooms(self, values: int) -> tuple[int, int]:
        """Bytes of the two layers; with a rate for both, headers come off the second one."""
        first = max(int(values * self._bits / 8), 4 * _LAYERS_HEADER)
        if self._residual_bits is None:
            return first, int(values * _ROUND_ROOM / 8) + _ROUND_BYTES
        return first, max(int(values * self._residual_bits / 8) - HEADER - _LAYERS_HEADER, 4 * _LAYERS_HEADER)

    def fill(self, values: torch.Tensor, slot: torch.Tensor, key: str) -> None:
        """Encodes a tensor into a slot, about as well as its room allows.

        Args:
            values: a tensor of floats.
            slot: bytes, as many as :meth:`room` says.
            key: not used: both rates are searched for, whatever came before.
        """
        first, second = self._rooms(values.numel())
        goals: list[dict[str, object]] = [{"max_bytes": first, "residual": {"max_bytes": second}}]
        if self._residual_bits is None:
            goals.insert(0, {"max_bytes": first, "residual": {"round_bits": ROUND_BITS}})
        put(slot, HEADER, self._fit.first_of(values, goals, slot.numel() - HEADER))

    def read(self, slot: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Decodes a slot into a tensor of the shape that it was made of."""
        blob = read_blob(slot, HEADER)
        if blob is None:
            return out.fill_(torch.nan)
        if not _device.is_ours(blob.device):
            return decode(blob, out=out, threads=self._threads)
        # A blob of another shape is refused before anything is made for it.
        check_fits(out, inspect(blob))
        return out.copy_(decode(blob))


@dataclass(frozen=True)
class Rates:
    """What crosses a boundary at which rate; None sends it as it is."""

    activation_bits: float | None
    gradient_bits: float | None
    residual_bits: float | None
    round_after: int | None

    def __post_init__(self) -> None:
        if self.gradient_bits is None and self.residual_bits is not None:
            raise ArgumentError("residual_bits without gradient_bits: gradients that are sent as they are leave nothing")
        if self.round_after is not None and self.round_after < 0:
            raise ArgumentError(f"round_after is a number of steps, not {self.round_after}")
        if self.round_after is not None and self.residual_bits is None:
            raise ArgumentError("round_after is when residuals are rounded; without residual_bits there are none")


class Boundary:
    """The codecs of a boundary.

    Args:
        rates: of both directions.
        effort: of the encoder.
        threads: worker threads of the CPU; 0 takes all cores.
        adapts: for activations, as in :class:`BucketCodec`.
    """

    def __init__(self, rates: Rates, effort: str, threads: int, adapts: bool = False) -> None:
        self._rates = rates
        self._activations: TensorCodec | None = None
        self._gradients: TensorCodec | None = None
        self._rounded: TensorCodec | None = None
        if rates.activation_bits is not None:
            self._activations = BucketCodec(rates.activation_bits, effort, threads, adapts)
        if rates.gradient_bits is None:
            return
        if rates.residual_bits is None:
            self._gradients = BucketCodec(rates.gradient_bits, effort, threads)
            return
        self._gradients = LayeredCodec(rates.gradient_bits, rates.residual_bits, effort, threads)
        self._rounded = LayeredCodec(rates.gradient_bits, None, effort, threads)

    def activations(self, tensor: torch.Tensor) -> TensorCodec | None:
        """The codec of an activation; None if it is sent as it is."""
        return self._activations if _worth(tensor) else None

    def gradients(self, tensor: torch.Tensor, step: int) -> TensorCodec | None:
        """The codec of an activation's gradient at a step of the training; None if it is sent as it is."""
        if not _worth(tensor):
            return None
        after = self._rates.round_after
        return self._gradients if after is None or step < after else self._rounded


def packed(codec: TensorCodec, tensor: torch.Tensor, key: str) -> torch.Tensor:
    """A slot with a tensor in it."""
    values = tensor.detach().contiguous()
    slot = empty_slot(codec.room(values.numel()), values.device)
    codec.fill(values, slot, key)
    return slot


def _worth(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() >= LEAST
