"""The files of a compressed model: which of their tensors are blobs, and the blobs themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from safetensors import safe_open

from .. import _native
from .._errors import DataError, NotFoundError


@dataclass(frozen=True)
class StoredBlob:
    """A compressed tensor in a file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int


class Checkpoint:
    """Blobs of all files, by the names that they have there."""

    def __init__(self, files: Iterable[str]) -> None:
        self.blobs: dict[str, StoredBlob] = {}
        for file in files:
            archive = _native.Archive(file)
            if not archive.is_compressed():
                raise DataError(
                    f"{file} is not compressed, though config.json says so; the folder was put together from several or "
                    "written by half: run `tenfold compress` again, or take quantization_config out of config.json"
                )
            for index, _ in enumerate(archive.names()):
                info = archive.info(index)
                if info.compressed:
                    self.blobs[info.name] = StoredBlob(file, info.dtype, info.shape, info.stored_bytes)

    def read(self, name: str) -> torch.Tensor:
        """A blob, as bytes on the CPU."""
        blob = self.blobs[name]
        if not os.path.exists(blob.file):
            raise NotFoundError(
                f"{blob.file} is gone, and tensor {name!r} is to be copied from there; put it back, or call model.dequantize() "
                "before saving"
            )
        with safe_open(blob.file, framework="pt") as file:
            found: torch.Tensor = file.get_tensor(name)
        return found
