"""Bases for keys, values and hidden states: what a model computes on text that is not judged, and the files that `tenfold basis
fit` makes of it.

A fit needs two things. Rows say how keys (values) move, across several layers at once. The metric says what an error
does: per layer, the covariance of gradients of the loss where the model's own samples are the labels, which is the second
order of the divergence between predictions with and without the error, in nats. With it one step for all coordinates of
all layers, keys and values alike, is best.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tqdm import tqdm

from common.cache import Passes, rows
from common.outside import run

SINKS = 4
"""Tokens at the start of a context that are left out: attention parks on them, and they look like no others."""
NAMES = {"keys": "k_before_rope", "values": "v", "hidden": "hidden"}
"""Of captured tensors, as `tenfold basis fit` knows them."""


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
class Captured:
    """A folder with rows and metrics as `tenfold basis fit` reads them, and statistics of all layers side by side, which
    peers need. It takes minutes to fill, and runs may be interrupted: it is there whole or not at all."""

    folder: Path

    @classmethod
    def of(cls, folder: Path, passes: Passes, contexts: torch.Tensor, cuts: Sequence[int], every: int = 4) -> Captured:
        """What is in the folder, or else what the model computes on contexts: `keys` and `values` of all layers, and `hidden`,
        what the layers of `cuts` hand on. Gradients cost several times as much as a pass and are taken of each
        `every`-th context only."""
        if not folder.exists():
            new = folder.with_name(folder.name + ".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            _fill(new, passes, contexts, cuts, every)
            new.rename(folder)
        return cls(folder)

    @property
    def statistics(self) -> dict[str, Statistics]:
        """By kind."""
        with np.load(self.folder / "statistics.npz") as arrays:
            return {kind: Statistics(*(arrays[f"{kind}.{name}"] for name in FIELDS)) for kind in NAMES}

    @property
    def files(self) -> list[Path]:
        """Rows, a file for each context."""
        return sorted(self.folder.glob("rows-*.safetensors"))

    @property
    def metric(self) -> Path:
        """The file of metrics."""
        return self.folder / "metric.safetensors"

    def fit(self, path: Path, kinds: Sequence[str], **options: Any) -> dict[str, Any]:
        """Writes a file of bases for these kinds, with options of `tenfold basis fit`; gives its report."""
        return fit(path, self.files, kinds, metric=self.metric, **options)


Files = Sequence[Path] | Mapping[str, Sequence[Path]]
"""Of rows, or of sets of them by name."""


def fit(path: Path, files: Files, kinds: Sequence[str], *, each: bool = False, **options: Any) -> dict[str, Any]:
    """Writes a file of bases for these kinds from files of rows, with options of `tenfold basis fit`; gives its report."""
    stated = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()] + ["--each"] * each
    common = [f"--out={path}", "--force", "--parts=0", "--json"]
    if isinstance(files, Mapping):
        given = [f"--set={name}={','.join(map(str, some))}" for name, some in files.items()]
    else:
        given = [str(file) for file in files]
    command = [sys.executable, "-m", "tenfold", "basis", "fit", *given, f"--kind={','.join(kinds)}"]
    report: dict[str, Any] = json.loads(run([*command, *common, *stated]))
    return report


def rope_of(config: Any) -> str:
    """Rotary positions of a model of Llama's kind, as `tenfold basis fit` takes them."""
    return f"base={config.rope_parameters['rope_theta']},head={config.head_dim},pairing=halves"


def _fill(folder: Path, passes: Passes, contexts: torch.Tensor, cuts: Sequence[int], every: int) -> None:
    generator = torch.Generator().manual_seed(0)
    sums = {kind: _Sums() for kind in NAMES}
    # States behind a layer are those before the next.
    layers_of = {kind: [cut + 1 for cut in cuts] if kind == "hidden" else list(range(passes.layers)) for kind in NAMES}

    def chosen(kind: str, layers: np.ndarray) -> np.ndarray:
        return (layers[list(cuts)] if kind == "hidden" else layers)[:, SINKS:]

    def named(kind: str, layers: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"layers.{n}.{NAMES[kind]}": one.contiguous() for n, one in zip(layers_of[kind], layers)}

    for index, context in enumerate(tqdm(contexts, desc="statistics", unit="context")):
        tensors: dict[str, torch.Tensor] = {}
        for kind, layers in passes.take(context, list(sums)).items():
            sums[kind].add(rows(chosen(kind, layers)))
            # Half the bytes, and far more exact than sums over them need.
            tensors |= named(kind, torch.from_numpy(chosen(kind, layers)).bfloat16())
        save_file(tensors, folder / f"rows-{index:04}.safetensors")
        if index % every == 0:
            for kind, layers in passes.gradients(context, list(sums), generator).items():
                sums[kind].add_gradients(chosen(kind, layers))
    done = {kind: found.done() for kind, found in sums.items()}
    metric = {name: one[None] for kind, seen in done.items() for name, one in named(kind, torch.from_numpy(seen.metric)).items()}
    save_file(metric, folder / "metric.safetensors")
    arrays = {f"{kind}.{name}": value for kind, seen in done.items() for name, value in vars(seen).items()}
    np.savez(folder / "statistics.npz", **arrays)


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
