"""Pages that are loaded layer by layer while a step computes: who waits for what, and what becomes of a page that is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from emulated import each, fit_bases
from vllm_setup import said
from vllm_workers import ELSEWHERE, NAMES, PAGES, Rig, flip

from tenfold.serving import KvPages, _streams
from tenfold.serving.vllm import _layer_loads
from tenfold.serving.vllm._plan import Plan
from tenfold.torch import _blocks, _device

PLAN = Plan(loads={"one": ELSEWHERE[:1], "two": ELSEWHERE[1:]})
BLOCKS = {block for page in ELSEWHERE for block in page.blocks}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch)


def made(device: torch.device, bases: Path, folder: Path, patch: pytest.MonkeyPatch) -> Rig:
    """With pages in the store, and a goal that every device encodes at."""
    patch.setattr(KvPages, "_goal", lambda self, values: {"step": 0.05})
    rig = Rig(device, bases, folder, load="layers")
    for seed, page in enumerate(PAGES):
        rig.write(page, seed)
    rig.save(*PAGES)
    rig.counts()
    return rig


@pytest.fixture
def rig(device: torch.device, bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = made(device, bases, tmp_path, monkeypatch)
    yield rig
    rig.worker.shutdown()


class Noted:
    """A stream, or an event of one, that writes down what it is asked for."""

    cuda_stream = 0

    def __init__(self, name: str, notes: list[tuple[str, str]]) -> None:
        self.name, self._notes, self._events = name, notes, 0

    def record_event(self) -> Noted:
        self._events += 1
        event = Noted(f"{self.name}.{self._events}", self._notes)
        self._notes.append((self.name, f"records {event.name}"))
        return event

    def wait_event(self, event: Noted) -> None:
        self._notes.append((self.name, f"waits for {event.name}"))

    def wait_stream(self, other: Noted) -> None:
        self._notes.append((self.name, f"waits for {other.name}"))

    def synchronize(self) -> None:
        self._notes.append(("host", f"waits for {self.name}"))

    def query(self) -> bool:
        return True


class World:
    """Streams of an emulated device, and which of them is current."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.notes: list[tuple[str, str]] = []
        self.engine, self.beside = Noted("engine", self.notes), Noted("copies", self.notes)
        self._current = [self.engine]
        world = self

        class Streams:
            def __init__(self, device: torch.device) -> None:
                self.loads, self.saves = Noted("loads", world.notes), Noted("saves", world.notes)

            def mark(self) -> Noted:
                return world.engine.record_event()

        patch.setattr(_device, "stream", lambda device: self._current[-1])
        patch.setattr(_device, "on", self._on)
        patch.setattr(_device, "sides", lambda device, count: [self.beside] * count)
        patch.setattr(_streams, "Streams", Streams)

    @contextmanager
    def _on(self, stream: Noted) -> Iterator[None]:
        self._current.append(stream)
        yield
        self._current.pop()

    def take(self, who: str) -> list[str]:
        """What a stream, or the host, was asked for since the last time."""
        found = [what for whose, what in self.notes if whose == who]
        self.notes[:] = [note for note in self.notes if note[0] != who]
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    for _ in each("emulator", monkeypatch):
        pass
    return World(monkeypatch)


