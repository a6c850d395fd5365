"""A calibration in parts: processes that know nothing of one another run the model on a share of the contexts each, and one adds
what they saw.

Parts lie in a folder beside the file, ``OUT.parts``, which all processes share:

| path there | holds |
|---|---|
| ``plan.json`` | what all parts are of: the model, text and options |
| ``part-00003-of-00008/`` | the third part: sums of each layer, and what an interrupted run goes on from |
| ``part-00003-of-00008/done.json`` | how many contexts it has; it is there once the part is whole |
| ``added/`` | layers that were added already |
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._errors import ArgumentError, DataError, NotFoundError
from .._progress import Tell, bar, wanted
from ._calibration import MAX_WIDTH, Calibration
from ._layerwise import Passage, Run, as_passages, brief, digest_of, run_whole, seeds_of, still
from ._stack import Stack, find_layers
from ._summary import summarise
from ._sums import Sums

# Of what a part holds.
VERSION = 1
_PLAN = "plan.json"


def calibrate_part(
    model: nn.Module,
    contexts: Iterable[Any],
    path: str | os.PathLike[str],
    part: int,
    of: int,
    *,
    weighted: bool = True,
    device: torch.device | str | None = None,
    max_width: int = MAX_WIDTH,
    seed: int = 0,
    progress: bool | Tell | None = None,
) -> None:
    """Makes one of several parts of what :func:`calibrate_layers` would; :func:`add_parts` makes the file of all of them.

    Processes that share a folder make one part each, anywhere and in any order, all from the same model, contexts and options.
    A part that is there already is not made again, and one that was interrupted goes on where it was. With more parts than
    contexts, the last ones are empty.

    Args:
        model: as in :func:`calibrate_layers`, like all that is not listed here.
        contexts: those of all parts.
        path: the file that is to be. Parts lie in a folder beside it, with ``.parts`` behind the name.
        part: which one, from 1 on.
        of: how many there are.
    """
    passages = as_passages(contexts)
    if not 1 <= part <= of:
        raise ArgumentError(f"part {part} of {of} does not exist: parts are 1 to {of}")
    target = Path(path)
    if not target.parent.is_dir():
        raise ArgumentError(f"{target.parent} is not a folder")
    options = {"weighted": weighted, "max_width": max_width, "seed": seed, "parts": of}
    _claim(parts_folder(target), digest_of(model, passages, options))
    folder = parts_folder(target) / _name(part, of)
    folder.mkdir(exist_ok=True)
    if (folder / "done.json").exists():
        return
    first, last = _span(passages, part, min(of, len(passages)))
    mine = list(passages[first:last])
    gap = None
    if weighted and 0 < first < last:
        # How large gradients are is told by the first context of the text, in all parts alike.
        mine.insert(0, passages[0])
        gap = sum(len(one.ids) for one in passages[1:first])
    if mine:
        with bar(wanted(progress), "calibrate", unit=" layers") as tell, still(model):
            if find_layers(model) is None:
                found = run_whole(model, mine, weighted, max_width, seeds_of(mine, seed, gap), tell, gap is not None)
                found.save(folder / "layer-0000.safetensors")
            else:
                Run(Stack(model, device), mine, folder, weighted, max_width, seed, tell, sums=True, gap=gap).collect()
    for left in (*folder.glob("hidden-*"), *folder.glob("gradient-*")):
        left.unlink(missing_ok=True)
    _write(folder / "done.json", {"contexts": last - first})


def add_parts(path: str | os.PathLike[str], of: int) -> Calibration:
    """Adds all parts of a calibration, in their order, writes the file and removes the parts.

    The bytes depend on the parts alone. They are those of :func:`calibrate_layers` but for rounding.

    Args:
        path: the file, as it was given to :func:`calibrate_part`.
        of: how many parts there are.
    """
    if of < 1:
        raise ArgumentError(f"a calibration has one part or more, not {of}")
    target = Path(path)
    whole = parts_folder(target)
    folders = [whole / _name(part, of) for part in range(1, of + 1)]
    # More parts than contexts leave some empty.
    full = [folder for folder in folders if _contexts(folder)]
    if not full:
        raise DataError(f"no part in {whole} has contexts; delete the folder and make them again")
    (whole / "added").mkdir(exist_ok=True)
    files = []
    for name in sorted(one.name for one in full[0].glob("layer-*.safetensors")):
        if not (full[0] / name).stat().st_size:
            continue
        files.append(whole / "added" / name)
        if not files[-1].exists():
            Calibration.of(summarise(Sums.add([Sums.open(folder / name) for folder in full]))).save(files[-1])
    made = Calibration.join(files)
    made.save(target)
    if made.notes:
        warnings.warn(brief(made.notes), stacklevel=2)
    drop_parts(target)
    return Calibration.open(target)


def parts_folder(target: Path) -> Path:
    """Where the parts of a calibration lie."""
    return Path(f"{target}.parts")


def drop_parts(target: Path) -> None:
    """Removes the parts of a calibration, and nothing else that may lie beside them."""
    whole = parts_folder(target)
    for folder in (*whole.glob("part-*-of-*"), whole / "added"):
        shutil.rmtree(folder, ignore_errors=True)
    (whole / _PLAN).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        whole.rmdir()


def _name(part: int, of: int) -> str:
    return f"part-{part:05}-of-{of:05}"


def _claim(folder: Path, run: str) -> None:
    """Makes the folder of parts, or checks that it is of this run. Others may be doing the same."""
    plan = {"tenfold": "parts of a calibration", "version": VERSION, "digest": run}
    folder.mkdir(exist_ok=True)
    try:
        found = json.loads((folder / _PLAN).read_text())
    except FileNotFoundError:
        strange = [one.name for one in folder.iterdir() if not one.name.startswith(("part-", "plan-", _PLAN))]
        if strange:
            raise ArgumentError(f"{folder} holds something else than parts of a calibration, {strange[0]}; move it away") from None
        _write(folder / _PLAN, plan)
        return
    except ValueError:
        found = None
    if found != plan:
        raise ArgumentError(f"{folder} holds a calibration of another model, other text or other options; delete the folder")


def _write(path: Path, about: dict[str, Any]) -> None:
    """Writes JSON; the file appears only when complete. Several processes may write the same."""
    new = path.with_name(f"{path.stem}-{uuid.uuid4().hex}.new")
    new.write_text(json.dumps(about))
    os.replace(new, path)


def _contexts(folder: Path) -> int:
    """How many contexts a part has."""
    try:
        return int(json.loads((folder / "done.json").read_text())["contexts"])
    except FileNotFoundError:
        raise NotFoundError(f"{folder} is not there, or not whole; make this part first") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} is damaged ({error}); delete it and make it again") from error


def _span(passages: Sequence[Passage], part: int, of: int) -> tuple[int, int]:
    """The passages of a part: neighbours, about equally many tokens in each part, and one passage at least while there are any."""
    if part > of:
        return len(passages), len(passages)
    total = sum(one.ids.numel() for one in passages)
    bounds, done = [0], 0
    for number, one in enumerate(passages):
        done += one.ids.numel()
        left = len(passages) - number - 1
        rest = of - len(bounds)
        # Where a part's share of tokens is reached, or where as many passages are left as parts.
        if rest and (done * of >= total * len(bounds) or left == rest) and left >= rest:
            bounds.append(number + 1)
    bounds.append(len(passages))
    return bounds[part - 1], bounds[part]
