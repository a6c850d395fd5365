"""The examples of docs/transformers.md and docs/kv-cache.md run as they stand there."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import tenfold.transformers
from tenfold import _native

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["", *(f".{module.name}" for module in pkgutil.iter_modules(tenfold.transformers.__path__))])
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(f"tenfold.transformers{name}"))
    assert failed == 0


def run_page(name: str, kinds: list[str]) -> dict[str, Any]:
    """Runs the examples of a page one after the other; returns what they named."""
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == kinds
    names: dict[str, Any] = {}
    for kind, text in blocks:
        if kind == "sh":
            assert _native.main(shlex.split(text)) == 0
        else:
            exec(compile(text, name, "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`")
def test_the_page_on_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run_page("transformers.md", ["python", "sh", "python", "python", "python", "python", "python", "python"])
    said = capsys.readouterr().out
    first, second = re.findall(r"tensor\(\[\[.*?\]\]\)", said)
    assert first == second


def test_the_page_on_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_page("kv-cache.md", ["python", "python", "python", "python", "sh", "python", "python"])
    assert (tmp_path / "model.basis").exists()
    said = capsys.readouterr().out
    reports = re.findall(r"^1 x (\d+) tokens, (\d+) of them compressed to (.*?) bits a value", said, re.MULTILINE)
    # 4 sinks, then pages of 64 as long as a window of 128 is left.
    assert [(tokens, compressed) for tokens, compressed, _ in reports] == [("519", "384"), ("519", "384")]
    assert all(2.3 < float(bits) <= 2.5 for _, _, bits in reports)
    assert names["cache"].get_seq_length() == 0
