"""Damage in pages of requests that are computed while these are loaded: nothing that came of it reaches anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm import SamplingParams
from vllm.v1.request import RequestStatus
from vllm_engines import PAGE, Engine, engine, keys_of, model_folder, prompt
from vllm_setup import said

from tenfold import DataError
from tenfold.serving import StoreWarning
from tenfold.serving.vllm._arriving import Arriving
from tenfold.serving.vllm._layer_loads import LayerLoads
from tenfold.serving.vllm._plan import Page
from tenfold.serving.vllm._shelf import Complaints

pytestmark = pytest.mark.filterwarnings("default")

# A request may compute its blocks again in one step, or in many while others are scheduled.
SETTINGS = {"at once": {}, "in parts": {"long_prefill_token_threshold": 32, "max_num_batched_tokens": 256}}


@pytest.fixture(scope="module", params=SETTINGS)
def one(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    model, store = (tmp_path_factory.mktemp(name) for name in ("model", "store"))
    how = {"path": str(store), "lossless": True, "load": "layers"}
    with engine(model_folder(model), how, async_scheduling=False, **SETTINGS[request.param]) as made:
        yield made


class Late:
    """Pages that the host has decoded, some of them damaged, which shows when the step is over."""

    def __init__(self, good: Arriving, bad: set[int]) -> None:
        self._good, self._bad = good, bad

    def wait_for(self, layer: int) -> None:
        self._good.wait_for(layer)

    def errors(self) -> list[Exception | str | None]:
        return [DataError("found out late") if number in self._bad else error for number, error in enumerate(self._good.errors())]


@pytest.fixture
def damage(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Page], bool]], list[Page]]:
    """Puts numbers that nobody computed where some pages go; says which pages it met."""
    begin = LayerLoads._begin_on_host

    def install(which: Callable[[Page], bool]) -> list[Page]:
        met: list[Page] = []

        def spoiled(self: LayerLoads, step: Any) -> Arriving:
            good = begin(self, step)
            for layer in range(len(self._shape.layers)):
                good.wait_for(layer)
            bad = {number for number, page in enumerate(step.pages) if which(page)}
            for number in bad:
                met.append(step.pages[number])
                for cache in self._blocks._caches:
                    cache[list(step.pages[number].blocks)] = 3.0
            return Late(good, bad)

        monkeypatch.setattr(LayerLoads, "_begin_on_host", spoiled)
        return met

    return install


def stored(one: Engine, seed: int) -> tuple[list[int], list[int], list[Path]]:
    """A prompt of three pages that are in the store but not in the engine, its answer, and the files of its pages."""
    asked = prompt(200, seed=seed)
    (answer,) = one.answers([asked])
    one.forget()
    files = [one.worker._loads._shelf._store._path(key) for key in keys_of(one.llm, asked)]
    assert all(path.is_file() for path in files)
    one.worker._loads._unread = Complaints()
    return asked, answer, files


@pytest.mark.parametrize("number", [0, 1, 2])
def test_damaged_records(one: Engine, number: int) -> None:
    asked, answer, files = stored(one, 100 + number)
    data = bytearray(files[number].read_bytes())
    data[len(data) // 2] ^= 16
    files[number].write_bytes(data)
    before = one.counts()
    with said() as messages, pytest.warns(StoreWarning, match="taken as a miss and removed"):
        assert one.answers([asked]) == [answer]
    after = one.forget()
    assert after["pages_lost"] - before.get("pages_lost", 0) == 1
    assert any(f"a page at token {number * PAGE} is computed again" in message for message in messages)
    assert all(path.is_file() for path in files), "it is stored once more"
    assert one.answers([asked]) == [answer]
    assert one.counts()["tokens_loaded"] - after["tokens_loaded"] == 3 * PAGE


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_page_that_is_found_damaged_late(one: Engine, damage: Any, number: int) -> None:
    """Several requests have it, and all of them answer as if there had been no store."""
    others = [prompt(150, seed=110 + number) + prompt(30, seed=120 + other) for other in range(3)]
    expected = one.answers(others)
    one.counts()
    assert one.llm.reset_prefix_cache(reset_connector=True)
    asked, answer, files = stored(one, 110 + number)
    met = damage(lambda page: page.position == number * PAGE)
    before = one.counts()
    found = one.answers([asked, *others])
    assert found == [answer, *expected]
    assert met, "the page was loaded"
    assert one.counts()["pages_lost"] - before.get("pages_lost", 0) == len(met)
    # What is in the store now is what was computed, not what came of the damage.
    damage(lambda page: False)
    one.forget()
    assert all(path.is_file() for path in files)
    assert one.answers([asked, *others]) == found


def test_what_a_step_computes_behind_damage_is_not_stored(one: Engine, damage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages are loaded, one of them damaged, and two more are computed in the same step."""
    asked = prompt(4 * PAGE + 20, seed=160)
    expected = one.answers([asked])
    one.counts()
    assert one.llm.reset_prefix_cache(reset_connector=True)
    one.answers([asked[: 2 * PAGE + 8]])
    one.forget()
    met = damage(lambda page: page.position == PAGE)
    assert one.answers([asked]) == expected and len(met) == 1
    before = one.forget()
    monkeypatch.undo()
    assert one.answers([asked]) == expected
    assert one.counts()["tokens_loaded"] - before["tokens_loaded"] == 4 * PAGE


def ask(one: Engine, name: str, tokens: list[int]) -> None:
    how = SamplingParams(max_tokens=10, temperature=0, detokenize=False)
    one.llm.llm_engine.add_request(name, {"prompt_token_ids": tokens}, how)


@pytest.mark.parametrize("when", ["in the step", "behind it"])
def test_a_request_with_damage_that_is_aborted(one: Engine, damage: Any, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody computes its blocks again, and nobody finds them."""
    asked, answer, _ = stored(one, 130 + len(when))
    core = one.llm.llm_engine.engine_core.engine_core
    met = damage(lambda page: page.position == PAGE)
    free = core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    ask(one, "gone", asked)
    (name,) = [name for name in core.scheduler.requests if name.startswith("gone")]
    if when == "in the step":
        update = core.scheduler.update_from_output

        def aborted(*args: Any) -> Any:
            core.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)
            return update(*args)

        monkeypatch.setattr(core.scheduler, "update_from_output", aborted)
    one.llm.llm_engine.step()
    monkeypatch.undo()
    one.llm.llm_engine.abort_request(["gone"])
    while core.scheduler.has_requests():
        one.llm.llm_engine.step()
    assert len(met) == 1
    assert core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == free
    assert one.answers([asked]) == [answer]


def test_an_answer_of_one_token(one: Engine, damage: Any) -> None:
    """The step that loads is the only one; a damaged page makes it two."""
    asked, answer, _ = stored(one, 140)
    assert one.answers([asked], 1) == [answer[:1]]
    one.forget()
    met = damage(lambda page: page.position == PAGE)
    assert one.answers([asked], 1) == [answer[:1]] and len(met) == 1
