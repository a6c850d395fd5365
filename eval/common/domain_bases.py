"""Bases from sets of domains: what a model computes on their contexts for bases, captured once a context, and the files that
`tenfold basis fit` makes of any mixture, in which all domains have the same share.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tenfold
import torch
from safetensors.torch import load_file, save_file
from tqdm import tqdm

from common import bases
from common.bases import NAMES, SINKS
from common.cache import Passes
from common.kvpeers import Axes, Kvtc

KINDS = ("keys", "values")
EVERY = 2
"""Gradients cost several times as much as a pass, and are taken of each `EVERY`-th context."""


class Sets:
    """Captured contexts of all domains, and what is fitted on some of them."""

    def __init__(self, folder: Path, passes: Passes, contexts: Mapping[str, torch.Tensor]) -> None:
        """`contexts` for bases, by domain. The folder keeps what was captured and fitted."""
        self.folder, self.passes, self.contexts = folder, passes, contexts
        self._kvtc: dict[tuple[str, ...], Kvtc] = {}

    def captured(self, names: Sequence[str]) -> dict[str, list[Path]]:
        """Folders of each domain's contexts."""
        return {name: [self._capture(name, index) for index in range(len(self.contexts[name]))] for name in names}

    def basis(self, names: Sequence[str], *, each: bool = False, **stated: float | str) -> Path:
        """The file of bases from these domains, or of bases for each of them, made if it is not there."""
        found = self.captured(names)
        told = repr((tenfold.__version__, [one.name for some in found.values() for one in some], each, sorted(stated.items())))
        path = self.folder / f"{'-'.join(names)}-{hashlib.sha256(told.encode()).hexdigest()[:16]}.basis"
        if not path.exists():
            metric, new = path.with_suffix(".metric"), path.with_suffix(".new")
            save_file(self._metric(found), metric)
            sets = {name: self._rows(folders) for name, folders in found.items()}
            # One domain alone is no set: its file names none.
            files = sets if len(sets) > 1 else sets[names[0]]
            made = bases.fit(new, files, KINDS, each=each, metric=metric, **stated)
            metric.unlink()
            new.rename(path)
            kind = "bases for each of" if each else "bases from"
            print(f"{kind} {', '.join(names)}: {made['bytes']:,} bytes, for {made['bits']:.2f} bits a value and less")
        return path

    def kvtc(self, names: Sequence[str]) -> Kvtc:
        """KVTC's recipe, from these domains."""
        if tuple(names) not in self._kvtc:
            sets = [self._rows(folders) for folders in self.captured(names).values()]
            self._kvtc[tuple(names)] = Kvtc([self._axes(sets, kind) for kind in KINDS])
        return self._kvtc[tuple(names)]

    def forget(self, names: Sequence[str]) -> None:
        """Lets go of what was fitted for KVTC, which takes hundreds of megabytes."""
        self._kvtc.pop(tuple(names), None)

    def capture_all(self) -> None:
        """Captures all contexts, with a bar."""
        todo = [(name, index) for name, contexts in self.contexts.items() for index in range(len(contexts))]
        for name, index in tqdm(todo, desc="capturing", unit="context"):
            self._capture(name, index)

    def _capture(self, name: str, index: int) -> Path:
        """The folder of a context: its rows, and its metric if it has one."""
        context = self.contexts[name][index]
        digest = hashlib.sha256(context.numpy().tobytes()).hexdigest()[:16]
        folder = self.folder / f"{name}-{index:02}-{digest}"
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            taken = self.passes.take(context, KINDS)
            # Half the bytes, and far more exact than sums over them need.
            rows = {kind: torch.from_numpy(layers[:, SINKS:]).bfloat16() for kind, layers in taken.items()}
            save_file(_named(rows), new / "rows.safetensors")
            if index % EVERY == 0:
                gradients = self.passes.gradients(context, KINDS, torch.Generator().manual_seed(index))
                save_file(_named({kind: _outer(layers) for kind, layers in gradients.items()}), new / "metric.safetensors")
            new.rename(folder)
        return folder

    @staticmethod
    def _rows(folders: Sequence[Path]) -> list[Path]:
        return [folder / "rows.safetensors" for folder in folders]

    @staticmethod
    def _metric(found: Mapping[str, Sequence[Path]]) -> dict[str, torch.Tensor]:
        """The mean of the domains' metrics, each the mean over its contexts."""
        total: dict[str, torch.Tensor] = {}
        for folders in found.values():
            files = [folder / "metric.safetensors" for folder in folders[::EVERY]]
            for file in files:
                for name, one in load_file(file).items():
                    total[name] = total.get(name, 0) + one[None] / (len(files) * len(found))
        return total

    def _axes(self, sets: Sequence[Sequence[Path]], kind: str) -> Axes:
        """Principal components of all layers side by side; sets count alike, and so do contexts of a set."""
        # Products are of differences from a first guess at the means: keys have means far from zero.
        guess = self._table(sets[0][0], kind).mean(0)
        off, second = torch.zeros_like(guess), torch.zeros(len(guess), len(guess), device=guess.device)
        for files in sets:
            for file in files:
                table = self._table(file, kind) - guess
                share = 1 / (len(sets) * len(files) * len(table))
                off += share * table.sum(0)
                second.addmm_(table.T, table, alpha=share)
        covariance = second - torch.outer(off, off)
        return Axes.of((guess + off).cpu().numpy(), covariance.cpu().numpy(), self.passes.device)

    def _table(self, file: Path, kind: str) -> torch.Tensor:
        """Rows of all layers side by side, on the model's device."""
        tensors = load_file(file)
        parts = [tensors[f"layers.{layer}.{NAMES[kind]}"] for layer in range(self.passes.layers)]
        return torch.cat(parts, 1).to(self.passes.device).float()


def _named(kinds: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Layers by the names that `tenfold basis fit` knows."""
    return {
        f"layers.{layer}.{NAMES[kind]}": one.contiguous()
        for kind, layers in kinds.items()
        for layer, one in enumerate(layers)
    }


def _outer(layers: np.ndarray) -> torch.Tensor:
    """Mean product of a token's gradients with each other, of each layer."""
    found = torch.from_numpy(layers[:, SINKS:])
    return found.transpose(1, 2) @ found / found.shape[1]
