"""Linear layers that work on one token: a kernel of ours multiplies, on the multiprocessors that decoding leaves over."""

from __future__ import annotations

import functools

import torch
from torch import nn

from .. import _cuda, _device
from ._held import Held, Uncopied

_DTYPES = (torch.bfloat16, torch.float16)
# Columns of a matrix for which the smallest devices have room.
_WIDEST = 32000


class Product(Uncopied):
    """Stands before the ``forward`` of a linear layer, and takes over where its input is one vector on a CUDA device."""

    def __init__(self, module: nn.Linear) -> None:
        self._module, self._forward = module, module.forward
        functools.update_wrapper(self, self._forward)
        module.forward = self  # type: ignore[method-assign]

    def remove(self) -> None:
        """Takes itself away."""
        self._module.__dict__.pop("forward", None)

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        weight, bias = self._module.weight, self._module.bias
        if not _suits(input, weight, bias):
            return self._forward(input)
        out = torch.empty(*input.shape[:-1], weight.shape[0], dtype=input.dtype, device=input.device)
        _cuda.multiply(weight, input, bias, out)
        return out


def products(held: list[Held]) -> list[Product]:
    """Puts a product before each linear layer whose weight is held."""
    # Subclasses and layers that someone else wrapped have their own ideas of what forward is.
    plain = {id(one.module): one.module for one in held if one.attribute == "weight" and type(one.module) is nn.Linear}
    return [Product(module) for module in plain.values() if "forward" not in module.__dict__]


def _suits(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    columns = weight.shape[-1]
    return (
        isinstance(input, torch.Tensor)
        and input.dtype in _DTYPES
        and input.ndim > 0
        and input.numel() == input.shape[-1] == columns
        and _device.is_ours(input.device)
        and weight.device == input.device
        and all(one is None or one.dtype == input.dtype for one in (weight, bias))
        and columns % 8 == 0
        and columns <= _WIDEST
        and all(one.is_contiguous() and one.data_ptr() % 16 == 0 for one in (input, weight))
        and not torch.is_autocast_enabled()
    )
