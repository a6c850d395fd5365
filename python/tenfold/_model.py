"""Model files, read lazily."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from . import _native
from ._arrays import allocate, convert, row_range
from ._errors import ArgumentError
from ._progress import Tell, bar


class Model(Mapping[str, np.ndarray]):
    """An open model file: a mapping from names to arrays that reads a tensor on request.

    Made by :func:`tenfold.open`. Compressed and plain tensors look the same. Do not change the file while it is open.
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
        array: np.ndarray = self.read(name)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._open().names())

    def __len__(self) -> int:
        return len(self._open().names())

    def __contains__(self, name: object) -> bool:
        # The inherited one would read the tensor.
        return isinstance(name, str) and self._open().find(name) is not None

    def read(self, name: str, *, rows: Any = None, out: Any = None, dtype: Any = None) -> Any:
        """Reads a tensor, or rows of it.

        Args:
            name: its name.
            rows: only these rows of the tensor, seen as rows × last dimension: a slice, a range, a pair or one number. The
                result has two dimensions. Of a compressed tensor only the tiles that hold them are read.
            out: an array or a CPU tensor to write into, as in :func:`tenfold.decode`; it is returned.
            dtype: as in :func:`tenfold.decode`.

        >>> import numpy as np, tenfold
        >>> _ = tenfold.save({"w": np.eye(64, dtype=np.float32)}, "eye.safetensors", bits=4)
        >>> with tenfold.open("eye.safetensors") as model:
        ...     model.read("w", rows=slice(2, 4), dtype="float16").shape
        (2, 64)
        """
        index = self._index(name)
        info = self._open().info(index)
        shape, span = info.shape, None
        if rows is not None:
            span = row_range(rows, math.prod(shape[:-1]))
            shape = (span[1] - span[0], shape[-1] if shape else 1)
        if out is not None:
            if dtype is not None:
                raise ArgumentError("out and dtype exclude each other: the dtype is that of out")
            self._open().read_into(index, out, span, self._threads)
            return out
        array = allocate(info.dtype, shape)
        self._open().read_into(index, array, span, self._threads)
        return convert(array, info.dtype, dtype)

    def info(self, name: str) -> _native.TensorInfo:
        """Returns what the file says about a tensor: dtype, shape, sizes, and its blob's header."""
        return self._open().info(self._index(name))

    def verify(
        self, name: str | None = None, *, progress: bool | Callable[[int, int], object] = False
    ) -> None:
        """Checks all checksums of a tensor, or of all tensors, and decodes them; raises :class:`DataError`.

        ``progress`` is that of :func:`tenfold.save`.
        """
        with bar(progress, "verify") as tell:
            for index in self._report_each(list(self) if name is None else [name], tell):
                self._open().verify(index, self._threads)

    def _report_each(self, names: list[str], tell: Tell | None) -> Iterator[int]:
        """Yields tensor numbers and reports the bytes done after each."""
        indices = [self._index(name) for name in names]
        sizes = [self._open().info(index).nbytes for index in indices]
        done, total = 0, sum(sizes)
        for index, size in zip(indices, sizes):
            yield index
            done += size
            if tell is not None:
                tell(done, total)

    @property
    def metadata(self) -> dict[str, str]:
        """The file's metadata, without tenfold's own keys."""
        return self._open().metadata()

    @property
    def compressed(self) -> bool:
        """Whether tenfold has compressed the file."""
        return self._open().is_compressed()

    def close(self) -> None:
        """Closes the file. Arrays already read stay valid."""
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

    Only headers are read until a tensor is requested.

    >>> import numpy as np, tenfold
    >>> _ = tenfold.save({"w": np.ones((64, 64), np.float32), "b": np.zeros(64)}, "model.safetensors")
    >>> with tenfold.open("model.safetensors") as model:
    ...     print(sorted(model), model["w"].shape, model.read("w", rows=slice(2, 4)).shape)
    ...     print(model.info("b").dtype, model.info("b").compressed, model.info("w").compressed)
    ['b', 'w'] (64, 64) (2, 64)
    float64 False True
    """
    return Model(path, threads=threads)


def load(
    path: str | os.PathLike[str],
    *,
    dtype: Any = None,
    threads: int = 0,
    progress: bool | Callable[[int, int], object] = False,
) -> dict[str, np.ndarray]:
    """Reads a whole model file into a dict of arrays; ``dtype`` as in :func:`decode`.

    >>> import numpy as np, tenfold
    >>> _ = tenfold.save({"a": np.arange(3)}, "three.safetensors")
    >>> tenfold.load("three.safetensors")
    {'a': array([0, 1, 2])}
    """
    with Model(path, threads=threads) as model, bar(progress, "load") as tell:
        names = list(model)
        return {name: model.read(name, dtype=dtype) for _, name in zip(model._report_each(names, tell), names)}