def test_layers_wait_for_their_own(world: World, bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases join two layers, so four of them come in two runs; the host waits when all is queued."""
    rig = made(torch.device("cpu"), bases, tmp_path, monkeypatch)
    world.notes.clear()
    rig.worker.load(PLAN, by_layer=True)
    loads = world.take("loads")
    assert loads[0] == "waits for engine.2", "blocks may still be in use"
    assert [one for one in loads if one.startswith("records")] == ["records loads.1", "records loads.2"]
    assert world.take("engine") == ["records engine.2"]
    for name, event in zip(NAMES, ["loads.1", "loads.1", "loads.2", "loads.2"], strict=True):
        rig.worker.wait_for_layer(name)
        assert world.take("engine") == [f"waits for {event}"]
    assert world.take("host") == [], "only streams wait in a step"
    rig.worker.wait_for_layer("an encoder")
    assert rig.worker.take_failed() == set()
    # Steps without loads ask for nothing.
    rig.worker.load(Plan(), by_layer=True)
    rig.worker.wait_for_layer(NAMES[0])
    assert rig.worker.take_failed() == set() and world.take("engine") == world.take("host") == []
    rig.worker.shutdown()


def test_a_graph_of_the_whole_model(world: World, bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No layer waits, so the step does, before it is started."""
    rig = made(torch.device("cpu"), bases, tmp_path, monkeypatch)
    world.notes.clear()
    rig.worker.load(PLAN)
    assert world.take("engine")[-1] == "waits for loads.2" and world.take("host") == []
    assert rig.worker.take_failed() == set()
    rig.worker.shutdown()


def test_many_layers_and_few(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of runs, a layer is whole for work behind its wait."""
    expected = None
    for waves in (1, 2, 3, 100):
        monkeypatch.setattr(_layer_loads, "_WAVES", waves)
        for cache in rig.caches.values():
            cache[sorted(BLOCKS)] = 0
        rig.worker.load(PLAN, by_layer=True)
        seen = []
        for name, cache in rig.caches.items():
            rig.worker.wait_for_layer(name)
            seen.append(cache[sorted(BLOCKS)].clone())
        assert rig.worker.take_failed() == set()
        expected = expected or seen
        assert all(torch.equal(a, b) and a.any() for a, b in zip(seen, expected, strict=True))
    assert all(rig.error(page, seed) < 0.01 for seed, page in enumerate(ELSEWHERE))


def test_pages_beyond_what_a_device_has_room_for_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come by parts, which are one load to those who wait."""
    monkeypatch.setattr(_blocks, "_AT_ONCE", 2)
    whole = rig.payload("b")
    for damaged, lost in ((whole, set()), (flip(whole, len(whole) - 6), {11, 14})):
        rig.shelf.put("b", damaged)
        with said():
            assert rig.load(*ELSEWHERE) == lost
        assert rig.error(ELSEWHERE[0], 0) < 0.01 and rig.error(ELSEWHERE[2], 2) < 0.01


def test_a_layer_that_nobody_waits_for(rig: Rig) -> None:
    """Its attention may have come first, so what the step computed is not used."""
    rig.worker.load(PLAN, by_layer=True)
    for name in NAMES[:-1]:
        rig.worker.wait_for_layer(name)
    with said() as messages:
        assert rig.worker.take_failed() == BLOCKS
    assert any(f"vLLM did not wait for {NAMES[-1]} to be loaded" in message for message in messages)
    assert all(rig.shelf.contains(page.key) for page in PAGES), "the records are whole"
    assert rig.load(*ELSEWHERE) == set()


def test_blocks_of_records_that_are_gone_are_cleared(rig: Rig) -> None:
    for cache in rig.caches.values():
        cache[sorted(BLOCKS)] = float("nan")
    rig.shelf.discard("b")
    with said() as messages:
        assert rig.load(*ELSEWHERE) == {11, 14}
    assert any("its record is gone" in message for message in messages)
    assert not any(cache[[11, 14]].any() for cache in rig.caches.values())
    assert rig.error(ELSEWHERE[0], 0) < 0.01 and rig.error(ELSEWHERE[2], 2) < 0.01
    # So are those of a page that shows before it is decoded that it is none.
    rig.shelf.put("b", b"no page")
    for cache in rig.caches.values():
        cache[[11, 14]] = float("nan")
    with said():
        assert rig.load(*ELSEWHERE) == {11, 14}
    assert not any(cache[[11, 14]].any() for cache in rig.caches.values())


def test_a_device_that_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what is in any of the blocks."""
    from tenfold.torch._staged import Loading

    def fail(self: Loading) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with monkeypatch.context() as patch, said() as messages:
        patch.setattr(Loading, "errors", fail)
        assert rig.load(*ELSEWHERE) == BLOCKS
    assert any("illegal memory access" in message for message in messages)
    assert rig.counts()["pages_lost"] == 3 and rig.worker._loads._step is None
    assert rig.load(*ELSEWHERE) == set()


def test_the_host_decodes_what_the_device_does_not(rig: Rig) -> None:
    rig.worker._loads._pools = None
    whole = rig.payload("b")
    assert rig.load(*ELSEWHERE) == set() and "pages_by_device" not in rig.counts()
    assert all(rig.error(page, seed) < 0.01 for seed, page in enumerate(ELSEWHERE))
    rig.shelf.put("b", flip(whole, len(whole) - 6))
    with said():
        assert rig.load(*ELSEWHERE) == {11, 14}


def test_a_step_that_failed(rig: Rig) -> None:
    """vLLM may not ask what came of its loads; the next step does not answer for them."""
    rig.shelf.discard("b")
    rig.worker.load(PLAN, by_layer=True)
    with said():
        assert rig.load(ELSEWHERE[0]) == set()
    assert rig.error(ELSEWHERE[0], 0) < 0.01


def test_memory_of_the_device_is_given_back(bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    rig = made(torch.device("cuda", 0), bases, tmp_path, monkeypatch)
    whole, taken = rig.payload("b"), []
    for number in range(20):
        rig.shelf.put("b", flip(whole, len(whole) - 6) if number % 2 else whole)
        with said():
            assert rig.load(*ELSEWHERE) == ({11, 14} if number % 2 else set())
        torch.cuda.synchronize()
        taken.append(torch.cuda.memory_allocated())
    assert len(set(taken[4:])) == 1
    rig.worker.shutdown()
