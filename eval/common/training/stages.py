"""A model cut into stages, side by side in one process: what a stage would send to its neighbours goes through a link."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from tenfold.torch.distributed._boundary import Boundary, Rates, TensorCodec, packed
from torch import nn

STAGES = 4


class Link(ABC):
    """What activations and their gradients become between two stages; counts bits."""

    def __init__(self) -> None:
        self.step = 0
        self.bits = {"activations": 0.0, "gradients": 0.0}
        self.values = {"activations": 0, "gradients": 0}

    def activations(self, values: torch.Tensor, cut: int) -> torch.Tensor:
        """What the next stage gets."""
        self.values["activations"] += values.numel()
        return self._activations(values, cut)

    def gradients(self, values: torch.Tensor, cut: int) -> torch.Tensor:
        """What the stage before gets."""
        self.values["gradients"] += values.numel()
        return self._gradients(values, cut)

    @abstractmethod
    def _activations(self, values: torch.Tensor, cut: int) -> torch.Tensor: ...

    @abstractmethod
    def _gradients(self, values: torch.Tensor, cut: int) -> torch.Tensor: ...

    def rates(self) -> dict[str, float]:
        """Bits a value that were sent, both ways."""
        return {f"{way[:-1]}_bits": self.bits[way] / max(self.values[way], 1) for way in self.bits}

    def through(self, codec: TensorCodec | None, values: torch.Tensor, way: str, cut: int) -> torch.Tensor:
        """A tensor by way of its slot, or as it is."""
        if codec is None:
            return self.plain(values, way)
        slot = packed(codec, values, str(cut))
        self.bits[way] += 8 * slot.numel()
        return codec.read(slot, torch.empty_like(values))

    def plain(self, values: torch.Tensor, way: str) -> torch.Tensor:
        """A tensor as it is."""
        self.bits[way] += 8 * values.nbytes
        return values


class Compressed(Link):
    """What `tenfold.torch.distributed.CompressedStage` sends."""

    def __init__(self, effort: str, threads: int, **rates: Any) -> None:
        super().__init__()
        stated = dict.fromkeys(("activation_bits", "gradient_bits", "residual_bits", "round_after")) | rates
        self._boundary = Boundary(Rates(**stated), effort, threads)

    def _activations(self, values: torch.Tensor, cut: int) -> torch.Tensor:
        return self.through(self._boundary.activations(values), values, "activations", cut)

    def _gradients(self, values: torch.Tensor, cut: int) -> torch.Tensor:
        return self.through(self._boundary.gradients(values, self.step), values, "gradients", cut)


class Rounded(Compressed):
    """Gradients rounded to nearest, with one scale for a tensor; activations as tenfold sends them."""

    def __init__(self, effort: str, threads: int, bits: int, **rates: Any) -> None:
        super().__init__(effort, threads, **rates)
        self._each, self._most = bits, 2 ** (bits - 1) - 1

    def _gradients(self, values: torch.Tensor, cut: int) -> torch.Tensor:
        self.bits["gradients"] += self._each * values.numel() + 32
        step = values.abs().amax() / self._most
        return torch.where(step > 0, (values / step).round() * step, values).to(values.dtype)


class _Crossing(torch.autograd.Function):
    """Identity, but for what a link does on the way there and back."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, link: Link, cut: int) -> torch.Tensor:
        ctx.link, ctx.cut = link, cut
        return link.activations(values, cut).view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.link.gradients(gradients[0], ctx.cut), None, None


class Cut(nn.Module):
    """The place between two stages. Judged without: a model is trained by a pipeline and used without one."""

    def __init__(self, link: Link, index: int) -> None:
        super().__init__()
        self._link, self._index = link, index

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """What the next stage gets."""
        if not self.training:
            return values
        crossed: torch.Tensor = _Crossing.apply(values, self._link, self._index)  # type: ignore[no-untyped-call]
        return crossed


def staged(model: nn.Sequential, link: Link, stages: int = STAGES) -> nn.Sequential:
    """A model with cuts between stages of about as many parts each."""
    parts = list(model)
    ends = [len(parts) * (stage + 1) // stages for stage in range(stages)]
    made: list[nn.Module] = []
    for index, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        made += [Cut(link, index - 1)] if index else []
        made += parts[start:end]
    return nn.Sequential(*made)
