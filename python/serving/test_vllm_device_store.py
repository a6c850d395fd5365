"""A worker whose cache is on a device, and a store that others write to, that fills up, or whose writer is killed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from emulated import each, fit_bases
from vllm_setup import said
from vllm_workers import ELSEWHERE, PAGE, PAGES, Rig

from tenfold.serving import Identity, KvPages, StoreWarning, _store
from tenfold.serving.vllm._plan import Page
from tenfold.serving.vllm._shelf import Shelf

pytestmark = pytest.mark.filterwarnings("default")

KEYS = 40


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    monkeypatch.setattr(KvPages, "_goal", lambda self, values: {"step": 0.05})
    yield from each(request.param, monkeypatch)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(params=["whole", "layers"])
def rig(request: Any, device: torch.device, bases: Path, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(device, bases, tmp_path / "store", load=request.param)
    for seed, page in enumerate(PAGES):
        made.write(page, seed)
    yield made
    made.worker.shutdown()


OTHERS = {
    "model": Identity("another"),
    "revision": Identity("model", "2"),
    "dtype": Identity("model", dtype="float16"),
    "basis": Identity("model", basis="0123456789abcdef"),
    "rank": Identity("model", layout="rank=1/2"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_records_of_others(rig: Rig, tmp_path: Path, kind: str) -> None:
    """A whole page of another model, in the place of one of this."""
    rig.save(*PAGES)
    other = Shelf(str(tmp_path / "other"), OTHERS[kind])
    other.put("b", rig.payload("b"))
    assert other._store is not None and rig.shelf._store is not None
    path = rig.shelf._store._path("b")
    shutil.copy(other._store._path("b"), path)
    with said(), pytest.warns(StoreWarning, match="made for another model or with other options"):
        assert rig.load(*ELSEWHERE) == {11, 14}
    assert not path.exists()
    assert rig.error(ELSEWHERE[0], 0) < 0.01 and rig.error(ELSEWHERE[2], 2) < 0.01


class Full:
    """A disk that has room for half of what is written."""

    def __init__(self, path: Any, mode: str) -> None:
        self._file = open(path, mode)

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_in_the_middle_of_a_page(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, said() as messages:
        patch.setattr(_store, "open", Full, raising=False)
        rig.save(*PAGES)
    assert rig.counts()["pages_failed"] == 3
    assert any("No space left on device" in message for message in messages)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()], "halves of pages are in nobody's way"
    with said():
        assert rig.load(*ELSEWHERE) == {block for page in ELSEWHERE for block in page.blocks}
    # There is room again.
    rig.save(*PAGES)
    assert rig.load(*ELSEWHERE) == set()
    assert all(rig.error(page, seed) < 0.01 for seed, page in enumerate(ELSEWHERE))


# Stores pages over and over; a page's keys and values follow from its number.
_WRITER = """
import sys
from pathlib import Path
import pytest
import torch
from emulated import each
from test_vllm_device_store import KEYS, pages
from vllm_workers import Rig
from tenfold.serving import KvPages

kind, bases, store = sys.argv[1:]
KvPages._goal = lambda self, values: {"step": 0.05}
(device,) = [next(each(kind, pytest.MonkeyPatch()))]
rig = Rig(device, Path(bases), Path(store))
print("ready", flush=True)
while True:
    for page in pages((5, 2)):
        rig.shelf.discard(page.key)
        rig.write(page, page.position)
        rig.save(page)
"""


def pages(blocks: tuple[int, int]) -> list[Page]:
    return [Page(f"key {number}", PAGE * (1 + number), blocks) for number in range(KEYS)]


def writer(device: torch.device, bases: Path, store: Path) -> subprocess.Popen[bytes]:
    """A worker in a process of its own."""
    kind = "cuda" if device.type == "cuda" else "emulator"
    variables = os.environ | {"PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))}
    command = [sys.executable, "-c", _WRITER, kind, str(bases), str(store)]
    started = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert started.stdout is not None
    if b"ready" not in started.stdout.read(6):
        started.kill()
        raise AssertionError("the other worker did not start")
    return started


def test_a_worker_that_is_killed_while_it_stores(rig: Rig, bases: Path, tmp_path: Path) -> None:
    """Until then both are at the same folder, and this one loads what the other stores, replaces and removes."""
    other = writer(rig.worker._loads._blocks.device, bases, tmp_path / "store")
    found = missed = 0
    until = time.monotonic() + 60

    def load() -> None:
        nonlocal found, missed
        for page in pages((11, 14)):
            for cache in rig.caches.values():
                cache[[11, 14]] = 0
            if rig.load(page):
                missed += 1
            else:
                found += 1
                assert rig.error(page, page.position) < 0.01, "a page that is loaded is whole"

    try:
        with said():
            while found < KEYS and time.monotonic() < until:
                load()
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert found >= KEYS
    with said():
        load()
    # What it did not finish is no record, and is in nobody's way.
    rig.write(PAGES[1], 1)
    rig.save(PAGES[1])
    assert rig.load(ELSEWHERE[1]) == set() and rig.error(ELSEWHERE[1], 1) < 0.01
