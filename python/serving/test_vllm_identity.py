"""Bytes of another model, of another state of it or of other settings are not found, nor what was never computed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from vllm_engines import PAGE, engine, model_folder, prompt
from vllm_setup import said

pytestmark = pytest.mark.filterwarnings("default")

LONG = prompt(200)


def test_what_is_found_and_what_is_not(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model")
    store = {"path": str(tmp_path / "store"), "lossless": True}
    with engine(model, store) as one:
        expected = one.answers([LONG])
    with engine(model, store | {"revision": "2"}) as one:
        assert one.answers([LONG]) == expected
        assert one.counts()["hits"] == 0
    # Another place, the same weights.
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    with engine(copy, store | {"model": str(model)}) as one:
        assert one.answers([LONG]) == expected
        assert one.counts()["hits"] == 3 * PAGE
    # The same place, other weights.
    shutil.rmtree(model)
    model_folder(model, seed=4)
    with engine(model, store) as one:
        answers = one.answers([LONG])
        assert one.counts()["hits"] == 0
    assert answers != expected


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model")
    file = tmp_path / "file"
    file.write_text("")
    with said() as messages, engine(model, {"path": str(file / "store"), "lossless": True}) as one:
        assert any("keys and values are neither stored nor found" in message for message in messages)
        expected = one.answers([LONG])
        found = one.forget()
        assert found["pages_failed"] == 3
        assert any("were not stored, requests go on without: [Errno 20]" in message for message in messages)
        # Somebody sees to it; no restart is needed to store again.
        file.unlink()
        assert one.answers([LONG]) == expected
        assert one.forget()["pages_saved"] == 3
        assert one.answers([LONG]) == expected
        one.counts()


def test_a_step_that_fails_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the blocks of its tokens is not theirs."""
    from vllm.model_executor.models.llama import LlamaModel

    model = model_folder(tmp_path / "model")
    forward = LlamaModel.forward

    def broken(self: LlamaModel, *args: object, **more: object) -> None:
        forward(self, *args, **more)
        raise MemoryError("no more of it")

    store = {"path": str(tmp_path / "store"), "lossless": True}
    try:
        raise ValueError("of somebody else")
    except ValueError:
        # An engine that runs while somebody handles an error is no engine that fails.
        with engine(model, store) as one:
            one.answers([LONG[:100]])
            assert one.counts()["pages_saved"] == 1
            monkeypatch.setattr(LlamaModel, "forward", broken)
            with pytest.raises(MemoryError):
                one.answers([LONG])
    assert len(list(tmp_path.glob("store/*/*/*.tnkv"))) == 1
