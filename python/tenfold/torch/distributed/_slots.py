"""Blobs of equal room: a collective sends as many bytes of every rank."""

from __future__ import annotations

import torch

from ... import _native
from ..._codec import encode_options
from ..._errors import DataError
from .._codec import decode, encode_with

# Bytes before a blob that say how long it is.
_LENGTH = 8
# What slots start at multiples of.
_ALIGN = 16
# Values below which a tensor is sent as it is: a blob's header would take more than it saves.
LEAST = 4096


def slot_bytes(values: int, bits: float) -> int:
    """Bytes that a slot has for a tensor at so many bits a value."""
    return -(-(_LENGTH + int(values * bits / 8)) // _ALIGN) * _ALIGN


def fill(tensor: torch.Tensor, slot: torch.Tensor, effort: str, threads: int) -> None:
    """Encodes a tensor into a slot: the best blob that has room there."""
    room = slot.numel() - _LENGTH
    blob = encode_with(tensor, _options(room, effort, threads))
    size = blob.numel()
    slot[:_LENGTH] = torch.tensor(list(size.to_bytes(_LENGTH, "little")), dtype=torch.uint8)
    slot[_LENGTH : _LENGTH + size] = blob
    slot[_LENGTH + size :] = 0


def read(slot: torch.Tensor, out: torch.Tensor, threads: int) -> torch.Tensor:
    """Decodes a slot into a tensor."""
    size = int.from_bytes(bytes(slot[:_LENGTH].tolist()), "little")
    if not 0 <= size <= slot.numel() - _LENGTH:
        raise DataError(f"another rank sent a slot that says {size} bytes and has room for {slot.numel() - _LENGTH}")
    return decode(slot[_LENGTH : _LENGTH + size].clone(), out=out, threads=threads)


def _options(room: int, effort: str, threads: int) -> _native.EncodeOptions:
    return encode_options(max_bytes=room, effort=effort, threads=threads)[2]
