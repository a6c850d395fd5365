"""What may stand between a model's weights and the model: tenfold's ways to share out bits, and the interface of all
coders. Weights go in and come out by name; every coder counts all bytes that its decoder would need."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tenfold

Weights = Mapping[str, np.ndarray]


@dataclass
class Coded:
    """Weights after a coder, and what they took."""

    weights: dict[str, np.ndarray]
    bits: float
    """Bits a value, side information included."""
    settings: dict[str, Any] = field(default_factory=dict)


class Coder(Protocol):
    """A coder at a rate."""

    def __call__(self, weights: Weights, bits: float) -> Coded:
        """Encodes and decodes weights at about so many bits a value."""


def nmse(before: Weights, after: Weights) -> float:
    """Squared error of all tensors over their squared deviation from the mean."""
    error = sum(float(np.square(np.float64(after[name]) - before[name]).sum()) for name in before)
    power = sum(float(np.var(before[name], dtype=np.float64)) * before[name].size for name in before)
    return error / power


@dataclass(frozen=True)
class Tenfold:
    """tenfold itself, through a model file as `tenfold compress` writes it."""

    alloc: str = "equal"
    effort: str = "best"
    threads: int = 0
    importance: Mapping[str, np.ndarray] | None = None
    """Of columns, by tensor."""

    def __call__(self, weights: Weights, bits: float) -> Coded:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            options = {"bits": bits, "alloc": self.alloc, "effort": self.effort, "threads": self.threads}
            report = tenfold.save(weights, path, include=["*"], importance=self.importance, **options)
            decoded = tenfold.load(path, threads=self.threads)
        settings = {"alloc": self.alloc, "effort": self.effort, "importance": self.importance is not None}
        return Coded(decoded, report.bits_per_value, settings)


@dataclass(frozen=True)
class Ramp:
    """`ramp=K` with the K that is best for the rate, found by trying: the search of the paper on video codecs for tensors.

    A grid of slopes, then the two half-way between the best and its neighbours. (A walk downhill gets stuck: at low rates
    the loss has several valleys.) The judge is a loss on data that is not the data of the result; the search itself
    uses a cheaper effort.
    """

    loss: Callable[[Weights], float]
    layers: int
    coder: Callable[[str, str], Coder]
    """Makes a coder from an allocation and an effort."""
    effort: str = "best"
    grid: tuple[float, ...] = (-0.8, -0.4, 0.0, 0.4, 0.8)
    """Slopes to try, as bits between the first and the last layer, evenly spaced."""
    tell: Callable[[str], None] = lambda text: None

    def __call__(self, weights: Weights, bits: float) -> Coded:
        tried: dict[float, float] = {}

        def attempt(span: float) -> None:
            tried[span] = self.loss(self.coder(self._alloc(span), "balanced")(weights, bits).weights)
            self.tell(f"{bits:g} bits, {self._alloc(span)}: {tried[span]:.4g}")

        for span in self.grid:
            attempt(span)
        best, half = min(tried, key=tried.__getitem__), (self.grid[1] - self.grid[0]) / 2
        for span in (best - half, best + half):
            attempt(span)
        best = min(tried, key=tried.__getitem__)
        coded = self.coder(self._alloc(best), self.effort)(weights, bits)
        search = {self._alloc(span): value for span, value in sorted(tried.items())}
        return Coded(coded.weights, coded.bits, coded.settings | {"tried": search})

    def _alloc(self, span: float) -> str:
        return f"ramp={span / max(self.layers - 1, 1):.5f}"
