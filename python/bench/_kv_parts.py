"""A cache whose older tokens are pages on the device, and attention over it part by part.

A layer's keys and values are never decoded as a whole: a part of the tokens is decoded into a pool that all layers share, one token's query
attends to it, and the next part takes its place. What the parts say is joined as if there had been one softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from _kv_made import Made
from tenfold.kv import PageCodec
from tenfold.torch import _device

# Tokens of a page.
PAGE = 64
# Pages that are encoded at a time: what the device makes room for.
AT_ONCE = 64
# The name under which attention is known to transformers.
ATTENTION = "tenfold-parts"


@dataclass
class Rows:
    """Keys and values of the last tokens of a layer, exact: (token, head, column)."""

    keys: torch.Tensor
    values: torch.Tensor
    count: int = 0

    def add(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Appends tokens."""
        end = self.count + len(keys)
        self.keys[self.count : end], self.values[self.count : end] = keys, values
        self.count = end


class Part:
    """Pages of one layer that are decoded together."""

    def __init__(self, codec: PageCodec, pages: Sequence[bytes], device: torch.device) -> None:
        self.tokens = PAGE * len(pages)
        self._codec, self._slots = codec, torch.arange(self.tokens)
        self._staged = codec.stage(pages, self._slots, device) if _device.is_ours(device) else None
        self._pages = pages if self._staged is None else []

    @property
    def nbytes(self) -> int:
        """Bytes that stay in memory: pages, and on a device the slots of their tokens."""
        return sum(map(len, self._pages)) if self._staged is None else self._staged.nbytes

    def decode(self, keys: torch.Tensor, values: torch.Tensor) -> Any:
        """Decodes into pools. What it returns is to be checked later."""
        if self._staged is None:
            return self._codec.decode_blocks(self._pages, self._slots, [keys], [values])
        return self._staged.decode([keys], [values])


@dataclass
class Layer:
    """The pages of a layer, and its last tokens."""

    rows: Rows
    parts: list[Part] = field(default_factory=list)
    # Of pages alone.
    stored: int = 0


class PartedCache:
    """Keys and values of some layers. It stands where transformers has a cache, and attends itself.

    Args:
        made: what keys and values are made of.
        codecs: one for each layer, of one layer each.
        first: number of the first layer in the model.
        step: the quantiser's.
        part: tokens that are decoded at a time.
        room: tokens that may come after those that it is filled with.
    """

    def __init__(self, made: Made, codecs: Sequence[PageCodec], *, first: int, step: float, part: int, room: int) -> None:
        self._made, self._codecs, self._first, self._step = made, codecs, first, step
        self._pages, self._room = max(part // PAGE, 1), PAGE + room
        self.layers: list[Layer] = []
        self._pools = [torch.empty(0)] * 2
        # What the device has yet to say of the pages that were decoded last.
        self._loading: list[Any] = []

    def fill(self, tokens: int) -> None:
        """Fills the next layer with made-up tokens: whole pages, and what is left exact."""
        number, shape, device = len(self.layers), self._made.shape, self._made.device
        size = (self._room, shape.kv_heads, shape.head)
        layer = Layer(Rows(*(torch.empty(size, dtype=torch.bfloat16, device=device) for _ in range(2))))
        codec, pages = self._codecs[number], []
        both = zip(*(self._made.parts(self._first + number, side, tokens) for side in range(2)))
        for (start, keys), (_, values) in both:
            whole = len(keys) // PAGE * PAGE
            for slots in torch.arange(whole).view(-1, PAGE).split(AT_ONCE):
                positions = [start + int(row[0]) for row in slots]
                pages += codec.encode_blocks(slots, [keys], [values], positions=positions, step=self._step)
            layer.rows.add(keys[whole:], values[whole:])
        layer.parts = [Part(codec, pages[at : at + self._pages], device) for at in range(0, len(pages), self._pages)]
        layer.stored = sum(map(len, pages))
        if not self._pools[0].numel():
            most = max(part.tokens for part in layer.parts)
            self._pools = [torch.empty((most, *size[1:]), dtype=torch.bfloat16, device=device) for _ in range(2)]
        self.layers.append(layer)

    @property
    def nbytes(self) -> int:
        """Bytes of pages and exact tokens."""
        exact = sum(layer.rows.keys.nbytes + layer.rows.values.nbytes for layer in self.layers)
        return exact + sum(part.nbytes for layer in self.layers for part in layer.parts)

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pools that parts are decoded into."""
        return sum(pool.nbytes for pool in self._pools)

    @property
    def bits(self) -> float:
        """Bits a value of the pages."""
        values = 2 * self._made.shape.columns * sum(part.tokens for layer in self.layers for part in layer.parts)
        return 8 * sum(layer.stored for layer in self.layers) / values

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes a new token, (1, head, 1, column), as transformers hands it over."""
        self.layers[layer].rows.add(keys[0].transpose(0, 1), values[0].transpose(0, 1))
        return keys, values

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """What a token's query, (1, head, 1, column), finds in all tokens of a layer: (1, 1, head, column)."""
        held, heads = self.layers[layer], self._made.shape.kv_heads
        joined = Joined(scaling * query[0, :, 0].view(heads, -1, query.shape[-1]))
        for part in held.parts:
            self._loading.append(part.decode(*self._pools))
            joined.add(*(pool[: part.tokens] for pool in self._pools))
        joined.add(*(side[: held.rows.count] for side in (held.rows.keys, held.rows.values)))
        return joined.result().to(query.dtype).view(1, 1, query.shape[1], -1)

    def check(self) -> None:
        """Waits, and raises if a page was damaged since the last check."""
        for one in self._loading:
            one.check()
        self._loading = []

    def error(self, tokens: int) -> float:
        """Squared error of the first part of the first layer, over the squares of what it was made of."""
        part, error, square = self.layers[0].parts[0], 0.0, 0.0
        part.decode(*self._pools).check()
        for side, pool in enumerate(self._pools):
            for start, rows in self._made.parts(self._first, side, tokens):
                known = rows[: max(part.tokens - start, 0)].float()
                error += float((pool[start : start + len(known)].float() - known).square().sum())
                square += float(known.square().sum())
                if start + len(rows) >= part.tokens:
                    break
        return error / square


class Joined:
    """Attention of some queries, (head, query, column), to keys and values that come part by part."""

    def __init__(self, queries: torch.Tensor) -> None:
        self._queries = queries
        self._most: torch.Tensor | None = None

    def add(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Some more tokens, (token, head, column)."""
        scores = torch.matmul(self._queries, keys.permute(1, 2, 0)).float()
        most = scores.amax(-1, keepdim=True)
        weights = torch.exp(scores - most)
        total, found = weights.sum(-1, keepdim=True), torch.matmul(weights.to(values.dtype), values.transpose(0, 1)).float()
        if self._most is None:
            self._most, self._total, self._found = most, total, found
            return
        larger = torch.maximum(self._most, most)
        before, after = torch.exp(self._most - larger), torch.exp(most - larger)
        self._total, self._found = before * self._total + after * total, before * self._found + after * found
        self._most = larger

    def result(self) -> torch.Tensor:
        """The weighted mean of the values."""
        return self._found / self._total


def register() -> None:
    """Makes attention by parts known to transformers, under `ATTENTION`."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attention)


def _attention(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **kwargs: Any) -> Any:
    return module.cache.attend(module.layer_idx, query, kwargs["scaling"]), None
