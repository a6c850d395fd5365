"""The examples of docs/vllm.md run as they stand there."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import vllm_engines  # noqa: F401 - sets vLLM up
from vllm.config import KVTransferConfig

from tenfold.serving.vllm import Options
from tenfold.serving.vllm._stats import COUNTERS

pytestmark = pytest.mark.filterwarnings("default")

PAGE = (Path(__file__).parents[2] / "docs/vllm.md").read_text()


def test_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(text, "vllm.md", "exec"), names)
    names["llm"].llm_engine.engine_core.shutdown()
    assert "512 of 600 tokens were loaded, the answer is the same" in capsys.readouterr().out


def test_the_command() -> None:
    (text,) = re.findall(r"--kv-transfer-config '(.*?)'", PAGE, re.DOTALL)
    config = KVTransferConfig(**json.loads(text))
    assert Options.parse(config.kv_connector_extra_config).bits == 4


def test_all_settings_and_counters_are_there() -> None:
    for field in fields(Options):
        assert re.search(rf"^\|.*`{field.name}`.* \|", PAGE, re.MULTILINE), field.name
    for name in COUNTERS:
        assert f"{name}`" in PAGE, name
