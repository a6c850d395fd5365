"""The tensors of a checkpoint in host memory, which deltas bring up to date: engines fuse, shard and quantise theirs, so that a delta cannot be
applied to them directly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from .. import _native, delta
from .._arrays import as_blob
from .._model import Model
from ..torch._tensors import dtype_of


class Replica:
    """The tensors of a checkpoint, by the names that they have there."""

    def __init__(self, folder: str | os.PathLike[str], *, threads: int = 0) -> None:
        """Reads a folder or a file, compressed or not."""
        self._threads = threads
        self._tensors: dict[str, torch.Tensor] = {}
        with Model(folder, threads=threads) as model:
            for name in model:
                info = model.info(name)
                tensor = torch.empty(info.shape, dtype=dtype_of(info.dtype), device="cpu")
                self._tensors[name] = model.read(name, out=tensor)
        self.version = delta.fingerprint(self._tensors)
        # What changed and was not handed on yet.
        self._waiting: set[str] = set()

    def apply(self, update: Any) -> None:
        """Applies a delta in place; one that does not belong to this version raises WrongBaseError, and nothing changes."""
        file = _native.DeltaFile.parse(as_blob(update))
        delta.apply_(self._tensors, update, threads=self._threads)
        self._waiting.update(said[0] for said in file.changes())
        self.version = file.result()

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """All tensors and their names."""
        return iter(self._tensors.items())

    def changed(self) -> list[tuple[str, torch.Tensor]]:
        """Those that changed since :meth:`handed_on`."""
        return [(name, tensor) for name, tensor in self._tensors.items() if name in self._waiting]

    def handed_on(self) -> None:
        """Says that the engine has all changes."""
        self._waiting.clear()
