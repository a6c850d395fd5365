"""Root mean square norms of one token in one kernel: models in Python spend eight on each, while little of the device is free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import rms_norm

from .. import _device
from ._instead import DTYPES, Instead, is_vector_for

# How far results may differ, next to the largest one: these round once, models twice.
_NEAR = 0.02


class Norm(Instead):
    """A norm of one vector, by torch's kernel, if the module computes what its name says."""

    def __init__(self, module: nn.Module, epsilon: float) -> None:
        super().__init__(module)
        self._epsilon = epsilon
        # Known once the module has its weight, which may be a blob until it runs.
        weight: Any = getattr(module, "weight", None)
        self._agrees: bool | None = _agrees(self._forward, weight, epsilon) if _is_known(weight) else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        weight: Any = getattr(self._module, "weight", None)
        if kwargs or len(args) != 1 or not is_vector_for(weight, args[0]) or weight.ndim != 1:
            return self._forward(*args, **kwargs)
        if self._agrees is None and not _device.is_capturing():
            self._agrees = _agrees(self._forward, weight, self._epsilon)
        return rms_norm(args[0], weight.shape, weight, self._epsilon) if self._agrees else self._forward(*args)


def norms(model: nn.Module) -> list[Norm]:
    """Puts a norm of ours before each part of a model that is one."""
    found = [child for child in model.modules() if type(child).__name__.endswith("RMSNorm")]
    # Torch's own takes one kernel as it is.
    others = [child for child in found if type(child) is not nn.RMSNorm and "forward" not in child.__dict__]
    with_epsilon = [(child, _epsilon(child)) for child in others]
    return [Norm(child, epsilon) for child, epsilon in with_epsilon if epsilon is not None]


def _epsilon(module: nn.Module) -> float | None:
    found = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return found if isinstance(found, float) else None


def _is_known(weight: Any) -> bool:
    return isinstance(weight, torch.Tensor) and weight.ndim == 1 and weight.dtype in DTYPES and not weight.is_meta


def _agrees(forward: Callable[..., torch.Tensor], weight: torch.Tensor, epsilon: float) -> bool:
    """Whether a module's ``forward`` is a norm with these numbers: some models add one to the weight, or norm parts."""
    with torch.no_grad():
        row = torch.linspace(-1, 2, weight.shape[0], dtype=torch.float32, device=weight.device).to(weight.dtype)
        expected, found = forward(row).float(), rms_norm(row, weight.shape, weight, epsilon).float()
        most = _NEAR * expected.abs().max()
        return bool(expected.shape == found.shape and ((expected - found).abs() <= most).all())
