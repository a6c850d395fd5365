"""The caches that bench against each other: transformers' own, raw or fp8 in buffers that were allocated ahead, and tenfold's.

A layer of these buffers holds tokens in the order (token, head, column), so new tokens are written in place and cross the link in one
copy. On the host it is pinned, and the next layer is fetched while one computes: the best that raw bytes can do.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

FP8 = torch.float8_e4m3fn
FP8_MOST = torch.finfo(FP8).max

# What each kind is; those of the first set need CUDA.
NEED_CUDA = frozenset({"offloaded", "buffer-offloaded", "fp8-offloaded", "tenfold"})
KINDS = {
    "raw": "DynamicCache on the device",
    "offloaded": "DynamicCache(offloading=True): raw in pinned memory",
    "buffer": "raw on the device, in buffers allocated ahead",
    "buffer-offloaded": "the same in pinned memory; only new tokens go back",
    "fp8": "float8_e4m3fn on the device, cast to bf16 a layer at a time",
    "fp8-offloaded": "the same in pinned memory",
    "tenfold": "TenfoldCache, pages on the device",
    "tenfold-offloaded": "TenfoldCache, pages in pinned memory",
}


def make(kind: str, config: Any, room: int, **tenfold: Any) -> Cache:
    """An empty cache of a kind.

    Args:
        kind: one of `KINDS`.
        config: of the model.
        room: tokens that will be held.
        tenfold: arguments of `TenfoldCache`.
    """
    if kind == "raw":
        return DynamicCache(config=config)
    if kind == "offloaded":
        return Offloaded(config=config, offloading=True)
    if kind.startswith("tenfold"):
        from tenfold.transformers import TenfoldCache

        return TenfoldCache(config, effort="fast", offload=kind == "tenfold-offloaded", **tenfold)
    dtype = FP8 if kind.startswith("fp8") else torch.bfloat16
    belt = Belt() if kind.endswith("offloaded") else None
    return Cache(layers=[BufferLayer(room, dtype, belt) for _ in range(config.num_hidden_layers)])


def nbytes(cache: Any) -> int:
    """Bytes of the keys and values that a cache holds, wherever they are."""
    if hasattr(cache, "report"):
        report = cache.report()
        return int(report.compressed_bytes + report.exact_bytes)
    if isinstance(cache.layers[0], BufferLayer):
        return sum(layer.nbytes for layer in cache.layers)
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def fp8_scale(largest: float) -> float:
    """A power of two that brings magnitudes into the range of fp8: 1 if they are there, which saves a pass over all keys."""
    scale = 1.0
    while largest > scale * FP8_MOST / 2:
        scale *= 2
    return scale


class Offloaded(DynamicCache):
    """transformers' offloaded cache, whose copies wait for each other in all versions: before 5.22 or so a layer could be fetched before
    it had been written back, unless each step was waited for."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        self.prefetch_stream.wait_stream(torch.cuda.default_stream(key_states.device))
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)


class BufferLayer(DynamicLayer):
    """A layer in buffers that were allocated ahead. With a belt they are in pinned memory."""

    def __init__(self, room: int, stored: torch.dtype, belt: Belt | None) -> None:
        super().__init__()
        self.room, self.stored, self.belt = room, stored, belt
        self.length = 0
        # Keys and values, (1, token, head, column), and the scale of each.
        self.sides: list[torch.Tensor] = []
        self.scales: list[float] = []
        if belt is not None:
            belt.layers.append(self)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        where: dict[str, Any] = {"device": self.device} if self.belt is None else {"device": "cpu", "pin_memory": True}
        for states in (key_states, value_states):
            sequences, heads, _, columns = states.shape
            self.sides.append(torch.empty((sequences, self.room, heads, columns), dtype=self.stored, **where))
            self.scales.append(fp8_scale(float(states.abs().amax())) if self.stored == FP8 else 1.0)
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self.length, self.length + key_states.shape[2]
        new = [self._pack(states, scale) for states, scale in zip((key_states, value_states), self.scales)]
        if self.belt is not None and start == 0:
            # The context, which nobody attends to yet.
            for host, rows in zip(self.sides, new):
                host[:, :end].copy_(rows, non_blocking=True)
            self.length = end
            return key_states, value_states
        places = self.sides if self.belt is None else self.belt.bring(self)
        self.length = end
        for number, rows in enumerate(new):
            places[number][:, start:end] = rows
            if self.belt is not None:
                self.sides[number][:, start:end].copy_(places[number][:, start:end], non_blocking=True)
        return tuple(self._unpack(place[:, :end], scale) for place, scale in zip(places, self.scales))

    def get_seq_length(self) -> int:
        return self.length

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens that are held."""
        return sum(side[:, : self.length].nbytes for side in self.sides)

    def _pack(self, states: torch.Tensor, scale: float) -> torch.Tensor:
        rows = states.transpose(1, 2).contiguous()
        if self.stored != FP8:
            return rows
        return (rows if scale == 1 else rows / scale).clamp(-FP8_MOST, FP8_MOST).to(FP8)

    def _unpack(self, rows: torch.Tensor, scale: float) -> torch.Tensor:
        if self.stored == FP8:
            rows = rows.to(self.dtype)
            rows = rows if scale == 1 else rows.mul_(scale)
        return rows.transpose(1, 2)


class Belt:
    """Brings layers from pinned memory to one of two places on the device, the next one while the last one is in use."""

    def __init__(self) -> None:
        self.layers: list[BufferLayer] = []
        self._places: list[list[torch.Tensor]] = []
        self._turn = 0
        self._ahead: BufferLayer | None = None
        self._stream: Any = None

    def bring(self, layer: BufferLayer) -> list[torch.Tensor]:
        """Keys and values of a layer on the device, with room for more. They stay until the next layer but one is brought."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(layer.device)
            self._places = [
                [torch.empty(side.shape, dtype=side.dtype, device=layer.device) for side in layer.sides] for _ in range(2)
            ]
        if self._ahead is not layer:
            self._fetch(layer)
        torch.cuda.current_stream(layer.device).wait_stream(self._stream)
        places = self._places[self._turn]
        self._fetch(self.layers[(self.layers.index(layer) + 1) % len(self.layers)])
        return places

    def _fetch(self, layer: BufferLayer) -> None:
        self._turn = 1 - self._turn
        # What was there has been read, and what is fetched has been written back, when all that is queued is done.
        self._stream.wait_stream(torch.cuda.current_stream(layer.device))
        with torch.cuda.stream(self._stream):
            for place, host in zip(self._places[self._turn], layer.sides):
                place[:, : layer.length].copy_(host[:, : layer.length], non_blocking=True)
        self._ahead = layer
