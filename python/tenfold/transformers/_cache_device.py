"""Pages of a cache that a CUDA device decodes: compressed bytes lie there, and keys and values are made where attention reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._errors import MachineError, UnsupportedError
from ..kv import PageCodec
from ..torch import _blocks, _device

if TYPE_CHECKING:
    from ..torch._staged import Loading, Staged
    from ._cache_pages import Page, Pair


class OnDevice:
    """Decodes the pages of a group. Its layers share the bytes, so all are decoded when the first one asks, and each is handed out once."""

    def __init__(self, codec: PageCodec) -> None:
        self._codec = codec
        # Until it has seen pages that a device does not decode, such as ones before RoPE without bases, or there is no cuBLAS.
        self._able = True
        # The pages that are on the device, compressed, and the rows of one token's pass that layers have not asked for yet.
        self._pages: tuple[Page, ...] = ()
        self._staged: Staged | None = None
        self._rows: dict[int, Pair] = {}
        # Of each token that a layer wants, which row it is; None if all are, in their order.
        self._index: torch.Tensor | None = None
        self._total = 0
        self._loading: Loading | None = None

    def encode(
        self, states: Sequence[Pair], pages: tuple[int, int], start: int, padding: Sequence[int], goal: dict[str, Any]
    ) -> list[bytes] | None:
        """So many pages, of so many tokens, of the first tokens of each sequence: one sequence after the other. None if the host must make
        them. States are (sequence, head, token, column), one pair a layer."""
        like, (count, size) = states[0][0], pages
        # Padding has no positions of its own.
        if not self._able or like.dtype != torch.bfloat16 or any(start < padded for padded in padding):
            return None
        try:
            if not _blocks.encodes(self._codec, like.device, goal):
                return None
        except MachineError:
            self._able = False
            return None
        room = like.shape[2]
        first = np.arange(len(padding))[:, None, None] * room + np.arange(count)[:, None] * size
        positions = [start - padded + index * size for padded in padding for index in range(count)]
        # Sequences are the blocks, and their tokens the slots.
        keys, values = ([pair[side].contiguous().transpose(1, 2) for pair in states] for side in range(2))
        slots = (first + np.arange(size)).reshape(-1, size)
        return self._codec.encode_blocks(slots, keys, values, positions=positions, **goal)

    def decode(self, layer: int, pages: Sequence[Page], keys: torch.Tensor, values: torch.Tensor) -> bool:
        """Writes the pages of one layer of the group: (sequence, token, head, column). False if the host must do it."""
        if not self._able or not _device.is_ours(keys.device) or keys.dtype != torch.bfloat16:
            return False
        if layer not in self._rows or self._pages != tuple(pages):
            try:
                self._stage(tuple(pages), keys.device)
            except (UnsupportedError, MachineError):
                self._able = False
                return False
            self._decode(keys, values)
        for to, rows in zip((keys, values), self._rows.pop(layer), strict=True):
            chosen = rows if self._index is None else rows.index_select(0, self._index)
            to.copy_(chosen.view(to.shape))
        return True

    def _stage(self, pages: tuple[Page, ...], device: torch.device) -> None:
        """Brings pages to the device, unless they are there."""
        # What was decoded for the last token; by now it is there, so nothing waits.
        if self._loading is not None:
            self._loading.check()
        self._rows, self._loading = {}, None
        if self._staged is not None and self._pages == pages and self._staged.device == device:
            return
        # Beams of one prompt share most of their pages.
        first: dict[int, int] = {}
        blobs, total = [], 0
        for page in pages:
            for blob in page.blobs:
                if id(blob) not in first:
                    first[id(blob)] = total
                    blobs.append(blob)
                    total += page.tokens
        sequences = range(len(pages[0].blobs))
        runs = [np.arange(page.kept) + first[id(page.blobs[sequence])] for sequence in sequences for page in pages]
        index, every = np.concatenate(runs), np.arange(total)
        self._staged = self._codec.stage(blobs, every, device)
        self._index = None if np.array_equal(index, every) else torch.from_numpy(index).to(device)
        self._pages, self._total = pages, total

    def _decode(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Queues the decoding of all layers, which are alike."""
        assert self._staged is not None
        made = [
            [torch.empty((self._total, *like.shape[2:]), dtype=like.dtype, device=like.device) for _ in range(self._codec.layers)]
            for like in (keys, values)
        ]
        self._loading = self._staged.decode(*made)
        self._rows = dict(enumerate(zip(*made, strict=True)))
