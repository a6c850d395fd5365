"""Gradients in a slot: bytes of a number that is known beforehand, as a collective needs it.

Optimisers such as Adam divide out how large the gradients of a parameter usually are, so that a small one counts as much as a
large one. Values are therefore brought to a mean square of one in groups of neighbours before they share a blob: errors are then in
proportion to the gradients that they are in. A slot is a header, a byte for the scale of each group, and the blob.
"""

from __future__ import annotations

import torch

from ..._errors import ArgumentError
from .._codec import decode
from ._slot import ALIGN, HEADER, Fit, Scratch, put, taken

# Values that share a scale: 0.03 bits a value. Without scales training was worse at 1.4 bits.
GROUP = 256
# A scale is the largest one of the slot, times 2 to the power of -1/4 for each unit of its byte. The largest one is an f32 in
# the slot's header, behind the length.
_UNITS = 4
_SMALLEST = 254


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
        self._bits, self._threads = bits, threads
        self._fit = Fit(effort, threads)
        # One bucket may be filled while another is read.
        self._filled, self._read = Scratch(), Scratch()

    def room(self, values: int) -> int:
        """Bytes of a slot for so many values."""
        return max(int(values * self._bits / 8) // ALIGN * ALIGN, _blob_at(values) + 2 * ALIGN)

    def fill(self, values: torch.Tensor, slot: torch.Tensor, key: str) -> None:
        """Encodes gradients into a slot, about as well as its room allows.

        Args:
            values: all gradients, in the order that counts for groups.
            slot: bytes, as many as :meth:`room` says.
            key: names what comes again at each step of a training, as of :meth:`Fit.blob`.
        """
        count = values.numel()
        groups = self._filled.of(_groups(count) * GROUP, values.device).view(-1, GROUP)
        body, end = _cut(values.reshape(-1))
        if values.dtype != torch.float32:
            body = groups[: len(body)].copy_(body)
        ends = groups[len(body) :]
        ends.zero_().view(-1)[: end.numel()] = end
        at = _blob_at(count)
        units = _measure(torch.cat([_sizes(body), _sizes(ends)]), slot)
        slot[HEADER : HEADER + len(units)] = units
        scales = _scales(slot, len(units))
        torch.div(body, scales[: len(body)], out=groups[: len(body)])
        ends.div_(scales[len(body) :])
        put(slot, at, self._fit.blob(groups.view(-1), slot.numel() - at, key))

    def read(
        self, slot: torch.Tensor, out: torch.Tensor, *, share: float = 1.0, owed: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Decodes a slot into a tensor of as many values as it was made of.

        Args:
            slot: what :meth:`fill` made, here or on another rank.
            out: where to; it is returned.
            share: factor of all values.
            owed: the values that the slot was made of, if it is this rank's own: what of them is not in the slot stays there.
        """
        count, at = out.numel(), _blob_at(out.numel())
        blob = taken(slot, at)
        if blob is None:
            if owed is not None:
                owed.zero_()
            return out.fill_(torch.nan)
        groups = self._read.of(_groups(count) * GROUP, out.device).view(-1, GROUP)
        decode(blob, out=groups.view(-1), threads=self._threads)
        scales = _scales(slot, len(groups))
        if owed is not None:
            _take(owed, groups, scales)
        scales *= share
        if out.dtype != torch.float32 or not out.is_contiguous():
            return out.copy_(groups.mul_(scales).view(-1)[:count].view_as(out))
        body, end = _cut(out)
        torch.mul(groups[: len(body)], scales[: len(body)], out=body)
        end.copy_((groups[len(body) :] * scales[len(body) :]).view(-1)[: end.numel()])
        return out


def _take(owed: torch.Tensor, groups: torch.Tensor, scales: torch.Tensor) -> None:
    """Takes what was sent off what was to be sent; nothing is left where that is no number."""
    body, end = _cut(owed)
    body.addcmul_(groups[: len(body)], scales[: len(body)], value=-1)
    end.sub_((groups[len(body) :] * scales[len(body) :]).view(-1)[: end.numel()])
    no_others(owed)


def no_others(values: torch.Tensor) -> None:
    """Makes zeros of what is no number."""
    # A sum is quicker than looking at each, where it is at hand without waiting for a device.
    if values.is_cuda or not bool(values.sum().isfinite()):
        torch.nan_to_num_(values, nan=0.0, posinf=0.0, neginf=0.0)


def _cut(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole groups as rows, and the values behind them."""
    flat = values.view(-1)
    whole = flat.numel() // GROUP * GROUP
    return flat[:whole].view(-1, GROUP), flat[whole:]


def _sizes(groups: torch.Tensor) -> torch.Tensor:
    """Root of the mean square of each group."""
    sizes: torch.Tensor = torch.linalg.vector_norm(groups, dim=1) / GROUP**0.5
    return sizes


def _measure(sizes: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Puts the largest scale into the slot's header and returns the byte of each group."""
    usable = sizes.isfinite() & (sizes > 0)
    largest = torch.where(usable, sizes, 0.0).amax()
    largest = torch.where(largest > 0, largest, 1.0)
    slot[8:12].view(torch.float32).copy_(largest.view(1))
    slot[12:HEADER] = 0
    units = (torch.log2(largest / torch.where(usable, sizes, largest)) * _UNITS).round()
    return units.clamp(0, _SMALLEST).to(torch.uint8)


def _scales(slot: torch.Tensor, count: int) -> torch.Tensor:
    """The scale of each group, as a column: the same bits wherever they are made from the same bytes."""
    units = slot[HEADER : HEADER + count].to(torch.int32)
    table = torch.exp2(torch.arange(_UNITS, device=slot.device) / -_UNITS)
    # Powers of two are exact, and the table is the same for all.
    return torch.ldexp(table[units % _UNITS] * slot[8:12].view(torch.float32), -(units // _UNITS)).unsqueeze(1)


def _groups(values: int) -> int:
    return -(-values // GROUP)


def _blob_at(values: int) -> int:
    return HEADER + -(-_groups(values) // ALIGN) * ALIGN
