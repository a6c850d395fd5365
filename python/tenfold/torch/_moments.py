"""Second moments of what linear layers get and of what errors in their outputs do, summed while a model runs.

:class:`Watcher` hooks the layers; :mod:`._calibration` makes a calibration of the sums. Layers that get the same tensor (queries, keys and
values; gate and up) share one matrix.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .._errors import DataError

# Wider sums stay in float32: the matrix itself is what takes the memory then.
WIDEST_DOUBLE = 8192


class Moments:
    """Weighted sum of x·xᵀ, or of its blocks on the diagonal where the whole is wider than a budget."""

    def __init__(self, cols: int, max_width: int, device: torch.device) -> None:
        self.cols = cols
        self.blocks = -(-cols // max_width)
        self.width = -(-cols // self.blocks)
        dtype = torch.float64 if self.width <= WIDEST_DOUBLE else torch.float32
        self.sum = torch.zeros(self.blocks, self.width, self.width, dtype=dtype, device=device)
        # Of the weights, of their squares, and how many rows they belong to.
        self.mass, self.squares, self.rows = 0.0, 0.0, 0

    def add(self, rows: torch.Tensor, weights: torch.Tensor | None) -> None:
        """Adds rows (n × columns), each of which counts as much as its weight."""
        rows = rows.float()
        left = rows if weights is None else rows * weights.float()[:, None]
        for block in range(self.blocks):
            first, last = block * self.width, min((block + 1) * self.width, self.cols)
            part = left[:, first:last].T @ rows[:, first:last]
            self.sum[block, : last - first, : last - first] += part
        self.rows += len(rows)
        self.mass += len(rows) if weights is None else float(weights.double().sum())
        self.squares += len(rows) if weights is None else float(weights.double().square().sum())

    def mean(self) -> torch.Tensor:
        """Blocks × width × width, float32, on the CPU. Columns past the last one are zero."""
        mean = self.sum / (self.mass or 1.0)
        return ((mean + mean.mT) / 2).float().cpu()


class _Shared:
    """Layers that get the same tensor."""

    def __init__(self, cols: int, max_width: int, device: torch.device) -> None:
        self.members: list[str] = []
        self.moments = Moments(cols, max_width, device)
        self.input: weakref.ref[torch.Tensor] | None = None
        # Members whose gradients are still to come, rows, and what they count so far; by pass.
        self.pending: list[tuple[set[str], torch.Tensor, torch.Tensor]] = []


class Watcher:
    """Sums over passes of a model, by the name of the layer. A pass whose outputs get gradients is weighted by these."""

    def __init__(self, layers: Mapping[str, torch.nn.Linear], max_width: int) -> None:
        self._layers = layers
        self._max_width = max_width
        self.shared: dict[str, _Shared] = {}
        # Sums of the squares of gradients by output, the weight of their rows, and what an average row of the first pass counts.
        self.outputs: dict[str, torch.Tensor] = {}
        self.masses: dict[str, float] = {}
        self.scales: dict[str, float] = {}
        # How much the rows of a pass count: the share of the text.
        self.share = 1.0
        # What the rows of each pass counted, by the first layer with that input, if anybody wants to know.
        self.counted: dict[str, list[torch.Tensor]] | None = None
        # In a pass that will have gradients, rows wait for them.
        self.gradients = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While open, passes are summed."""
        handles = [layer.register_forward_hook(self._hook(name)) for name, layer in self._layers.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self.flush()

    def _hook(self, name: str) -> Any:
        def see(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            self._see(name, inputs[0], output)

        return see

    def _see(self, name: str, given: torch.Tensor, output: torch.Tensor) -> None:
        if not given.numel():
            return
        rows = given.detach().reshape(-1, given.shape[-1])
        shared, leads = self._find(name, given)
        waits = self.gradients and output.requires_grad
        if leads:
            _check(rows, f"the inputs of {name}")
            if waits:
                shared.pending.append((set(), rows, torch.zeros(len(rows), device=rows.device)))
            else:
                weights = None if self.share == 1.0 else torch.full((len(rows),), self.share, device=rows.device)
                shared.moments.add(rows, weights)
        if waits:
            waiting = shared.pending[-1]
            waiting[0].add(name)
            output.register_hook(lambda gradient: self._learn(name, shared, waiting, gradient))  # type: ignore[no-untyped-call]

    def _find(self, name: str, given: torch.Tensor) -> tuple[_Shared, bool]:
        """The layers with the same input as this one, and whether this is the first of them that got it."""
        found = self.shared.get(name)
        if found is None:
            same = (one for one in self.shared.values() if one.input is not None and one.input() is given)
            found = next(same, None) or _Shared(given.shape[-1], self._max_width, given.device)
            found.members.append(name)
            self.shared[name] = found
        elif found.input is None or found.input() is not given:
            # A layer that was thought to share its input, and now gets another one, has a matrix from here on.
            if found.members[0] != name:
                found.members.remove(name)
                found = _Shared(given.shape[-1], self._max_width, given.device)
                found.members.append(name)
                self.shared[name] = found
        leads = found.members[0] == name
        if leads:
            found.input = weakref.ref(given)
        return found, leads

    def _learn(self, name: str, shared: _Shared, waiting: tuple[set[str], torch.Tensor, torch.Tensor], gradient: torch.Tensor) -> None:
        squares = gradient.detach().reshape(-1, gradient.shape[-1]).float().square()
        each = squares.sum(1)
        _check(each, f"the gradients of the outputs of {name}")
        total = squares.double().sum(0) * self.share
        self.outputs[name] = total + self.outputs[name] if name in self.outputs else total
        self.masses[name] = self.masses.get(name, 0.0) + self.share * len(each)
        # Layers that share a matrix have an equal say in it, whatever the size of their gradients. Which rows the first pass
        # had only decides how equal.
        scale = self.scales.setdefault(name, float(each.double().mean()) or 1.0)
        names, rows, weights = waiting
        weights += each * (self.share / scale)
        names.discard(name)
        if not names:
            shared.moments.add(rows, weights)
            if self.counted is not None:
                self.counted.setdefault(shared.members[0], []).append(weights.cpu())
            shared.pending = [one for one in shared.pending if one is not waiting]

    def forget(self) -> None:
        """Drops all sums, but keeps what an average row counts."""
        self.flush()
        self.shared, self.outputs, self.masses = {}, {}, {}

    def flush(self) -> None:
        """Adds what waits for gradients that do not come: where none came at all, all rows count the same."""
        for shared in self.shared.values():
            for _, rows, weights in shared.pending:
                shared.moments.add(rows, weights if self.outputs else torch.full_like(weights, self.share))
            shared.pending.clear()


def _check(values: torch.Tensor, what: str) -> None:
    if not math.isfinite(float(values.float().abs().max())):
        raise DataError(
            f"{what} are not all finite, so nothing can be learnt from them; run the model in a dtype that holds them (float32, bfloat16)"
        )
