"""A worker whose cache is on a CUDA device, or on the emulator in its place: pages made of blocks, and decoded into them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from emulated import COLUMNS, HEADS, LAYERS, EmulatedStreams, each, fit_bases, rows
from vllm_setup import said
from vllm_workers import BLOCK, BLOCKS, ELSEWHERE, NAMES, PAGE, PAGES, Latent, Rig, Scarce, flip, layers_of

from tenfold import DataError, UnsupportedError
from tenfold.serving import Identity, KvPages
from tenfold.serving.vllm import _device_saves
from tenfold.serving.vllm._plan import Page, Plan
from tenfold.serving.vllm._options import Options
from tenfold.serving.vllm._shape import Shape
from tenfold.serving.vllm._shelf import Complaints, Shelf
from tenfold.serving.vllm._worker import Worker


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(params=["whole", "layers"])
def rig(request: Any, device: torch.device, bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """With a goal that every device encodes at."""
    monkeypatch.setattr(KvPages, "_goal", lambda self, values: {"step": 0.05})
    made = Rig(device, bases, tmp_path / "store", load=request.param)
    assert made.worker._saves._device.makes(PAGES[0])
    for seed, page in enumerate(PAGES):
        made.write(page, seed)
    yield made
    made.worker.shutdown()


def test_blocks_to_pages_to_blocks(rig: Rig) -> None:
    rig.save(*PAGES)
    counts = rig.counts()
    assert counts["pages_saved"] == counts["pages_by_device"] == 3 and counts["tokens_saved"] == 3 * PAGE
    assert counts["bytes_before"] == 3 * 2 * LAYERS * PAGE * HEADS * COLUMNS * 2
    assert counts["encode_seconds"] > 0
    assert rig.load(*ELSEWHERE) == set()
    assert all(rig.error(page, seed) < 0.01 for seed, page in enumerate(ELSEWHERE))
    counts = rig.counts()
    assert counts["pages_loaded"] == counts["pages_by_device"] == 3 and counts["tokens_loaded"] == 3 * PAGE
    assert 0 < counts["bytes_loaded"] < counts["bytes_restored"] and counts["decode_seconds"] > 0


def test_the_host_reads_what_the_device_made(rig: Rig) -> None:
    rig.save(*PAGES)
    rig.worker._loads._pools = None
    assert rig.load(*ELSEWHERE) == set()
    assert all(rig.error(page, seed) < 0.01 for seed, page in enumerate(ELSEWHERE))
    assert rig.counts()["pages_by_device"] == 3


def test_a_part_of_a_page(rig: Rig) -> None:
    rig.save(*PAGES)
    assert rig.load(Page("b", PAGE, (20,), first=1)) == set()
    second = Page("b", PAGE, (11, 14))
    assert rig.load(second) == set()
    for cache in rig.caches.values():
        assert torch.equal(cache[20], cache[14]) and cache[20].any() and not cache[21].any()


@pytest.mark.parametrize("settings", [{"exact": 1}, {"lossless": True}, {"dtype": torch.float16}], ids=str)
def test_pages_that_the_device_may_leave_to_the_host(device: torch.device, bases: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    made = Rig(device, bases, tmp_path, **settings)
    for seed, page in enumerate(PAGES):
        made.write(page, seed)
    made.save(*PAGES)
    assert made.counts()["pages_saved"] == 3
    assert made.load(*ELSEWHERE) == set()
    assert all(made.error(page, seed) < 0.05 for seed, page in enumerate(ELSEWHERE))
    made.worker.shutdown()


def test_latent_rows(device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of MLA: the rotary part is coded as keys, the rest as values, on the device both ways."""
    monkeypatch.setattr(KvPages, "_goal", lambda self, values: {"step": 0.05})
    width = HEADS * COLUMNS
    bases = fit_bases(tmp_path, rope=f"base=10000,head={width},pairing=neighbours", head=width)
    shape = Shape(NAMES, BLOCK, PAGE, 1, width, "bfloat16", 1, width)
    options = Options.parse({"path": str(tmp_path / "store"), "bases": str(bases), "threads": 2, "exact": 0})
    pages = KvPages(LAYERS, bases=bases, exact=0, threads=1)
    worker = Worker(shape, options, pages, Shelf(options.path, Identity("model")), 0)
    caches = {name: torch.zeros(BLOCKS, BLOCK, 2 * width, dtype=torch.bfloat16, device=device) for name in NAMES}
    with said():
        worker.register(caches, layers_of(shape, Latent()))
    given = [rows(PAGE, seed) for seed in range(len(PAGES))]
    for page, sides in zip(PAGES, given, strict=True):
        slots = torch.tensor([block * BLOCK + token for block in page.blocks for token in range(BLOCK)], device=device)
        for cache, key, value in zip(caches.values(), *sides, strict=True):
            Latent().do_kv_cache_update(value.to(device), key.unsqueeze(1).to(device), cache, slots, "auto", torch.ones(()))
    worker.save(Plan(saves=PAGES))
    while saving := list(worker._saves.saving.values()):
        wait(saving, 60)
    plan = Plan(loads={"request": ELSEWHERE}, idle=True)
    worker.load(plan)
    while not worker.take_finished(plan):
        pass
    assert worker.take_failed() == set()
    found = worker.stats()
    assert found is not None and found.data["pages_saved"] == 3 and found.data["pages_by_device"] == 6
    for page, sides in zip(ELSEWHERE, given, strict=True):
        for cache, key, value in zip(caches.values(), *sides, strict=True):
            want = torch.cat((value, key), 1).float()
            have = cache[list(page.blocks)].flatten(0, 1).float().cpu()
            assert (have - want).square().sum() < 0.01 * want.square().sum()
    worker.shutdown()


