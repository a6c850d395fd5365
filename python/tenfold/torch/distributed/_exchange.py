"""Averages gradients over ranks; each rank sends its own compressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..._errors import ArgumentError
from ._bucket import GROUP, BucketCodec, zero_nonfinite
from ._feedback import Residuals, pieces
from ._slot import LEAST, Scratch, empty_slot

EXCHANGES = ("gather", "scatter")
# Its name since torch 2.13, or the one before.
_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Exchange:
    """Averages gradients over the ranks of a group, at a rate.

    With ``"gather"`` each rank's slot goes to all ranks, and each rank decodes all slots. With ``"scatter"`` each rank
    receives one part of everyone's gradients, averages it and sends the average to all: with more than two ranks that
    is less to send and decode, at the price of a second rounding.
    """

    def __init__(
        self, group: dist.ProcessGroup, *, bits: float, exchange: str, feedback: bool, effort: str, threads: int
    ) -> None:
        if exchange not in EXCHANGES:
            raise ArgumentError(f"exchange must be one of {', '.join(EXCHANGES)}, not {exchange!r}")
        self.codec = BucketCodec(bits, effort, threads)
        self.group, self.world, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self.feedback = feedback
        self._kind = exchange
        self.residuals = Residuals()
        # Errors of the averages that this rank sends: those are rounded too.
        self.owed = Residuals()
        self._total, self._one = Scratch(), Scratch()
        self.sent = 0
        self.raw = 0

    def average(self, gradients: torch.Tensor, names: Sequence[str], sizes: Sequence[int]) -> torch.Tensor:
        """Replaces concatenated gradients by their average over all ranks; all ranks get the same bits."""
        return self.start(gradients, names, sizes)()

    def start(self, gradients: torch.Tensor, names: Sequence[str], sizes: Sequence[int]) -> Callable[[], torch.Tensor]:
        """Sends gradients. The returned function waits for the other ranks and replaces them as :meth:`average` does.

        All communication starts here, so several buckets can be in flight. They must be finished in the order in which
        they were started.
        """
        self.raw += gradients.nbytes
        if gradients.numel() < LEAST * self.world:
            self.sent += gradients.nbytes
            work = dist.all_reduce(gradients, group=self.group, async_op=True)
            return lambda: _wait_for(work, gradients).div_(self.world)
        wanted = gradients
        if self.feedback:
            wanted = self.residuals.view(names, sizes, gradients.device).add_(gradients)
        key = f"{names[0]}…{names[-1]}"
        if self._kind == "scatter":
            sent = torch.empty_like(wanted) if self.feedback else None
            gradients.copy_(self._scatter(wanted, sent, key))
            if sent is not None:
                keep_unsent(wanted, sent)
            return lambda: gradients
        slot = empty_slot(self.codec.room(wanted.numel()), wanted.device)
        self.codec.fill(wanted, slot, key)
        slots = torch.empty(self.world * slot.numel(), dtype=torch.uint8, device=wanted.device)
        work = _all_gather(slots, slot, group=self.group, async_op=True)
        self.sent += slot.numel()
        return lambda: self._read_gathered(_wait_for(work, slots), wanted, gradients)

    def _read_gathered(self, slots: torch.Tensor, wanted: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        """Averages all ranks' slots into gradients; the error of this rank's own slot remains in ``wanted``."""
        out = gradients if gradients.dtype == torch.float32 else self._total.borrow(gradients.numel(), gradients.device)
        self._average_slots(slots, out, wanted if self.feedback else None)
        return gradients if out is gradients else gradients.copy_(out)

    def _average_slots(self, slots: torch.Tensor, out: torch.Tensor, owed: torch.Tensor | None = None) -> torch.Tensor:
        """Averages all slots in the order of ranks and subtracts what this rank sent from ``owed``."""
        one = self._one.borrow(out.numel(), out.device)
        for rank, slot in enumerate(slots.chunk(self.world)):
            mine = owed if rank == self.rank else None
            part = self.codec.read(slot, out if rank == 0 else one, share=1 / self.world, owed=mine)
            if rank > 0:
                out += part
        return out

    def _scatter(self, values: torch.Tensor, sent: torch.Tensor | None, key: str) -> torch.Tensor:
        sizes = cut(values.numel(), self.world)
        rooms = [self.codec.room(size) for size in sizes]
        mine, room = sizes[self.rank], rooms[self.rank]
        out = empty_slot(sum(rooms), values.device)
        for part, (span, slot) in enumerate(zip(pieces(values, sizes), pieces(out, rooms), strict=True)):
            self.codec.fill(span, slot, f"{key} {part}")
        if sent is not None:
            for span, slot in zip(pieces(sent, sizes), pieces(out, rooms), strict=True):
                self.codec.read(slot, span)
        slots = torch.empty(self.world * room, dtype=torch.uint8, device=values.device)
        dist.all_to_all_single(slots, out, [room] * self.world, rooms, group=self.group)
        average = self._average_slots(slots, torch.empty(mine, device=values.device))
        if sent is not None:
            # The part has no name: it is this rank's share of these parameters.
            average = self.owed.view([key], [mine], values.device).add_(average)
        slot = empty_slot(max(rooms), values.device)
        self.codec.fill(average, slot[:room], f"{key} average")
        if sent is not None:
            keep_unsent(average, self.codec.read(slot[:room], torch.empty_like(average)))
        slots = torch.empty(self.world * slot.numel(), dtype=torch.uint8, device=values.device)
        _all_gather(slots, slot, group=self.group)
        self.sent += sum(rooms) - room + slot.numel()
        whole = torch.empty(values.numel(), device=values.device)
        for span, room, slot in zip(pieces(whole, sizes), rooms, slots.chunk(self.world), strict=True):
            self.codec.read(slot[:room], span)
        return whole


def keep_unsent(wanted: torch.Tensor, sent: torch.Tensor) -> None:
    """Keeps the part of the wanted values that was not sent; values that are not finite become zero."""
    zero_nonfinite(wanted.sub_(sent))


def _wait_for(work: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Waits for the work that fills a tensor and returns the tensor."""
    work.wait()
    return tensor


def cut(values: int, world: int) -> list[int]:
    """Returns the sizes of one part a rank, about equal; all but the last are whole groups."""
    groups = -(-values // GROUP)
    ends = [min(groups * (rank + 1) // world * GROUP, values) for rank in range(world)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
