"""Operators under ``torch.ops.tenfold``, which ``torch.compile`` does not look into.

Each has a fake kernel that gives shape and dtype of the result without values. :func:`tenfold.torch.encode` and the
others call the operators only in compiled functions: direct calls are faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _native
from . import _codec
from ._tensors import name_of


@torch.library.custom_op("tenfold::decode_into", mutates_args=("out",))
def decode_into(blob: torch.Tensor, out: torch.Tensor) -> None:
    """Decodes a blob into a tensor."""
    _codec.decode(blob, out=out)


@torch.library.custom_op("tenfold::decode", mutates_args=())
def decode(blob: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Decodes a blob into a new tensor of a shape and dtype that the caller knows."""
    return _codec.decode(blob, shape=shape, dtype=dtype)


@decode.register_fake
def _(blob: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return blob.new_empty(shape, dtype=dtype)


@torch.library.custom_op("tenfold::decode_many", mutates_args=("outs",))
def decode_many(blobs: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> None:
    """Decodes blobs into tensors, one each."""
    _codec.decode_many(blobs, outs)


@torch.library.custom_op("tenfold::encode", mutates_args=())
def encode(
    tensor: torch.Tensor,
    goal: str,
    value: float | None = None,
    effort: str = "balanced",
    threads: int = 0,
    lane_values: int = 0,
) -> torch.Tensor:
    """Encodes a tensor; ``goal`` is the name of a goal and ``value`` its number."""
    options = _native.EncodeOptions(goal, value, effort, threads, lane_values)
    return _codec.encode_with(tensor, options)


@encode.register_fake
def _(
    tensor: torch.Tensor,
    goal: str,
    value: float | None = None,
    effort: str = "balanced",
    threads: int = 0,
    lane_values: int = 0,
) -> torch.Tensor:
    name_of(tensor.dtype)
    # The number of bytes depends on the values.
    size = torch.library.get_ctx().new_dynamic_size()
    return tensor.new_empty(size, dtype=torch.uint8)
