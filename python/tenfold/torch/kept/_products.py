"""Linear layers that work on one token: a kernel of ours multiplies, on the multiprocessors that decoding leaves over."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .. import _cuda
from ._held import Held
from ._instead import Instead, is_vector_for

# Columns of a matrix for which the smallest devices have room.
_WIDEST = 32000


class Product(Instead):
    """A linear layer of one vector, by our kernel."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        weight: Any = self._module.weight
        bias: Any = self._module.bias
        if kwargs or len(args) != 1 or not _suits(args[0], weight, bias):
            return self._forward(*args, **kwargs)
        (vector,) = args
        out = torch.empty(*vector.shape[:-1], weight.shape[0], dtype=vector.dtype, device=vector.device)
        _cuda.multiply(weight, vector, bias, out)
        return out


def products(held: list[Held]) -> list[Product]:
    """Puts a product before each linear layer whose weight is held."""
    # Subclasses and layers that someone else wrapped have their own ideas of what forward is.
    plain = {id(one.module): one.module for one in held if one.attribute == "weight" and type(one.module) is nn.Linear}
    return [Product(module) for module in plain.values() if "forward" not in module.__dict__]


def _suits(vector: Any, weight: Any, bias: Any) -> bool:
    return (
        is_vector_for(weight, vector)
        and (bias is None or bias.dtype == vector.dtype)
        and weight.shape[-1] % 8 == 0
        and weight.shape[-1] <= _WIDEST
        and all(one.is_contiguous() and one.data_ptr() % 16 == 0 for one in (vector, weight))
    )
