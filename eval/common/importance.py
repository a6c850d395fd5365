"""Importance of input channels from a small calibration run: the mean square of what each column of a matrix is
multiplied with, as in an importance matrix of llama.cpp. A column that meets large inputs gets a finer step."""

from __future__ import annotations

import numpy as np
import torch
from tenfold.torch import Importance


def collect(model: torch.nn.Module, contexts: torch.Tensor) -> dict[str, np.ndarray]:
    """Mean squares of the input channels of all linear layers, by the name of their weight."""
    with Importance(model) as seen, torch.inference_mode():
        for context in contexts:
            model(context[None])
    return seen.vectors()
