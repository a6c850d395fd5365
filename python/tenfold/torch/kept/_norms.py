"""Root mean square norms of one token in one kernel: models in Python spend eight on each, while little of the device is free."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import rms_norm

from .. import _device
from ._held import Uncopied

_DTYPES = (torch.bfloat16, torch.float16)
# How far results may differ, next to the largest one: these round once, models twice.
_NEAR = 0.02


class Norm(Uncopied):
    """Stands before the ``forward`` of a norm, and takes over where its input is one vector on a CUDA device."""

    def __init__(self, module: nn.Module, epsilon: float) -> None:
        self._module, self._forward, self._epsilon = module, module.forward, epsilon
        functools.update_wrapper(self, self._forward)
        module.forward = self  # type: ignore[method-assign]

    def remove(self) -> None:
        """Takes itself away."""
        self._module.__dict__.pop("forward", None)

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        weight = self._module.weight
        if kwargs or len(args) != 1 or not _suits(args[0], weight):
            result: torch.Tensor = self._forward(*args, **kwargs)
            return result
        return rms_norm(args[0], weight.shape, weight, self._epsilon)


def norms(parts: Iterable[nn.Module]) -> list[Norm]:
    """Puts a norm of ours before each of these parts of a model that is one."""
    found = {id(child): child for part in parts for child in part.modules() if type(child).__name__.endswith("RMSNorm")}
    # Torch's own takes one kernel as it is.
    others = [child for child in found.values() if type(child) is not nn.RMSNorm and "forward" not in child.__dict__]
    with_epsilon = [(child, _epsilon(child)) for child in others]
    return [Norm(child, epsilon) for child, epsilon in with_epsilon if epsilon is not None and _agrees(child, epsilon)]


def _epsilon(module: nn.Module) -> float | None:
    found = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return found if isinstance(found, float) else None


def _agrees(module: nn.Module, epsilon: float) -> bool:
    """Whether it computes what its name says: some models add one to the weight, or norm parts."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 1 or weight.dtype not in _DTYPES or weight.is_meta:
        return False
    with torch.no_grad():
        row = torch.linspace(-1, 2, weight.shape[0], dtype=torch.float32, device=weight.device).to(weight.dtype)
        expected, found = module(row).float(), rms_norm(row, weight.shape, weight, epsilon).float()
        most = _NEAR * expected.abs().max()
        return bool(expected.shape == found.shape and ((expected - found).abs() <= most).all())


def _suits(input: Any, weight: torch.Tensor) -> bool:
    return (
        isinstance(input, torch.Tensor)
        and input.dtype in _DTYPES
        and input.ndim > 0
        and input.numel() == input.shape[-1] == weight.shape[0]
        and _device.is_ours(input.device)
        and weight.dtype == input.dtype
        and weight.device == input.device
        and not torch.is_autocast_enabled()
    )
