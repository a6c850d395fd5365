"""A connector in real engines: what one stores another finds, and it says what it would say without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_engines import BLOCK, PAGE, engine, fit_bases, model_folder, prompt
from vllm_setup import said

pytestmark = pytest.mark.filterwarnings("default")

# 200 tokens are 6 full blocks, 3 full pages; of the second prompt 2 pages are the first one's.
LONG = prompt(200)
SHARED = prompt(150) + prompt(30, seed=1)
SHORT = prompt(20, seed=2)
PROMPTS = [LONG, SHORT, SHARED]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def plain(model: Path) -> dict[str, list[list[int]]]:
    """What the model says without a connector."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        with engine(model, dtype=dtype) as one:
            found[dtype] = one.answers(PROMPTS)
    return found


def test_another_engine_finds_what_one_stored(model: Path, plain: dict[str, list[list[int]]], tmp_path: Path) -> None:
    store = {"path": str(tmp_path), "lossless": True}
    with engine(model, store) as first:
        assert first.answers(PROMPTS) == plain["float32"]
        made = first.counts()
    assert (made["tokens_saved"], made["pages_saved"], made["hits"]) == (3 * PAGE, 3, 0)
    with engine(model, store) as second:
        assert second.answers(PROMPTS) == plain["float32"]
        found = second.counts()
    # Three pages of the long prompt, two of the one that starts like it; and nothing had to be stored again.
    assert (found["tokens_loaded"], found["pages_loaded"], found["hits"]) == (5 * PAGE, 5, 5 * PAGE)
    assert "pages_saved" not in found and "pages_lost" not in found


@pytest.mark.parametrize(
    ("rate", "dtype", "ratio"),
    [
        ({"lossless": True}, "bfloat16", 1.3),
        ({"bits": 12}, "float32", 32 / 12),
        # Of 2 x 3 x 64 x 64 numbers.
        ({"max_bytes": 36_864, "rope": None, "exact": 0}, "float32", 32 / 12),
    ],
    ids=["lossless", "bits", "max_bytes"],
)
def test_rates(
    model: Path, plain: dict[str, list[list[int]]], tmp_path: Path, rate: dict[str, Any], dtype: str, ratio: float
) -> None:
    with engine(model, {"path": str(tmp_path), **rate}, dtype=dtype) as one:
        assert one.answers(PROMPTS) == plain[dtype]
        found = one.forget()
        assert found["bytes_before"] / found["bytes_stored"] >= ratio
        assert one.answers(PROMPTS) == plain[dtype]
        assert one.counts()["tokens_loaded"] == 5 * PAGE


def test_a_low_rate_runs(model: Path, tmp_path: Path) -> None:
    with engine(model, {"path": str(tmp_path), "bits": 1.5}, dtype="bfloat16") as one:
        one.answers(PROMPTS)
        found = one.forget()
        assert found["bytes_before"] / found["bytes_stored"] >= 16 / 1.5
        assert [len(answer) for answer in one.answers(PROMPTS)] == [10, 10, 10]
        assert one.counts()["tokens_loaded"] == 5 * PAGE


def test_bases(model: Path, plain: dict[str, list[list[int]]], tmp_path: Path) -> None:
    basis = tmp_path / "model.basis"
    fit_bases(model, prompt(512, seed=9), basis)
    store = {"path": str(tmp_path / "store"), "bits": 12, "bases": str(basis)}
    with engine(model, store) as one:
        assert one.answers(PROMPTS) == plain["float32"]
        found = one.forget()
        assert found["bytes_before"] / found["bytes_stored"] >= 32 / 12
        assert one.answers(PROMPTS) == plain["float32"]
        assert one.counts()["tokens_loaded"] == 5 * PAGE
    # Pages behind other bases are not its own.
    fit_bases(model, prompt(512, seed=10), basis)
    with engine(model, store) as one:
        one.answers([LONG])
        assert one.counts()["hits"] == 0


def test_without_a_cache_of_its_own(model: Path, plain: dict[str, list[list[int]]], tmp_path: Path) -> None:
    """The engine forgets every prompt, so each request after the first loads."""
    with engine(model, {"path": str(tmp_path), "lossless": True}, enable_prefix_caching=False) as one:
        assert one.answers([LONG]) == [plain["float32"][0]]
        one.counts()
        assert one.answers([LONG]) == [plain["float32"][0]]
        assert one.answers([SHARED]) == [plain["float32"][2]]
        assert one.counts()["tokens_loaded"] == 5 * PAGE


