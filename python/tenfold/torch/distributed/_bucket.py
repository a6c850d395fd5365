"""Gradients in a slot, whose size in bytes is known beforehand, as collectives need it.

Optimisers such as Adam divide by the usual size of a parameter's gradients, so small gradients count as much as large
ones. Groups of neighbouring values are therefore scaled to a mean square of one before they share a blob, which makes
errors proportional to the gradients. A slot is a header, a byte for the scale of each group, and the blob.
"""

from __future__ import annotations

import torch

from ..._errors import ArgumentError
from .._codec import decode
from ._slot import ALIGN, HEADER, Fit, Scratch, put, read_blob

# Values that share a scale: 0.03 bits a value. Without scales training was worse at 1.4 bits.
GROUP = 256
# A scale is the slot's largest scale times 2 to the power of -1/4 for each unit of its byte. The largest is an f32 in
# the slot's header, after the length.
_UNITS = 4
_SMALLEST = 254


class BucketCodec:
    """Encodes gradients at a rate.

    Args:
        bits: bits a value, every byte of the slot counted.
        effort: of the encoder, "fast", "balanced" or "best".
        threads: worker threads of the CPU; 0 takes all cores.
        adapts: whether the CPU adapts the step of the last slot of a key, as devices do: half the time for small tensors.
    """

    def __init__(self, bits: float, effort: str, threads: int, adapts: bool = False) -> None:
        if not 0.1 <= bits <= 32:
            raise ArgumentError(f"bits must be 0.1 to 32, not {bits}")
        self._bits, self._threads = bits, threads
        self._fit = Fit(effort, threads, adapts)
        # Separate, because one bucket may be filled while another is read.
        self._filled, self._read = Scratch(), Scratch()

    def room(self, values: int) -> int:
        """Returns the bytes of a slot for this many values."""
        return max(int(values * self._bits / 8) // ALIGN * ALIGN, _blob_at(values) + 2 * ALIGN)

    def fill(self, values: torch.Tensor, slot: torch.Tensor, key: str) -> None:
        """Encodes gradients into a slot, at about the best quality that fits.

        Args:
            values: all gradients; groups follow their order.
            slot: bytes, as many as :meth:`room` says.
            key: the same at every training step, as in :meth:`Fit.blob`.
        """
        count = values.numel()
        groups = self._filled.borrow(_groups(count) * GROUP, values.device).view(-1, GROUP)
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
        """Decodes a slot into a tensor with the original number of values.

        Args:
            slot: what :meth:`fill` made, here or on another rank.
            out: the tensor to write; it is returned.
            share: factor on all values.
            owed: the original values, if the slot is this rank's own; the error of the slot remains in them.
        """
        count, at = out.numel(), _blob_at(out.numel())
        blob = read_blob(slot, at)
        if blob is None:
            if owed is not None:
                owed.zero_()
            return out.fill_(torch.nan)
        groups = self._read.borrow(_groups(count) * GROUP, out.device).view(-1, GROUP)
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
    """Subtracts the sent values from the owed ones; values that are not finite become zero."""
    body, end = _cut(owed)
    body.addcmul_(groups[: len(body)], scales[: len(body)], value=-1)
    end.sub_((groups[len(body) :] * scales[len(body) :]).view(-1)[: end.numel()])
    zero_nonfinite(owed)


def zero_nonfinite(values: torch.Tensor) -> None:
    """Replaces values that are not finite with zeros."""
    # On the CPU a sum finds them faster than a look at each; on a device it would mean waiting.
    if values.is_cuda or not bool(values.sum().isfinite()):
        torch.nan_to_num_(values, nan=0.0, posinf=0.0, neginf=0.0)


def _cut(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Splits values into whole groups, as rows, and the rest."""
    flat = values.view(-1)
    whole = flat.numel() // GROUP * GROUP
    return flat[:whole].view(-1, GROUP), flat[whole:]


def _sizes(groups: torch.Tensor) -> torch.Tensor:
    """Returns the root mean square of each group."""
    sizes: torch.Tensor = torch.linalg.vector_norm(groups, dim=1) / GROUP**0.5
    return sizes


def _measure(sizes: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Writes the largest scale into the slot's header and returns the scale byte of each group."""
    usable = sizes.isfinite() & (sizes > 0)
    largest = torch.where(usable, sizes, 0.0).amax()
    largest = torch.where(largest > 0, largest, 1.0)
    slot[8:12].view(torch.float32).copy_(largest.view(1))
    slot[12:HEADER] = 0
    units = (torch.log2(largest / torch.where(usable, sizes, largest)) * _UNITS).round()
    return units.clamp(0, _SMALLEST).to(torch.uint8)


def _scales(slot: torch.Tensor, count: int) -> torch.Tensor:
    """Returns the scale of each group as a column. The same bytes give the same bits on every machine."""
    units = slot[HEADER : HEADER + count].to(torch.int32)
    table = torch.exp2(torch.arange(_UNITS, device=slot.device) / -_UNITS)
    # Powers of two are exact, and the table is the same for all.
    return torch.ldexp(table[units % _UNITS] * slot[8:12].view(torch.float32), -(units // _UNITS)).unsqueeze(1)


def _groups(values: int) -> int:
    return -(-values // GROUP)


def _blob_at(values: int) -> int:
    return HEADER + -(-_groups(values) // ALIGN) * ALIGN
