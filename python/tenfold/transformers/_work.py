"""Captures rows and gradients into a folder, context by context, and makes a file of bases of them.

The folder says what is done: a file of rows for each context, and one of the sums over gradients with the number of contexts that
are in it. Both appear only when complete. So work that was interrupted goes on where it was, and gives the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from .. import _native
from .._errors import ArgumentError
from .._progress import Tell
from .._write import save
from ._cache_config import decoder_config, layers_of, rotary_of
from ._capture import Taken, evaluating, gradients, rows, take
from ._rotary import rope_text


@dataclass(frozen=True)
class Context:
    """Token ids (batch × tokens) of one pass."""

    ids: torch.Tensor
    # Of the set that they belong to.
    set: int = 0
    # How much a row counts in the metric; None if it is not measured here.
    weight: float | None = None


@dataclass(frozen=True)
class Capture:
    """What is captured of a model."""

    model: PreTrainedModel
    layers: int
    rope: dict[str, Any] | None
    hidden: Sequence[int]
    sinks: int
    seed: int

    @classmethod
    def of(cls, model: PreTrainedModel, hidden: Sequence[int], sinks: int, seed: int) -> Capture:
        """Checks what it can before any work is done."""
        config = decoder_config(model.config)
        layers, rope = layers_of(config), rotary_of(config).rope
        if sinks < 0:
            raise ArgumentError(f"sinks must not be negative, unlike {sinks}")
        if any(not 0 <= layer < layers for layer in hidden):
            raise ArgumentError(f"hidden names layers before which to cut, 0 to {layers - 1}, not {list(hidden)}")
        return cls(model, layers, rope, tuple(hidden), sinks, seed)

    def run(self, contexts: Iterable[Context], folder: Path, tell: Tell | None = None, total: int = 0) -> list[list[str]]:
        """Captures what the folder does not have yet. Returns the files of rows of each set."""
        sums = _Sums.open(folder / "gradients.safetensors")
        files: list[list[str]] = []
        with evaluating(self.model):
            for number, context in enumerate(contexts):
                ids = context.ids.to(self.model.device)
                # Gradients come first: where there are rows, all of a context is done.
                if context.weight is not None and number >= sums.contexts:
                    # Of this context alone, so that nothing depends on which were done before.
                    sampled = torch.Generator(self.model.device).manual_seed(self.seed * 1_000_003 + number)
                    found = gradients(self.model, ids, self.layers, self.hidden, sampled)
                    sums.add({name: rows(name, value, self.rope, self.sinks) for name, value in found.items()}, context.weight)
                    sums.save(number + 1)
                path = folder / f"rows-{number:06}.safetensors"
                if not path.exists():
                    with torch.no_grad():
                        taken, _ = take(self.model, ids, self.layers, self.hidden)
                    # Half the bytes of f32, and still far more exact than sums over them need.
                    kept = {name: rows(name, value, self.rope, self.sinks).bfloat16() for name, value in taken.items()}
                    save(kept, path, bits=16, exclude=["*"])
                files.extend([] for _ in range(context.set + 1 - len(files)))
                files[context.set].append(os.fspath(path))
                if tell is not None:
                    tell(number + 1, max(total, number + 1))
        return files


@dataclass(frozen=True)
class Wanted:
    """What to make of captured rows."""

    each: bool
    group: int
    bits: float
    max_bytes: int

    @classmethod
    def of(cls, model: PreTrainedModel, each: int, group: int, bits: float, max_bytes: int | None) -> Wanted:
        """For so many sets with bases of their own, or 0 if all share them. The default for the largest size is 2 % of the model's,
        for each."""
        size = sum(weight.numel() * weight.element_size() for weight in model.parameters()) * max(each, 1)
        return cls(bool(each), group, float(bits), size // 50 if max_bytes is None else max_bytes)

    def check(self, sets: Sequence[tuple[str | None, float]]) -> None:
        """Raises what :meth:`fit` would, as far as that is known before rows are captured."""
        if self.group < 1 or self.max_bytes < 0:
            raise ArgumentError("group must be at least 1, and max_bytes not negative")
        _native.check_fit([(name, weight, ["rows"]) for name, weight in sets], self._native)

    def fit(
        self,
        capture: Capture,
        sets: Sequence[tuple[str | None, float]],
        files: list[list[str]],
        folder: Path,
        out: str,
        overwrite: bool,
        tell: Tell | None = None,
    ) -> dict[str, Any]:
        """Writes the file of bases and returns the report."""
        sums, metric = _Sums.open(folder / "gradients.safetensors"), None
        if sums.contexts:
            metric = folder / "metric.safetensors"
            save(sums.means(), metric, bits=16, exclude=["*"])
        given = [(name, weight, paths) for (name, weight), paths in zip(sets, files, strict=True)]
        rope = None if capture.rope is None else rope_text(capture.rope)
        text = _native.fit_bases(
            given, self._native, out, rope, None if metric is None else os.fspath(metric), overwrite, tell
        )
        report: dict[str, Any] = json.loads(text)
        return report

    @property
    def _native(self) -> tuple[bool, int, float, int]:
        return self.each, self.group, self.bits, self.max_bytes


def check_out(path: str | os.PathLike[str], overwrite: bool) -> str:
    """The path, unless there is a file that may not be replaced: better now than when all is captured."""
    out = os.fspath(path)
    if not overwrite and os.path.lexists(out):
        raise ArgumentError(f"{out} exists; pass overwrite=True to replace it")
    return out


class _Sums:
    """Second moments of gradients, streamed into a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sums: Taken = {}
        # What all rows count together.
        self._mass = 0.0
        # How many contexts were seen, measured or not.
        self.contexts = 0

    @classmethod
    def open(cls, path: Path) -> _Sums:
        """As a file has them, if there is one."""
        sums = cls(path)
        if path.exists():
            with safe_open(path, "pt") as file:  # type: ignore[no-untyped-call, unused-ignore] # theirs has no types
                sums._sums = {name: file.get_tensor(name) for name in file.keys()}
                about = file.metadata()
            sums._mass, sums.contexts = float.fromhex(about["mass"]), int(about["contexts"])
        return sums

    def add(self, found: Taken, weight: float) -> None:
        """Adds rows of gradients, each of which counts so much."""
        for name, each in found.items():
            self._mass += weight * len(each) if name == "layers.0.v" else 0
            self._sums[name] = self._sums.get(name, 0) + weight * (each.T @ each).double()

    def save(self, contexts: int) -> None:
        """Writes what there is after so many contexts."""
        self.contexts = contexts
        about = {"mass": self._mass.hex(), "contexts": str(contexts)}
        save(self._sums, self._path, bits=16, exclude=["*"], metadata=about)

    def means(self) -> Taken:
        """The metrics, each a block for the whole layer."""
        return {name: (total / self._mass).float()[None].contiguous() for name, total in self._sums.items()}