def test_chunked_prefill(model: Path, tmp_path: Path) -> None:
    chunks = {"max_num_batched_tokens": 48, "max_num_seqs": 4}
    with engine(model, **chunks) as plain:
        expected = plain.answers(PROMPTS)
    with engine(model, {"path": str(tmp_path), "lossless": True}, **chunks) as one:
        assert one.answers(PROMPTS) == expected
        assert one.forget()["tokens_saved"] == 3 * PAGE
        assert one.answers(PROMPTS) == expected
        assert one.counts()["tokens_loaded"] == 5 * PAGE


@pytest.mark.parametrize("settings", [{"async_scheduling": True}, {"enforce_eager": False}], ids=["async", "compiled"])
def test_other_ways_to_run(model: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    with engine(model, {"path": str(tmp_path), "lossless": True}, **settings) as one:
        expected = one.answers(PROMPTS, 60)
        # Three pages of the long prompt and one that its answer fills; one more of each of the others.
        assert one.forget()["pages_saved"] == 3 + 1 + 1 + 1
        assert one.answers(PROMPTS, 60) == expected
        assert one.counts()["hits"] == 5 * PAGE


def test_preempted_requests(model: Path, tmp_path: Path) -> None:
    """With room for 20 blocks, and four requests that grow from 4 to 8, some have to make room, and come back."""
    asked = [prompt(100, seed=20 + number) for number in range(4)]
    with engine(model) as plain:
        expected = plain.answers(asked, 150)
    room = 21 * 2 * 3 * BLOCK * 64 * 4
    settings = {"kv_cache_memory_bytes": room, "enable_prefix_caching": False}
    with engine(model, {"path": str(tmp_path), "lossless": True}, **settings) as small:
        assert small.answers(asked, 150) == expected
        metrics = {metric.name: metric.value for metric in small.llm.get_metrics() if hasattr(metric, "value")}
        assert metrics["vllm:num_preemptions"] > 0
        assert small.counts()["tokens_loaded"] > 0


def test_roles(model: Path, plain: dict[str, list[list[int]]], tmp_path: Path) -> None:
    store = {"path": str(tmp_path), "lossless": True}
    with engine(model, store, role="kv_producer") as writer:
        assert writer.answers(PROMPTS) == plain["float32"]
        assert writer.forget()["pages_saved"] == 3
        assert writer.answers(PROMPTS) == plain["float32"]
        assert writer.counts()["hits"] == 0
    with engine(model, store, role="kv_consumer") as reader:
        reader.answers([prompt(200, seed=8)])
        assert reader.answers(PROMPTS) == plain["float32"]
        found = reader.counts()
        assert found["hits"] == 5 * PAGE and "pages_saved" not in found


def test_larger_pages(model: Path, plain: dict[str, list[list[int]]], tmp_path: Path) -> None:
    with engine(model, {"path": str(tmp_path), "lossless": True, "page_tokens": 3 * BLOCK}) as one:
        assert one.answers(PROMPTS) == plain["float32"]
        assert one.forget()["pages_saved"] == 2
        assert one.answers(PROMPTS) == plain["float32"]
        # Both pages for the long prompt, one for the other.
        assert one.counts()["tokens_loaded"] == 9 * BLOCK


def test_a_full_queue_drops_pages(model: Path, plain: dict[str, list[list[int]]], tmp_path: Path) -> None:
    with said() as messages, engine(model, {"path": str(tmp_path), "max_pending_bytes": 1}) as one:
        assert one.answers([LONG]) == [plain["float32"][0]]
        found = one.counts()
    assert found["pages_dropped"] == 3 and "pages_saved" not in found
    assert any("faster than they are compressed" in message for message in messages)


def test_a_small_store_forgets(model: Path, plain: dict[str, list[list[int]]], tmp_path: Path) -> None:
    room = 2 * 2 * 3 * PAGE * 64 * 4
    with engine(model, {"path": str(tmp_path), "lossless": True, "max_store_bytes": room}) as one:
        assert one.answers(PROMPTS) == plain["float32"]
        assert one.forget()["pages_saved"] == 3
        assert sum(path.stat().st_size for path in tmp_path.glob("*/*/*.tnkv")) <= room
        assert one.answers(PROMPTS) == plain["float32"]
