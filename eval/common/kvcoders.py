"""What may stand between a model and its KV cache: tenfold's pages, and the interface of all coders of caches.
Caches go in and come out; every coder counts all bytes that its decoder would need, but for bases, which belong to the
model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import tenfold
import torch

from common.bases import Basis
from common.cache import Cache, layers_of, rows


@dataclass
class CodedCaches:
    """Caches after a coder, and what they took."""

    caches: list[Cache]
    bits: float
    """Bits a value, side information included."""
    settings: dict[str, Any] = field(default_factory=dict)


class CacheCoder(Protocol):
    """A coder of caches at a rate."""

    def __call__(self, caches: Sequence[Cache], bits: float) -> CodedCaches:
        """Encodes and decodes caches at about so many bits a value."""


def bf16(values: np.ndarray) -> np.ndarray:
    """Values as a cache in bf16 holds them: what `exact` means for tokens that are kept."""
    return torch.from_numpy(values).bfloat16().float().numpy()


@dataclass(frozen=True)
class Pages:
    """tenfold: pages of tokens; in each a blob of keys and one of values for each group of layers, in coordinates of
    bases that carry the metric, all with one step. The step is what the rate asks for."""

    keys: Sequence[Basis]
    values: Sequence[Basis]
    tokens: int = 64
    """Of a page."""
    sinks: int = 1
    """Tokens at the start of a context that are kept exact, in bf16."""
    effort: str = "best"
    threads: int = 0

    def __call__(self, caches: Sequence[Cache], bits: float) -> CodedCaches:
        step = self.step(caches[0], bits)
        coded, stored = zip(*(self.code(cache, step) for cache in caches))
        return CodedCaches(list(coded), 8 * sum(stored) / sum(cache.size for cache in caches), self.settings(step))

    def step(self, cache: Cache, bits: float) -> float:
        """The step at which this cache takes so many bits a value."""
        variances = np.concatenate([basis.variances for basis in (*self.keys, *self.values)])
        return step_of(variances, bits, lambda step: 8 * self.code(cache, step)[1] / cache.size)

    def settings(self, step: float) -> dict[str, Any]:
        """For the report."""
        basis = sum(one.stored_bytes(step) for one in (*self.keys, *self.values))
        return {"step": step, "page": self.tokens, "sinks": self.sinks, "basis_bytes": round(basis)}

    def code(self, cache: Cache, step: float) -> tuple[Cache, int]:
        """A cache after pages, and their bytes."""
        parts = [self._code(layers, bases, step) for layers, bases in zip(cache, (self.keys, self.values))]
        return Cache(parts[0][0], parts[1][0]), parts[0][1] + parts[1][1]

    def _code(self, layers: np.ndarray, bases: Sequence[Basis], step: float) -> tuple[np.ndarray, int]:
        table = rows(layers)
        out, stored = np.empty_like(table), 2 * table[: self.sinks].size
        out[: self.sinks] = bf16(table[: self.sinks])
        for basis in bases:
            coordinates = basis.coordinates(table, basis.rank(step))
            for first in range(0, len(table), self.tokens):
                page = slice(max(first, self.sinks), first + self.tokens)
                if page.start >= min(page.stop, len(table)):
                    continue
                blob = tenfold.encode(coordinates[page], step=step, effort=self.effort, threads=self.threads)
                stored += len(blob)
                out[page, basis.columns] = basis.values(tenfold.decode(blob, threads=self.threads))
        return layers_of(out, len(layers)), stored


def step_of(variances: np.ndarray, bits: float, taken: Callable[[float], float]) -> float:
    """The step that gives a rate: from the variances of coordinates, then corrected with what a step really takes."""
    asked = bits
    for _ in range(5):
        step = _ideal_step(variances, asked)
        off = bits - taken(step)
        if abs(off) < 0.005 * bits:
            break
        asked = max(asked + off, 0.02 * bits)
    return step


def _ideal_step(variances: np.ndarray, bits: float) -> float:
    """The step at which Gaussian coordinates of these variances take so many bits a value at best: errors of a quarter
    of the squared step, where the variance is larger than that."""
    low, high = 1e-12 * float(variances.max()), float(variances.max())
    for _ in range(60):
        level = np.sqrt(low * high)
        rate = np.log2(np.maximum(variances / level, 1)).sum() / 2 / len(variances)
        low, high = (low, level) if rate < bits else (level, high)
    return float(2 * np.sqrt(level))
