"""Importance of input channels from a small calibration run: the mean square of what each column of a matrix is
multiplied with, as in an importance matrix of llama.cpp.

A column that meets large inputs gets a finer step. Blobs have no step weights for columns yet, so this does what such
a blob would do: columns are multiplied by their weight, encoded, decoded, and divided again; the weights themselves
count with the bits that they would take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from common.coders import Coded, Coder, Weights

WEIGHT_BITS = 8
"""Bits that a stored weight takes: a whole number of eighths of an octave."""


def collect(model: torch.nn.Module, contexts: torch.Tensor) -> dict[str, np.ndarray]:
    """Mean squares of the input channels of all linear layers, by the name of their weight."""
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}

    def hook(name: str):  # type: ignore[no-untyped-def]
        def see(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            rows = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).double()
            sums[name] = sums.get(name, 0) + rows.square().sum(0)
            counts[name] = counts.get(name, 0) + len(rows)

        return see

    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}
    handles = [layer.register_forward_pre_hook(hook(f"{name}.weight")) for name, layer in layers.items()]
    try:
        with torch.inference_mode():
            for context in contexts:
                model(context[None])
    finally:
        for handle in handles:
            handle.remove()
    return {name: (total / counts[name]).numpy() for name, total in sums.items()}


def step_weights(mean_square: np.ndarray, power: float) -> np.ndarray:
    """Weights of columns, mean square to the power/2, over their geometric mean and rounded to what is stored. A power
    of 1 minimises the error of the layer's output."""
    floor = max(float(mean_square.max()), 1e-30) * 1e-6
    octaves = 0.5 * power * np.log2(np.maximum(mean_square, floor))
    return np.float32(np.exp2(np.rint((octaves - octaves.mean()) * 8) / 8))


@dataclass(frozen=True)
class Weighted:
    """A coder with step weights for columns around it."""

    coder: Coder
    importance: Mapping[str, np.ndarray]
    power: float = 1.0

    def __call__(self, weights: Weights, bits: float) -> Coded:
        steps = {name: step_weights(self.importance[name], self.power) for name in weights}
        side = sum(WEIGHT_BITS * len(step) for step in steps.values()) / sum(w.size for w in weights.values())
        coded = self.coder({name: weight * steps[name] for name, weight in weights.items()}, bits - side)
        back = {name: weight / steps[name] for name, weight in coded.weights.items()}
        settings = coded.settings | {"importance": self.power, "side_bits": side}
        return Coded(back, coded.bits + side, settings)
