"""The examples of docs/python.md run, one after the other."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


def test_examples(tmp_path, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert bytes(names["room"][: names["written"]]) == names["codec"].encode(names["x"])
    assert names["state"]["w"].shape == (1024, 1024)
