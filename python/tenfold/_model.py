"""Model files: read lazily, written from memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from . import _native
from ._arrays import as_input, convert, numpy_dtype, row_range
from ._codec import encode_options
from ._errors import ArgumentError, DtypeError
from ._progress import bar


class Model(Mapping[str, np.ndarray]):
    """An open model file: a mapping from names to arrays that reads a tensor when it is asked for.

    Made by :func:`tenfold.open`. Compressed and plain tensors look the same. Keep the file as it is while it is open.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0) -> None:
        self._path = os.fspath(path)
        self._threads = threads
        self._archive: _native.Archive | None = _native.Archive(self._path)

    def _open(self) -> _native.Archive:
        if self._archive is None:
            raise ArgumentError("the model is closed; open it again")
        return self._archive

    def _index(self, name: str) -> int:
        index = self._open().find(name) if isinstance(name, str) else None
        if index is None:
            raise KeyError(name)
        return index

    def __getitem__(self, name: str) -> np.ndarray:
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._open().names())

    def __len__(self) -> int:
        return len(self._open().names())

    def __contains__(self, name: object) -> bool:
        # The inherited one would read the tensor.
        return isinstance(name, str) and self._open().find(name) is not None

    def read(self, name: str, *, dtype: Any = None) -> np.ndarray:
        """Reads a tensor; ``dtype`` as of :func:`tenfold.decode`."""
        return self._array(self._open().read(self._index(name), None, self._threads), dtype)

    def rows(self, name: str, rows: Any, *, dtype: Any = None) -> np.ndarray:
        """Reads rows of a tensor, seen as rows × last dimension; of a compressed one only the tiles that hold them.

        ``rows`` is a slice, a range, a pair ``(start, stop)`` or one number.
        """
        index = self._index(name)
        shape = self._open().info(index).shape
        span = row_range(rows, int(np.prod(shape[:-1], dtype=object)))
        return self._array(self._open().read(index, span, self._threads), dtype)

    @staticmethod
    def _array(raw: tuple[np.ndarray, str, tuple[int, ...]], dtype: Any) -> np.ndarray:
        data, name, shape = raw
        return convert(data.view(numpy_dtype(name)[0]).reshape(shape), name, dtype)

    def info(self, name: str) -> _native.TensorInfo:
        """What the file says of a tensor: dtype, shape, sizes, and its blob's header."""
        return self._open().info(self._index(name))

    def verify(self, name: str | None = None) -> None:
        """Checks all checksums of a tensor, or of all tensors, and decodes them; raises :class:`DataError`."""
        for one in list(self) if name is None else [name]:
            self._open().verify(self._index(one), self._threads)

    @property
    def metadata(self) -> dict[str, str]:
        """The file's metadata, without tenfold's own keys."""
        return self._open().metadata()

    @property
    def compressed(self) -> bool:
        """Whether tenfold has compressed the file."""
        return self._open().is_compressed()

    def close(self) -> None:
        """Lets go of the file. Arrays that were read stay."""
        self._archive = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._archive is None:
            return f"<Model {self._path!r}, closed>"
        return f"<Model {self._path!r}, {len(self)} tensors{', compressed' if self.compressed else ''}>"


def open(path: str | os.PathLike[str], *, threads: int = 0) -> Model:  # noqa: A001 - as gzip.open and its kin
    """Opens a model file: safetensors (one file, an index or a folder of shards), compressed or not, GGUF or npy.

    Nothing is read but headers until a tensor is asked for by name.

    >>> import numpy as np, tenfold
    >>> _ = tenfold.save({"w": np.ones((64, 64), np.float32), "b": np.zeros(64)}, "model.safetensors")
    >>> with tenfold.open("model.safetensors") as model:
    ...     print(sorted(model), model["w"].shape, model.rows("w", slice(2, 4)).shape)
    ...     print(model.info("b").dtype, model.info("b").compressed, model.info("w").compressed)
    ['b', 'w'] (64, 64) (2, 64)
    float64 False True
    """
    return Model(path, threads=threads)


def save(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    alloc: str = "equal",
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    recipe: str | os.PathLike[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = True,
    progress: bool | Callable[[int, int], object] = False,
    **options: Any,
) -> _native.Report:
    """Writes a state dict into a compressed model file, which is valid safetensors.

    Compressed are floats with at least two dimensions and 4096 values; all others are written as they are. The file
    appears when it is whole. Tensors are read in place, as :func:`encode` reads them.

    Args:
        tensors: names and tensors.
        path: the file to write.
        alloc: how ``bits`` is shared among the tensors: "equal", "step" (one quantiser step for all, least squared
            error) or "ramp=K" (K bits more from layer to layer).
        include: patterns of names to compress although they are small, one-dimensional or integers.
        exclude: patterns of names to leave as they are.
        recipe: path of a TOML file with goals by tensor.
        metadata: strings to keep in the file.
        overwrite: whether an existing file may be replaced.
        progress: True for a bar of tqdm, or a function that is called with the bytes done and in all.
        options: a goal, ``effort`` and ``threads``, as of :func:`encode`.

    >>> import numpy as np, tenfold
    >>> x = np.random.default_rng(0).standard_normal((64, 256), dtype=np.float32)
    >>> report = tenfold.save({"layer.weight": x, "layer.bias": x[0]}, "small.safetensors", bits=4)
    >>> report.tensors, report.compressed, round(report.bits_per_value, 1)
    (2, 1, 4.0)
    """
    if not isinstance(tensors, Mapping):
        raise DtypeError(f"save takes a mapping from names to tensors, not {type(tensors).__name__}")
    if isinstance(include, str) or isinstance(exclude, str):
        raise DtypeError("include and exclude are lists of patterns")
    for name in tensors:
        if not isinstance(name, str):
            raise DtypeError(f"names of tensors are strings, not {name!r}")
    goal_is_stated = options.keys() - {"effort", "threads"}
    encode = None if recipe is not None and not goal_is_stated else encode_options(**options)[2]
    save_options = {
        "alloc": alloc,
        "include": list(include),
        "exclude": list(exclude),
        "recipe": None if recipe is None else os.fspath(recipe),
        "overwrite": overwrite,
        "metadata": dict(metadata or {}),
    }
    pairs = [(name, as_input(tensor)) for name, tensor in tensors.items()]
    with bar(progress, "save") as tell:
        return _native.save(pairs, os.fspath(path), encode, save_options, tell)


def load(
    path: str | os.PathLike[str],
    *,
    dtype: Any = None,
    threads: int = 0,
    progress: bool | Callable[[int, int], object] = False,
) -> dict[str, np.ndarray]:
    """Reads a whole model file into a dict of arrays; ``dtype`` as of :func:`decode`.

    >>> import numpy as np, tenfold
    >>> _ = tenfold.save({"a": np.arange(3)}, "three.safetensors")
    >>> tenfold.load("three.safetensors")
    {'a': array([0, 1, 2])}
    """
    with Model(path, threads=threads) as model, bar(progress, "load") as tell:
        sizes = {name: model.info(name).nbytes for name in model}
        total, done, out = sum(sizes.values()), 0, {}
        for name, size in sizes.items():
            out[name] = model.read(name, dtype=dtype)
            done += size
            if tell is not None:
                tell(done, total)
        return out
