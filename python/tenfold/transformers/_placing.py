"""Blobs that transformers has put in the place of weights become weights, or weights that stay compressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from .._errors import DataError
from ..torch.kept import Held, Site, decode_named, sites
from ._places import stage_of


@dataclass(frozen=True)
class Arrived:
    """A blob of a file that is on its way to a place in the model."""

    key: str
    shape: tuple[int, ...]
    stored: torch.dtype
    wanted: torch.dtype


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
