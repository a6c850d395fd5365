"""Stages of ``torch.distributed.pipelining`` that send activations and their gradients compressed.

A stage tells its schedule which tensors to send and receive. Here these are slots: the stage fills them before they are
sent and decodes them before it computes. Schedules do not notice.
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

# A slot in flight, the tensor it is for, and how to decode it.
_Arrival = tuple[torch.Tensor, torch.Tensor, TensorCodec]
# For each group, the options of this rank's last pipeline and its stages so far.
_made: WeakKeyDictionary[dist.ProcessGroup, tuple[dict[str, Any], set[int]]] = WeakKeyDictionary()


class CompressedStage(PipelineStage):
    """A ``PipelineStage`` that compresses what it sends to its neighbours, for any schedule of torch.

    Every rank of the group makes the same number of stages of this class, with the same options. Gradients of
    activations take two layers: the compressed gradient, and its compressed error.

    Args:
        submodule: as in ``PipelineStage``, like the next three.
        stage_index: of this stage.
        num_stages: of the pipeline.
        device: of this stage.
        activation_bits: bits a value of activations; None sends them uncompressed.
        gradient_bits: bits a value of their gradients; None sends them uncompressed.
        residual_bits: bits a value of the second layer, the error of the compressed gradients; None leaves it out.
        round_after: training step from which residuals are rounded to nearest at 8 bits instead; None means never.
        effort: "fast", "balanced" or "best".
        threads: worker threads of the CPU; 0 uses all cores.
        options: all other arguments of ``PipelineStage``.

    Attributes:
        steps: training steps so far (runs of the schedule with a backward pass).
        sent: bytes that this stage has sent.
        raw: bytes of the tensors that it sent.

    Raises:
        ArgumentError: an argument is invalid, or another rank has other options or another version of tenfold.
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
        # Kept until the training step ends: nothing else may own what is being sent.
        self._leaving: list[torch.Tensor] = []

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint needs: the number of training steps, which decides on rounding."""
        return {"version": 1, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a checkpoint."""
        if state.get("version") != 1:
            raise ArgumentError("this is not a state of a compressed stage that this version can read")
        self.steps = int(state["steps"])

    def clear_runtime_states(self) -> None:
        """Called by schedules when a training step begins."""
        super().clear_runtime_states()
        self._arriving.clear()
        self._leaving.clear()
        # Evaluation has no gradients and does not count as a training step.
        self.steps += self.has_backward

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Returns the operations that send activations."""
        ops = super().get_fwd_send_ops(fwd_chunk_id)
        return [self._sent(op, self._boundary.activations(op.tensor), f"out {i}") for i, op in enumerate(ops)]

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Returns the operations that send gradients."""
        ops = super().get_bwd_send_ops(bwd_chunk_id)
        return [self._sent(op, self._gradients(op.tensor), f"in {i}") for i, op in enumerate(ops)]

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Returns the operations that receive activations."""
        ops = super().get_fwd_recv_ops(fwd_chunk_id)
        return self._expected(("forward", fwd_chunk_id), [(op, self._boundary.activations(op.tensor)) for op in ops])

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Returns the operations that receive gradients."""
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
        # Training steps are counted when they begin.
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
    """Returns the same operation with another tensor."""
    return dist.P2POp(op.op, tensor, op.peer, op.group, op.tag)


def _agree(group: dist.ProcessGroup | None, index: int, options: dict[str, Any]) -> None:
    """Compares the options of a stage with those of other ranks, and with this rank's other stages of the pipeline."""
    group = group or dist.group.WORLD
    assert group is not None  # a stage needs one
    agree(group, "a pipeline", options)
    made, others = _made.get(group, (options, set()))
    if index in others:
        # A second one of this number belongs to another pipeline.
        made, others = options, set()
    if made != options:
        raise ArgumentError(
            f"stage {index} compresses with {options}, but stage {min(others)} of the same rank with {made}; use the same options"
        )
    _made[group] = made, others | {index}
