"""Averages over ranks of gradients that each rank sends compressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from ..._errors import ArgumentError
from ._bucket import GROUP, BucketCodec
from ._feedback import Residuals, pieces
from ._slot import LEAST, empty_slot

EXCHANGES = ("gather", "scatter")
# Its name since torch 2.13, and before.
_all_gather: Callable[..., object] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


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
        self.sent = 0
        self.raw = 0

    def average(self, gradients: torch.Tensor, names: Sequence[str], sizes: Sequence[int]) -> torch.Tensor:
        """Replaces gradients that lie one after the other by their average over all ranks; all ranks get the same bits."""
        self.raw += gradients.nbytes
        if gradients.numel() < LEAST * self.world:
            self.sent += gradients.nbytes
            dist.all_reduce(gradients, group=self.group)
            return gradients.div_(self.world)
        if not self.feedback:
            return gradients.copy_(self._exchanged(gradients, None, names))
        wanted = self.residuals.of(names, sizes, gradients.device).add_(gradients)
        sent = torch.empty_like(wanted)
        gradients.copy_(self._exchanged(wanted, sent, names))
        settle(wanted, sent)
        return gradients

    def _exchanged(self, values: torch.Tensor, sent: torch.Tensor | None, names: Sequence[str]) -> torch.Tensor:
        """The average; `sent`, where it is wanted, becomes what this rank's values are to the others."""
        key = f"{names[0]}…{names[-1]}"
        return (self._gathered if self._kind == "gather" else self._scattered)(values, sent, key)

    def _gathered(self, values: torch.Tensor, sent: torch.Tensor | None, key: str) -> torch.Tensor:
        room = self.codec.room(values.numel())
        slot = empty_slot(room, values.device)
        self.codec.fill(values, slot, key)
        slots = torch.empty(self.world * room, dtype=torch.uint8, device=values.device)
        _all_gather(slots, slot, group=self.group)
        self.sent += room
        return self._mean(slots, values.numel(), sent)

    def _mean(self, slots: torch.Tensor, values: int, sent: torch.Tensor | None) -> torch.Tensor:
        """The average of all slots, added in the order of ranks."""
        total = torch.zeros(values, device=slots.device)
        one = torch.empty_like(total)
        for rank, slot in enumerate(slots.chunk(self.world)):
            total += self.codec.read(slot, sent if sent is not None and rank == self.rank else one)
        return total.div_(self.world)

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
        average = self._mean(slots, mine, None)
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
    torch.nan_to_num_(wanted.sub_(sent), nan=0.0, posinf=0.0, neginf=0.0)


def cut(values: int, world: int) -> list[int]:
    """Sizes of as many parts as there are ranks, about the same, each but the last a whole number of groups."""
    groups = -(-values // GROUP)
    ends = [min(groups * (rank + 1) // world * GROUP, values) for rank in range(world)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
