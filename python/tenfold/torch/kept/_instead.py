"""What stands before the ``forward`` of a part of a model, and takes over where the part works on one token."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import nn

from .. import _device
from ._held import Uncopied

DTYPES = (torch.bfloat16, torch.float16)


class Instead(Uncopied, ABC):
    """Stands before a module's ``forward``; who inherits is what is called in its place."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._forward = module, module.forward
        functools.update_wrapper(self, self._forward)
        module.__dict__["forward"] = self

    def remove(self) -> None:
        """Takes itself away."""
        self._module.__dict__.pop("forward", None)

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What is called in place of the module's own."""


def is_vector_for(weight: Any, input: Any) -> bool:
    """Whether an input is one vector of 16-bit floats, on a device of ours, for a weight whose last dimension is its length."""
    return (
        isinstance(input, torch.Tensor)
        and isinstance(weight, torch.Tensor)
        and input.dtype in DTYPES
        and input.ndim > 0
        and input.numel() == input.shape[-1] == weight.shape[-1]
        and _device.is_ours(input.device)
        and weight.dtype == input.dtype
        and weight.device == input.device
        and not torch.is_autocast_enabled()
    )
