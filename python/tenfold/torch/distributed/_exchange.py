"""Averages over ranks of gradients that each rank sends compressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..._errors import ArgumentError
from ._bucket import GROUP, BucketCodec, no_others
from ._feedback import Residuals, pieces
from ._slot import LEAST, Scratch, empty_slot

EXCHANGES = ("gather", "scatter")
# Its name since torch 2.13, and before.
_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Exchange:
    """Averages gradients over the ranks of a group, at a rate.

    With ``"gather"`` each rank's slot goes to all ranks, which decode as many slots as there are ranks. With ``"scatter"`` each
    rank gets its part of the gradients of all, averages it, and sends the average to all: less to send and decode where there are
    more than two ranks, and a second rounding.
    """

    def __init__(
        self, group: dist.ProcessGroup, *, bits: float, exchange: str, feedback: bool, effort: str, threads: int
    ) -> None:
        if exchange not in EXCHANGES:
            raise ArgumentError(f"exchange is one of {', '.join(EXCHANGES)}, not {exchange!r}")
        self.codec = BucketCodec(bits, effort, threads)
        self.group, self.world, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self.feedback = feedback
        self._kind = exchange
        self.residuals = Residuals()
        # What this rank owes to all: averages of its part are rounded too.
        self.owed = Residuals()
        self._total, self._one = Scratch(), Scratch()
        self.sent = 0
        self.raw = 0

    def average(self, gradients: torch.Tensor, names: Sequence[str], sizes: Sequence[int]) -> torch.Tensor:
        """Replaces gradients that lie one after the other by their average over all ranks; all ranks get the same bits."""
        return self.start(gradients, names, sizes)()

    def start(self, gradients: torch.Tensor, names: Sequence[str], sizes: Sequence[int]) -> Callable[[], torch.Tensor]:
        """Sends gradients. What this returns, waits for those of others and replaces them as :meth:`average` does.

        All that ranks do together is begun here, so that several buckets may be on their way. They are ended in the order in which
        they were begun.
        """
        self.raw += gradients.nbytes
        if gradients.numel() < LEAST * self.world:
            self.sent += gradients.nbytes
            work = dist.all_reduce(gradients, group=self.group, async_op=True)
            return lambda: _waited(work, gradients).div_(self.world)
        wanted = gradients
        if self.feedback:
            wanted = self.residuals.of(names, sizes, gradients.device).add_(gradients)
        key = f"{names[0]}…{names[-1]}"
        if self._kind == "scatter":
            sent = torch.empty_like(wanted) if self.feedback else None
            gradients.copy_(self._scattered(wanted, sent, key))
            if sent is not None:
                settle(wanted, sent)
            return lambda: gradients
        slot = empty_slot(self.codec.room(wanted.numel()), wanted.device)
        self.codec.fill(wanted, slot, key)
        slots = torch.empty(self.world * slot.numel(), dtype=torch.uint8, device=wanted.device)
        work = _all_gather(slots, slot, group=self.group, async_op=True)
        self.sent += slot.numel()
        return lambda: self._gathered(_waited(work, slots), wanted, gradients)

    def _gathered(self, slots: torch.Tensor, wanted: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        """Averages all ranks' slots into gradients; what this rank did not send of what it wanted to, stays there."""
        out = gradients if gradients.dtype == torch.float32 else self._total.of(gradients.numel(), gradients.device)
        self._mean(slots, out, wanted if self.feedback else None)
        return gradients if out is gradients else gradients.copy_(out)

    def _mean(self, slots: torch.Tensor, out: torch.Tensor, owed: torch.Tensor | None = None) -> torch.Tensor:
        """The average of all slots, added in the order of ranks; of what is owed, that which this rank sent is taken off."""
        one = self._one.of(out.numel(), out.device)
        for rank, slot in enumerate(slots.chunk(self.world)):
            mine = owed if rank == self.rank else None
            part = self.codec.read(slot, out if rank == 0 else one, share=1 / self.world, owed=mine)
            if rank > 0:
                out += part
        return out

    def _scattered(self, values: torch.Tensor, sent: torch.Tensor | None, key: str) -> torch.Tensor:
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
        average = self._mean(slots, torch.empty(mine, device=values.device))
        if sent is not None:
            # The part has no name of its own: it is this rank's share of these parameters.
            average = self.owed.of([key], [mine], values.device).add_(average)
        slot = empty_slot(max(rooms), values.device)
        self.codec.fill(average, slot[:room], f"{key} average")
        if sent is not None:
            settle(average, self.codec.read(slot[:room], torch.empty_like(average)))
        slots = torch.empty(self.world * slot.numel(), dtype=torch.uint8, device=values.device)
        _all_gather(slots, slot, group=self.group)
        self.sent += sum(rooms) - room + slot.numel()
        whole = torch.empty(values.numel(), device=values.device)
        for span, room, slot in zip(pieces(whole, sizes), rooms, slots.chunk(self.world), strict=True):
            self.codec.read(slot[:room], span)
        return whole


def settle(wanted: torch.Tensor, sent: torch.Tensor) -> None:
    """Leaves of what was wanted that which was not sent; nothing where that is no number."""
    no_others(wanted.sub_(sent))


def _waited(work: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor once what fills it is done."""
    work.wait()
    return tensor


def cut(values: int, world: int) -> list[int]:
    """Sizes of as many parts as there are ranks, about the same, each but the last a whole number of groups."""
    groups = -(-values // GROUP)
    ends = [min(groups * (rank + 1) // world * GROUP, values) for rank in range(world)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
