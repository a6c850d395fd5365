"""Hidden states where a model is cut into stages of a pipeline: what stands there while a pass goes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tenfold
import torch
from tenfold.kv import HiddenCodec

from common.cache import Change
from common.coders import Coder
from common.kvcoders import step_of, variances

MARGIN = 0.975
"""What part of a rate is aimed at where it must not be exceeded."""


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
    """tenfold behind a basis for each cut, as `tenfold.kv.HiddenCodec` makes and reads blobs, one step for all; the first tokens are
    exact, in bf16."""

    path: Path
    """Of the bases."""
    sinks: int = 1
    effort: str = "best"
    threads: int = 0

    def __call__(self, hidden: np.ndarray, layers: Sequence[int], bits: float) -> Cuts:
        # States behind a layer are those before the next.
        codecs = [HiddenCodec(self.path, layer + 1, effort=self.effort, threads=self.threads) for layer in layers]
        # The rate is a bar here: other contexts than the sample may take a little more.
        step = step_of(
            variances(self.path),
            MARGIN * bits,
            lambda step: 8 * sum(self._code(one, states, step)[1] for one, states in zip(codecs, hidden)) / hidden.size,
        )
        cuts = Cuts({}, {"step": step, "sinks": self.sinks, "basis_bytes": self.path.stat().st_size})
        for layer, codec in zip(layers, codecs):
            cuts.stand(layer, lambda one, codec=codec: self._code(codec, one, step))
        return cuts

    def _code(self, codec: HiddenCodec, hidden: np.ndarray, step: float) -> tuple[np.ndarray, int]:
        states = torch.from_numpy(hidden).bfloat16()
        blob = codec.encode(states[self.sinks :], step=step)
        codec.decode(blob, out=states[self.sinks :])
        return states.float().numpy(), len(blob) + 2 * states[: self.sinks].numel()
