"""The parts of a language model whose weights can stay compressed: layers, embeddings and head."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from ..torch.kept import Held, Stage


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


def stages_of(model: nn.Module, held: Iterable[Held]) -> list[Stage]:
    """The weights that stay compressed, by part of the model."""
    by_place: dict[tuple[str, bool], list[Held]] = {}
    for one in held:
        place = stage_of(model, one.name)
        assert place is not None  # others are not held
        by_place.setdefault(place, []).append(one)
    return [Stage(name, tuple(members), is_table) for (name, is_table), members in by_place.items()]
