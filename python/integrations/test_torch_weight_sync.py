"""The example of a trainer and a replica: two processes, gloo."""

from __future__ import annotations

import importlib.util
import multiprocessing
import pathlib
import subprocess
import sys
from typing import Any

import pytest

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "weight_sync.py"


def _run(rank: int, store: str, lost: tuple[int, ...]) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("weight_sync", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    told: dict[str, Any] = example.run(rank, store, lost)
    return told


@pytest.mark.parametrize("lost", [(), (0,), (2, 3)], ids=str)
def test_a_replica_follows_and_is_repaired(tmp_path: pathlib.Path, lost: tuple[int, ...]) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        store = str(tmp_path / "store")
        ranks = [pool.apply_async(_run, (rank, store, lost)) for rank in range(2)]
        trainer, replica = (rank.get(300) for rank in ranks)
    assert trainer["version"] == replica["version"]
    assert max(trainer["sizes"]) < trainer["nbytes"] / 2
    # What follows a lost update is refused, and the whole model is sent once.
    assert trainer["repaired"] == [max(lost) + 1] if lost else not trainer["repaired"]
    assert len(replica["refused"]) == (1 if lost else 0)


def test_it_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("6 updates of ")
