"""One slope for a whole model: the quantiser step at which all weights together take the bits that were asked for.

With weights of rows and columns that say what an error costs in nats, the last bit buys the same everywhere if the step is the same. A first step
comes from the entropy of rounded values; a few real blobs say how far that is off, and the blobs of each layer correct it for those that follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ._correction import damped

# Rows of a weight that its entropy is computed from.
ROWS = 64
# Octaves by which blobs that came out larger or smaller may move the step of those that follow.
MOST = 0.5
# Of rounded values, the highest; and the classes of columns.
HIGHEST = 4000
CLASSES = 8
# Octaves around a first guess at which it is.
OCTAVES = [step / 2 for step in range(-8, 9)]


@dataclass
class Curve:
    """Bits of a weight over the logarithm of the step."""

    values: int
    bits: list[float]


class Budget:
    """Finds the step, and keeps to the bits while blobs come in."""

    def __init__(self, bits: float) -> None:
        self.bits = bits
        self._curves: dict[str, Curve] = {}
        self._guess = 0.0
        # How far real blobs lie from the curves, in octaves of the step.
        self._shift = 0.0
        # Bits of all weights, and of those that are done.
        self._total, self._spent = 0.0, 0.0
        self._first = 0.0
        self._asked: dict[str, torch.Tensor] = {}

    def expect(self, name: str, weight: torch.Tensor, inputs: torch.Tensor, outputs: torch.Tensor | None, damping: float) -> None:
        """Tells of a weight that will be encoded."""
        apart = max(1, len(weight) // ROWS)
        rows = weight[::apart].double()
        # Damped as an encoder does.
        some = torch.ones(len(rows)) if outputs is None else (outputs[::apart] + damping * outputs.mean()) / (1 + damping)
        scaled = rows * counts(inputs, damping).sqrt() * some.to(rows).sqrt()[:, None]
        self._asked[name] = scaled.float()
        self._curves[name] = Curve(weight.numel(), [])

    def settle(self, real: Callable[[str, float], int], probes: int = 6) -> None:
        """Makes the curves, and corrects them by real blobs of some weights: `real` gives the bytes of one at a step."""
        sizes = torch.stack([scaled.square().mean().log2() / 2 for scaled in self._asked.values()])
        self._guess = float(sizes.median()) - self.bits + 1
        for name, scaled in self._asked.items():
            self._curves[name].bits = [entropy(scaled, 2.0 ** (self._guess + octave)) for octave in OCTAVES]
        self._asked.clear()
        names = sorted(self._curves, key=lambda name: -self._curves[name].values)
        names = names[:: max(1, len(names) // probes)][:probes]
        for _ in range(2):
            step = self._solve(self.bits * self._values())
            found = sum(8.0 * real(name, 2.0**step) for name in names)
            before, self._shift = self._shift, self._at(lambda x: sum(self._bits(name, x) for name in names), found) - step
            if abs(self._shift - before) < 0.03:
                break
        self._total = self.bits * self._values()
        self._first = self._solve(self._total)

    def step(self) -> float:
        """The step for weights that are still to come: what is left of all bits is theirs."""
        found = self._solve(max(self._total - self._spent, 1.0))
        return float(2.0 ** min(max(found, self._first - MOST), self._first + MOST))

    def spend(self, name: str, size: int) -> None:
        """Tells of a blob."""
        del self._curves[name]
        self._spent += 8.0 * size

    def _values(self) -> int:
        return sum(curve.values for curve in self._curves.values())

    def _bits(self, name: str, log_step: float) -> float:
        """Bits of a whole weight at a step, by its curve alone."""
        curve = self._curves[name]
        at = (log_step - self._guess - OCTAVES[0]) * 2
        low = min(max(math.floor(at), 0), len(OCTAVES) - 2)
        # Beyond the ends the curve goes on as it was; below nothing it does not.
        each = curve.bits[low] + (at - low) * (curve.bits[low + 1] - curve.bits[low])
        return max(each, 0.0) * curve.values

    def _solve(self, wanted: float) -> float:
        return self._at(lambda x: sum(self._bits(name, x + self._shift) for name in self._curves), wanted)

    def _at(self, total: Callable[[float], float], wanted: float) -> float:
        """Where a falling function has a value."""
        low, high = self._guess - 16, self._guess + 16
        for _ in range(48):
            middle = (low + high) / 2
            low, high = (middle, high) if total(middle) > wanted else (low, middle)
        return (low + high) / 2


def counts(inputs: torch.Tensor, damping: float) -> torch.Tensor:
    """How much a squared error of each column counts once the columns behind it answer to it: D of H = V·D·Vᵀ."""
    matrix = damped(inputs.double(), damping)
    factor = torch.linalg.cholesky(matrix.flip(0, 1))
    found: torch.Tensor = factor.diagonal().square().flip(0)
    return found


def entropy(scaled: torch.Tensor, step: float) -> float:
    """Bits a value of rounded values."""
    levels = (scaled / step).round().clamp(-HIGHEST, HIGHEST)
    # Columns of similar size share statistics, as classes do: an eighth of them each.
    rank = levels.abs().mean(0).argsort().argsort()
    part = rank * CLASSES // len(rank)
    bins = levels.long() + HIGHEST + part * (2 * HIGHEST + 1)
    found = torch.bincount(bins.flatten(), minlength=CLASSES * (2 * HIGHEST + 1)).double().view(CLASSES, -1)
    # A class of n values takes n·log2(n) − Σ c·log2(c) bits, c how often it has each level.
    bits = torch.special.xlogy(found.sum(1), found.sum(1)).sum() - torch.special.xlogy(found, found).sum()
    return float(bits) / math.log(2.0) / levels.numel()
