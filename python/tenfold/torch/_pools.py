"""Paged pools as serving engines keep them: tensors of blocks, where a token's slot is in them, and what is wrong with either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._errors import ArgumentError, DtypeError
from . import _device
from ._tensors import name_of

if TYPE_CHECKING:
    from ..kv import PageCodec

# What memory of the engine starts at a multiple of.
_ALIGN = 256
# Memory of layers, their counts, their strides and their dtype, as the native module takes them.
Pool = tuple[list[tuple[int, int]], tuple[int, int, int, int], tuple[int, int, int], str]
# What a device codes pages of.
DTYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)


def tokens_of(pool: torch.Tensor, slots: np.ndarray) -> torch.Tensor:
    """Rows of some slots, on the host."""
    rows = as_bits(pool)[places_in(pool, torch.from_numpy(slots).to(pool.device))]
    return rows.flatten(1).contiguous().cpu().view(pool.dtype)


def as_bits(pool: torch.Tensor) -> torch.Tensor:
    """A pool as torch moves its elements: it does not index all floats of eight bits."""
    return pool.view(torch.uint8) if pool.element_size() == 1 else pool


def places_in(pool: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Where slots are in a pool."""
    block = per_block(pool)
    return (slots // block, slots % block) if pool.dim() == 4 else (slots,)


def per_block(pool: torch.Tensor) -> int:
    """Slots of a block."""
    return pool.shape[1] if pool.dim() == 4 else 1


def columns_of(pool: torch.Tensor) -> int:
    """Columns of a token in a pool, all heads side by side."""
    return pool[0].numel() // per_block(pool)


def check_pools(codec: PageCodec, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    if len(keys) != codec.layers or len(values) != codec.layers:
        raise ArgumentError(f"a page has {codec.layers} layers; {len(keys)} pools of keys and {len(values)} of values were given")
    for pool in (*keys, *values):
        if not isinstance(pool, torch.Tensor) or not 2 <= pool.dim() <= 4 or pool.stride(-1) != 1:
            raise ArgumentError(
                "a pool is a tensor of (blocks, slots, heads, columns), (slots, heads, columns) or (slots, columns), with columns side by side"
            )
        if pool.device != keys[0].device:
            raise ArgumentError(f"a pool is on {pool.device}, but others are on {keys[0].device}")
        if pool.shape[:-2] != keys[0].shape[:-2] or pool.dim() != keys[0].dim() or pool.shape[0] != keys[0].shape[0]:
            raise ArgumentError("all pools must have the same blocks and slots")
        if _device.is_ours(pool.device) and (pool.dtype not in DTYPES or pool.dtype != keys[0].dtype):
            known = ", ".join(map(str, DTYPES))
            raise DtypeError(f"a device codes pages of pools that all have one of {known}, not {pool.dtype}; use pools on the CPU")


def slots_of(slots: Any) -> np.ndarray:
    """Slots of tokens as numbers on the host; −1 for tokens that go nowhere."""
    found = numbers_of(slots, 1, "slots are a list of whole numbers, one for each token")
    if found.size and found.min() < -1:
        raise ArgumentError("slots are not negative, but for -1: a token that goes nowhere")
    used = found[found >= 0]
    if _repeats(used):
        raise ArgumentError("two tokens have the same slot")
    return found


def _repeats(numbers: np.ndarray) -> bool:
    """Whether a number is there twice."""
    if len(numbers) == 0 or bool((np.diff(numbers) > 0).all()):
        return False
    ordered = np.sort(numbers)
    return bool((ordered[1:] == ordered[:-1]).any())


def numbers_of(given: Any, dimensions: int, why: str) -> np.ndarray:
    """Whole numbers on the host."""
    found = np.asarray(given.cpu() if isinstance(given, torch.Tensor) else given)
    if found.ndim != dimensions or found.dtype.kind not in "iu" and found.size:
        raise DtypeError(why)
    return np.ascontiguousarray(found, np.int64)


def check_range(most: int, pool: torch.Tensor) -> None:
    """Raises an error if a slot is beyond the pools."""
    count = pool.shape[0] * per_block(pool)
    if most >= count:
        raise ArgumentError(f"the pools have slots 0 to {count - 1}, and a token goes to {most}")


def check_count(slots: np.ndarray, tokens: int) -> None:
    if len(slots) != tokens:
        raise ArgumentError(f"the pages have {tokens} tokens, but there are {len(slots)} slots")


def describe(layers: Sequence[torch.Tensor]) -> Pool:
    """How layers lie in memory, and what they are, which must be the same for all of a group."""
    first = layers[0]
    if any(layer.stride() != first.stride() or layer.shape != first.shape for layer in layers):
        raise ArgumentError("pools of layers that are coded together must have the same shape and strides")
    size = first.element_size()
    shape, strides = list(first.shape), [size * stride for stride in first.stride()]
    if first.dim() == 2:
        shape.insert(1, 1)
        strides.insert(1, size * shape[-1])
    if first.dim() < 4:
        shape.insert(1, 1)
        strides.insert(1, strides[0])
    blocks, block, heads, columns = shape
    extent = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True)) + size
    memory = [(layer.data_ptr(), extent) for layer in layers]
    return memory, (blocks, block, heads, size * columns), (strides[0], strides[1], strides[2]), name_of(first.dtype)


def aligned(length: int, device: torch.device) -> torch.Tensor:
    room = torch.empty(length + _ALIGN, dtype=torch.uint8, device=device)
    start = -room.data_ptr() % _ALIGN
    return room[start : start + length]
