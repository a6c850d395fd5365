"""Engines that compute requests while their pages are loaded, with load="layers"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_engines import PAGE, engine, model_folder, prompt

pytestmark = pytest.mark.filterwarnings("default")

LONG = prompt(200)
SHARED = prompt(150) + prompt(30, seed=1)
SHORT = prompt(20, seed=2)
PROMPTS = [LONG, SHORT, SHARED]
IN_STEP = {"async_scheduling": False}


def store_at(path: Path) -> dict[str, Any]:
    return {"path": str(path), "lossless": True, "load": "layers"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def plain(model: Path) -> list[list[int]]:
    """What the model says without a connector."""
    with engine(model) as made:
        return made.answers(PROMPTS)


def test_another_engine_finds_what_one_stored(model: Path, plain: list[list[int]], tmp_path: Path) -> None:
    with engine(model, store_at(tmp_path), **IN_STEP) as first:
        assert first.answers(PROMPTS) == plain
        assert first.counts()["pages_saved"] == 3
    with engine(model, store_at(tmp_path), **IN_STEP) as second:
        assert second.answers(PROMPTS) == plain
        found = second.counts()
        # The second long prompt shares two pages with the first: it waits a step, and finds them in the engine's cache.
        assert (found["tokens_loaded"], found["hits"]) == (3 * PAGE, 3 * PAGE)
        assert "pages_saved" not in found and "pages_lost" not in found


def test_without_a_cache_of_its_own(model: Path, plain: list[list[int]], tmp_path: Path) -> None:
    """No request shares blocks, so each loads its own."""
    with engine(model, store_at(tmp_path), enable_prefix_caching=False, **IN_STEP) as made:
        assert made.answers([LONG]) == plain[:1]
        made.counts()
        assert made.answers([LONG, SHARED]) == [plain[0], plain[2]]
        assert made.counts()["tokens_loaded"] == 5 * PAGE


@pytest.mark.parametrize(
    "settings", [{"max_num_batched_tokens": 48, "max_num_seqs": 4}, {"enforce_eager": False}], ids=["chunks", "compiled"]
)
def test_other_ways_to_run(model: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    with engine(model, store_at(tmp_path), **IN_STEP, **settings) as made:
        expected = made.answers(PROMPTS, 60)
        saved = made.forget()["pages_saved"]
        assert saved == 3 + 1 + 1 + 1
        assert made.answers(PROMPTS, 60) == expected
        found = made.counts()
        assert found["hits"] == 3 * PAGE and "pages_lost" not in found


def test_pages_of_a_step_that_loads_are_stored_by_the_next(model: Path, tmp_path: Path) -> None:
    asked = prompt(4 * PAGE + 20, seed=150)
    with engine(model, store_at(tmp_path), **IN_STEP) as made:
        made.answers([asked[: 2 * PAGE + 8]])
        assert made.forget()["pages_saved"] == 2
        made.answers([asked])
        found = made.forget()
        assert found["tokens_loaded"] == 2 * PAGE and found["pages_saved"] == 4
        made.answers([asked])
        assert made.counts()["tokens_loaded"] == 6 * PAGE
