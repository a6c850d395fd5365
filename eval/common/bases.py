"""Bases for keys and values: means, and the directions that are coded, fitted on text that is not judged.

Directions come from two matrices. Covariance says how much keys (values) move, across several layers at once. The metric
says what an error does: per layer, the covariance of gradients of the loss where the model's own samples are the labels,
which is the second order of the divergence between predictions with and without the error, in nats. A basis is the
principal axes of the covariance in that metric, so one step for all coordinates of all layers, keys and values alike, is
best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from common.cache import Passes, rows

SINKS = 4
"""Tokens at the start of a context that statistics leave out: attention parks on them, and they look like no others."""
DAMPING = 0.03
"""Of the mean curvature, added in all directions: a direction that the sample found harmless is not quite so."""
FLOOR = 0.25
"""Components with less variance than this many squared steps are dropped: coding them costs more than it mends."""


@dataclass(frozen=True)
class Statistics:
    """What was seen of keys (or values): all layers side by side."""

    means: np.ndarray
    covariance: np.ndarray
    metric: np.ndarray
    """Layers × width × width."""

    @property
    def width(self) -> int:
        """Columns of a layer."""
        return self.metric.shape[-1]


FIELDS = [field.name for field in fields(Statistics)]


@dataclass(frozen=True)
class Basis:
    """Directions for some layers that lie side by side."""

    columns: slice
    """Of the table of all layers."""
    means: np.ndarray
    forward: np.ndarray
    """Columns × components: makes coordinates."""
    vectors: np.ndarray
    """Components × columns: makes values of coordinates."""
    variances: np.ndarray
    """Of coordinates, falling."""

    def rank(self, step: float) -> int:
        """Components worth coding with this step."""
        return max(1, int(np.count_nonzero(self.variances > FLOOR * step * step)))

    def coordinates(self, table: np.ndarray, rank: int) -> np.ndarray:
        """Coordinates of rows of the table of all layers."""
        return np.ascontiguousarray((table[:, self.columns] - self.means) @ self.forward[:, :rank])

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Columns of the basis from coordinates."""
        return self.means + coordinates @ self.vectors[: coordinates.shape[1]]

    def stored_bytes(self, step: float) -> float:
        """About what a file takes that holds the components in use, each only as finely as it matters: an error in a
        vector grows with its coordinate, so its entries need as many bits as the coordinate has, and one more."""
        used = self.variances[: self.rank(step)]
        bits = 1 + 0.5 * np.log2(np.maximum(used / (FLOOR * step * step), 1))
        return float(len(self.means) * (bits.sum() + 16) / 8)


def collect(passes: Passes, contexts: torch.Tensor, cuts: Sequence[int], every: int = 4) -> dict[str, Statistics]:
    """Statistics of `keys` and `values` of all layers, and of `hidden`, what the layers of `cuts` hand on. Gradients cost
    several times as much as a pass and are taken of each `every`-th context only."""
    generator = torch.Generator().manual_seed(0)
    sums = {kind: _Sums() for kind in ("keys", "values", "hidden")}

    def chosen(kind: str, layers: np.ndarray) -> np.ndarray:
        return (layers[list(cuts)] if kind == "hidden" else layers)[:, SINKS:]

    for index, context in enumerate(tqdm(contexts, desc="statistics", unit="context")):
        for kind, layers in passes.take(context, list(sums)).items():
            sums[kind].add(rows(chosen(kind, layers)))
        if index % every == 0:
            for kind, layers in passes.gradients(context, list(sums), generator).items():
                sums[kind].add_gradients(chosen(kind, layers))
    return {kind: found.done() for kind, found in sums.items()}


def kept(path: Path, make: Callable[[], dict[str, Statistics]]) -> dict[str, Statistics]:
    """Statistics in a file, made if it is not there: they take minutes, and runs may be interrupted."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new.npz")
        np.savez(new, **{f"{kind}.{name}": value for kind, seen in make().items() for name, value in vars(seen).items()})
        new.replace(path)
    with np.load(path) as arrays:
        kinds = dict.fromkeys(name.split(".")[0] for name in arrays)
        return {kind: Statistics(*(arrays[f"{kind}.{name}"] for name in FIELDS)) for kind in kinds}


class _Sums:
    """Sums over tokens, streamed: contexts are not kept."""

    def __init__(self) -> None:
        self.count = self.gradients = 0

    def add(self, table: np.ndarray) -> None:
        rows_ = torch.from_numpy(table)
        if self.count == 0:
            # Products are of differences from a first guess at the means: keys have means far from zero.
            self.guess = rows_.mean(0)
            self.first = torch.zeros(rows_.shape[1], dtype=torch.float64)
            self.second = torch.zeros(rows_.shape[1], rows_.shape[1])
        rows_ = rows_ - self.guess
        self.first += rows_.double().sum(0)
        self.second.addmm_(rows_.T, rows_)
        self.count += len(rows_)

    def add_gradients(self, layers: np.ndarray) -> None:
        found = torch.from_numpy(layers)
        total = found.transpose(1, 2) @ found
        self.metric = total if self.gradients == 0 else self.metric + total
        self.gradients += layers.shape[1]

    def done(self) -> Statistics:
        off = (self.first / self.count).float()
        covariance = self.second / self.count - torch.outer(off, off)
        return Statistics((self.guess + off).numpy(), covariance.numpy(), (self.metric / self.gradients).numpy())


def fit(seen: Statistics, group: int) -> list[Basis]:
    """A basis for each `group` layers, the last one for what is left."""
    layers = len(seen.metric)
    return [_fit(seen, range(first, min(first + group, layers))) for first in range(0, layers, group)]


def _fit(seen: Statistics, layers: Sequence[int]) -> Basis:
    columns = slice(layers[0] * seen.width, (layers[-1] + 1) * seen.width)
    factors, inverses = zip(*(_factor(seen.metric[layer]) for layer in layers))
    into, back = torch.block_diag(*factors), torch.block_diag(*inverses)
    covariance = torch.from_numpy(seen.covariance[columns, columns]).double()
    variances, axes = torch.linalg.eigh((into.T @ covariance @ into).float())
    variances, axes = variances.flip(0), axes.flip(1).double()
    forward, vectors = (into @ axes).float().numpy(), (axes.T @ back).float().numpy()
    return Basis(columns, seen.means[columns], forward, vectors, variances.numpy())


def _factor(metric: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """F with F·Fᵀ = the damped metric, and its inverse."""
    curvature, axes = torch.linalg.eigh(torch.from_numpy(metric).double())
    curvature = curvature.clamp(min=0) + DAMPING * curvature.mean()
    if not bool((curvature > 0).all()):
        raise ValueError("the gradients of a layer are all zero: its metric says nothing")
    return axes * curvature.sqrt(), (axes / curvature.sqrt()).T
