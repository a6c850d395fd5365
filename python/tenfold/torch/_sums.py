"""What a watcher saw, as means and the masses behind them: what several saw of the same layers, each on other text, can be added.

:mod:`._summary` makes a calibration of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from .._errors import DataError
from .._model import open as open_file
from .._write import save
from ._mapped import mapped
from ._moments import Watcher

_KEY = "calibration.sums"


@dataclass(frozen=True)
class Watched:
    """A weight that was watched, whether or not its layer ran."""

    rows: int
    cols: int
    norm: float


@dataclass(frozen=True)
class Mass:
    """What stands behind a matrix."""

    weight: float
    """Of all tokens."""
    squares: float
    """Of the tokens' weights."""
    tokens: int
    scale: float
    """What an average token of the first pass had as a gradient; weights are in units of it."""

    @property
    def effective(self) -> float:
        """Tokens of equal weight that would say as much as these."""
        return self.weight**2 / self.squares if self.squares else 0.0


@dataclass
class Sums:
    """Of the linear layers of one module."""

    weights: dict[str, Watched]
    # By weight, the first one with the same inputs; by that one, E[x·xᵀ] as in a calibration and what stands behind it.
    leaders: dict[str, str]
    means: dict[str, torch.Tensor]
    masses: dict[str, Mass]
    # By weight, E[g²] over the tokens of the text, and how much these count together.
    outputs: dict[str, torch.Tensor]
    text: float

    @classmethod
    def of(cls, watched: Mapping[str, torch.nn.Linear], watcher: Watcher) -> Sums:
        """What a watcher has seen."""
        weights = {
            name: Watched(layer.out_features, layer.in_features, float(layer.weight.detach().double().norm()))
            for name, layer in watched.items()
        }
        leaders = {name: watcher.shared[name].members[0] for name in watched if name in watcher.shared}
        moments = {name: watcher.shared[name].moments for name in leaders.values()}
        masses = {
            name: Mass(one.mass, one.squares, one.rows, watcher.scales.get(name, 1.0)) for name, one in moments.items()
        }
        # By the tokens of the text, also for an expert that saw few of them: that few tokens need it makes it matter less.
        text = max(watcher.masses.values(), default=1.0)
        outputs = {name: (total / text).float().cpu() for name, total in watcher.outputs.items()}
        return cls(weights, leaders, {name: one.mean() for name, one in moments.items()}, masses, outputs, text)

    @classmethod
    def add(cls, parts: Sequence[Sums]) -> Sums:
        """What all parts of a text say together. In float64, and in the order that is given, so that the bits are always the same."""
        first = parts[0]
        leaders: dict[str, str] = {}
        for part in parts:
            if not _same(part.weights, first.weights):
                raise DataError("parts are of other layers than one another, or of other models")
            for name, leader in part.leaders.items():
                if leaders.setdefault(name, leader) != leader:
                    raise DataError(f"parts do not agree which layers have the same inputs as {name}")
        leaders = {name: leaders[name] for name in first.weights if name in leaders}
        means, masses = {}, {}
        for leader in dict.fromkeys(leaders.values()):
            means[leader], masses[leader] = _mean([part for part in parts if leader in part.masses], leader)
        text = sum(part.text for part in parts)
        outputs = {}
        for name in first.weights:
            seen = [part for part in parts if name in part.outputs]
            if seen:
                total = torch.zeros_like(seen[0].outputs[name], dtype=torch.float64)
                for part in seen:
                    total += part.outputs[name].double() * part.text
                outputs[name] = (total / text).float()
        return cls(first.weights, leaders, means, masses, outputs, text)

    def save(self, path: Path) -> None:
        """Writes a file, which appears only when complete."""
        tensors = {f"{name}.inputs": mean for name, mean in self.means.items()}
        tensors.update({f"{name}.outputs": found for name, found in self.outputs.items()})
        about = {
            "weights": {name: asdict(one) for name, one in self.weights.items()},
            "leaders": self.leaders,
            "masses": {name: asdict(one) for name, one in self.masses.items()},
            "text": self.text,
        }
        save(tensors, path, lossless=True, exclude=["*"], metadata={_KEY: json.dumps(about)})

    @classmethod
    def open(cls, path: Path) -> Sums:
        """Reads a file of :meth:`save`."""
        with open_file(path) as file:
            text = file.metadata.get(_KEY)
        try:
            about = json.loads(text or "")
            stored = mapped(path)
            return cls(
                {name: Watched(**one) for name, one in about["weights"].items()},
                about["leaders"],
                {name: stored[f"{name}.inputs"] for name in about["masses"]},
                {name: Mass(**one) for name, one in about["masses"].items()},
                {name: stored[f"{name}.outputs"] for name in about["weights"] if f"{name}.outputs" in stored},
                about["text"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: damaged part of a calibration ({error})") from error


def _same(some: Mapping[str, Watched], others: Mapping[str, Watched]) -> bool:
    """Whether these are the same weights. Norms may differ in their last digits, if machines do."""
    if list(some) != list(others):
        return False
    pairs = [(one, others[name]) for name, one in some.items()]
    return all(
        (one.rows, one.cols) == (other.rows, other.cols) and abs(one.norm - other.norm) <= 1e-6 * other.norm
        for one, other in pairs
    )


def _mean(parts: Sequence[Sums], leader: str) -> tuple[torch.Tensor, Mass]:
    """One matrix of all parts that have it."""
    scale = parts[0].masses[leader].scale
    total = torch.zeros_like(parts[0].means[leader], dtype=torch.float64)
    weight = squares = 0.0
    for part in parts:
        mass = part.masses[leader]
        # In the units of the first part.
        factor = mass.scale / scale
        total += part.means[leader].double() * (mass.weight * factor)
        weight += mass.weight * factor
        squares += mass.squares * factor**2
    tokens = sum(part.masses[leader].tokens for part in parts)
    return (total / (weight or 1.0)).float(), Mass(weight, squares, tokens, scale)
