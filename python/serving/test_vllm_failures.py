"""Whatever is wrong with a store, requests get the right tokens, and somebody is told."""

from __future__ import annotations

import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm import SamplingParams
from vllm_engines import PAGE, Engine, engine, keys_of, model_folder, prompt
from vllm_setup import said

from tenfold.serving import StoreWarning
from tenfold.serving._store import FileStore, StoreError
from tenfold.serving.vllm._shelf import Complaints

pytestmark = pytest.mark.filterwarnings("default")

Stored = tuple[list[int], list[int], list[Path]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def one(model: Path, folder: Path) -> Iterator[Engine]:
    with engine(model, {"path": str(folder), "lossless": True}) as made:
        yield made


@pytest.fixture
def stored(one: Engine, request: pytest.FixtureRequest) -> Stored:
    """A prompt of three pages that are in the store but not in the engine, its answer, and the files of its pages."""
    asked = prompt(200, seed=sum(request.node.name.encode()))
    (answer,) = one.answers([asked])
    one.forget()
    files = [one.worker._loads._shelf._store._path(key) for key in keys_of(one.llm, asked)]
    assert all(path.is_file() for path in files)
    # So that the next complaint is the first.
    one.worker._loads._unread = Complaints()
    return asked, answer, files


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def swap(path: Path) -> None:
    """The record of another page in its place."""
    shutil.copy(next(other for other in path.parents[1].glob("*/*.tnkv") if other != path), path)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("damage", [flip, cut, empty, swap])
def test_damaged_records(one: Engine, stored: Stored, damage: Callable[[Path], None], number: int) -> None:
    asked, answer, files = stored
    damage(files[number])
    before = one.counts()
    with said() as messages, pytest.warns(StoreWarning, match="taken as a miss and removed"):
        assert one.answers([asked]) == [answer]
    after = one.forget()
    assert after["pages_lost"] - before.get("pages_lost", 0) == 1
    assert any(f"a page at token {number * PAGE} is computed again" in message for message in messages)
    # It was stored once more, and all is found now.
    assert all(path.is_file() for path in files)
    assert one.answers([asked]) == [answer]
    assert one.counts()["tokens_loaded"] - after["tokens_loaded"] == 3 * PAGE


def test_all_records_are_damaged(one: Engine, stored: Stored) -> None:
    asked, answer, files = stored
    for path in files:
        flip(path)
    with pytest.warns(StoreWarning):
        assert one.answers([asked]) == [answer]


def test_a_record_that_holds_no_page(one: Engine, stored: Stored) -> None:
    """Sealed as it should be, so only decoding finds out."""
    asked, answer, files = stored
    one.worker._loads._shelf.put(keys_of(one.llm, asked)[1], b"no page")
    with said() as messages:
        assert one.answers([asked]) == [answer]
    assert any("a page at token 64 is computed again" in message for message in messages)
    one.counts()
    assert files[1].stat().st_size > 1000


def test_a_record_goes_between_lookup_and_load(one: Engine, stored: Stored) -> None:
    asked, answer, files = stored
    load = one.worker.load

    def late(plan: Any, **how: Any) -> None:
        if plan.loads:
            files[1].unlink(missing_ok=True)
        load(plan, **how)

    one.worker.load = late
    try:
        with said() as messages:
            assert one.answers([asked]) == [answer]
    finally:
        del one.worker.load
    assert any("a page at token 64 is computed again: its record is gone" in message for message in messages)


def test_a_damaged_record_that_stays(one: Engine, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is not ours to write: the request must not be told of it again and again."""
    asked, answer, files = stored
    flip(files[0])

    def refuse(self: FileStore, key: str) -> None:
        raise StoreError(30, "Read-only file system", key)

    monkeypatch.setattr(FileStore, "remove", refuse)
    with said() as messages, pytest.warns(StoreWarning):
        assert one.answers([asked]) == [answer]
    assert any("Read-only file system" in message for message in messages)


def test_a_full_disk(one: Engine) -> None:
    """No file may grow beyond a thousand bytes."""
    asked = [prompt(200, seed=60)]
    before = one.counts()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with said() as messages:
            answer = one.answers(asked)
            after = one.forget()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert after["pages_failed"] - before.get("pages_failed", 0) == 3
    assert any("requests go on without: [Errno 27] keys and values were not stored" in message for message in messages)
    # Nothing of it is there, and now it can be stored.
    assert one.answers(asked) == answer
    found = one.counts()
    assert found["hits"] == after["hits"] and found["pages_saved"] - after.get("pages_saved", 0) == 3


def tokens_of(one: Engine, until: Callable[[dict[str, list[int]]], bool]) -> dict[str, list[int]]:
    """Steps until what has been answered will do."""
    answers: dict[str, list[int]] = {}
    for _ in range(10_000):
        if until(answers):
            return answers
        for out in one.llm.llm_engine.step():
            if out.finished:
                answers[out.request_id] = list(out.outputs[0].token_ids)
    raise AssertionError(f"only {sorted(answers)} have been answered")


@pytest.fixture
def gate(one: Engine, stored: Any) -> Iterator[threading.Event]:
    """Loads wait until it is opened."""
    opened, get = threading.Event(), one.worker._loads._shelf.get

    def waiting(key: str) -> Any:
        assert opened.wait(60)
        return get(key)

    one.worker._loads._shelf.get = waiting
    yield opened
    opened.set()
    del one.worker._loads._shelf.get


def ask(one: Engine, name: str, tokens: list[int]) -> None:
    how = SamplingParams(max_tokens=10, temperature=0, detokenize=False)
    one.llm.llm_engine.add_request(name, {"prompt_token_ids": tokens}, how)


def test_other_requests_do_not_wait_for_a_load(one: Engine, stored: Stored, gate: threading.Event) -> None:
    asked, answer, _ = stored
    ask(one, "slow", asked)
    ask(one, "quick", prompt(40, seed=61))
    assert list(tokens_of(one, lambda answers: "quick" in answers)) == ["quick"]
    gate.set()
    assert tokens_of(one, lambda answers: "slow" in answers)["slow"] == answer


def test_a_request_that_is_aborted_while_it_loads(one: Engine, stored: Stored, gate: threading.Event) -> None:
    asked, answer, _ = stored
    core = one.llm.llm_engine.engine_core.engine_core
    free = core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    ask(one, "gone", asked)
    one.llm.llm_engine.step()
    assert one.worker._loads._loading
    one.llm.llm_engine.abort_request(["gone"])
    gate.set()
    # Its blocks stay its own until nobody writes to them.
    tokens_of(one, lambda _: not one.worker._loads._loading and not core.scheduler.requests)
    assert core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == free
    assert one.answers([asked]) == [answer]
