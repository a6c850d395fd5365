"""Reduce-scatter of FSDP2 with compressed gradients. Parameters are gathered uncompressed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from ..._errors import ArgumentError
from ._agree import agree
from ._bucket import BucketCodec
from ._exchange import keep_unsent
from ._feedback import Residuals
from ._slot import LEAST, empty_slot


class ShardedGradients:
    """A reduce-scatter for one module of FSDP2. Made by :func:`register_fsdp`.

    Each rank sends every other rank the compressed gradients of that rank's shard; the receiver adds them up.
    """

    def __init__(self, codec: BucketCodec, feedback: bool) -> None:
        self._codec = codec
        self._feedback = feedback
        self._residuals = Residuals()
        self.sent = 0
        self.raw = 0

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Allocates memory for gradients and sums, as FSDP requests it."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Sums (or averages) gradients over ranks into each rank's shard."""
        if async_op:
            raise ArgumentError("compressed gradients are summed before this returns; leave out async_op")
        world, each = dist.get_world_size(group), output_tensor.numel()
        self.raw += input_tensor.nbytes
        mean = op == dist.ReduceOp.AVG
        if not mean and op != dist.ReduceOp.SUM:
            # Only NCCL applies FSDP's factors in the collective.
            raise ArgumentError(f"compressed gradients are summed or averaged, not reduced by {op}")
        if each < LEAST:
            self.sent += input_tensor.nbytes
            dist.reduce_scatter_tensor(output_tensor, input_tensor, op=op, group=group)
            return None
        values = input_tensor
        if self._feedback:
            values = self._residuals.view(["all"], [values.numel()], values.device).add_(values)
        room = self._codec.room(each)
        out = empty_slot(world * room, values.device)
        for part, (span, slot) in enumerate(zip(values.chunk(world), out.chunk(world), strict=True)):
            self._codec.fill(span, slot, str(part))
        slots = torch.empty_like(out)
        dist.all_to_all_single(slots, out, group=group)
        self.sent += (world - 1) * room
        one = torch.empty(each, device=values.device)
        if self._feedback:
            for span, slot in zip(values.chunk(world), out.chunk(world), strict=True):
                keep_unsent(span, self._codec.read(slot, one))
        total = torch.zeros(each, device=values.device)
        for slot in slots.chunk(world):
            # This rank's own slot too: unrounded, it would weigh more than the others.
            total += self._codec.read(slot, one)
        output_tensor.copy_(total.div_(world) if mean else total)
        return None

    def state_dict(self) -> dict[str, Any]:
        """The residual of this rank."""
        return {"version": 1, "residuals": {name: r.clone() for name, r in self._residuals.by_name().items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the residual from a checkpoint."""
        if state.get("version") != 1:
            raise ArgumentError("this is not a state of sharded gradients that this version can read")
        self._residuals.clear()
        self._residuals.add(state["residuals"])


def register_fsdp(
    model: FSDPModule, *, bits: float = 2.6, error_feedback: bool = False, effort: str = "fast", threads: int = 0
) -> dict[str, ShardedGradients]:
    """Compresses the gradients of a model that ``fully_shard`` was applied to. All ranks call it, with the same arguments.

    Args:
        model: the outermost sharded module.
        bits: bits a value of what a rank sends; 0.8 to 4 make sense.
        error_feedback: whether to add the rounding error to the gradients of the next iteration. It takes four bytes a
            parameter of the whole model on every rank, which sharding is meant to save.
        effort: ``"fast"``, ``"balanced"`` or ``"best"``.
        threads: worker threads of the CPU; 0 uses all cores.

    Returns:
        The reduce-scatter of each sharded module, by its name, with ``state_dict`` for checkpoints.
    """
    asked = {"bits": bits, "error_feedback": error_feedback, "effort": effort}
    world = dist.group.WORLD
    if world is None:
        raise ArgumentError("there is no process group; call torch.distributed.init_process_group first")
    agree(world, "sharded gradients", asked)
    made = {}
    for name, module in _sharded(model):
        made[name] = ShardedGradients(BucketCodec(bits, effort, threads), error_feedback)
        module.set_custom_reduce_scatter(made[name])  # type: ignore[arg-type] # torch asks for the two methods only
    if not made:
        raise ArgumentError("the model has no sharded module; apply fully_shard first")
    return made


def _sharded(model: Any) -> Iterator[tuple[str, FSDPModule]]:
    return ((name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule))
