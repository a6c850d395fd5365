"""Pages of a cache: tokens of a group of layers, one blob for each sequence.

Each layer has its own list of pages, so it can be cropped and reordered alone. All layers of a group share the blobs,
and so do sequences that are copies of each other.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from .._errors import ArgumentError
from ..kv import PageCodec
from ._cache_device import Budget, OnDevice
from ._cache_slots import Wanted

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
    # Tokens in use, from the first on; the others were cropped.
    kept: int

    def select(self, sequences: Sequence[int]) -> Page:
        return replace(self, blobs=tuple(self.blobs[index] for index in sequences))


class Group:
    """Layers that are compressed together, once all of them have the tokens of a page."""

    def __init__(self, codec: PageCodec, goal: dict[str, Any], plan: Plan, budget: Budget) -> None:
        self.layers: list[PagedLayer] = []
        self._codec = codec
        self._goal = goal
        self._plan = plan
        self._device = OnDevice(codec, budget)
        self._device.peek = self._peek

    def __deepcopy__(self, memo: dict[int, Any]) -> Group:
        # Codecs are immutable, so copies can share one.
        memo[id(self)] = other = copy.copy(self)
        other.layers = copy.deepcopy(self.layers, memo)
        other._device = self._device.fresh()
        other._device.peek = other._peek
        return other

    def precede(self, other: Group, leads: bool) -> None:
        """Says which group is asked for its pages after this one, and whether this is the first of all."""
        self._device.next, self._device.leads = other._device, leads

    def _peek(self, tokens: int) -> Wanted | None:
        """What a layer will ask for once it has so many tokens."""
        layer = self.layers[0]
        return layer.wanted(tokens) if layer.is_initialized and layer.pages else None

    @property
    def keeps(self) -> bool:
        """Whether decoded keys and values are kept, and written to again."""
        return self._device.keeps

    def forget(self) -> None:
        """Lets go of what a device has."""
        self._device.forget()

    def compress_full(self) -> None:
        """Compresses tokens that have left the window, if they fill pages in all layers."""
        size = self._plan.page
        count = min(layer.behind_window for layer in self.layers) // size
        if count <= 0:
            return
        start, padding = self.layers[0].exact_from, self.layers[0].padding
        if any(layer.exact_from != start or layer.padding != padding for layer in self.layers):
            raise ArgumentError(
                "layers of a group no longer hold the same tokens; crop and reorder the cache as a whole, not its layers"
            )
        blobs = self._device.encode([layer.last for layer in self.layers], (count, size), start, padding, self._goal)
        if blobs is None:
            blobs = self._encode_on_host(count, start, padding)
        made = [Page(tuple(blobs[index::count]), size, size) for index in range(count)]
        for layer in self.layers:
            layer.replace_oldest(count * size, made)

    def _encode_on_host(self, count: int, start: int, padding: Sequence[int]) -> list[bytes]:
        """So many pages of each sequence, one sequence after the other."""
        size = self._plan.page
        rows = [layer.oldest(count * size) for layer in self.layers]
        pages = []
        for sequence, padded in enumerate(padding):
            for index in range(count):
                part = slice(index * size, (index + 1) * size)
                keys = [keys[sequence, part] for keys, _ in rows]
                values = [values[sequence, part] for _, values in rows]
                pages.append((keys, values, _positions(start + index * size - padded, size)))
        return self._codec.encode_many(pages, **self._goal)

    def decode_on_device(self, layer: PagedLayer, wanted: Wanted) -> Pair | None:
        """Room for all tokens of a layer, with those of its pages decoded; None if the host must do it."""
        return self._device.decode(self.layers.index(layer), wanted)

    def decode_on_host(self, layer: PagedLayer, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Writes keys and values of one layer's pages: (sequence, token, head, column)."""
        host = (keys, values)
        if keys.device.type != "cpu":
            host = (torch.empty_like(keys, device="cpu"), torch.empty_like(values, device="cpu"))
        work = _Work(host)
        at = 0
        for page in layer.pages:
            work.add(page, at)
            at += page.kept
        self._codec.decode_layers(work.blobs, self.layers.index(layer), work.outs)
        work.finish()
        if keys is not host[0]:
            # From pageable memory, so the copies are complete when they return.
            keys.copy_(host[0])
            values.copy_(host[1])


class _Work:
    """Blobs to decode, their destinations, and what to copy from there."""

    def __init__(self, host: Pair) -> None:
        self.blobs: list[bytes] = []
        self.outs: list[Pair] = []
        self._host = host
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, page: Page, at: int) -> None:
        # Beams of one prompt share most of their pages.
        decoded: dict[int, Pair] = {}
        for sequence, blob in enumerate(page.blobs):
            wanted = self._rows(sequence, at, page.kept)
            if id(blob) not in decoded:
                decoded[id(blob)] = out = wanted if page.kept == page.tokens else _room(wanted, page.tokens)
                self.blobs.append(blob)
                self.outs.append(out)
            out = decoded[id(blob)]
            if out is not wanted:
                self._copies.extend((to, rows[: page.kept]) for to, rows in zip(wanted, out, strict=True))

    def finish(self) -> None:
        for to, rows in self._copies:
            to.copy_(rows)

    def _rows(self, sequence: int, at: int, count: int) -> Pair:
        keys, values = self._host
        return keys[sequence, at : at + count], values[sequence, at : at + count]


def _room(like: Pair, tokens: int) -> Pair:
    """Allocates room for a whole page, some tokens of which were cropped."""
    keys, values = (rows.new_empty((tokens, *rows.shape[1:])) for rows in like)
    return keys, values


def _positions(first: int, count: int) -> int | list[int]:
    """Returns the positions of a page's tokens; padding has position 0, as in ``generate``."""
    return first if first >= 0 else [max(first + index, 0) for index in range(count)]
