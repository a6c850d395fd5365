"""Where prompts begin alike and where they end: what is stored and found of each, by one engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from vllm_engines import BLOCK, PAGE, Engine, engine, model_folder, prompt

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The engine; each test has prompts of its own."""
    model = model_folder(tmp_path_factory.mktemp("model"))
    with engine(model, {"path": str(tmp_path_factory.mktemp("store")), "lossless": True}) as made:
        yield made


def test_half_a_page_is_in_the_engine(one: Engine) -> None:
    asked = prompt(200)
    expected = one.answers([asked])
    before = one.forget()["hits"]
    # Three blocks of it become known to the engine: one page loaded, one block computed.
    one.answers([asked[: PAGE + BLOCK + 4]])
    assert one.counts()["hits"] - before == PAGE
    # Of the second page, then, only the second block is missing.
    assert one.answers([asked]) == expected
    assert one.counts()["hits"] - before == PAGE + BLOCK + PAGE


@pytest.mark.parametrize("tokens", [1, BLOCK - 1, BLOCK, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
def test_where_prompts_end(one: Engine, tokens: int) -> None:
    """Full pages are stored; of those all blocks are loaded but one that has the prompt's last token."""
    asked = [prompt(tokens, seed=100 + tokens)]
    before = one.counts()
    expected = one.answers(asked, 1)
    after = one.forget()
    assert after["hits"] == before["hits"]
    assert after.get("pages_saved", 0) - before.get("pages_saved", 0) == tokens // PAGE
    assert one.answers(asked, 1) == expected
    whole = tokens // PAGE * PAGE
    assert one.counts()["hits"] - before["hits"] == (whole - BLOCK if whole == tokens else whole)


def test_answers_are_stored_too(one: Engine) -> None:
    asked = prompt(50, seed=5)
    before = one.counts()
    (answer,) = one.answers([asked], 100)
    # 149 tokens went through the model: the last one was only chosen.
    after = one.forget()
    assert after["tokens_saved"] - before.get("tokens_saved", 0) == 2 * PAGE
    assert one.answers([asked + answer[:90]]) == [answer[90:]]
    assert one.counts()["hits"] - before["hits"] == 2 * PAGE


def test_salts_keep_prompts_apart(one: Engine) -> None:
    asked = [prompt(150, seed=6)]
    expected = one.answers(asked, cache_salt="one")
    before = one.forget()
    assert one.answers(asked, cache_salt="two") == expected
    assert one.forget()["hits"] == before["hits"]
    assert one.answers(asked, cache_salt="one") == expected
    assert one.counts()["hits"] == before["hits"] + 2 * PAGE


def test_the_store_is_emptied(one: Engine) -> None:
    asked = [prompt(150, seed=7)]
    expected = one.answers(asked)
    before = one.counts()
    assert one.llm.reset_prefix_cache(reset_connector=True)
    assert one.answers(asked) == expected
    assert one.counts()["hits"] == before["hits"]
