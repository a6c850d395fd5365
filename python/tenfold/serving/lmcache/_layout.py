"""What an object of LMCache holds: tensors of several shapes in a row, as keys and values or as bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..._errors import UnsupportedError

Rows = list[torch.Tensor]


@dataclass(frozen=True)
class Part:
    """One tensor of an object.

    Two planes are keys and values, layers × tokens × columns each. One plane (MLA's latent rows, fused keys and values) is
    taken for keys in the first half of its columns and values in the second: nothing in LMCache says more of it. Where ``rotary`` columns at the
    end are known to be what positions turn, these are the keys and the others values.
    Anything else is bytes: recurrent states, indexers, caches of integers.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    # What its values are, where they are stored as bytes.
    values_are: torch.dtype
    rotary: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def values(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)

    @property
    def planes(self) -> int:
        """2 for keys and values, 1 for rows of one kind, 0 for what has no pages."""
        if not self.values_are.is_floating_point or self.values_are not in _CODED or self.values == 0:
            return 0
        if len(self.shape) == 4 and self.shape[0] in (1, 2):
            planes = self.shape[0]
        else:
            planes = 1 if len(self.shape) == 3 else 0
        return planes if planes == 2 or self.shape[-1] > 1 else 0

    @property
    def layers(self) -> int:
        """Of those that have pages."""
        return self.shape[-3]

    def rows(self, tensor: torch.Tensor) -> tuple[Rows, Rows]:
        """Keys and values of each layer, tokens × columns, in the tensor's memory where it has them so."""
        tensor = tensor.view(self.values_are)
        if self.planes == 2:
            return list(tensor[0]), list(tensor[1])
        keys, values = (tensor.view(self.shape[-3:])[..., side].contiguous() for side in self._sides)
        return list(keys), list(values)

    def empty(self, device: torch.device | None = None) -> torch.Tensor:
        """Room to decode into: as :meth:`join` takes it."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)

    def join(self, keys: Rows, values: Rows, into: torch.Tensor) -> None:
        """Puts decoded rows where they belong, if they are not there."""
        if self.planes == 1:
            whole = into.view(self.values_are).view(self.shape[-3:])
            # Of float8 torch copies slices only as bytes.
            plain = torch.uint8 if self.values_are.itemsize == 1 else self.values_are
            for side, rows in zip(self._sides, (keys, values), strict=True):
                whole.view(plain)[..., side] = torch.stack([layer.view(plain) for layer in rows])

    def describe(self) -> str:
        """For identities."""
        split = f" rotary={self.rotary}" if self.planes == 1 and self.rotary else ""
        return f"{'x'.join(map(str, self.shape))} {str(self.dtype).removeprefix('torch.')}{split}"

    @property
    def _sides(self) -> tuple[slice, slice]:
        """Columns of one plane that are keys, and those that are values."""
        if 0 < self.rotary < self.shape[-1]:
            before = self.shape[-1] - self.rotary
            return slice(before, None), slice(before)
        half = self.shape[-1] // 2
        return slice(half), slice(half, None)


_CODED = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32, torch.float64)
Layout = tuple[Part, ...]


def layout(shapes: Sequence[Any], dtypes: Sequence[torch.dtype], bytes_are: torch.dtype | None, rotary: int = 0) -> Layout:
    """Of shapes and dtypes, as a ``MemoryLayoutDesc`` has them; ``bytes_are``: what dtype uint8 stands for; ``rotary``: see :class:`Part`."""
    parts = []
    for shape, dtype in zip(shapes, dtypes, strict=True):
        values_are = bytes_are if dtype == torch.uint8 and bytes_are is not None else dtype
        parts.append(Part(tuple(int(extent) for extent in shape), dtype, values_are, rotary))
    return tuple(parts)


def tensors(memory: Any) -> Rows:
    """The tensors of a ``MemoryObj``."""
    if memory.metadata.shapes is None:
        found = [memory.tensor]
    else:
        found = [memory.get_tensor(index) for index in range(len(memory.metadata.shapes))]
    if any(tensor is None for tensor in found):
        raise UnsupportedError("the tenfold serde needs objects in memory, not in a GPU's files")
    return found


def flat_bytes(memory: Any) -> torch.Tensor:
    """The bytes of a ``MemoryObj`` that is a buffer of bytes."""
    tensor: torch.Tensor | None = memory.tensor
    if tensor is None:
        raise UnsupportedError("the tenfold serde needs buffers in memory, not in a GPU's files")
    return tensor.flatten().view(torch.uint8)
