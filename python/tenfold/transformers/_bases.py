"""Bases for a model's keys, values and hidden states, from contexts of the caller."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from .._errors import ArgumentError
from ._work import Capture, Context, Wanted, check_out


def fit_bases(
    model: PreTrainedModel,
    contexts: Iterable[torch.Tensor],
    path: str | os.PathLike[str],
    *,
    group: int = 10,
    bits: float = 2.0,
    hidden: Sequence[int] = (),
    metric: bool = True,
    every: int = 4,
    sinks: int = 4,
    max_bytes: int | None = None,
    overwrite: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Makes a file of bases for :class:`TenfoldCache`, :class:`tenfold.kv.PageCodec` and :class:`tenfold.kv.HiddenCodec`.

    :func:`tenfold.kv.fit` does the same from text of several kinds, and goes on where it was interrupted.

    Args:
        model: a model with full attention in all layers; for a metric, in a dtype with gradients.
        contexts: token ids of sample text, with one or two dimensions (batch × tokens), in total several times as many
            tokens as a group of layers has columns. They are iterated once.
        path: the file to write.
        group, bits, hidden, metric, every, sinks, max_bytes: as those of :func:`tenfold.kv.fit`.
        overwrite: whether an existing file may be replaced.
        seed: of the tokens that the model samples.

    Returns:
        The report of ``tenfold basis fit --json``: gains, vectors, bytes.
    """
    if every < 1:
        raise ArgumentError(f"every must be at least 1, not {every}")
    capture = Capture.of(model, hidden, sinks, seed)
    wanted = Wanted.of(model, 0, group, bits, max_bytes)
    sets = [(None, 1.0)]
    wanted.check(sets)
    out = check_out(path, overwrite)

    def each() -> Iterator[Context]:
        for number, context in enumerate(contexts):
            ids = torch.as_tensor(context)
            ids = ids[None] if ids.dim() == 1 else ids
            if ids.dim() != 2 or ids.shape[1] <= sinks:
                raise ArgumentError(f"a context has more than {sinks} token ids, not the shape {tuple(ids.shape)}")
            yield Context(ids, weight=1.0 if metric and number % every == 0 else None)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = capture.run(each(), folder)
        if not files:
            raise ArgumentError("there are no contexts to make bases from")
        return wanted.fit(capture, sets, files, folder, out, overwrite)
