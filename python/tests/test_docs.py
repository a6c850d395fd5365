"""The examples of docs/python.md, docs/plan.md and docs/kv.md run, one after the other."""

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def run(page: str) -> dict[str, object]:
    """Runs the examples of a page and returns the names that they leave."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


def test_pages_of_a_cache():
    assert len(run("kv.md")["page"]) <= 40_000


def test_the_planner():
    assert run("plan.md")["choice"].way == "2.5 bits"


def test_examples(tmp_path, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.chdir(tmp_path)
    names = run("python.md")
    assert bytes(names["room"][: names["written"]]) == names["codec"].encode(names["x"])
    assert names["state"]["w"].shape == (1024, 1024)
