"""Compares what must be the same on all ranks before they exchange anything."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from ... import FORMAT_VERSION, __version__
from ..._errors import ArgumentError


def own_group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Makes a group of the same ranks, for exchanges that must not mix with concurrent ones."""
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    made = dist.new_group(ranks, use_local_synchronization=True, timeout=_timeout(group))
    assert isinstance(made, dist.ProcessGroup)  # this rank is one of them
    return made


def _timeout(group: dist.ProcessGroup | None) -> Any:
    """Returns the timeout of a group; None (torch's default) if the backend does not know it."""
    used = group or dist.group.WORLD
    try:
        return used._get_backend(used._device_types[0]).options._timeout  # type: ignore[union-attr]
    except (AttributeError, IndexError, RuntimeError):
        return None


def agree(group: dist.ProcessGroup, what: str, options: dict[str, Any]) -> None:
    """Raises :class:`ArgumentError` on every rank unless versions and options of all ranks are the same.

    Args:
        group: the ranks.
        what: what the options are of, for the message.
        options: by name, with values that can be compared.
    """
    mine = {"tenfold": __version__, "bitstream": FORMAT_VERSION, **options}
    said: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, mine, group=group)
    for rank, other in enumerate(said):
        if other == said[0]:
            continue
        names = [name for name in said[0] | other if said[0].get(name) != other.get(name)]
        differences = ", ".join(f"{name} {other.get(name)} there, {said[0].get(name)} on rank 0" for name in names)
        raise ArgumentError(f"rank {rank} compresses {what} differently: {differences}. Use the same options on all ranks")
