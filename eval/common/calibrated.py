"""tenfold with a calibration: a model's folder through `tenfold.transformers.compress`, or weights with a calibration file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tenfold
import tenfold.transformers
import torch
from safetensors.numpy import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from common.coders import Coded, Weights


@dataclass(frozen=True)
class Calibrated:
    """Calibrated on contexts of tokens or on several kinds of them, layer after layer or all layers on the model as it was."""

    model: PreTrainedModel
    contexts: torch.Tensor | Mapping[str, torch.Tensor]
    sequential: bool = True
    alloc: str = "loss"
    effort: str = "balanced"
    tell: Callable[[str], None] = lambda text: None
    mixture: float = 0.0
    """How much of the package's texts counts beside these."""
    tokenizer: PreTrainedTokenizerBase | None = None

    def __call__(self, weights: Weights, bits: float) -> Coded:
        with tempfile.TemporaryDirectory() as name:
            source, small = Path(name) / "model", Path(name) / "small"
            save_plain(self.model, source)
            options = {"alloc": self.alloc, "effort": self.effort, "sequential": self.sequential, "mixture": self.mixture}
            kinds = self.contexts.values() if isinstance(self.contexts, Mapping) else [self.contexts]
            length = max(kind.shape[1] for kind in kinds)
            found = tenfold.transformers.compress(
                source, small, texts=self.contexts, tokenizer=self.tokenizer, bits=bits, context=length, progress=self._progress, **options
            )
            with tenfold.open(small) as archive:
                decoded = {name: archive.read(name, dtype="float32") for name in weights}
        settings = options | {"predicted": found.loss, "tokens": found.tokens}
        return Coded(decoded, found.bits, settings)

    def _progress(self, done: int, total: int) -> None:
        if done % 10 == 0:
            self.tell(f"{done} of {total} passes over layers")


def save_plain(model: PreTrainedModel, folder: Path) -> None:
    """Leaves a model in a folder. One that came from GGUF is plain weights by now, and says otherwise."""
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    with torch.device("meta"):
        plain = type(model)(type(model.config).from_dict(config))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.save_pretrained(folder)


@dataclass(frozen=True)
class WithFile:
    """Weights with a calibration file, as `tenfold compress --calibration`; those that it does not know are coded plainly."""

    calibration: Path
    alloc: str = "loss"
    effort: str = "best"
    threads: int = 0

    def __call__(self, weights: Weights, bits: float) -> Coded:
        options = {"alloc": self.alloc, "effort": self.effort, "threads": self.threads}
        with tempfile.TemporaryDirectory() as name:
            plain, small = Path(name) / "plain.safetensors", Path(name) / "small.safetensors"
            save_file({name: np.ascontiguousarray(weight) for name, weight in weights.items()}, plain)
            report = tenfold.compress(plain, small, bits=bits, calibration=self.calibration, include=["*"], **options)
            return Coded(tenfold.load(small, threads=self.threads), report.bits_per_value, options)
