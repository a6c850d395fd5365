"""Folders of work in progress, which an interrupted call goes on from."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from ._errors import ArgumentError

# The folder's first file: what it was made for.
_PLAN = "plan.json"


def work_folder(path: Path, kind: str, version: int, digest: str, fresh: bool, what: str) -> Path:
    """The folder of some work: one that was begun for the same, or a new one.

    Args:
        path: where it is, or is to be.
        kind: of work, as the folder names it.
        version: of what such folders hold.
        digest: names all that the work depends on.
        fresh: whether work that was begun for something else is dropped.
        what: what the folder holds, in words.
    """
    plan = {"tenfold": kind, "version": version, "digest": digest}
    if path.exists() or path.is_symlink():
        try:
            found = json.loads((path / _PLAN).read_text())
        except (OSError, ValueError):
            found = None
        ours = isinstance(found, dict) and found.get("tenfold") == kind
        empty = path.is_dir() and all(entry.name == _PLAN + ".new" for entry in path.iterdir())
        if not (ours or empty):
            raise ArgumentError(f"{path} holds something else than {what}; move it away")
        if found == plan and not fresh:
            return path
        if ours and not fresh:
            raise ArgumentError(f"{path} holds {what} for another model, other text or other options; delete the folder or pass fresh=True")
        shutil.rmtree(path)
    path.mkdir(parents=True)
    # Without a whole plan the folder counts as empty.
    new = path / (_PLAN + ".new")
    new.write_text(json.dumps(plan))
    os.replace(new, path / _PLAN)
    return path
