"""A search for the quantiser steps of many pages at once: each gets the smallest step of a ladder at which it fits its bytes.

Pages that stand on the same rung are tried together. Which rungs a page tries depends on its own sizes alone, and so does where it ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# Rungs from a step to twice the step; the first rung tried, and how far the ladder reaches.
_OCTAVE = 16
_FIRST = -3 * _OCTAVE
_ENDS = (-20 * _OCTAVE, 20 * _OCTAVE)


def step_of(rung: int) -> float:
    """The step of a rung.

    >>> step_of(0), step_of(16)
    (1.0, 2.0)
    """
    return math.pow(2.0, rung / _OCTAVE)


@dataclass
class _Climber:
    """A page: the highest rung at which it was too large and the lowest at which it was not, and bytes there."""

    at: int | None = _FIRST
    low: tuple[int, int] | None = None
    high: tuple[int, int] | None = None

    def tried(self, size: int | None, budget: int) -> None:
        """Learns how large the page is where it stands, and goes on; it stands nowhere once all is known, or nothing can be."""
        assert self.at is not None
        if size is None:
            self.at, self.high = None, None
            return
        if size > budget:
            self.low = (self.at, size)
        else:
            self.high = (self.at, size)
        self.at = self._next(size, budget)

    def _next(self, size: int, budget: int) -> int | None:
        if self.low is None or self.high is None:
            assert self.at is not None
            # Sizes halve from octave to octave at best; a little further, so that the other side is found soon.
            by = max(2, math.ceil(1.25 * _OCTAVE * abs(math.log2(max(size, 1) / budget))))
            on = self.at + (by if self.high is None else -by)
            return on if _ENDS[0] <= on <= _ENDS[1] else None
        (low, large), (high, small) = self.low, self.high
        if high - low == 1:
            return None
        share = math.log(large / budget) / max(math.log(large / max(small, 1)), 1e-9)
        return min(max(low + round(share * (high - low)), low + 1), high - 1)


def climb(budgets: Sequence[int | None], sizes: Callable[[np.ndarray, int], list[int | None]]) -> list[int | None]:
    """The lowest rung found at which each of some pages takes no more than its bytes; None for a page without sizes or bytes, or that fits on
    no rung. ``sizes`` tells how large some pages are on a rung.

    >>> climb([100, 100], lambda pages, rung: [int(1600 / step_of(rung)) + int(page) for page in pages])
    [64, 65]
    """
    pages = [_Climber() if budget else _Climber(at=None) for budget in budgets]
    while standing := sorted({page.at for page in pages if page.at is not None}):
        for rung in standing:
            some = np.array([number for number, page in enumerate(pages) if page.at == rung])
            for number, size in zip(some, sizes(some, rung), strict=True):
                pages[number].tried(size, budgets[number] or 0)
    return [page.high[0] if page.high is not None else None for page in pages]
