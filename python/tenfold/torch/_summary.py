"""From sums over a model's passes to what a calibration holds: a matrix for each group of layers, and what to make of few tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ._sums import Sums, Watched

# Part of the diagonal that an encoder adds to it, where tokens are many.
DAMPING = 0.1
# Tokens a column below which a matrix says little about how columns go together.
FEW = 4


@dataclass(frozen=True)
class CalibratedLayer:
    """What is known about one weight."""

    matrix: str
    """The tensor of the file with E[x·xᵀ]."""
    rows: int
    cols: int
    tokens: int
    """How many it saw."""
    damping: float
    """Part of the diagonal to add to it: more where tokens were few."""
    norm: float
    """Of the weight, so that a calibration of another model is noticed."""


def linear_layers(model: torch.nn.Module, prefix: str = "") -> dict[str, torch.nn.Linear]:
    """The linear layers of a module, by the names of their weights. One whose weight is a table of embeddings too is left out: how
    often a row of it is looked up is not seen here."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    found = {}
    for name, layer in model.named_modules(prefix=prefix):
        if isinstance(layer, torch.nn.Linear) and id(layer.weight) not in tables:
            found[f"{name}.weight" if name else "weight"] = layer
    return found


@dataclass
class Summary:
    """What sums say."""

    layers: dict[str, CalibratedLayer]
    matrices: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    notes: list[str]


def summarise(sums: Sums) -> Summary:
    """Makes a calibration of sums: by weight, by matrix, by weight again, and words for the user."""
    leaders, means, outputs = dict(sums.leaders), dict(sums.means), dict(sums.outputs)
    known = {name: one.effective for name, one in sums.masses.items()}
    notes: list[str] = []
    experts = _Experts(leaders, means, known, outputs)
    for names in _siblings(sums.weights):
        experts.lean(names, notes)
    # What an error in them costs is not known, so bits cannot be weighed against it.
    idle = [name for name in leaders if outputs and (name not in outputs or not outputs[name].any())]
    if idle:
        notes.append(f"{len(idle)} of {len(leaders)} layers had no part in the loss and are left out: {idle[0]} and its like")
    leaders = {name: leader for name, leader in leaders.items() if name not in idle}
    layers = {}
    for name, weight in sums.weights.items():
        if name in leaders:
            layers[name] = CalibratedLayer(
                matrix=f"{leaders[name]}.inputs",
                rows=weight.rows,
                cols=weight.cols,
                tokens=sums.masses[sums.leaders[name]].tokens if name in sums.leaders else 0,
                damping=damping_for(weight.cols, known[leaders[name]]),
                norm=weight.norm,
            )
    few = [name for name, one in layers.items() if one.tokens < FEW * one.cols and name not in experts.leant]
    if few:
        shown = f"{few[0]} saw {layers[few[0]].tokens} tokens for {layers[few[0]].cols} columns"
        notes.append(
            f"{len(few)} of {len(layers)} layers saw fewer than {FEW} tokens a column ({shown}); they are damped more, and more text "
            "would make a better model"
        )
    kept = set(leaders.values())
    matrices = {f"{name}.inputs": mean for name, mean in means.items() if name in kept}
    return Summary(layers, matrices, {name: found for name, found in outputs.items() if name in layers}, notes)


def damping_for(cols: int, tokens: float) -> float:
    """Part of the diagonal to add: the fewer tokens a column, the less is known of how columns go together."""
    return round(min(DAMPING + cols / max(tokens, 1.0), 1.0), 4)


def _siblings(weights: Mapping[str, Watched]) -> list[list[str]]:
    """Layers at the same place of experts that lie beside each other."""
    by_place: dict[tuple[str, int, int], list[str]] = {}
    for name, weight in weights.items():
        match = re.match(r"(.*\bexperts?\.)\d+(\..*)", name)
        if match:
            by_place.setdefault((match[1] + match[2], weight.rows, weight.cols), []).append(name)
    return [names for names in by_place.values() if len(names) > 1]


@dataclass
class _Experts:
    """Experts that saw too few tokens lean on the mean of those beside them."""

    leaders: dict[str, str]
    means: dict[str, torch.Tensor]
    known: dict[str, float]
    outputs: dict[str, torch.Tensor]

    def __post_init__(self) -> None:
        self.leant: set[str] = set()
        # By the matrices that were looked at: the one of experts without tokens, if there are any.
        self._seen: dict[frozenset[str], str | None] = {}

    def lean(self, names: list[str], notes: list[str]) -> None:
        """Looks at one place of all experts. Other places with the same inputs find it done."""
        present = frozenset(self.leaders[name] for name in names if name in self.leaders)
        mass = sum(self.known[leader] for leader in present)
        if not mass:
            return
        any_mean = self.means[next(iter(present))]
        enough = FEW * any_mean.shape[0] * any_mean.shape[1]
        poor = [name for name in names if name not in self.leaders or self.known[self.leaders[name]] < enough]
        absent = [name for name in names if name not in self.leaders]
        if present not in self._seen:
            mean = torch.stack([self.means[leader] * (self.known[leader] / mass) for leader in sorted(present)]).sum(0)
            for leader in present:
                if self.known[leader] < enough:
                    # The mean stands in for the tokens that are missing.
                    part = self.known[leader] / enough
                    self.means[leader] = part * self.means[leader] + (1 - part) * mean
            self._seen[present] = absent[0] if absent else None
            if absent:
                self.means[absent[0]], self.known[absent[0]] = mean, min(mass, enough)
            if poor:
                notes.append(f"{len(poor)} of {len(names)} experts saw too few tokens and lean on the others: {poor[0]} and its like")
        for name in absent:
            self.leaders[name] = self._seen[present] or name
        rows = [self.outputs[name] for name in names if name in self.outputs]
        for name in absent if rows else []:
            self.outputs[name] = torch.stack(rows).mean(0)
        self.leant.update(poor)
