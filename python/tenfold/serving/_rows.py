"""Arrays and tensors of tokens × columns, whichever of the two they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy


def side_by_side(layers: Sequence[Any]) -> Any:
    """Joins the columns of several layers into one."""
    rows = [as_bits(layer) for layer in layers]
    room = room_like(layers[0], sum(row.shape[1] for row in rows))
    numpy.concatenate(rows, axis=1, out=as_bits(room))
    return room


def room_like(like: Any, columns: int) -> Any:
    """Allocates an array or tensor like this one with more columns."""
    shape = (like.shape[0], columns)
    return like.new_empty(shape) if hasattr(like, "new_empty") else numpy.empty(shape, like.dtype)


def as_bits(tensor: Any) -> Any:
    """Views an array or tensor as integers, tokens × columns: numpy has no bfloat16."""
    if hasattr(tensor, "new_empty"):
        import torch

        kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        tensor = tensor.detach().view(kinds[tensor.element_size()]).numpy()
    else:
        tensor = tensor.view(f"u{tensor.dtype.itemsize}")
    return tensor.reshape(tensor.shape[0], -1)


def count_values(tensor: Any) -> int:
    """How many numbers there are in it."""
    count = 1
    for extent in tensor.shape:
        count *= int(extent)
    return count
