"""Examples of the package and of its page run."""

from __future__ import annotations

import doctest
import importlib
import pathlib
import pkgutil
import re

import pytest
import tenfold.torch

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "torch.md"
MODULES = ["", *(f".{module.name}" for module in pkgutil.iter_modules(tenfold.torch.__path__))]


@pytest.fixture(autouse=True)
def _folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples write files."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(f"tenfold.torch{name}"))
    assert failed == 0


def test_everything_public_is_documented() -> None:
    for name in tenfold.torch.__all__:
        assert getattr(tenfold.torch, name).__doc__, name


def test_the_page() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)


def test_the_page_of_deltas() -> None:
    text = (PAGE.parent / "delta-python.md").read_text()
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, "delta-python.md", "exec"), names)
    assert "masters" in names


def test_blocks_of_the_page_of_caches() -> None:
    text = (PAGE.parent / "kv.md").read_text()
    names: dict[str, object] = {}
    for language, block in re.findall(r"^```(python|py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language == "python" or "decode_blocks" in block:
            exec(compile(block, "kv.md", "exec"), names)
    assert "pools" in names


def test_torch_is_imported_only_when_it_is_used() -> None:
    import subprocess
    import sys

    code = "import sys, tenfold; assert 'torch' not in sys.modules; tenfold.torch.decode; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
