"""Weights that stay compressed, the places where they are, and the stages in which they are decoded together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..._codec import decode as decode_on_host
from ..._errors import Error, UnsupportedError
from .._codec import decode
from .._tensors import host_bytes
from .._verdicts import check_streams

# Tensors in a buffer start at such offsets; devices like wide loads.
ALIGN = 256


@dataclass(frozen=True)
class Site:
    """A place in a module where a tensor is."""

    name: str
    module: nn.Module
    attribute: str
    tensor: torch.Tensor

    def put(self, tensor: torch.Tensor) -> None:
        """Replaces the tensor there."""
        if self.attribute in self.module._parameters:
            # Set as an attribute it would have to be of the blob's dtype.
            self.module._parameters[self.attribute] = tensor  # type: ignore[assignment]
        else:
            self.module._buffers[self.attribute] = tensor


def sites(module: nn.Module) -> Iterator[Site]:
    """All places; those of tied weights each."""
    for prefix, child in module.named_modules():
        for attribute, tensor in (*child._parameters.items(), *child._buffers.items()):
            if tensor is not None:
                yield Site(f"{prefix}.{attribute}" if prefix else attribute, child, attribute, tensor)


@dataclass(frozen=True)
class Held:
    """A weight that stays compressed: its blob is where the weight was."""

    module: nn.Module
    attribute: str
    name: str
    shape: tuple[int, ...]
    stored: torch.dtype
    wanted: torch.dtype

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * self.stored.itemsize

    def blob(self) -> torch.Tensor:
        """The blob, wherever the model has been moved to."""
        found = self.module._parameters.get(self.attribute)
        return self.module._buffers[self.attribute] if found is None else found  # type: ignore[return-value]

    def put(self, tensor: torch.Tensor) -> None:
        """Replaces the blob."""
        Site(self.name, self.module, self.attribute, tensor).put(tensor)


@dataclass(frozen=True)
class Stage:
    """Weights that are decoded together: those of a layer, or a table of embeddings."""

    name: str
    held: tuple[Held, ...]
    # A table may be larger than several layers: it gets all of the memory for itself.
    is_table: bool = False
    # Whether a device has to fetch the blobs from host memory.
    from_host: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded weights in a buffer."""
        return sum(aligned(held.nbytes) for held in self.held)

    @property
    def blob_bytes(self) -> int:
        """Bytes of the blobs in a buffer."""
        return sum(aligned(held.blob().nbytes) for held in self.held)

    def views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The weights' places in a buffer."""
        out, at = [], 0
        for held in self.held:
            out.append(buffer[at : at + held.nbytes].view(held.stored).view(held.shape))
            at += aligned(held.nbytes)
        return out

    def blobs(self) -> list[torch.Tensor]:
        """The blobs, where they are."""
        return [held.blob().detach() for held in self.held]

    def name_error(self, error: Error) -> Error:
        """An error of the stage, with the name of the tensor that it is about."""
        for held in self.held:
            try:
                # By the CPU, which says at once what is wrong.
                decode_on_host(host_bytes(held.blob().detach().cpu()), dtype="raw")
            except Error as own:
                return type(own)(f"tensor {held.name!r}: {own}; fetch the model again, or compress it again")
        return type(error)(f"{self.name}: {error}")


class Uncopied:
    """A part of a model that cannot be copied: the hooks of a copy would still put weights into the modules of the original."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise UnsupportedError("a model whose weights stay compressed cannot be copied; load it once more, or compress another")


def version_of(tensor: torch.Tensor) -> int:
    """Counts how often a blob has been written to: decoders read its header but once. Of other tensors nobody asks."""
    return 0 if tensor.dtype != torch.uint8 or tensor.is_inference() else tensor._version


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def decode_named(name: str, blob: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decodes a blob where it is, and says which one it was if it is bad."""
    try:
        with torch.no_grad():
            # Cast afterwards: a device that decodes straight to another dtype rounds once, where others round twice.
            decoded = decode(blob.detach(), contiguous=True).to(dtype)
        if blob.device.type == "cuda":
            check_streams(blob.device.index)
    except Error as error:
        raise type(error)(f"tensor {name!r}: {error}; fetch the model again, or compress it again") from error
    return decoded


def restore(held: list[Held], device: torch.device | None = None) -> None:
    """Puts decoded weights in the place of their blobs; tied weights stay tied.

    Args:
        held: the weights.
        device: where to, if not where the blobs are.
    """
    decoded: dict[int, torch.Tensor] = {}
    for one, blob in [(one, one.blob()) for one in held]:
        # The same object, and views of the same pinned memory, are one weight.
        key = blob.data_ptr()
        if key not in decoded:
            plain = decode_named(one.name, blob, one.wanted).to(device or blob.device)
            floats = plain.is_floating_point()
            decoded[key] = nn.Parameter(plain, floats) if isinstance(blob, nn.Parameter) else plain
        one.put(decoded[key])
