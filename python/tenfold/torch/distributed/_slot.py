"""Blobs in slots: bytes of a number that is known beforehand, as collectives and pipelines need it.

A slot starts with a header: the bytes of its blob (i64), and eight bytes for whoever fills it.
"""

from __future__ import annotations

from typing import Any

import torch

from ... import _native
from ..._codec import encode_options, inspect
from ..._errors import DataError, LimitError
from .. import _device
from .._codec import encode_with

# Slots, and what is in them, start at multiples of this.
ALIGN = 16
HEADER = 16
# Values below which a tensor is sent as it is: a blob's own header would take more than it saves.
LEAST = 4096
# In place of a length: values are not finite, and too many of them for a blob.
_NOTHING = -1
# Share of the room that is meant to stay empty: rates differ a little from one step to the next.
_SPARE = 0.005
# Share that must be used, or else a step is searched for anew.
_LEAST_USED = 0.95
# Blobs that are made with a step that is known from before, until one has room.
_TRIES = 2


def empty_slot(room: int, device: torch.device) -> torch.Tensor:
    """A slot to fill. Of zeros: what no blob fills is sent too, and must not be anyone's memory."""
    return torch.zeros(room, dtype=torch.uint8, device=device)


def put(slot: torch.Tensor, at: int, blob: torch.Tensor | None) -> None:
    """Puts a blob into a slot; None where there is none, since most values are not finite."""
    slot[:8].view(torch.int64).fill_(_NOTHING if blob is None else blob.numel())
    if blob is not None:
        slot[at : at + blob.numel()] = blob


def taken(slot: torch.Tensor, at: int) -> torch.Tensor | None:
    """The blob of a slot; None where there is none."""
    length = int(slot[:8].view(torch.int64))
    if length == _NOTHING:
        return None
    if not 0 < length <= slot.numel() - at:
        raise DataError(f"another rank sent a blob of {length} bytes where {slot.numel() - at} have room")
    return slot[at : at + length]


class Scratch:
    """Memory that is used again at each step: the system clears fresh pages of the CPU first. Devices have a pool of it."""

    def __init__(self) -> None:
        self._kept: torch.Tensor | None = None

    def of(self, values: int, device: torch.device) -> torch.Tensor:
        """Room for so many f32, with anything in it, until this is asked again."""
        if device.type != "cpu":
            return torch.empty(values, device=device)
        if self._kept is None or self._kept.numel() < values:
            self._kept = torch.empty(values)
        return self._kept[:values]


class Fit:
    """Makes blobs that have room, about as good as the room allows.

    Args:
        effort: of the encoder, "fast", "balanced" or "best".
        threads: worker threads of the CPU; 0 takes all cores.
    """

    def __init__(self, effort: str, threads: int) -> None:
        self._effort, self._threads = effort, threads
        self._steps: dict[str, float] = {}
        # Says what is wrong with them now, not in the first exchange.
        self._options(max_bytes=1)

    def blob(self, values: torch.Tensor, room: int, key: str) -> torch.Tensor | None:
        """A blob that has room; None if what is not finite takes more.

        Args:
            values: a tensor of floats.
            room: bytes.
            key: names what comes again at each step of a training. On a device the step of quantisation that fits the room is
                searched for once, and follows from the last one after that; a CPU finds one in a sample, which takes less.
        """
        if not _device.is_ours(values.device):
            return self.first_of(values, [{"max_bytes": room}])
        for _ in range(_TRIES if key in self._steps else 0):
            blob = encode_with(values, self._options(step=self._steps[key]))
            # Twice the step is about a bit less for each value, and more where zeros take over.
            used, bits = blob.numel() + room * _SPARE, 8 / values.numel()
            slope = min(max(1.2 / (room * bits), 1.0), 2.5)
            self._steps[key] *= 2 ** min(max((used - room) * bits / slope, -1.0), 1.0)
            # Much less is no good either: where all values are alike, a little too large a step sends nothing.
            if _LEAST_USED * room <= blob.numel() <= room:
                return blob
        searched = self.first_of(values, [{"max_bytes": room}])
        step = None if searched is None else inspect(searched.cpu().numpy()).step
        if step is not None and step > 0:
            self._steps[key] = step
        return searched

    def first_of(self, values: torch.Tensor, goals: list[dict[str, Any]], room: int | None = None) -> torch.Tensor | None:
        """The blob of the first goal that can be met within the room; None if none can, for what is not finite.

        Raises:
            LimitError: all values are finite, which fit any room that was meant for them.
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
        # Numbers fit any room. What is none takes its own, and where it is all over the tensor there is nothing to save.
        if failed is not None and bool(values.isfinite().all()):
            raise failed
        return None

    def _options(self, **goal: Any) -> _native.EncodeOptions:
        return encode_options(effort=self._effort, threads=self._threads, **goal)
