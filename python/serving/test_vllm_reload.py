"""Loads on stages: what is wrong with a page stays its own, memory follows the window, a timeline says what happened when."""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from emulated import each, fit_bases
from vllm_setup import said
from vllm_workers import BLOCKS, NAMES, PAGE, Rig, flip

from tenfold import ArgumentError
from tenfold.serving import KvPages, _reloads
from tenfold.serving._store import FileStore
from tenfold.serving.vllm import Stats
from tenfold.serving.vllm._plan import Page, Plan

pytestmark = pytest.mark.filterwarnings("default")

MANY = [Page(f"page {number}", number * PAGE, (2 * number, 2 * number + 1)) for number in range(BLOCKS // 2)]
BAD, GONE = 5, 11


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(scope="module")
def store(bases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all pages."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        rig = rig_of(bases, folder, patch)
        for seed, page in enumerate(MANY):
            rig.write(page, seed)
        rig.save(*MANY)
        rig.worker.shutdown()
    return folder


def rig_of(bases: Path, folder: Path, patch: pytest.MonkeyPatch, **settings: Any) -> Rig:
    patch.setattr(KvPages, "_goal", lambda self, values: {"step": 0.05})
    return Rig(torch.device("cpu"), bases, folder, **settings)


@pytest.fixture(params=["whole", "layers"])
def rig(request: Any, bases: Path, store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    """On the host, whose caches are empty."""
    made = rig_of(bases, store, monkeypatch, load=request.param, trace=str(tmp_path / "reload.json"))
    yield made
    made.worker.shutdown()


def lose_two(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    """One record is not found any more, and one has a page in it that is damaged; the store stays as it is."""
    get = rig.shelf.get

    def found(key: str) -> Any:
        payload = get(key)
        if key == MANY[GONE].key:
            return None
        return payload if key != MANY[BAD].key else memoryview(flip(payload, len(payload) - 6))

    patch.setattr(rig.shelf, "get", found)
    patch.setattr(rig.shelf, "discard", lambda key: None)


def check_two_lost(rig: Rig) -> None:
    rig.counts()
    for cache in rig.caches.values():
        cache[:] = float("nan")
    with said() as messages:
        assert rig.load(*MANY) == {block for number in (BAD, GONE) for block in MANY[number].blocks}
    assert any(f"a page at token {GONE * PAGE} is computed again: its record is gone" in text for text in messages)
    whole = [number for number in range(len(MANY)) if number not in (BAD, GONE)]
    assert all(rig.error(MANY[number], number) < 0.01 for number in whole)
    counts = rig.counts()
    assert counts["pages_lost"] == 2 and counts["pages_loaded"] == len(whole)
    assert counts["tokens_loaded"] == PAGE * len(whole)


def test_one_damaged_page_and_one_that_is_gone_among_many(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_two(rig, monkeypatch)
    check_two_lost(rig)
    if rig.by_layer:
        # A step computes with these, whatever becomes of that.
        lost = [block for number in (BAD, GONE) for block in MANY[number].blocks]
        assert all(cache[lost].isfinite().all() for cache in rig.caches.values())


@pytest.mark.parametrize("load", ["whole", "layers"])
def test_the_same_on_a_device(load: str, bases: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in each("emulator", monkeypatch):
        pass
    rig = rig_of(bases, store, monkeypatch, load=load)
    assert rig.worker._loads._pools is not None
    lose_two(rig, monkeypatch)
    check_two_lost(rig)
    rig.worker.shutdown()


def test_damaged_files(bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the checksum, and removed."""
    rig = rig_of(bases, tmp_path, monkeypatch)
    for seed, page in enumerate(MANY[:8]):
        rig.write(page, seed)
    rig.save(*MANY[:8])
    assert isinstance(rig.shelf._store, FileStore)
    path = rig.shelf._store._path(MANY[3].key)
    path.write_bytes(flip(path.read_bytes(), 100))
    with said(), pytest.warns(UserWarning, match="taken as a miss and removed"):
        assert rig.load(*MANY[:8]) == set(MANY[3].blocks)
    assert not path.exists()
    rig.worker.shutdown()


@pytest.mark.parametrize("window", [1, 4])
def test_memory_follows_the_window(bases: Path, store: Path, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(bases, store, monkeypatch)
    rig.worker._loads._reloads._window = window
    get, lock, alive, most = rig.shelf.get, threading.Lock(), [0], [0]

    def counted(more: int) -> None:
        with lock:
            alive[0] += more
            most[0] = max(most[0], alive[0])

    def found(key: str) -> memoryview:
        payload = get(key)
        assert payload is not None
        counted(1)
        weakref.finalize(payload, counted, -1)
        return payload

    monkeypatch.setattr(rig.shelf, "get", found)
    assert rig.load(*MANY) == set()
    assert 1 <= most[0] <= window
    rig.worker.shutdown()
    assert alive == [0]


def test_a_record_is_read_while_another_is_decoded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the first page waits for the last record, nor reading for decoding."""
    get, name = rig.shelf.get, "decode_run" if rig.by_layer else "decode"
    decode, met = getattr(rig.pages, name), threading.Event()
    # Set before either goes on: the next page must not wait for anybody.
    both = threading.Barrier(2, action=met.set, timeout=60)

    def found(key: str) -> Any:
        if key == MANY[4].key and not met.is_set():
            both.wait()
        return get(key)

    def decoded(*args: Any) -> None:
        if not met.is_set():
            both.wait()
        decode(*args)

    monkeypatch.setattr(rig.worker._loads._reloads, "_threads", 1)
    monkeypatch.setattr(rig.shelf, "get", found)
    monkeypatch.setattr(rig.pages, name, decoded)
    assert rig.load(*MANY) == set() and met.is_set()
    assert all(rig.error(page, number) < 0.01 for number, page in enumerate(MANY))


def test_the_first_layer_does_not_wait_for_the_others(bases: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases join two layers, so four of them come in two runs."""
    # Threads enough for all pages: none is waited for at the gate by those that may pass.
    rig = rig_of(bases, store, monkeypatch, load="layers", threads=len(MANY) + 2)
    decode, opened, runs = rig.pages.decode_run, threading.Event(), []

    def gated(payload: Any, run: range, *rooms: Any) -> None:
        runs.append(run)
        assert run.start == 0 or opened.wait(60)
        decode(payload, run, *rooms)

    monkeypatch.setattr(rig.pages, "decode_run", gated)
    rig.worker.load(Plan(loads={"request": MANY}), by_layer=True)
    for name in NAMES[:2]:
        rig.worker.wait_for_layer(name)
        assert rig.caches[name].flatten(1).any(1).all(), "all pages have it"
    assert not rig.caches[NAMES[2]].any()
    opened.set()
    for name in NAMES[2:]:
        rig.worker.wait_for_layer(name)
    assert rig.worker.take_failed() == set()
    assert all(rig.error(page, number) < 0.01 for number, page in enumerate(MANY))
    assert sorted(runs, key=lambda run: run.start) == [range(2)] * len(MANY) + [range(2, 4)] * len(MANY)
    rig.worker.shutdown()


def test_a_trace_and_the_overlap(rig: Rig, tmp_path: Path) -> None:
    assert rig.load(*MANY) == set()
    counts = rig.counts()
    assert 0 < counts["read_seconds"] <= counts["reload_seconds"] <= counts["read_seconds"] + counts["decode_seconds"]
    assert 0 <= Stats(data=counts).reduce()["load_overlap"] <= 1
    rig.worker.shutdown()
    events = json.loads((tmp_path / "reload.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"read", "decode", "settle"}
    sizes = {name: sum(event["args"]["bytes"] for event in events if event.get("cat") == name) for name in ("read", "decode")}
    assert sizes == {"read": counts["bytes_loaded"], "decode": counts["bytes_restored"]}


def test_a_trace_that_is_not_asked_for(bases: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(bases, store, monkeypatch)
    assert rig.load(*MANY) == set() and len(rig.worker._loads._reloads._trace.timeline) == 0
    rig.worker.shutdown()


def test_traces_that_cannot_be(bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ArgumentError, match="trace is a file in a folder that exists, not "):
        rig_of(bases, tmp_path, monkeypatch, trace=str(tmp_path / "missing" / "reload.json"))
    rig = rig_of(bases, tmp_path, monkeypatch, trace=str(tmp_path))
    rig.write(MANY[0], 0)
    rig.save(MANY[0])
    assert rig.load(MANY[0]) == set()
    with said() as messages:
        rig.worker.shutdown()
    assert any("the trace was not written" in message for message in messages)


def test_ranks_have_traces_of_their_own() -> None:
    assert _reloads._of_rank(Path("a/reload.json"), "rank-1") == Path("a/reload.rank-1.json")
    assert _reloads._of_rank(Path("a/reload.json"), "") == Path("a/reload.json")


def test_threads_end_and_start_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reloads, "_LINGER", 0.01)
    for _ in range(3):
        assert rig.load(*MANY) == set()
        while rig.worker._loads._reloads._runs:
            time.sleep(0.01)
    assert all(rig.error(page, number) < 0.01 for number, page in enumerate(MANY))


def test_a_pipeline_that_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever, nothing half done is used, and the next load is as good as any."""

    def fail(task: Any) -> int:
        raise RuntimeError("an error of ours")

    with monkeypatch.context() as patch, said() as messages:
        patch.setattr(rig.worker._loads._reloads, "_settle", fail)
        failed = rig.load(*MANY)
    assert failed and any("an error of ours" in message for message in messages)
    assert rig.load(*MANY) == set()
    assert all(rig.error(page, number) < 0.01 for number, page in enumerate(MANY))


def test_a_shutdown_with_loads_under_way(bases: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for what has begun and cancels the rest."""
    rig = rig_of(bases, store, monkeypatch)
    get, begun, opened, read = rig.shelf.get, threading.Event(), threading.Event(), []

    def gated(key: str) -> Any:
        begun.set()
        assert opened.wait(60)
        read.append(key)
        return get(key)

    monkeypatch.setattr(rig.shelf, "get", gated)
    rig.worker.load(Plan(loads={"request": MANY}))
    assert begun.wait(60)
    ending = threading.Thread(target=rig.worker.shutdown)
    ending.start()
    while not rig.worker._loads._reloads._stop.is_stopped:
        time.sleep(0.001)
    opened.set()
    ending.join(60)
    assert not ending.is_alive() and len(read) <= 2, "of each thread that read, the page that it was at"
    with said():
        assert rig.worker._loads.take() == {"request": set(range(BLOCKS))}
