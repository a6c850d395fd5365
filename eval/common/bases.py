"""Bases for keys and values: means, and the directions that are coded, fitted on text that is not judged.

Directions come from two matrices. Covariance says how much keys (values) move, across several layers at once. The metric says
what an error does: per layer, the covariance of gradients of the loss where the model's own samples are the labels, which is
the second order of the divergence between predictions with and without the error, in nats. A basis is the principal
axes of the covariance in that metric, so one step for all coordinates of all layers, keys and values alike, is best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


def collect(passes: Passes, contexts: torch.Tensor, every: int = 4, seed: int = 0) -> tuple[Statistics, Statistics]:
    """Statistics of keys and values. Gradients cost several times as much as a pass and are taken of each `every`-th
    context only."""

    def pass_(context: torch.Tensor) -> list[np.ndarray]:
        return list(passes.cache(context))

    keys, values = _collect(passes, contexts, ("keys", "values"), pass_, every, seed)
    return keys, values


def collect_hidden(passes: Passes, contexts: torch.Tensor, layers: Sequence[int], every: int = 4) -> Statistics:
    """Statistics of what these layers hand on."""

    def pass_(context: torch.Tensor) -> list[np.ndarray]:
        return [passes.hidden(context, layers)]

    return _collect(passes, contexts, ("hidden",), pass_, every, 0, layers)[0]


def _collect(
    passes: Passes,
    contexts: torch.Tensor,
    kinds: Sequence[str],
    taken: Callable[[torch.Tensor], list[np.ndarray]],
    every: int,
    seed: int,
    layers: Sequence[int] | None = None,
) -> list[Statistics]:
    generator = torch.Generator().manual_seed(seed)
    sums = [_Sums() for _ in kinds]
    for index, context in enumerate(tqdm(contexts, desc=f"statistics of {' and '.join(kinds)}", unit="context")):
        for kind, found in zip(sums, taken(context)):
            kind.add(rows(found[:, SINKS:]))
        if index % every == 0:
            for kind, found in zip(sums, passes.gradients(context, kinds, generator)):
                chosen = found if layers is None else found[list(layers)]
                kind.add_gradients(chosen[:, SINKS:])
    return [kind.done() for kind in sums]


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
