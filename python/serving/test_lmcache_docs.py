"""The examples of docs/lmcache.md run as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from lmcache_objects import parse_args
from tenfold.serving.lmcache import Adapter, Options

DOCS = Path(__file__).parents[2] / "docs"


def blocks(kind: str) -> list[str]:
    text = (DOCS / "lmcache.md").read_text()
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in found] == ["sh", "python", "python"]
    return [block for name, block in found if name == kind]


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "lmcache.md", "exec"), names)
    said = re.search(r"3 chunks found, (\d+) bytes, squared error (0\.\d+)", capsys.readouterr().out)
    assert said and int(said[1]) == 3 * 2 * 4 * 256 * 128 // 2 and 0 < float(said[2]) < 0.03


def test_lmcache_takes_the_command_and_the_serde_its_options(tmp_path: Path) -> None:
    (command,) = blocks("sh")
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:2] == ["lmcache", "server"]
    (config,) = parse_args(words[2:]).l2_adapter_config.adapters
    assert (config.module_path, config.class_name) == (Adapter.__module__.rsplit(".", 1)[0], Adapter.__name__)
    assert config.serde_config.type == "tenfold" and Options.parse(config.serde_config.kwargs).rate == "bits=4"
    made = Adapter(config.adapter_params | {"base_path": str(tmp_path)})
    made.close()


def test_all_options_are_told() -> None:
    text = (DOCS / "lmcache.md").read_text()
    table = re.search(r"^\| option .*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    assert table
    told = {name for row in table[0].splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert told == {field.name for field in fields(Options)}
    assert json.loads(re.search(r'`(\{"type": "fs".*?\})` is all', text.replace("\n", " "))[1])["serde"]["type"] == "tenfold"
