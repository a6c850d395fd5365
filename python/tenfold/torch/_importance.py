"""Importance of the columns of linear layers, from a small calibration run."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import numpy as np
import torch

from .._errors import ArgumentError
from .._write import save


class Importance:
    """Watches the linear layers of a running model and sums the squares of the inputs to each column of their weights.

    A column with large inputs matters more in the layer's output, so its errors should be smaller.
    :func:`tenfold.compress` and :func:`tenfold.save` take the result as ``importance``. A few thousand tokens of
    ordinary text are enough.

    >>> import torch, tenfold, tenfold.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    >>> with tenfold.torch.Importance(model) as seen:
    ...     _ = model(torch.randn(500, 64))
    >>> sorted(seen.vectors()), seen.vectors()["2.weight"].shape
    (['0.weight', '2.weight'], (128,))
    >>> weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    >>> tenfold.save(weights, "small.safetensors", bits=2.5, importance=seen.vectors()).compressed
    2
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._layers = {
            f"{name}.weight" if name else "weight": layer
            for name, layer in model.named_modules()
            if isinstance(layer, torch.nn.Linear)
        }
        if not self._layers:
            raise ArgumentError("the model has no linear layers to watch")
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Importance:
        for name, layer in self._layers.items():
            self._handles.append(layer.register_forward_pre_hook(self._hook(name)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, name: str) -> Any:
        def see(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            rows = inputs[0].detach().reshape(-1, inputs[0].shape[-1])
            squares = rows.double().square().sum(0)
            self._sums[name] = squares + self._sums[name] if name in self._sums else squares
            self._counts[name] = self._counts.get(name, 0) + len(rows)

        return see

    def vectors(self) -> dict[str, np.ndarray]:
        """Mean squares by the name of the weight, for layers that have run."""
        if not self._sums:
            raise ArgumentError("nothing has run yet: run the model on some text inside the with block")
        return {name: (total / max(self._counts[name], 1)).cpu().numpy() for name, total in self._sums.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the vectors into a file that ``tenfold compress --importance`` reads."""
        save({name: np.float32(vector) for name, vector in self.vectors().items()}, path, lossless=True, exclude=["*"])
