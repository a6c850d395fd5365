"""Which weights of a module are compressed, and the parts of it in which they are decoded together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn

from ..._errors import ArgumentError, DtypeError
from .._tensors import check_tensor
from ._held import Site, sites

# Smaller tensors are left as they are, as in files.
SMALLEST = 4096
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def choose(
    module: nn.Module, include: Iterable[str], exclude: Iterable[str], layers: Iterable[str]
) -> list[tuple[list[Site], list[str]]]:
    """Weights to compress: the places of each, and the parts of the module in which they are decoded."""
    included, excluded, patterns = (_patterns(*one) for one in (("include", include), ("exclude", exclude), ("layers", layers)))
    by_tensor: dict[int, list[Site]] = {}
    for site in sites(module):
        if isinstance(site.tensor, nn.Parameter):
            by_tensor.setdefault(id(site.tensor), []).append(site)
    names = [site.name for same in by_tensor.values() for site in same]
    _check_matched("include", included, names)
    _check_matched("exclude", excluded, names)
    modules = dict(module.named_modules())
    _check_matched("layers", patterns, modules)
    parts = _parts(modules, [name.rpartition(".")[0] for name in names], patterns)
    chosen = []
    for same in by_tensor.values():
        asked = any(_matches(site.name, included) for site in same)
        if any(_matches(site.name, excluded) for site in same) or not (asked or _is_large(same[0].tensor)):
            continue
        where = [parts[site.name.rpartition(".")[0]] for site in same]
        if all(part is not None for part in where):
            with torch.no_grad():
                _check(same[0])
            chosen.append((same, [part for part in where if part is not None]))
        elif asked:
            raise ArgumentError(
                f"{same[0].name} belongs to no part of the module that is called by itself, so nobody knows when to decode it; "
                "leave it out of include"
            )
    if not chosen:
        raise ArgumentError(f"the module has no weights to compress: floats of at least {SMALLEST} values and two dimensions")
    return chosen


def _is_large(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.ndim >= 2 and tensor.numel() >= SMALLEST


def _check(site: Site) -> None:
    try:
        # Any strides will do: encoding takes a copy where it must.
        check_tensor(site.tensor if site.tensor.is_meta else site.tensor.contiguous(), "the weight")
    except (ArgumentError, DtypeError) as error:
        raise type(error)(f"{site.name}: {error}") from None


def _parts(modules: Mapping[str, nn.Module], owners: Sequence[str], patterns: Sequence[str]) -> dict[str, str | None]:
    """For each module that owns weights, the part in which they are decoded. No part lies in another.

    A part is what a pattern names, or else the outermost member of a list of modules: a layer. What remains is decoded in the
    outermost module that holds no such part. Weights of the whole module itself belong to none.
    """
    paths = {owner: _ancestors(owner) for owner in owners}
    stated = {next((path for path in paths[owner] if _matches(path, patterns)), "") for owner in owners} - {""}
    above = {path for part in stated for path in _ancestors(part)[:-1]}
    found: set[str] = set(stated)
    for owner in owners:
        if not stated.intersection(paths[owner]):
            layer = (path for path in paths[owner][1:] if path not in above and _is_layer(modules, path))
            found.update([one for one in (next(layer, None),) if one is not None])
    above = {path for part in found for path in _ancestors(part)[:-1]}
    parts: dict[str, str | None] = {}
    for owner in owners:
        inside = next((path for path in paths[owner] if path in found), None)
        plain = (path for path in paths[owner][1:] if path not in above and not isinstance(modules[path], _CONTAINERS))
        parts[owner] = inside if inside is not None else next(plain, None)
        if owner == "" and len(modules) == 1:
            parts[owner] = ""
    return parts


def _ancestors(path: str) -> list[str]:
    """The modules on the way to one, itself included: "", "a", "a.b"."""
    names = path.split(".") if path else []
    return [".".join(names[:end]) for end in range(len(names) + 1)]


def _is_layer(modules: Mapping[str, nn.Module], path: str) -> bool:
    return isinstance(modules[path.rpartition(".")[0]], nn.ModuleList)


def _patterns(what: str, patterns: Iterable[str]) -> list[str]:
    if isinstance(patterns, str):
        raise DtypeError(f"{what} must be a list of patterns, not a string; pass [{patterns!r}]")
    return list(patterns)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check_matched(what: str, patterns: Iterable[str], names: Iterable[str]) -> None:
    """A pattern that matches nothing is a mistake."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ArgumentError(f"{what}: nothing in the module matches {pattern!r}; names are those of named_parameters()")
