"""Weights that stay compressed, and the parts of a model in which they are decoded together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from .. import torch as tenfold_torch
from .._errors import Error

# Tensors in a buffer start at such offsets; devices like wide loads.
ALIGN = 256


@dataclass(frozen=True)
class Held:
    """A weight that stays compressed: its blob is where the weight was."""

    module: nn.Module
    attribute: str
    name: str
    shape: tuple[int, ...]
    stored: torch.dtype
    wanted: torch.dtype

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * self.stored.itemsize

    def blob(self) -> torch.Tensor:
        """The blob, wherever the model has been moved to."""
        found = self.module._parameters.get(self.attribute)
        return self.module._buffers[self.attribute] if found is None else found  # type: ignore[return-value]


@dataclass(frozen=True)
class Stage:
    """Weights that are decoded together: those of a layer, or a table of embeddings."""

    name: str
    held: tuple[Held, ...]
    # A table may be larger than several layers: it gets all of the memory for itself.
    is_table: bool = False

    @property
    def nbytes(self) -> int:
        return sum(aligned(held.nbytes) for held in self.held)

    def views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The weights' places in a buffer."""
        out, at = [], 0
        for held in self.held:
            out.append(buffer[at : at + held.nbytes].view(held.stored).view(held.shape))
            at += aligned(held.nbytes)
        return out

    def name_error(self, error: Error) -> Error:
        """An error of the stage, with the name of the tensor that it is about."""
        for held in self.held:
            try:
                tenfold_torch.decode(held.blob().detach().cpu())
            except Error as own:
                return type(own)(f"tensor {held.name!r}: {own}; fetch the model again, or compress it again")
        return type(error)(f"{self.name}: {error}")


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def stage_of(model: nn.Module, name: str) -> tuple[str, bool] | None:
    """The part of a model in which a weight is decoded, and whether that is a table.

    It is the outermost numbered member of a list of modules, or the embeddings or the head. Other weights belong to none:
    nobody knows when they are used.
    """
    parts = name.split(".")
    for end, part in enumerate(parts[:-1], 1):
        if part.isdigit() and isinstance(model.get_submodule(".".join(parts[: end - 1])), nn.ModuleList):
            return ".".join(parts[:end]), False
    path = ".".join(parts[:-1])
    module = model.get_submodule(path)
    tables = [getattr(model, get)() for get in ("get_input_embeddings", "get_output_embeddings") if hasattr(model, get)]
    plain = isinstance(module, (nn.Embedding, nn.Linear)) and any(module is table for table in tables)
    return (path, True) if plain else None
