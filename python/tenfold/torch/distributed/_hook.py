"""A communication hook of DistributedDataParallel: buckets of gradients, compressed, exchanged and averaged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from ... import __version__
from ..._errors import ArgumentError
from . import _slots

_EXCHANGES = ("gather", "scatter")
# Its name since torch 2.13, and before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class GradientHook:
    """What a rank knows of the exchange: rate, residuals of error feedback, and bytes sent so far.

    Made by :func:`register`.
    """

    def __init__(
        self,
        names: dict[int, str],
        group: dist.ProcessGroup | None,
        *,
        bits: float,
        exchange: str,
        error_feedback: bool,
        effort: str,
        threads: int,
    ) -> None:
        if not 0.1 <= bits <= 32:
            raise ArgumentError(f"bits are 0.1 to 32 a value, not {bits}")
        if exchange not in _EXCHANGES:
            raise ArgumentError(f"exchange is one of {', '.join(_EXCHANGES)}, not {exchange!r}")
        self._names = names
        self._group = group
        self._world = dist.get_world_size(group)
        self._rank = dist.get_rank(group)
        self.bits = bits
        self.exchange = exchange
        self.error_feedback = error_feedback
        self._effort = effort
        self._threads = threads
        self._residuals: dict[str, torch.Tensor] = {}
        # What the owner of a part owes to all: the part's average is rounded too.
        self._owed: dict[str, torch.Tensor] = {}
        self.sent = 0
        self.raw = 0
        # One after the other: every rank has its buckets in the same order.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="tenfold-gradients")

    def state_dict(self) -> dict[str, Any]:
        """Residuals, by the names of parameters: they belong into a checkpoint."""
        return {
            "version": 1,
            "residuals": {name: r.clone() for name, r in self._residuals.items()},
            "owed": {name: r.clone() for name, r in self._owed.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes residuals of a checkpoint."""
        if state.get("version") != 1:
            raise ArgumentError("this is no state of a gradient hook that this version knows")
        unknown = set(state["residuals"]) - set(self._names.values())
        if unknown:
            raise ArgumentError(f"the state has residuals of parameters that the model lacks: {', '.join(sorted(unknown)[:3])}")
        self._residuals = {name: r.clone() for name, r in state["residuals"].items()}
        self._owed = {name: r.clone() for name, r in state["owed"].items()}

    def __call__(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Exchanges a bucket; the future has the average."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        gradients, names = bucket.buffer(), [self._names[id(p)] for p in bucket.parameters()]
        sizes = [g.numel() for g in bucket.gradients()]

        def work() -> None:
            try:
                future.set_result(self._average(gradients, names, sizes))
            except BaseException as error:  # noqa: BLE001 - whatever it is, DDP must hear of it
                future.set_exception(error)

        if gradients.is_cuda:
            # In place: the stream has the order.
            work()
        else:
            self._worker.submit(work)
        return future

    def _average(self, gradients: torch.Tensor, names: list[str], sizes: list[int]) -> torch.Tensor:
        values = gradients.numel()
        self.raw += gradients.nbytes
        if values < _slots.LEAST * self._world:
            self.sent += gradients.nbytes
            dist.all_reduce(gradients, group=self._group)
            return gradients.div_(self._world)
        wanted = gradients
        if self.error_feedback:
            wanted = gradients + self._residual(gradients, names, sizes)
        average, mine = (self._gathered if self.exchange == "gather" else self._scattered)(wanted, names)
        if self.error_feedback:
            # What is not finite has no residual.
            left = torch.where(torch.isfinite(wanted), wanted - mine, torch.zeros_like(wanted))
            for name, part in zip(names, left.split(sizes), strict=True):
                self._residuals[name] = part.clone()
        gradients.copy_(average)
        return gradients

    def _residual(self, gradients: torch.Tensor, names: list[str], sizes: list[int]) -> torch.Tensor:
        zeros = gradients.new_zeros
        return torch.cat([
            self._residuals[name].to(gradients) if name in self._residuals else zeros(size)
            for name, size in zip(names, sizes, strict=True)
        ])

    def _gathered(self, wanted: torch.Tensor, _: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Every rank's blob to every rank."""
        room = _slots.slot_bytes(wanted.numel(), self.bits)
        slot = torch.empty(room, dtype=torch.uint8, device=wanted.device)
        _slots.fill(wanted, slot, self._effort, self._threads)
        slots = torch.empty(self._world * room, dtype=torch.uint8, device=wanted.device)
        _all_gather(slots, slot, group=self._group)
        self.sent += room
        return self._mean(slots, wanted)

    def _mean(self, slots: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The average of all slots, and what this rank's own has become."""
        total, mine, one = torch.zeros_like(like), torch.empty_like(like), torch.empty_like(like)
        for rank, slot in enumerate(slots.chunk(self._world)):
            out = mine if rank == self._rank else one
            total += _slots.read(slot, out, self._threads)
        return total.div_(self._world), mine

    def _scattered(self, wanted: torch.Tensor, names: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """A part of the bucket to each rank, which averages it; the averages to all."""
        values, world = wanted.numel(), self._world
        each = -(-values // world)
        parts = torch.nn.functional.pad(wanted, (0, each * world - values)).view(world, each)
        room = _slots.slot_bytes(each, self.bits)
        out = torch.empty(world, room, dtype=torch.uint8, device=wanted.device)
        mine = torch.empty_like(parts)
        for part, slot, back in zip(parts, out, mine, strict=True):
            _slots.fill(part.contiguous(), slot, self._effort, self._threads)
            _slots.read(slot, back, self._threads)
        slots = torch.empty_like(out)
        dist.all_to_all_single(slots.view(-1), out.view(-1), group=self._group)
        average, _ = self._mean(slots.view(-1), parts[0])
        key = names[0]
        if self.error_feedback and key in self._owed and self._owed[key].numel() == each:
            average += self._owed[key].to(average)
        slot = torch.empty(room, dtype=torch.uint8, device=wanted.device)
        _slots.fill(average, slot, self._effort, self._threads)
        if self.error_feedback:
            left = average - _slots.read(slot, torch.empty_like(average), self._threads)
            self._owed[key] = torch.where(torch.isfinite(left), left, torch.zeros_like(left))
        all_slots = torch.empty(world * room, dtype=torch.uint8, device=wanted.device)
        _all_gather(all_slots, slot, group=self._group)
        self.sent += room * (world - 1) + room
        whole = torch.empty_like(parts)
        for slot, back in zip(all_slots.chunk(world), whole, strict=True):
            _slots.read(slot, back, self._threads)
        return whole.view(-1)[:values], mine.view(-1)[:values]


def register(
    model: torch.nn.parallel.DistributedDataParallel,
    *,
    bits: float = 2.6,
    exchange: str = "gather",
    error_feedback: bool = True,
    effort: str = "fast",
    threads: int = 0,
) -> GradientHook:
    """Compresses the gradients that a model's ranks exchange. All ranks call it, with the same arguments.

    Args:
        model: wrapped in DistributedDataParallel, without a hook so far.
        bits: bits a value of what each rank sends of a bucket; 0.8 to 4 make sense.
        exchange: ``"gather"``: each rank's blob goes to all. ``"scatter"``: each rank averages a part of the bucket and sends that on,
            which takes less of the link for more than two ranks, and rounds twice.
        error_feedback: whether what rounding leaves is added to the next step's gradients.
        effort: ``"fast"`` or ``"balanced"``.
        threads: worker threads of the CPU; 0 takes all cores.
    """
    group = model.process_group
    names = {id(p): name for name, p in model.module.named_parameters()}
    hook = GradientHook(
        names, group, bits=bits, exchange=exchange, error_feedback=error_feedback, effort=effort, threads=threads
    )
    mine = (__version__, bits, exchange, error_feedback, effort)
    said: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, mine, group=group)
    for rank, other in enumerate(said):
        if other != said[0]:
            raise ArgumentError(
                f"rank {rank} compresses gradients by {other}, rank 0 by {said[0]} (version, bits, exchange, error feedback, "
                "effort): all ranks must agree"
            )
    model.register_comm_hook(hook, _exchange)
    return hook


# Without annotations: DDP compares them with types, and here they are text.
def _exchange(state, bucket):  # type: ignore[no-untyped-def]
    return state(bucket)
