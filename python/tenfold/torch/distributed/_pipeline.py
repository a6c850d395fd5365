"""Stages of ``torch.distributed.pipelining`` that send activations and their gradients compressed.

A stage tells its schedule which tensors to send and to receive. Here these are slots, which are filled before they are sent and
read before the stage works on what came; schedules need not know.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from ..._errors import ArgumentError
from ._agree import agree
from ._boundary import Boundary, Rates, TensorCodec, packed

# A slot that is under way, the tensor that it is for, and how to read it.
_Arrival = tuple[torch.Tensor, torch.Tensor, TensorCodec]
# Of each group, the options of this rank's last pipeline, and its stages so far.
_made: WeakKeyDictionary[dist.ProcessGroup, tuple[dict[str, Any], set[int]]] = WeakKeyDictionary()


class CompressedStage(PipelineStage):
    """A ``PipelineStage`` that compresses what it sends to its neighbours, for any schedule of torch.

    Every rank of the group makes as many stages of this class, with the same options. Gradients of activations take two layers: a
    compressed gradient, and what that leaves of it, compressed too.

    Args:
        submodule: as of ``PipelineStage``, like the three that follow.
        stage_index: of this stage.
        num_stages: of the pipeline.
        device: of this stage.
        activation_bits: bits a value of activations; None sends them as they are.
        gradient_bits: bits a value of their gradients; None sends them as they are.
        residual_bits: bits a value of what that leaves of gradients, added to them; None leaves it out.
        round_after: step of the training from which on residuals are rounded to nearest at 8 bits instead; None for never.
        effort: "fast", "balanced" or "best".
        threads: worker threads of the CPU; 0 takes all cores.
        options: all others of ``PipelineStage``.

    Attributes:
        steps: steps of the schedule with a backward pass so far.
        sent: bytes that this stage has sent.
        raw: bytes of the tensors that it sent.

    Raises:
        ArgumentError: an argument cannot work, or another rank has other options or another version of tenfold.
    """

    def __init__(
        self,
        submodule: torch.nn.Module,
        stage_index: int,
        num_stages: int,
        device: torch.device,
        *,
        activation_bits: float | None = 3.5,
        gradient_bits: float | None = 3.5,
        residual_bits: float | None = 3.5,
        round_after: int | None = None,
        effort: str = "fast",
        threads: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(submodule, stage_index, num_stages, device, **options)
        if gradient_bits is None:
            residual_bits = None
        rates = Rates(activation_bits, gradient_bits, residual_bits, round_after)
        self._boundary = Boundary(rates, effort, threads)
        _agree(self.group, stage_index, {"num_stages": num_stages, **vars(rates), "effort": effort})
        self.steps = 0
        self.sent = 0
        self.raw = 0
        self._arriving: dict[tuple[str, int], list[_Arrival]] = {}
        # Until the step is over: nobody else may hold what is being sent.
        self._leaving: list[torch.Tensor] = []

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs: the number of steps, which decides on rounding."""
        return {"version": 1, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint."""
        if state.get("version") != 1:
            raise ArgumentError("this is no state of a compressed stage that this version knows")
        self.steps = int(state["steps"])

    def clear_runtime_states(self) -> None:
        """Called by schedules when a step begins."""
        super().clear_runtime_states()
        self._arriving.clear()
        self._leaving.clear()
        # Evaluation has no gradients and is no step of the training.
        self.steps += self.has_backward

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Sends of activations."""
        ops = super().get_fwd_send_ops(fwd_chunk_id)
        return [self._sent(op, self._boundary.activations(op.tensor), f"out {i}") for i, op in enumerate(ops)]

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Sends of gradients."""
        ops = super().get_bwd_send_ops(bwd_chunk_id)
        return [self._sent(op, self._gradients(op.tensor), f"in {i}") for i, op in enumerate(ops)]

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Receipts of activations."""
        ops = super().get_fwd_recv_ops(fwd_chunk_id)
        return self._expected(("forward", fwd_chunk_id), [(op, self._boundary.activations(op.tensor)) for op in ops])

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Receipts of gradients."""
        ops = super().get_bwd_recv_ops(bwd_chunk_id)
        return self._expected(("backward", bwd_chunk_id), [(op, self._gradients(op.tensor)) for op in ops])

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        """Reads what came, and computes."""
        self._read(("forward", fwd_chunk_id))
        return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        """Reads what came, and computes."""
        self._read(("backward", bwd_chunk_id))
        return super().backward_one_chunk(bwd_chunk_id, *args, **options)

    def _gradients(self, tensor: torch.Tensor) -> TensorCodec | None:
        # Steps are counted when they begin.
        return self._boundary.gradients(tensor, self.steps - 1)

    def _sent(self, op: dist.P2POp, codec: TensorCodec | None, key: str) -> dist.P2POp:
        self.raw += op.tensor.nbytes
        if codec is None:
            self.sent += op.tensor.nbytes
            return op
        slot = packed(codec, op.tensor, key)
        self._leaving.append(slot)
        self.sent += slot.numel()
        return _with(op, slot)

    def _expected(self, key: tuple[str, int], ops: list[tuple[dist.P2POp, TensorCodec | None]]) -> list[dist.P2POp]:
        arrivals, made = [], []
        for op, codec in ops:
            if codec is None:
                made.append(op)
                continue
            slot = torch.empty(codec.room(op.tensor.numel()), dtype=torch.uint8, device=op.tensor.device)
            arrivals.append((slot, op.tensor, codec))
            made.append(_with(op, slot))
        self._arriving[key] = arrivals
        return made

    def _read(self, key: tuple[str, int]) -> None:
        for slot, tensor, codec in self._arriving.pop(key, []):
            codec.read(slot, tensor.detach())


def _with(op: dist.P2POp, tensor: torch.Tensor) -> dist.P2POp:
    """The same operation with another tensor."""
    return dist.P2POp(op.op, tensor, op.peer, op.group, op.tag)


def _agree(group: dist.ProcessGroup | None, index: int, options: dict[str, Any]) -> None:
    """Compares the options of a stage with those that other ranks make now, and with this rank's own of the same pipeline."""
    group = group or dist.group.WORLD
    assert group is not None  # a stage needs one
    agree(group, "a pipeline", options)
    made, others = _made.get(group, (options, set()))
    if index in others:
        # A second one of this number belongs to another pipeline.
        made, others = options, set()
    if made != options:
        raise ArgumentError(f"stage {index} compresses with {options}, stage {min(others)} of the same rank with {made}")
    _made[group] = made, others | {index}
