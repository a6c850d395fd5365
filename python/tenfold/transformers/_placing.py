"""Blobs that transformers has put in the place of weights become weights, or weights that stay compressed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from .. import torch as tenfold_torch
from .._errors import DataError, Error
from ._stages import Held, stage_of


@dataclass(frozen=True)
class Arrived:
    """A blob of a file that is on its way to a place in the model."""

    key: str
    shape: tuple[int, ...]
    stored: torch.dtype
    wanted: torch.dtype


@dataclass(frozen=True)
class Site:
    """A place in a model where a tensor is."""

    name: str
    module: nn.Module
    attribute: str
    tensor: torch.Tensor

    def put(self, tensor: torch.Tensor) -> None:
        """Replaces the tensor there."""
        if self.attribute in self.module._parameters:
            # Set as an attribute it would have to be of the blob's dtype.
            self.module._parameters[self.attribute] = tensor  # type: ignore[assignment]
        else:
            self.module._buffers[self.attribute] = tensor


def sites(model: nn.Module) -> Iterator[Site]:
    """All places; those of tied weights each."""
    for prefix, module in model.named_modules():
        for attribute, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                yield Site(f"{prefix}.{attribute}" if prefix else attribute, module, attribute, tensor)


def decode_named(name: str, blob: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decodes a blob where it is, and says which one it was if it is bad."""
    try:
        with torch.no_grad():
            # Cast afterwards: a device that decodes straight to another dtype rounds once, where others round twice.
            decoded = tenfold_torch.decode(blob.detach()).to(dtype)
        if blob.device.type == "cuda":
            tenfold_torch.check(blob.device)
    except Error as error:
        raise type(error)(f"tensor {name!r}: {error}; fetch the model again, or compress it again") from error
    return decoded


def place(
    model: nn.Module, arrived: Mapping[str, Arrived], shapes: Mapping[str, torch.Size], keep: bool
) -> tuple[list[Held], dict[str, str]]:
    """Returns the weights that stay compressed, and the names of those decoded, with their names in the files."""
    held: list[Held] = []
    decoded: dict[str, str] = {}
    by_tensor: dict[int, list[Site]] = {}
    for site in sites(model):
        by_tensor.setdefault(id(site.tensor), []).append(site)
    for same in by_tensor.values():
        first = next((site for site in same if site.name in arrived), None)
        if first is None:
            continue
        blob = arrived[first.name]
        if tuple(shapes[first.name]) != blob.shape:
            raise DataError(
                f"tensor {blob.key!r} is {blob.shape} in the files, but config.json asks for {tuple(shapes[first.name])}; "
                "configuration and weights are not of the same model"
            )
        if keep and all(stage_of(model, site.name) is not None for site in same):
            held += [
                Held(site.module, site.attribute, site.name, blob.shape, blob.stored, blob.wanted) for site in same
            ]
            continue
        plain = decode_named(blob.key, first.tensor, blob.wanted)
        if isinstance(first.tensor, nn.Parameter):
            plain = nn.Parameter(plain, requires_grad=plain.is_floating_point())
        for site in same:
            site.put(plain)
            decoded[site.name] = blob.key
    return held, decoded
