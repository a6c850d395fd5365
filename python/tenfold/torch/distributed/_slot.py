"""Blobs in slots, whose size in bytes is known beforehand, as collectives and pipelines need it.

A slot starts with a header: the bytes of its blob (i64), and eight bytes for whoever fills it.
"""

from __future__ import annotations

from typing import Any

import torch

from ... import _native
from ..._codec import encode_options, inspect
from ..._errors import DataError, LimitError
from .. import _device
from .._codec import encode_with, settle_with

# Alignment of slots and of their contents, in bytes.
ALIGN = 16
HEADER = 16
# Tensors of fewer values are sent uncompressed: a blob's header would cost more than it saves.
LEAST = 4096
# Stands for the length if too many values are not finite for a blob.
_NOTHING = -1


def empty_slot(room: int, device: torch.device) -> torch.Tensor:
    """Allocates a slot of zeros: the unused part is sent too, and must not leak memory."""
    return torch.zeros(room, dtype=torch.uint8, device=device)


def put(slot: torch.Tensor, at: int, blob: torch.Tensor | None) -> None:
    """Writes a blob into a slot; None if most values are not finite."""
    slot[:8].view(torch.int64).fill_(_NOTHING if blob is None else blob.numel())
    if blob is not None:
        slot[at : at + blob.numel()] = blob


def read_blob(slot: torch.Tensor, at: int) -> torch.Tensor | None:
    """Returns the blob of a slot, or None if it has none."""
    length = int(slot[:8].view(torch.int64))
    if length == _NOTHING:
        return None
    if not 0 < length <= slot.numel() - at:
        raise DataError(f"another rank sent a blob of {length} bytes in a slot for {slot.numel() - at}")
    return slot[at : at + length]


class Scratch:
    """Memory reused at each iteration: the system would clear fresh CPU pages first. Devices have a memory pool."""

    def __init__(self) -> None:
        self._kept: torch.Tensor | None = None

    def borrow(self, values: int, device: torch.device) -> torch.Tensor:
        """Returns room for this many f32 with undefined content, valid until the next call."""
        if device.type != "cpu":
            return torch.empty(values, device=device)
        if self._kept is None or self._kept.numel() < values:
            self._kept = torch.empty(values)
        return self._kept[:values]


class Fit:
    """Makes blobs that fit into a slot, at about the best quality that fits.

    Args:
        effort: of the encoder, "fast", "balanced" or "best".
        threads: worker threads of the CPU; 0 uses all cores.
        adapts: whether the CPU, too, adapts the step of the last tensor of a key instead of searching for one.
    """

    def __init__(self, effort: str, threads: int, adapts: bool = False) -> None:
        self._effort, self._threads, self._adapts = effort, threads, adapts
        # By key: the step of the last tensor, and options that keep on the CPU what the last search has settled.
        self._kept: dict[str, tuple[float, _native.EncodeOptions]] = {}
        # Checks the options now, not in the first exchange.
        self._options(max_bytes=1)

    def blob(self, values: torch.Tensor, room: int, key: str) -> torch.Tensor | None:
        """Returns a blob that fits the room; None if values that are not finite take more.

        Args:
            values: a tensor of floats.
            room: bytes.
            key: the same at every training step. On a device the quantiser step that fits the room is searched once and
                then adapted; the CPU finds one in a sample each time, which is cheap for large tensors.
        """
        on_device = _device.is_ours(values.device)
        if not self._adapts and not on_device:
            return self.first_of(values, [{"max_bytes": room}])
        for _ in range(_native.SLOT_TRIALS if key in self._kept else 0):
            step, options = self._kept[key]
            blob = encode_with(values, options.with_goal("step", step))
            step, fills = _native.next_slot_step(step, blob.numel(), values.numel(), room)
            self._kept[key] = step, options
            if fills:
                return blob
        searched = self.first_of(values, [{"max_bytes": room}])
        found = None if searched is None else inspect(searched.cpu().numpy()).step
        if found is not None and found > 0:
            options = self._options(step=found)
            self._kept[key] = found, options if on_device else settle_with(values, options)
        return searched

    def first_of(self, values: torch.Tensor, goals: list[dict[str, Any]], room: int | None = None) -> torch.Tensor | None:
        """Returns the blob of the first goal met within the room; None if values that are not finite prevent it.

        Raises:
            LimitError: no goal was met although all values are finite.
        """
        failed = None
        for goal in goals:
            try:
                blob = encode_with(values, self._options(**goal))
            except LimitError as error:
                failed = error
                continue
            if room is None or blob.numel() <= room:
                return blob
            failed = LimitError(f"a blob of {blob.numel()} bytes has no room in {room}")
        # Finite values always fit. Others are stored exactly, and a tensor full of them cannot be compressed.
        if failed is not None and bool(values.isfinite().all()):
            raise failed
        return None

    def _options(self, **goal: Any) -> _native.EncodeOptions:
        return encode_options(effort=self._effort, threads=self._threads, **goal)
