"""Gradients in a slot: bytes of a number that is known beforehand, as a collective needs it.

Optimisers such as Adam divide out how large the gradients of a parameter usually are, so that a small one counts as much as a
large one. Values are therefore brought to a mean square of one in groups of neighbours before they share a blob: errors are then in
proportion to the gradients that they are in. A slot is a header, a byte for the scale of each group, and the blob.
"""

from __future__ import annotations

from typing import Any

import torch

from ... import _native
from ..._codec import encode_options, inspect
from ..._errors import ArgumentError, DataError, LimitError
from .._codec import decode, encode_with

# Values that share a scale: 0.03 bits a value. With 128 training is no better, without scales it is worse at every rate.
GROUP = 256
# A scale is the largest one of the slot, times 2 to the power of -1/4 for each unit of its byte.
_UNITS = 4
_SMALLEST = 254
# Slots, and what is in them, start at multiples of this.
_ALIGN = 16
# The header: bytes of the blob (i64), the largest scale (f32), nothing (4 bytes).
_HEADER = 16
# In place of a length: values are not finite, and too many of them for a blob.
_NOTHING = -1
# Share of the room that is meant to stay empty: rates differ a little from one step to the next.
_SPARE = 0.005
# Share that must be used, or else a step is searched for anew.
_LEAST_USED = 0.95
# Blobs that are made with a step that is known from before, until one has room.
_TRIES = 2
# Values below which gradients are sent as they are: a blob's own header would take more than it saves.
LEAST = 4096


class BucketCodec:
    """Encodes gradients at a rate.

    Args:
        bits: bits a value, with everything that a slot has.
        effort: of the encoder, "fast", "balanced" or "best".
        threads: worker threads of the CPU; 0 takes all cores.
    """

    def __init__(self, bits: float, effort: str, threads: int) -> None:
        if not 0.1 <= bits <= 32:
            raise ArgumentError(f"bits are 0.1 to 32 a value, not {bits}")
        self._bits, self._effort, self._threads = bits, effort, threads
        self._steps: dict[str, float] = {}
        # Says what is wrong with them now, not in the first exchange.
        self._options(max_bytes=1)

    def room(self, values: int) -> int:
        """Bytes of a slot for so many values."""
        return max(int(values * self._bits / 8) // _ALIGN * _ALIGN, _blob_at(values) + 2 * _ALIGN)

    def fill(self, values: torch.Tensor, slot: torch.Tensor, key: str) -> None:
        """Encodes gradients into a slot, about as well as its room allows.

        Args:
            values: all gradients, one after the other.
            slot: bytes, as many as :meth:`room` says.
            key: names what comes again at each step of a training. The step of quantisation that fits the room is searched for
                once, and follows from the last one after that.
        """
        groups = torch.zeros(_groups(values.numel()), GROUP, device=values.device)
        groups.view(-1)[: values.numel()] = values
        at = _blob_at(values.numel())
        units = _measure(groups, slot)
        slot[_HEADER : _HEADER + len(units)] = units
        groups.div_(_scales(slot, len(units)))
        blob = self._blob(groups.view(-1), slot.numel() - at, key)
        if blob is None:
            slot[:8].view(torch.int64).fill_(_NOTHING)
            return
        slot[:8].view(torch.int64).fill_(blob.numel())
        slot[at : at + blob.numel()] = blob

    def _blob(self, values: torch.Tensor, room: int, key: str) -> torch.Tensor | None:
        """A blob that has room; None if what is not finite takes more."""
        for _ in range(_TRIES if key in self._steps else 0):
            blob = encode_with(values, self._options(step=self._steps[key]))
            # Twice the step is about a bit less for each value.
            used = blob.numel() + room * _SPARE
            self._steps[key] *= 2 ** min(max((used - room) * 8 / values.numel(), -1.0), 1.0)
            # Much less is no good either: where all values are alike, a little too large a step sends nothing.
            if _LEAST_USED * room <= blob.numel() <= room:
                return blob
        try:
            blob = encode_with(values, self._options(max_bytes=room))
        except LimitError:
            # Numbers fit any room. What is none takes its own, and where it is all over the bucket there is nothing to save.
            if bool(values.isfinite().all()):
                raise
            return None
        step = inspect(blob.cpu().numpy()).step
        if step is not None and step > 0:
            self._steps[key] = step
        return blob

    def _options(self, **goal: Any) -> _native.EncodeOptions:
        return encode_options(effort=self._effort, threads=self._threads, **goal)[2]

    def read(self, slot: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Decodes a slot into a tensor of as many values as it was made of."""
        count, at = out.numel(), _blob_at(out.numel())
        length = int(slot[:8].view(torch.int64))
        if length == _NOTHING:
            return out.fill_(torch.nan)
        if not 0 < length <= slot.numel() - at:
            raise DataError(f"another rank sent a blob of {length} bytes where {slot.numel() - at} have room")
        groups = torch.empty(_groups(count), GROUP, device=out.device)
        decode(slot[at : at + length], out=groups.view(-1), threads=self._threads)
        groups.mul_(_scales(slot, len(groups)))
        return out.copy_(groups.view(-1)[:count])


def _measure(groups: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Puts the largest scale into the slot's header and returns the byte of each group."""
    sizes = torch.linalg.vector_norm(groups, dim=1) / GROUP**0.5
    usable = sizes.isfinite() & (sizes > 0)
    largest = torch.where(usable, sizes, 0.0).amax()
    largest = torch.where(largest > 0, largest, 1.0)
    slot[8:12].view(torch.float32).copy_(largest.view(1))
    slot[12:_HEADER] = 0
    units = (torch.log2(largest / torch.where(usable, sizes, largest)) * _UNITS).round()
    return units.clamp(0, _SMALLEST).to(torch.uint8)


def _scales(slot: torch.Tensor, count: int) -> torch.Tensor:
    """The scale of each group, as a column: the same bits wherever they are made from the same bytes."""
    units = slot[_HEADER : _HEADER + count].to(torch.int32)
    table = torch.exp2(torch.arange(_UNITS, device=slot.device) / -_UNITS)
    # Powers of two are exact, and the table is the same for all.
    return torch.ldexp(table[units % _UNITS] * slot[8:12].view(torch.float32), -(units // _UNITS)).unsqueeze(1)


def _groups(values: int) -> int:
    return -(-values // GROUP)


def _blob_at(values: int) -> int:
    return _HEADER + -(-_groups(values) // _ALIGN) * _ALIGN
