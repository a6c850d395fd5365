"""What the layers of a cache ask a device for, and the slots that their tokens have there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..torch import _device

if TYPE_CHECKING:
    from ._cache_pages import Page, Pair

# Slots of a sequence are a multiple of this: slots of the next sequence begin there.
ROOM = 1024


@dataclass(frozen=True)
class Wanted:
    """What a layer asks for: its pages, tokens before them, tokens in all, sequences, heads and columns of keys and of values."""

    pages: Sequence[Page]
    start: int
    tokens: int
    sequences: int
    widths: tuple[tuple[int, int], ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def able(self) -> bool:
        """Whether a device may have such keys and values."""
        return self.dtype == torch.bfloat16 and _device.is_ours(self.device)

    @property
    def room(self) -> int:
        """Slots of a sequence."""
        return self.tokens if self.sequences == 1 else -(-self.tokens // ROOM) * ROOM


def distinct(page: Page) -> list[tuple[int, bytes]]:
    """Blobs of a page, and the first sequence that has each: beams of one prompt share most of them."""
    seen: dict[int, tuple[int, bytes]] = {}
    for sequence, blob in enumerate(page.blobs):
        seen.setdefault(id(blob), (sequence, blob))
    return list(seen.values())


def copies_of(wanted: Wanted) -> list[tuple[int, int, int, int]]:
    """Tokens that sequences have from others, whole runs of pages at a time."""
    runs: list[tuple[int, int, int, int]] = []
    if wanted.sequences == 1:
        return runs
    for sequence in range(1, wanted.sequences):
        at = wanted.start
        for page in wanted.pages:
            source = next(index for index, blob in enumerate(page.blobs) if blob is page.blobs[sequence])
            if source != sequence:
                last = runs[-1] if runs else (-1, -1, -1, -1)
                if last[:2] == (source, sequence) and last[2] + last[3] == at:
                    runs[-1] = (source, sequence, last[2], last[3] + page.kept)
                else:
                    runs.append((source, sequence, at, page.kept))
            at += page.kept
    return runs


def room_for(wanted: Wanted, slots: int) -> Pair:
    keys, values = (
        torch.empty((wanted.sequences, slots, *width), dtype=torch.bfloat16, device=wanted.device) for width in wanted.widths
    )
    return keys, values


def part_of(pair: Pair, tokens: int) -> Pair:
    return pair[0][:, :tokens], pair[1][:, :tokens]


def slots_of(wanted: Wanted, skip: int) -> tuple[list[bytes], np.ndarray]:
    """Blobs of all pages but the first few, each once, and the slots of their tokens: those of the first sequence that has a blob."""
    at = wanted.start + sum(page.kept for page in wanted.pages[:skip])
    blobs, slots = [], []
    for page in wanted.pages[skip:]:
        # Cropped tokens go nowhere.
        within = np.where(np.arange(page.tokens) < page.kept, np.arange(page.tokens), -1)
        for sequence, blob in distinct(page):
            blobs.append(blob)
            slots.append(np.where(within < 0, -1, within + at + sequence * wanted.room))
        at += page.kept
    return blobs, np.concatenate(slots)
