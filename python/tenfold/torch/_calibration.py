"""What a model does on sample text, as far as an encoder of its weights needs it: one calibration for all linear layers."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any

import numpy as np
import torch

from .._errors import ArgumentError, DataError
from .._model import open as open_file
from .._write import save
from ._mapped import mapped
from ._moments import Watcher
from ._summary import CalibratedLayer, Summary, linear_layers, summarise
from ._sums import Sums

# Of the file's layout.
FORMAT = "1"
# Above this many columns a matrix becomes blocks on its diagonal.
MAX_WIDTH = 16384
# Two weights whose norms differ by more are not the same weight.
SAME = 0.02


class Calibration:
    """Watches the linear layers of a running model: E[x·xᵀ] of their inputs and E[g²] of their outputs.

    An encoder that knows both puts errors where they do least: :func:`tenfold.encode_calibrated`, or ``calibration`` of
    :func:`tenfold.compress`. Gradients g are those of a loss; call ``backward`` on it inside the block, and tokens count by
    their gradients. Without, all tokens and outputs count the same. :meth:`collect` does all of it for a language model.

    >>> import torch, tenfold.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    >>> with tenfold.torch.Calibration(model) as seen:
    ...     model(torch.randn(1000, 64)).square().sum().backward()
    >>> list(seen), seen.inputs("2.weight").shape, seen.outputs("2.weight").shape
    (['0.weight', '2.weight'], (128, 128), (64,))
    >>> seen.save("calibration.safetensors")

    Args:
        model: any module with ``nn.Linear`` layers.
        max_width: columns above which a matrix is kept as blocks on its diagonal.
    """

    def __init__(self, model: torch.nn.Module, *, max_width: int = MAX_WIDTH) -> None:
        if max_width < 1:
            raise ArgumentError(f"max_width must be at least 1, not {max_width}")
        self._watched = linear_layers(model)
        if not self._watched:
            raise ArgumentError("the model has no linear layers to watch")
        self._watcher = Watcher(self._watched, max_width)
        self._open: Any = None
        self._matrices: dict[str, torch.Tensor] = {}
        self._outputs: dict[str, torch.Tensor] = {}
        self.layers: dict[str, CalibratedLayer] = {}
        """By the name of the weight."""
        self.notes: list[str] = []
        """What a user should know: layers that saw too few tokens, and what was done about it."""

    def __enter__(self) -> Calibration:
        self._watcher.gradients = torch.is_grad_enabled()
        self._open = self._watcher.watching()
        self._open.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)
        if kind is None:
            self._finish()

    @classmethod
    def collect(
        cls, model: torch.nn.Module, contexts: Iterable[Any], path: str | os.PathLike[str], **options: Any
    ) -> Calibration:
        """Calibrates a language model layer by layer, so that one layer's memory is enough, and writes the file.

        Options are those of :func:`tenfold.torch.calibrate_layers`, of which this is a short form.
        """
        from ._layerwise import calibrate_layers

        return calibrate_layers(model, contexts, path, **options)

    def _finish(self) -> None:
        self._take(summarise(Sums.of(self._watched, self._watcher)))
        for note in self.notes:
            warnings.warn(note, stacklevel=3)

    @classmethod
    def of(cls, found: Summary) -> Calibration:
        """A calibration of layers that something else has watched."""
        made = cls.__new__(cls)
        made._take(found)
        return made

    def _take(self, found: Summary) -> None:
        self.layers, self._matrices, self._outputs, self.notes = found.layers, found.matrices, found.outputs, found.notes

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __contains__(self, name: object) -> bool:
        return name in self.layers

    def inputs(self, name: str) -> np.ndarray:
        """E[x·xᵀ] of the inputs of a weight, columns × columns in float32."""
        layer = self._layer(name)
        blocks = self._matrices[layer.matrix]
        if len(blocks) == 1:
            return np.ascontiguousarray(blocks[0].numpy())
        width = blocks.shape[1]
        whole = np.zeros((len(blocks) * width,) * 2, np.float32)
        for number, block in enumerate(blocks):
            span = slice(number * width, (number + 1) * width)
            whole[span, span] = block.numpy()
        return np.ascontiguousarray(whole[: layer.cols, : layer.cols])

    def outputs(self, name: str) -> np.ndarray | None:
        """E[g²] of the outputs of a weight, a number a row in float64, if gradients were seen."""
        self._layer(name)
        found = self._outputs.get(name)
        return None if found is None else found.double().numpy()

    def _layer(self, name: str) -> CalibratedLayer:
        if not self.layers:
            raise ArgumentError("nothing has run yet: run the model on some text inside the with block")
        if name not in self.layers:
            raise ArgumentError(f"the calibration knows no weight {name!r}; the first it knows is {next(iter(self.layers))!r}")
        return self.layers[name]

    def check(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Checks that the calibration is of these weights, by name: shapes and norms."""
        known = [name for name in self.layers if name in weights]
        if not known:
            raise ArgumentError(f"the calibration is of another model: it has no {next(iter(self.layers), '')!r}")
        for name in known:
            layer, weight = self.layers[name], weights[name]
            if tuple(weight.shape) != (layer.rows, layer.cols):
                raise ArgumentError(
                    f"the calibration is of another model: {name!r} has {layer.rows} × {layer.cols} values there, {tuple(weight.shape)} here"
                )
            norm = float(weight.detach().double().norm())
            if abs(norm - layer.norm) > SAME * max(norm, layer.norm):
                raise ArgumentError(
                    f"the calibration is of another model: the norm of {name!r} was {layer.norm:.4g} there and is {norm:.4g} here"
                )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that ``tenfold compress --calibration`` reads; docs/format.md describes it."""
        self._layer(next(iter(self.layers), ""))
        tensors: dict[str, torch.Tensor] = dict(self._matrices)
        tensors.update({f"{name}.outputs": found for name, found in self._outputs.items()})
        about = {
            "calibration.format": FORMAT,
            "calibration.layers": json.dumps({name: asdict(layer) for name, layer in self.layers.items()}),
            "calibration.notes": json.dumps(self.notes),
        }
        save(tensors, path, lossless=True, exclude=["*"], metadata=about)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Calibration:
        """Reads a file of :meth:`save`."""
        return cls.join([path])

    @classmethod
    def join(cls, paths: Iterable[str | os.PathLike[str]]) -> Calibration:
        """Reads files of :meth:`save`, each of other layers, as one."""
        made = cls.of(Summary({}, {}, {}, []))
        for path in paths:
            with open_file(path) as file:
                about = file.metadata
            if about.get("calibration.format") != FORMAT:
                what = about.get("calibration.format")
                raise DataError(
                    f"{os.fspath(path)} is not a calibration" if what is None else f"{os.fspath(path)}: calibrations of format {what} are newer"
                )
            try:
                layers = {name: CalibratedLayer(**one) for name, one in json.loads(about["calibration.layers"]).items()}
                made.notes += json.loads(about["calibration.notes"])
                stored = mapped(path)
                for name, layer in layers.items():
                    made._matrices[layer.matrix] = _blocks(stored[layer.matrix], layer)
                    if f"{name}.outputs" in stored:
                        made._outputs[name] = stored[f"{name}.outputs"]
                        if made._outputs[name].shape != (layer.rows,):
                            raise ValueError(f"{name} has {layer.rows} outputs")
                made.layers.update(layers)
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(f"{os.fspath(path)}: damaged calibration ({error})") from error
        return made


def _blocks(matrix: torch.Tensor, layer: CalibratedLayer) -> torch.Tensor:
    """Blocks on the diagonal, of which only the last has columns to spare."""
    if matrix.dim() != 3 or matrix.shape[1] != matrix.shape[2] or not 0 <= len(matrix) * matrix.shape[1] - layer.cols < matrix.shape[1]:
        raise ValueError(f"{layer.matrix} is {tuple(matrix.shape)}, for {layer.cols} columns")
    return matrix
