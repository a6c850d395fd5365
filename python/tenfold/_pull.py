"""Models over HTTP: into files, or into tensors while they arrive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from . import _native
from ._arrays import allocate, convert
from ._errors import ArgumentError
from ._progress import bar

Path = str | os.PathLike[str]
# What gets tensors: name, dtype, shape, bytes, and whether these are a blob.
Each = Callable[[str, str, tuple[int, ...], np.ndarray, bool], object]


@dataclass(frozen=True)
class Pulled:
    """What a pull did."""

    files: int
    """Files written, or with tensors taken."""
    fetched: int
    """Bytes that came."""
    nbytes: int
    """Bytes written."""
    unchecked: int
    """Of those, bytes without any checksum: of plain files from a server without a manifest."""


def pull(
    url: str,
    output: Path,
    *,
    decode: bool = False,
    include: Iterable[str] = (),
    rows: tuple[int, int] | None = None,
    token: str | None = None,
    ca: Path | None = None,
    overwrite: bool = False,
    progress: bool | Callable[[int, int], object] = False,
    **options: Any,
) -> Pulled:
    """Fetches a model over HTTP into a file or folder, as the command ``tenfold pull`` does.

    A pull that ends early leaves what has arrived in a hidden folder beside the output, and the same call goes on from there. The
    output appears when it is whole and its checksums match.

    Args:
        url: of a file, an index of shards, or a folder (http, https, file).
        output: a file, or a folder for a folder.
        decode: whether to write the tensors as they were before compression.
        include: patterns of names of tensors to take.
        rows: first row and the row after the last to take of each tensor, decoded.
        token: bearer token for the server of ``url`` and for no other.
        ca: file of certificates to trust beside the system's.
        overwrite: whether an existing output may be replaced.
        progress: True for a tqdm bar, or a function that is called with the bytes that came and the total.
        options: ``connections`` (4), ``retries`` (8), ``stall`` (30 seconds), ``max_memory`` (1 GiB), ``threads``; and for
            ``tenfold serve --cache`` a goal such as ``bits=3``, ``effort`` and ``bandwidth`` (bytes a second of the link).

    >>> import os, numpy as np, tenfold
    >>> _ = tenfold.save({"w": np.ones((64, 64), np.float32)}, "served.safetensors", bits=4)
    >>> tenfold.pull(f"file://{os.path.abspath('served.safetensors')}", "pulled.safetensors", decode=True).files
    1
    """
    settings = pull_settings(options, decode, include, rows, token, ca, overwrite=overwrite)
    with bar(progress, "pull") as tell:
        return Pulled(*_native.pull(url, os.fspath(output), settings, tell))


def pull_tensors(
    url: str,
    *,
    dtype: Any = None,
    include: Iterable[str] = (),
    rows: tuple[int, int] | None = None,
    token: str | None = None,
    ca: Path | None = None,
    cache: Path | None = None,
    progress: bool | Callable[[int, int], object] = False,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Fetches the tensors of a model over HTTP into a dict of arrays, decoded while the rest arrives. No model file is written.

    For torch and for devices there is :func:`tenfold.torch.pull`. What has arrived is kept in ``cache``
    (by default in the user's cache folder) until all of it is there, so that a pull that ended early goes on where it was.
    ``dtype`` is that of :func:`tenfold.decode`, the other arguments are those of :func:`tenfold.pull`.

    >>> import os, numpy as np, tenfold
    >>> _ = tenfold.save({"w": np.ones((64, 64), np.float32)}, "served.safetensors", bits=4)
    >>> tenfold.pull_tensors(f"file://{os.path.abspath('served.safetensors')}")["w"].shape
    (64, 64)
    """
    arrays: dict[str, np.ndarray] = {}

    def each(name: str, stored: str, shape: tuple[int, ...], data: np.ndarray, _: bool) -> None:
        array = allocate(stored, (0,))
        arrays[name] = convert(data.view(array.dtype).reshape(shape), stored, dtype)

    settings = pull_settings(options, True, include, rows, token, ca, cache=cache)
    with bar(progress, "pull") as tell:
        _native.pull_tensors(url, each, settings, tell)
    return arrays


def pull_settings(
    options: dict[str, Any],
    decode: bool,
    include: Iterable[str],
    rows: tuple[int, int] | None,
    token: str | None,
    ca: Path | None,
    *,
    cache: Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Settings for the native module; refuses options that there are not."""
    if isinstance(include, str):
        raise ArgumentError("include is a list of patterns; pass [pattern]")
    known = {"connections": 4, "retries": 8, "stall": 30.0, "max_memory": 1 << 30, "bandwidth": None, "threads": 0}
    settings: dict[str, Any] = {name: options.pop(name, default) for name, default in known.items()}
    effort = options.pop("effort", None)
    goals = [name for name in options if name in _native.GOALS]
    unknown = sorted(set(options) - set(goals))
    if unknown:
        raise ArgumentError(f"pull has no option {unknown[0]!r}; it has {', '.join(known)}, effort and the goals")
    if len(goals) > 1 or (effort is not None and not goals):
        raise ArgumentError("state one goal, such as bits=3; an effort goes with it")
    query = None
    if goals:
        value = options[goals[0]]
        query = f"{goals[0]}{'' if value is True else f'={value}'}&effort={effort or 'balanced'}"
    settings.update(
        decode=decode,
        include=list(include),
        rows=None if rows is None else _checked(rows),
        query=query,
        token=token,
        ca=None if ca is None else os.fspath(ca),
        cache=None if cache is None else os.fspath(cache),
        overwrite=overwrite,
    )
    return settings


def _checked(rows: tuple[int, int]) -> tuple[int, int]:
    """Refuses what is no range of rows."""
    try:
        first, last = (index(row) for row in rows)
    except (TypeError, ValueError):
        raise ArgumentError(f"rows are a pair, the first row and the one after the last, not {rows!r}") from None
    if not 0 <= first < last:
        raise ArgumentError(f"rows {first} to {last} are no range: the first is 0 or more, and below the last")
    return first, last
