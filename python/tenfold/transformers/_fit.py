"""`tenfold.kv.fit`: from text to a file of bases in one call that can be interrupted."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from .._errors import ArgumentError
from .._progress import Tell, bar, wanted
from .._resumable import work_folder
from ._texts import TextSet, digest, read_texts
from ._work import Capture, Context, Wanted, check_out

# Of what a folder holds; others are begun again.
VERSION = 1


def fit(
    model: PreTrainedModel,
    texts: Any,
    out: str | os.PathLike[str],
    *,
    tokenizer: Any,
    context: int,
    contexts: int | None,
    each: bool,
    group: int,
    bits: float,
    hidden: Sequence[int],
    metric: bool,
    every: int,
    sinks: int,
    max_bytes: int | None,
    overwrite: bool,
    fresh: bool,
    seed: int,
    progress: bool | Tell | None,
) -> dict[str, Any]:
    """See :func:`tenfold.kv.fit`."""
    if every < 1:
        raise ArgumentError(f"every must be at least 1, not {every}")
    capture = Capture.of(model, hidden, sinks, seed)
    path = check_out(out, overwrite)
    given = read_texts(model, texts, tokenizer, context, contexts, sinks)
    sets = [(part.name, part.weight) for part in given]
    goal = Wanted.of(model, len(sets) if each else 0, group, bits, max_bytes)
    goal.check(sets)
    options = {"hidden": list(hidden), "metric": metric, "every": every, "sinks": sinks, "seed": seed}
    folder = work_folder(Path(path + ".capture"), "capture", VERSION, digest(model, given, options), fresh, "captured rows")
    plan = [one for number in range(len(given)) for one in _contexts(given, number, every if metric else None, sinks)]
    shown = wanted(progress)
    with bar(shown, "capture", unit=" contexts") as tell:
        files = capture.run(plan, folder, tell, len(plan))
    # A function of the caller counts contexts, and nothing else.
    with bar(shown is True, "fit") as tell:
        report = goal.fit(capture, sets, files, folder, path, overwrite, tell)
    shutil.rmtree(folder)
    for text in report["warnings"]:
        warnings.warn(text, stacklevel=3)
    return report


def _contexts(sets: Sequence[TextSet], number: int, every: int | None, sinks: int) -> list[Context]:
    """The contexts of a set. Those that are measured have the set's share of the metric together."""
    part = sets[number]
    measured = [every is not None and at % every == 0 for at in range(len(part.contexts))]
    rows = sum(len(ids) - sinks for ids, yes in zip(part.contexts, measured) if yes)
    # Rows of a set that is alone count as they are: the same numbers as without sets.
    weight = 1.0 if len(sets) == 1 else part.weight / max(rows, 1)
    return [Context(ids[None], number, weight if yes else None) for ids, yes in zip(part.contexts, measured)]
