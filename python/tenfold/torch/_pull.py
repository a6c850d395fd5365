"""Models over HTTP into torch tensors, on the CPU or on a device, while they arrive."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from .. import _native
from .._errors import UnsupportedError
from .._progress import bar
from .._pull import pull_settings
from ._codec import decode
from ._tensors import as_device, as_dtype, dtype_of


def pull(
    url: str,
    *,
    device: Any = "cpu",
    dtype: Any = None,
    include: Iterable[str] = (),
    rows: tuple[int, int] | None = None,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], object] = False,
    **options: Any,
) -> dict[str, torch.Tensor]:
    """Fetches the tensors of a model over HTTP onto a device, as a state dict.

    Each tensor is checked and decoded as soon as its bytes have come, while the next ones are on their way. A CUDA device gets compressed bytes and
    decodes them itself; host memory holds a few tensors at a time. Work is queued on torch's current stream of the
    calling thread. ``dtype`` is that of the result, by default each tensor's own. The other arguments are those of
    :func:`tenfold.pull_tensors`.

    >>> import os, torch, tenfold, tenfold.torch
    >>> _ = tenfold.save({"w": torch.ones(64, 64, dtype=torch.bfloat16)}, "served.safetensors", bits=4)
    >>> tenfold.torch.pull(f"file://{os.path.abspath('served.safetensors')}")["w"].dtype
    torch.bfloat16
    """
    place = as_device(device)
    wanted = None if dtype is None else as_dtype(dtype)
    on_device = place.type == "cuda"
    stream = torch.cuda.current_stream(place) if on_device else None
    state: dict[str, torch.Tensor] = {}

    def each(name: str, stored: str, shape: tuple[int, ...], data: np.ndarray, is_blob: bool) -> None:
        # A thread of its own, whose current stream is another one.
        with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
            if is_blob:
                state[name] = decode(data, device=place, dtype=wanted)
                return
            try:
                own = dtype_of(stored)
            except KeyError:
                raise UnsupportedError(f"tensor {name!r} is of dtype {stored}, which torch does not have") from None
            state[name] = torch.from_numpy(data).view(own).reshape(shape).to(device=place, dtype=wanted or own)

    # Rows are cut from the tiles on the host.
    settings = pull_settings(options, not on_device or rows is not None, include, rows, token, ca, cache=cache)
    with bar(progress, "pull") as tell:
        _native.pull_tensors(url, each, settings, tell)
    return state
