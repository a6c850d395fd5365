"""Model files, written from tensors in memory or from other files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _native
from ._arrays import as_input
from ._codec import column_importance, encode_options
from ._errors import ArgumentError, DtypeError
from ._progress import bar

Path = str | os.PathLike[str]


def save(
    tensors: Mapping[str, Any],
    path: Path,
    *,
    alloc: str = "equal",
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    recipe: Path | None = None,
    importance: Path | Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = True,
    progress: bool | Callable[[int, int], object] = False,
    **options: Any,
) -> _native.Report:
    """Writes a state dict into a compressed model file, which is valid safetensors.

    Floats with at least two dimensions and 4096 values are compressed; all others are written unchanged. The file
    appears only when complete. Tensors are read in place, as in :func:`encode`.

    Args:
        tensors: names and tensors.
        path: the file to write.
        alloc: how to share ``bits`` among the tensors: "equal", "step" (one quantiser step for all: least squared
            error) or "ramp=K" (K more bits from each layer of the model to the next).
        include: patterns of names to compress even if small, one-dimensional or integer.
        exclude: patterns of names to leave unchanged.
        recipe: path of a TOML file with goals by tensor; a goal or an effort stated here overrides its default.
        importance: by tensor name, how much errors in each column count, as in :func:`encode`; or the path of a file
            with it: safetensors with a vector under each tensor's name, or an imatrix GGUF of llama.cpp.
        metadata: strings to keep in the file.
        overwrite: whether an existing file may be replaced.
        progress: True for a tqdm bar, or a function that is called with the bytes done and the total.
        options: a goal, ``effort``, ``threads``, ``prepare``, ``residual`` and ``format``, as in :func:`encode`.

    >>> import numpy as np, tenfold
    >>> x = np.random.default_rng(0).standard_normal((64, 256), dtype=np.float32)
    >>> report = tenfold.save({"layer.weight": x, "layer.bias": x[0]}, "small.safetensors", bits=4)
    >>> report.tensors, report.compressed, round(report.bits_per_value, 1)
    (2, 1, 4.0)
    """
    if not isinstance(tensors, Mapping):
        raise DtypeError(f"save takes a mapping from names to tensors, not {type(tensors).__name__}")
    for name in tensors:
        if not isinstance(name, str):
            raise DtypeError(f"names of tensors must be strings, not {name!r}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise DtypeError(f"metadata must map strings to strings, not {key!r} to {value!r}")
    encode, write = _options(options, alloc, include, exclude, recipe, importance, overwrite)
    pairs = [(name, as_input(tensor)) for name, tensor in tensors.items()]
    with bar(progress, "save") as tell:
        return _native.save(pairs, dict(metadata or {}), os.fspath(path), encode, write, tell)


def compress(
    input: Path,
    output: Path,
    *,
    alloc: str = "equal",
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    recipe: Path | None = None,
    importance: Path | Mapping[str, Any] | None = None,
    calibration: Path | None = None,
    loss: float | None = None,
    made: Mapping[str, Path] | None = None,
    overwrite: bool = False,
    progress: bool | Callable[[int, int], object] = False,
    **options: Any,
) -> _native.Report:
    """Compresses a model file or a whole folder, as the command ``tenfold compress`` does.

    The input is a safetensors file, an index of shards, a folder with either, a GGUF or an npy file. A folder becomes a
    folder, with its other files (configuration, tokenizer) copied. Memory use depends on the largest tensor. The output
    appears only when complete. ``calibration`` is a file of :class:`tenfold.torch.Calibration`;
    with it ``alloc`` may be "loss", and ``loss`` takes the place of a goal: how much the model's loss may rise, in nats a token. ``made`` has files of blobs that you have encoded, by the names of their tensors; these are taken as
    they are, whatever is excluded. The other arguments are those of :func:`save`.

    >>> import numpy as np, tenfold
    >>> np.save("noise.npy", np.random.default_rng(0).standard_normal((64, 256)))
    >>> tenfold.compress("noise.npy", "noise.safetensors", bits=4).ratio > 15
    True
    >>> tenfold.decompress("noise.safetensors", "plain.safetensors")
    >>> tenfold.load("plain.safetensors")["noise"].shape
    (64, 256)
    """
    encode, write = _options(options, alloc, include, exclude, recipe, importance, overwrite, made)
    write["calibration"] = None if calibration is None else os.fspath(calibration)
    if loss is not None:
        if not isinstance(loss, (int, float)) or isinstance(loss, bool):
            raise DtypeError(f"loss must be a number of nats a token, not {loss!r}")
        write.update(loss=float(loss), own_goal=not options.keys().isdisjoint(_native.GOALS))
    with bar(progress, "compress") as tell:
        return _native.compress(os.fspath(input), os.fspath(output), encode, write, tell)


def decompress(
    input: Path,
    output: Path,
    *,
    threads: int = 0,
    overwrite: bool = False,
    progress: bool | Callable[[int, int], object] = False,
) -> None:
    """Unpacks a compressed model file or folder into plain safetensors, as the command ``tenfold decompress`` does.

    Restores names, dtypes, shapes, order, metadata and shards. See :func:`compress`.
    """
    if threads < 0:
        raise ArgumentError("threads must not be negative")
    with bar(progress, "decompress") as tell:
        _native.decompress(os.fspath(input), os.fspath(output), threads, overwrite, tell)


def _options(
    options: dict[str, Any],
    alloc: str,
    include: Iterable[str],
    exclude: Iterable[str],
    recipe: Path | None,
    importance: Path | Mapping[str, Any] | None,
    overwrite: bool,
    made: Mapping[str, Path] | None = None,
) -> tuple[_native.EncodeOptions, dict[str, Any]]:
    """The native options of one tensor and those of a file."""
    if isinstance(include, str) or isinstance(exclude, str):
        raise DtypeError("include and exclude must be lists of patterns")
    if "lane_values" in options:
        raise ArgumentError("lane_values is for single tensors; leave it out for files")
    columns: Any = importance
    if isinstance(importance, Mapping):
        columns = [(name, column_importance(vector)) for name, vector in importance.items()]
    elif importance is not None:
        columns = os.fspath(importance)
    write = {
        "own_goal": recipe is None or not options.keys().isdisjoint(_native.GOALS),
        "own_effort": "effort" in options,
        "alloc": alloc,
        "include": list(include),
        "exclude": list(exclude),
        "recipe": None if recipe is None else os.fspath(recipe),
        "importance": columns,
        "made": {name: os.fspath(path) for name, path in (made or {}).items()},
        "overwrite": overwrite,
        "calibration": None,
        "loss": None,
    }
    return encode_options(**options), write
