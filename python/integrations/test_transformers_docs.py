"""The examples of docs/transformers.md run as they stand there."""

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

PAGE = Path(__file__).parents[2] / "docs" / "transformers.md"


@pytest.mark.parametrize("name", ["", *(f".{module.name}" for module in pkgutil.iter_modules(tenfold.transformers.__path__))])
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(f"tenfold.transformers{name}"))
    assert failed == 0


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`")
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "sh", "python", "python", "python"]
    names: dict[str, Any] = {}
    for kind, text in blocks:
        if kind == "sh":
            assert _native.main(shlex.split(text)) == 0
        else:
            exec(compile(text, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    first, second = re.findall(r"tensor\(\[\[.*?\]\]\)", said)
    assert first == second
