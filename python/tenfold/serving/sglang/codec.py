"""Pages of a fixed size: keys and values of a page's tokens in all layers, in slots that memory can be cut into.

A slot starts with the length of its page in four bytes; what the page leaves is zero. A storage backend keeps pages
without the rest of their slots, a compressed host pool keeps slots. One :class:`SlotCodec` serves both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..._errors import ArgumentError, DataError
from .._device_pages import DevicePages

_LENGTH = 4

Tensors = Sequence[torch.Tensor]
Positions = int | Sequence[int] | None


@dataclass(frozen=True)
class PageShape:
    """What a page holds.

    Attributes:
        layers: layers of the model that are kept here.
        tokens: tokens of a page.
        key_columns: values of a token's keys in a layer, all heads.
        value_columns: likewise of its values.
        dtype: of keys and values.
    """

    layers: int
    tokens: int
    key_columns: int
    value_columns: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        if min(self.layers, self.tokens, self.key_columns, self.value_columns) < 1:
            raise ArgumentError(f"a page has layers, tokens and columns, one at least of each: {self}")
        if not self.dtype.is_floating_point:
            raise ArgumentError(f"pages are of floats, not of {self.dtype}")

    @property
    def nbytes(self) -> int:
        """Bytes of a page that is not compressed."""
        return self.layers * self.tokens * (self.key_columns + self.value_columns) * self.dtype.itemsize

    @property
    def dtype_name(self) -> str:
        """As in ``"bfloat16"``."""
        return str(self.dtype).removeprefix("torch.")

    def empty(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for keys and for values: layers × tokens × columns."""
        size = (self.layers, self.tokens)
        keys = torch.empty((*size, self.key_columns), dtype=self.dtype)
        return keys, torch.empty((*size, self.value_columns), dtype=self.dtype)


class SlotCodec:
    """Compresses pages of one shape into slots of one size. Threads may share it.

    Args:
        shape: what a page holds.
        bits: bits a value, all bytes of the slot counted; 4 by default.
        max_bytes: bytes of a slot, instead of bits.
        lossless: every bit stays. Slots are then larger than pages are on average: no page is known to shrink.
        bases: path of a file of bases for the model (``tenfold basis fit``).
        effort: "fast", "balanced" or "best".
        threads: worker threads of a call.
        device: a CUDA device that codes pages instead of the CPU, where it can; tensors stay the host's.
    """

    def __init__(
        self,
        shape: PageShape,
        *,
        bits: float | None = None,
        max_bytes: int | None = None,
        lossless: bool = False,
        bases: str | os.PathLike[str] | None = None,
        effort: str = "fast",
        threads: int = 1,
        device: str | None = None,
    ) -> None:
        self._shape = shape
        how: dict[str, Any] = {"bases": bases, "effort": effort, "threads": threads, "device": device}
        # Checked here, whichever it is; with a rate, bytes follow from the shape alone.
        rate = DevicePages(shape.layers, bits=bits, max_bytes=max_bytes, lossless=lossless, **(how if lossless else {}))
        self._rate = rate.describe()
        columns = (shape.key_columns, shape.value_columns)
        # A bound for twice as many columns is twice the bound, so this is the bound of both kinds together.
        room = sum(rate.max_bytes(shape.tokens, count, shape.dtype_name) for count in columns) // 2
        if lossless:
            self._pages, self._slot_bytes = rate, room + _LENGTH
            return
        if room <= _LENGTH:
            raise ArgumentError(f"a slot of {room} bytes has no room for a page; state more bits or bytes")
        self._pages, self._slot_bytes = DevicePages(shape.layers, max_bytes=room - _LENGTH, **how), room

    @property
    def shape(self) -> PageShape:
        """What a page holds."""
        return self._shape

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot, which no page exceeds."""
        return self._slot_bytes

    @property
    def slot_bytes_per_token(self) -> float:
        """Of a slot, by a page's tokens."""
        return self._slot_bytes / self._shape.tokens

    @property
    def rate(self) -> str:
        """The rate as text, as in ``"bits=4"``."""
        return self._rate

    @property
    def basis(self) -> str:
        """Fingerprint of the file of bases, ``""`` where there is none."""
        return self._pages.basis

    def compress(self, keys: Tensors, values: Tensors, positions: Positions = None) -> bytes:
        """Encodes a page into a slot; arguments are those of :meth:`encode`."""
        page = self.encode(keys, values, positions)
        return b"".join((len(page).to_bytes(_LENGTH, "little"), page, bytes(self._slot_bytes - _LENGTH - len(page))))

    def decompress_layer(self, slot: Any, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Writes keys and values of one layer, tokens × columns, into CPU tensors.

        Raises:
            DataError: the slot holds no page, or a damaged one. What was written until then must not be used.
        """
        self._check([key], [value])
        self._pages.decode_layer(self._page(slot), layer, key, value)

    def encode(self, keys: Tensors, values: Tensors, positions: Positions = None) -> bytes:
        """Encodes a page without the padding of its slot.

        Args:
            keys: for each layer a CPU tensor of tokens × columns.
            values: likewise.
            positions: of the first token, or of all; they follow each other. Bases with rotary positions need them.

        Raises:
            LimitError: the page does not fit a slot, even at the coarsest step.
        """
        self._check(keys, values, self._shape.layers)
        return self._pages.encode(keys, values, _first(positions, self._shape.tokens))

    def decode(self, page: Any, keys: Tensors, values: Tensors) -> None:
        """Decodes all layers of a page that :meth:`encode` made, as :meth:`decompress_layer` does one of a slot."""
        self._check(keys, values, self._shape.layers)
        self._pages.decode(page, keys, values)

    def _page(self, slot: Any) -> memoryview:
        view = memoryview(slot).cast("B")
        if len(view) != self._slot_bytes:
            raise DataError(f"a slot has {self._slot_bytes} bytes, not {len(view)}")
        length = int.from_bytes(view[:_LENGTH], "little")
        if not 0 < length <= len(view) - _LENGTH:
            raise DataError("the slot holds no page")
        return view[_LENGTH : _LENGTH + length]

    def _check(self, keys: Tensors, values: Tensors, layers: int = 1) -> None:
        shape = self._shape
        for kind, tensors, columns in (("keys", keys, shape.key_columns), ("values", values, shape.value_columns)):
            if len(tensors) != layers:
                raise ArgumentError(f"{kind} of {layers} layers are needed, {len(tensors)} were given")
            for tensor in tensors:
                if tuple(tensor.shape) != (shape.tokens, columns) or tensor.dtype != shape.dtype:
                    raise ArgumentError(
                        f"{kind} of a layer are {shape.tokens} × {columns} of {shape.dtype}, "
                        f"not {tuple(tensor.shape)} of {tensor.dtype}"
                    )

    def __repr__(self) -> str:
        return f"SlotCodec({self._shape}, {self._rate}, slot_bytes={self._slot_bytes})"


def _first(positions: Positions, tokens: int) -> int | None:
    if positions is None or isinstance(positions, int):
        return positions
    listed = [int(position) for position in positions]
    if len(listed) != tokens:
        raise ArgumentError(f"{len(listed)} positions for {tokens} tokens")
    if listed != list(range(listed[0], listed[0] + tokens)):
        raise ArgumentError("positions of a page's tokens follow each other; these do not")
    return listed[0]
