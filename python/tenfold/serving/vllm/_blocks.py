"""Blocks of vLLM's cache, read and written as keys and values of tokens.

The attention backend decides where in a block a number lies: CPU kernels pack keys and values for their instructions,
others keep rows. So the backend once stores numbers that name their own place, and where they end up shows how to read
blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..._errors import UnsupportedError
from ...torch import _device
from ...torch._pools import DTYPES
from .._streams import Streams, streams_of
from ._shape import Shape

# Numbers that every dtype of a cache stores exactly, from 1 on; 0 is where nothing was stored.
_DIGITS = 128

Pools = tuple[list[torch.Tensor], list[torch.Tensor]]
"""Keys and values: a tensor for each layer."""


class Blocks:
    """The cache of one worker.

    Args:
        shape: what it looks like.
        caches: vLLM's tensor for each layer: blocks × heads × tokens × content; of latent rows also without heads.
        layers: the attention layers, by name.
    """

    def __init__(self, shape: Shape, caches: Mapping[str, torch.Tensor], layers: Mapping[str, Any]) -> None:
        missing = [name for name in shape.layers if name not in caches]
        if missing or len(caches) != len(shape.layers):
            raise UnsupportedError(
                f"vLLM has caches for {len(caches)} layers, {len(shape.layers)} are known; "
                "layers that share a cache are not supported"
            )
        self._shape = shape
        self._caches = [caches[name] for name in shape.layers]
        if shape.latent:
            self._caches = [cache.unsqueeze(1) if cache.ndim == 3 else cache for cache in self._caches]
        first = self._caches[0]
        block = (shape.heads, shape.block, shape.head + shape.value_head)
        for name, cache in zip(shape.layers, self._caches, strict=True):
            if cache.ndim != 4 or tuple(cache.shape[1:]) != block or cache.dtype != first.dtype:
                found = f"{tuple(cache.shape[1:])} {cache.dtype}"
                raise UnsupportedError(f"{name} has blocks of {found}, {block} were expected")
            if type(layers[name].impl) is not type(layers[shape.layers[0]].impl):
                raise UnsupportedError("layers of this model use different attention backends")
        # For each number of a block as keys and values have it: where it lies. And the other way round.
        self._order = _order(shape, first, layers[shape.layers[0]])
        self._inverse = torch.empty_like(self._order)
        self._inverse[self._order] = torch.arange(len(self._order))
        self._streams = streams_of(first.device)

    @property
    def device(self) -> torch.device:
        """Where the cache is."""
        return self._caches[0].device

    @property
    def streams(self) -> Streams | None:
        """For loads and saves, if the cache is on a CUDA device."""
        return self._streams

    def pools_on_device(self) -> Pools | None:
        """Pools that a CUDA device makes pages of, and decodes them into. None if the host has to."""
        return self.pools() if self._streams is not None and self._caches[0].dtype in DTYPES else None

    def pools(self) -> Pools | None:
        """Keys and values of each layer as views of the cache: blocks × tokens × heads × columns. None if the backend does not keep
        rows."""
        if any(other.stride() != self._caches[0].stride() for other in self._caches):
            return None
        sides = torch.split(self._order, self._shape.sides)
        keys, values = (self._views(side, head) for side, head in zip(sides, (self._shape.head, self._shape.value_head), strict=True))
        return None if keys is None or values is None else (keys, values)

    def _views(self, places: torch.Tensor, columns: int) -> list[torch.Tensor] | None:
        """Keys or values of each layer, if a block has rows of them at regular places."""
        shape, cache = self._shape, self._caches[0]
        size = (shape.block, shape.heads, columns)
        head, token, column = torch.unravel_index(places.view(size), (shape.heads, shape.block, shape.head + shape.value_head))
        offsets = head * cache.stride(1) + token * cache.stride(2) + column * cache.stride(3)
        first = int(offsets[0, 0, 0])
        # From a token, a head and a column to the next; where there is one alone, anything will do.
        strides = [int(offsets.movedim(dim, 0)[:2].flatten(1)[-1, 0]) - first for dim in range(3)]
        rows = [torch.arange(count) * stride for count, stride in zip(size, strides, strict=True)]
        regular = first + rows[0].view(-1, 1, 1) + rows[1].view(-1, 1) + rows[2]
        if (strides[2] != 1 and columns > 1) or not torch.equal(offsets, regular):
            return None
        by = (cache.stride(0), strides[0], strides[1], 1)
        return [other.as_strided((len(cache), *size), by, other.storage_offset() + first) for other in self._caches]

    def slots(self, ids: Sequence[int]) -> list[int]:
        """Slots of some blocks' tokens in the pools."""
        block = self._shape.block
        return [number * block + token for number in ids for token in range(block)]

    @property
    def page_values(self) -> int:
        """Numbers of a page."""
        return len(self._caches) * self._shape.page * sum(self._shape.columns)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page before it is compressed."""
        return self.page_values * self._caches[0].element_size()

    def read(self, ids: Sequence[int]) -> list[torch.Tensor]:
        """Blocks as they are, one tensor for each layer, in the host's memory, whatever the engine does next."""
        index = torch.tensor(ids, device=self._caches[0].device)
        # To the host at once, and to keys and values later, on another thread.
        return [cache.index_select(0, index).cpu() for cache in self._caches]

    def rows(self, raw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the tokens of some blocks of a layer: tokens × columns."""
        tokens, columns = raw.shape[0] * self._shape.block, self._shape.columns
        keys, values = torch.split(raw.flatten(1)[:, self._order], self._shape.sides, dim=1)
        return keys.reshape(tokens, columns[0]), values.reshape(tokens, columns[1])

    def room(self) -> tuple[torch.Tensor, torch.Tensor]:
        """For keys and values of a page in one layer."""
        keys, values = (torch.empty((self._shape.page, columns), dtype=self._caches[0].dtype) for columns in self._shape.columns)
        return keys, values

    def clear(self, ids: Sequence[int]) -> None:
        """Puts zeros into blocks, on the engine's stream."""
        if ids:
            index = torch.tensor(ids, device=self.device)
            for cache in self._caches:
                cache.index_fill_(0, index, 0)

    def write(self, layer: int, ids: Sequence[int], keys: torch.Tensor, values: torch.Tensor) -> None:
        """Writes keys and values of some blocks' tokens; they are there when this returns."""
        raw = torch.cat([rows.reshape(len(ids), -1) for rows in (keys, values)], dim=1)[:, self._inverse]
        cache = self._caches[layer]
        raw = raw.view(len(ids), *cache.shape[1:])
        index = torch.tensor(ids)
        if self._streams is None:
            cache.index_copy_(0, index, raw)
            return
        with _device.on(self._streams.loads):
            cache.index_copy_(0, index.to(cache.device), raw.to(cache.device))
        self._streams.loads.synchronize()


def _order(shape: Shape, cache: torch.Tensor, layer: Any) -> torch.Tensor:
    """For each number of a block, in the order (keys or values, token, head, column): its place in the block."""
    count = sum(shape.sides)
    names = torch.arange(count)
    digits = 1
    while _DIGITS**digits < count:
        digits += 1
    found = torch.zeros(count, dtype=torch.long)
    for digit in range(digits):
        numbers = names // _DIGITS**digit % _DIGITS + 1
        stored = _stored(shape, cache, layer, numbers)
        if ((stored < 1) | (stored > _DIGITS) | (stored != stored.round())).any():
            raise _unknown(layer)
        found += (stored.long() - 1) * _DIGITS**digit
    if not torch.equal(found.sort().values, names):
        raise _unknown(layer)
    order = torch.empty_like(found)
    order[found] = names
    return order


def _stored(shape: Shape, cache: torch.Tensor, layer: Any, numbers: torch.Tensor) -> torch.Tensor:
    """A block in which an attention layer has stored some numbers."""
    block = torch.zeros_like(cache[:1])
    sides = torch.split(numbers.to(cache.device, cache.dtype), shape.sides)
    keys, values = (side.view(shape.block, shape.heads, -1) for side in sides)
    update = getattr(layer.impl, "do_kv_cache_update", None)
    if update is None:
        raise _unknown(layer)
    slots = torch.arange(shape.block, device=cache.device)
    if shape.latent:
        # Rows without heads, as vLLM's layers of latent attention have them.
        update(values.squeeze(1), keys, block.squeeze(1), slots, "auto", torch.ones((), device=cache.device))
    else:
        update(layer, keys, values, block, slots)
    return block.flatten().double().cpu()


def _unknown(layer: Any) -> UnsupportedError:
    return UnsupportedError(
        f"{type(layer.impl).__name__} does not keep keys and values as they are: TenfoldConnector "
        "cannot read this backend's cache"
    )
