"""Hidden states where a model is cut into stages of a pipeline: what stands there while a pass goes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import tenfold

from common.bases import Basis
from common.cache import Change
from common.coders import Coder
from common.kvcoders import bf16, step_of


@dataclass
class Cuts:
    """What stands at each cut, and what went through so far."""

    changes: dict[int, Change]
    settings: dict[str, Any] = field(default_factory=dict)
    stored: float = 0.0
    """Bytes."""
    values: int = 0

    @property
    def bits(self) -> float:
        """Bits a value of all that went through."""
        return 8 * self.stored / max(self.values, 1)

    def stand(self, layer: int, code: Callable[[np.ndarray], tuple[np.ndarray, float]]) -> None:
        """Puts a coder, which gives values and bytes, behind a layer."""

        def change(hidden: np.ndarray) -> np.ndarray:
            decoded, stored = code(hidden)
            self.stored, self.values = self.stored + stored, self.values + hidden.size
            return np.ascontiguousarray(decoded, np.float32)

        self.changes[layer] = change


class CutCoder(Protocol):
    """A coder of hidden states at a rate."""

    def __call__(self, hidden: np.ndarray, layers: Sequence[int], bits: float) -> Cuts:
        """Coders behind layers, for about so many bits a value. `hidden`, layers × tokens × width, is an exact sample."""


@dataclass(frozen=True)
class Plain:
    """Any coder of tensors, a context at a time."""

    coder: Coder

    def __call__(self, hidden: np.ndarray, layers: Sequence[int], bits: float) -> Cuts:
        cuts = Cuts({})

        def code(one: np.ndarray) -> tuple[np.ndarray, float]:
            coded = self.coder({"hidden": one}, bits)
            return coded.weights["hidden"], coded.bits * one.size / 8

        for layer in layers:
            cuts.stand(layer, code)
        return cuts


@dataclass(frozen=True)
class Blobs:
    """tenfold without any basis, a blob a context."""

    effort: str = "best"
    threads: int = 0

    def __call__(self, hidden: np.ndarray, layers: Sequence[int], bits: float) -> Cuts:
        cuts = Cuts({})

        def code(one: np.ndarray) -> tuple[np.ndarray, float]:
            blob = tenfold.encode(np.ascontiguousarray(one), bits=bits, effort=self.effort, threads=self.threads)
            return tenfold.decode(blob, threads=self.threads), len(blob)

        for layer in layers:
            cuts.stand(layer, code)
        return cuts


@dataclass(frozen=True)
class InBasis:
    """tenfold in coordinates of a basis for each cut, one step for all; the first tokens are exact, in bf16."""

    bases: Sequence[Basis]
    sinks: int = 1
    effort: str = "best"
    threads: int = 0

    def __call__(self, hidden: np.ndarray, layers: Sequence[int], bits: float) -> Cuts:
        step = step_of(
            np.concatenate([basis.variances for basis in self.bases]),
            bits,
            lambda step: 8 * sum(self._code(b, h, step)[1] for b, h in zip(self.bases, hidden)) / hidden.size,
        )
        basis_bytes = round(sum(basis.stored_bytes(step) for basis in self.bases))
        cuts = Cuts({}, {"step": step, "sinks": self.sinks, "basis_bytes": basis_bytes})
        for layer, basis in zip(layers, self.bases):
            cuts.stand(layer, lambda one, basis=basis: self._code(basis, one, step))
        return cuts

    def _code(self, basis: Basis, hidden: np.ndarray, step: float) -> tuple[np.ndarray, int]:
        out = bf16(hidden)
        coordinates = (hidden[self.sinks :] - basis.means) @ basis.forward[:, : basis.rank(step)]
        blob = tenfold.encode(np.ascontiguousarray(coordinates), step=step, effort=self.effort, threads=self.threads)
        out[self.sinks :] = basis.values(tenfold.decode(blob, threads=self.threads))
        return out, len(blob) + 2 * hidden[: self.sinks].size
