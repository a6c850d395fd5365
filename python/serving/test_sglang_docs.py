"""The examples of docs/sglang.md run as they stand there."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from sglang_pools import mha, storage

DOCS = Path(__file__).parents[2] / "docs"


def blocks(kind: str) -> list[str]:
    text = (DOCS / "sglang.md").read_text()
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in found] == ["sh", "python", "python", "python"]
    return [block for name, block in found if name == kind]


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "sglang.md", "exec"), names)
    said = capsys.readouterr().out
    match = re.search(r"2 pages stored, 2 found, 2 loaded, relative squared error (0\.\d+)", said)
    assert match and 0 < float(match[1]) < 0.02
    assert "131072 bytes in 32768, 512 a token" in said
    for got, want in ((names["key"], names["keys"][2]), (names["value"], names["values"][2])):
        assert 0 < (got - want).float().square().mean() < 0.02


def test_sglang_takes_the_command_and_the_backend_its_options(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
        from sglang.srt.server_args import ServerArgs

        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
    (command,) = blocks("sh")
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:3] == ["python", "-m", "sglang.launch_server"]
    said = parser.parse_args(words[3:])
    assert (said.hicache_storage_backend, said.page_size) == ("dynamic", 64) and said.enable_hierarchical_cache
    assert json.loads(said.hicache_storage_backend_extra_config)["bits"] == 4
    extra, *_, prefix_keys = HybridCacheController.parse_storage_backend_extra_config(
        said.hicache_storage_backend_extra_config
    )
    assert prefix_keys is True
    made = storage(tmp_path, mha(said.hicache_mem_layout), **(extra | {"path": str(tmp_path)}))
    assert made.pool().codec.rate == "bits=4" and made.pool().identity.revision == "2026-10-01"
