"""Pages of a cache: tokens of a group of layers, one blob for each sequence.

A layer has a list of pages of its own, so it can be cut and reordered by itself; the blobs are shared by all layers of a group
and by all sequences that were copied from one another.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from .._errors import ArgumentError
from ..kv import PageCodec

if TYPE_CHECKING:
    from ._cache_layer import PagedLayer

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Plan:
    """Which tokens are compressed, and how many at a time."""

    sinks: int
    window: int
    page: int


@dataclass(frozen=True)
class Page:
    """Consecutive tokens of all sequences."""

    blobs: tuple[bytes, ...]
    # In each blob.
    tokens: int
    # From the first on; the others have been cropped.
    kept: int

    def select(self, sequences: Sequence[int]) -> Page:
        return replace(self, blobs=tuple(self.blobs[index] for index in sequences))


class Group:
    """Layers that are compressed together, once all of them have the tokens of a page."""

    def __init__(self, codec: PageCodec, goal: dict[str, Any], plan: Plan) -> None:
        self.layers: list[PagedLayer] = []
        self._codec = codec
        self._goal = goal
        self._plan = plan

    def __deepcopy__(self, memo: dict[int, Any]) -> Group:
        # A codec has nothing in it that a cache changes.
        memo[id(self)] = other = copy.copy(self)
        other.layers = copy.deepcopy(self.layers, memo)
        return other

    def settle(self) -> None:
        """Compresses what has left the window, as far as it fills pages in all layers."""
        size = self._plan.page
        count = min(layer.behind_window for layer in self.layers) // size
        if count <= 0:
            return
        start, padding = self.layers[0].exact_from, self.layers[0].padding
        if any(layer.exact_from != start or layer.padding != padding for layer in self.layers):
            raise ArgumentError(
                "layers of a group no longer hold the same tokens; crop and reorder the cache as a whole, not its layers"
            )
        rows = [layer.oldest(count * size) for layer in self.layers]
        pages = []
        for sequence, padded in enumerate(padding):
            for index in range(count):
                part = slice(index * size, (index + 1) * size)
                keys = [keys[sequence, part] for keys, _ in rows]
                values = [values[sequence, part] for _, values in rows]
                pages.append((keys, values, _positions(start + index * size - padded, size)))
        blobs = self._codec.encode_many(pages, **self._goal)
        made = [Page(tuple(blobs[index::count]), size, size) for index in range(count)]
        for layer in self.layers:
            layer.replace_oldest(count * size, made)

    def decode(self, layer: PagedLayer, pages: Sequence[Page]) -> Pair:
        """Keys and values of one layer, on the host: (sequence, token, head, column)."""
        sequences, tokens = len(pages[0].blobs), sum(page.tokens for page in pages)
        keys, values = (torch.empty((sequences, tokens, *width), dtype=layer.dtype) for width in layer.widths)
        blobs, outs, copies = [], [], []
        at = 0
        for page in pages:
            part = slice(at, at + page.tokens)
            at += page.tokens
            # Beams of one prompt share most of their pages.
            decoded: dict[int, int] = {}
            for sequence, blob in enumerate(page.blobs):
                twin = decoded.setdefault(id(blob), sequence)
                if twin == sequence:
                    blobs.append(blob)
                    outs.append((keys[sequence, part], values[sequence, part]))
                else:
                    copies.append((sequence, twin, part))
        self._codec.decode_layers(blobs, self.layers.index(layer), outs)
        for sequence, twin, part in copies:
            keys[sequence, part] = keys[twin, part]
            values[sequence, part] = values[twin, part]
        return _kept(keys, pages), _kept(values, pages)


def _positions(first: int, count: int) -> int | list[int]:
    """Positions of a page's tokens; those of padding are all 0, as in ``generate``."""
    return first if first >= 0 else [max(first + index, 0) for index in range(count)]


def _kept(rows: torch.Tensor, pages: Sequence[Page]) -> torch.Tensor:
    if all(page.kept == page.tokens for page in pages):
        return rows
    parts = torch.split(rows, [page.tokens for page in pages], dim=1)
    return torch.cat([part[:, : page.kept] for part, page in zip(parts, pages, strict=True)], dim=1)