class Gate:
    """The device starts to encode when it is opened."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.opened, self.asked = threading.Event(), threading.Event()
        encode = KvPages.encode_blocks

        def later(pages: KvPages, *args: Any) -> list[bytes]:
            self.asked.set()
            assert self.opened.wait(60)
            return encode(pages, *args)

        patch.setattr(KvPages, "encode_blocks", later)
        patch.setattr(_device_saves, "_AT_ONCE", 1)


def test_blocks_are_not_overwritten_before_their_page_is_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    rig.worker.save(Plan(saves=PAGES))
    assert gate.asked.wait(60)
    # Nobody needs other blocks, and the third page waits for a thread: it is copied at once.
    rig.worker.before_writes(Plan(writes=[30, 31]))
    rig.worker.before_writes(Plan(writes=[3]))
    rig.write(PAGES[2], 50)
    with ThreadPoolExecutor(1) as other:
        step = other.submit(rig.worker.before_writes, Plan(loads={"request": [Page("x", 0, (2,))]}))
        assert not wait([step], 0.2).done
        gate.opened.set()
        step.result(60)
    rig.write(PAGES[0], 51)
    rig.settle()
    counts = rig.counts()
    assert counts["pages_saved"] == 3 and counts["pages_by_device"] == 2
    # The pages hold what was there when they were to be saved.
    assert rig.load(*ELSEWHERE) == set()
    assert all(rig.error(page, seed) < 0.01 for seed, page in enumerate(ELSEWHERE))
    assert not rig.worker._saves._device._batches or all(batch.read.is_set() for batch in rig.worker._saves._device._batches)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), UnsupportedError("not here"), RuntimeError("CUDA")], ids=repr)
def test_the_host_makes_what_the_device_does_not(rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_: Any) -> list[bytes]:
        raise error

    with monkeypatch.context() as patch, said() as messages:
        patch.setattr(KvPages, "encode_blocks", refuse)
        rig.save(*PAGES)
    assert any(f"the host encodes pages that the device does not: {error}" in message for message in messages)
    counts = rig.counts()
    assert counts["pages_saved"] == 3 and "pages_by_device" not in counts
    assert rig.load(*ELSEWHERE) == set()
    assert all(rig.error(page, seed) < 0.01 for seed, page in enumerate(ELSEWHERE))
    # What may be better next time is tried again.
    assert rig.worker._saves._device.makes(PAGES[1]) == (not isinstance(error, UnsupportedError))


def test_no_memory_for_a_copy_either(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch, said() as messages:
        patch.setattr(KvPages, "encode_blocks", refuse)
        patch.setattr(type(rig.worker._saves._cache), "read", refuse)
        rig.save(*PAGES)
    assert rig.counts()["pages_failed"] == 3
    assert any("requests go on without: no memory" in message for message in messages)
    rig.save(*PAGES)
    assert rig.counts()["pages_saved"] == 3


def test_a_store_that_is_full(device: torch.device, bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KvPages, "_goal", lambda self, values: {"step": 0.05})
    made = Rig(device, bases, tmp_path, max_store_bytes=100)
    made.write(PAGES[1], 1)
    with said() as messages:
        made.save(PAGES[1])
    assert made.counts()["pages_failed"] == 1 and any("has no room in a store of 100" in message for message in messages)
    made.worker.shutdown()


def test_damaged_pages_are_computed_again(rig: Rig) -> None:
    """Sealed as they should be, so only the device finds out; pages of the same load are not affected."""
    rig.save(*PAGES)
    whole = rig.payload("b")
    damaged = [flip(whole, at) for at in range(0, len(whole), 307)] + [whole[:cut] for cut in range(0, len(whole), 509)]
    for payload in damaged:
        rig.shelf.put("b", payload)
        with said():
            assert rig.load(*ELSEWHERE) == {11, 14}
        assert not rig.shelf.contains("b")
        assert rig.error(ELSEWHERE[0], 0) < 0.01 and rig.error(ELSEWHERE[2], 2) < 0.01
    assert rig.counts()["pages_lost"] == len(damaged)
    assert rig.worker._loads._pools is not None, "the device decodes what is whole"


@pytest.mark.parametrize("kind", ["another basis", "other tokens", "another shape", "another dtype"])
def test_pages_of_others(rig: Rig, tmp_path: Path, kind: str) -> None:
    """Which only a store that lies has under this name."""
    rig.save(*PAGES)
    keys, values = rows(PAGE, 1)
    if kind == "another basis":
        foreign = KvPages(LAYERS, bases=fit_bases(tmp_path, 7)).encode(keys, values, PAGE)
    elif kind == "other tokens":
        foreign = rig.pages.encode([key[:-1] for key in keys], [value[:-1] for value in values], PAGE)
    elif kind == "another dtype":
        foreign = rig.pages.encode([key.half() for key in keys], [value.half() for value in values], PAGE)
    else:
        foreign = KvPages(LAYERS).encode(keys, values)
    rig.shelf.put("b", foreign)
    with said():
        assert rig.load(*ELSEWHERE) == {11, 14}
    assert not rig.shelf.contains("b"), "or it would be found again and again"
    assert rig.error(ELSEWHERE[0], 0) < 0.01 and rig.error(ELSEWHERE[2], 2) < 0.01
    assert rig.worker._loads._pools is not None, "one page must not keep the device from decoding others"


def test_no_memory_in_the_middle_of_a_load(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """From each of the allocations of a load on; by the last one some layers may be decoded."""
    rig.save(*PAGES)
    with monkeypatch.context() as patch:
        plenty = Scarce(patch, 1000)
        assert rig.load(*ELSEWHERE) == set()
    assert plenty.asked > 2
    for most in range(plenty.asked):
        rig.worker._loads._unread = Complaints()
        with monkeypatch.context() as patch, said() as messages:
            Scarce(patch, most)
            failed = rig.load(*ELSEWHERE)
        assert failed == {block for page in ELSEWHERE for block in page.blocks}
        assert "a page at token 0 is computed again: no memory" in messages
        if isinstance(rig.worker._loads._blocks.streams, EmulatedStreams):
            assert rig.worker._loads._blocks.streams.loads.waits, "something may still be written to blocks"
    # The records are whole, and there is memory later.
    assert rig.load(*ELSEWHERE) == set()
    assert all(rig.error(page, seed) < 0.01 for seed, page in enumerate(ELSEWHERE))
    assert not rig.worker._loads


def test_errors_of_pages_are_told_apart(rig: Rig) -> None:
    rig.save(*PAGES)
    pools = rig.worker._loads._pools
    slots = [rig.worker._loads._blocks.slots(page.blocks) for page in ELSEWHERE]
    good, bad = rig.payload("a"), rig.payload("b")
    found = rig.pages.decode_blocks([good, flip(bad, len(bad) - 6), good], slots, *pools)
    assert found[0] is None and isinstance(found[1], DataError) and found[2] is None
    with pytest.raises(DataError, match="32 tokens, 31 were expected"):
        rig.pages.decode_blocks([good], [slots[0][:-1]], *pools)
