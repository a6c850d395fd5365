"""Bits by tensor from measured sensitivity, as a recipe: what `ramp` and `step` cannot say, because neither knows which
kinds of matrices a model is touchy about.

One encoding at the same rate for all gives damaged weights. Damage one kind of matrix at a time (all value projections,
say), then one stretch of layers at a time, and see how much the loss rises. If a group's damage fell with 4^-bits, the
least damage for the bits would be where every group gets half the logarithm of its rise for each value on top.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tenfold

from common.coders import Coded, Tenfold, Weights

LEAST = 0.5
"""Fewest bits of a tensor."""
TRUST = 0.5
"""How much of the offset is taken. At low rates damage grows faster than that law says, so groups that seem to bear it
well must not be robbed; chosen on SmolLM2 at 2.5 bits."""


@dataclass(frozen=True)
class Measured:
    """A recipe with bits for each tensor, from a loss on data that is not the data of the result."""

    loss: Callable[[Weights], float]
    effort: str = "best"
    threads: int = 0
    stretches: int = 10
    """In how many parts the layers are tried."""
    tell: Callable[[str], None] = lambda text: None

    def __call__(self, weights: Weights, bits: float) -> Coded:
        damaged = Tenfold("equal", "balanced", self.threads)(weights, bits).weights
        kinds = {name: kind(name) for name in weights}
        places = stretch(weights, self.stretches)
        offsets = [self._offsets(weights, damaged, groups) for groups in (kinds, places)]
        extra = {name: offsets[0][kinds[name]] + offsets[1][places[name]] for name in weights}
        shares = share_out({name: weights[name].size for name in weights}, extra, bits)
        settings = {"kinds": offsets[0], "stretches": offsets[1], "effort": self.effort}
        with tempfile.TemporaryDirectory() as folder:
            path, recipe = Path(folder) / "model.safetensors", Path(folder) / "recipe.toml"
            recipe.write_text("".join(entry(name, share) for name, share in shares.items()))
            report = tenfold.save(weights, path, recipe=recipe, bits=bits, effort=self.effort, threads=self.threads)
            return Coded(tenfold.load(path, threads=self.threads), report.bits_per_value, settings)

    def _offsets(self, weights: Weights, damaged: Weights, groups: Mapping[str, str]) -> dict[str, float]:
        """Bits on top for each group, up to a constant."""
        values = {group: sum(weights[n].size for n in weights if groups[n] == group) for group in groups.values()}
        base, rises = math.log(self.loss(weights)), {}
        for group in values:
            mixed = {name: (damaged if groups[name] == group else weights)[name] for name in weights}
            rises[group] = math.log(self.loss(mixed)) - base
            self.tell(f"{group}: log loss + {rises[group]:.4f}")
        if sum(rises.values()) <= 0:
            # Nothing but noise: no group is worse than another.
            return dict.fromkeys(values, 0.0)
        # A rise below a hundredth of the mean is noise.
        floor = max(sum(rises.values()) / len(rises) / 100, 1e-9)
        halves = {group: 0.5 * math.log2(max(rise, floor) / values[group]) for group, rise in rises.items()}
        middle = sum(values[group] * half for group, half in halves.items()) / sum(values.values())
        return {group: TRUST * (half - middle) for group, half in halves.items()}


def kind(name: str) -> str:
    """What a matrix is for: the last part of its name but `weight`."""
    return name.removesuffix(".weight").rsplit(".", 1)[-1]


def stretch(weights: Weights, parts: int) -> dict[str, str]:
    """The stretch of layers that each tensor belongs to."""
    layer = {name: next(int(part) for part in name.split(".") if part.isdigit()) for name in weights}
    count = max(layer.values()) + 1
    width = -(-count // parts)
    return {n: f"layers {i // width * width}–{min(i // width * width + width, count) - 1}" for n, i in layer.items()}


def share_out(sizes: Mapping[str, int], extra: Mapping[str, float], bits: float) -> dict[str, float]:
    """Bits for each tensor: its own on top of a common base, which meets the average."""
    low, high = -32.0, 32.0
    for _ in range(60):
        base = (low + high) / 2
        shares = {name: max(base + extra[name], LEAST) for name in sizes}
        mean = sum(sizes[name] * shares[name] for name in sizes) / sum(sizes.values())
        low, high = (base, high) if mean < bits else (low, base)
    return shares


def entry(name: str, bits: float) -> str:
    """A tensor's lines in a recipe."""
    return f'[[tensor]]\nmatch = "{name}"\nbits = {bits:.4f}\ninclude = true\n\n'
