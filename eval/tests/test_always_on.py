"""Weights, hidden states and caches compressed together: the program on a tiny model, with questions."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace

import pytest
import torch
from common import tasks

import always_on
import tiny


class Words:
    """A tokenizer of one token a character."""

    def __call__(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[ord(one) % 97 for one in text[-40:]])


def test_the_program(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch):
    torch.set_num_threads(1)
    monkeypatch.setenv("TENFOLD_EVAL_CACHE", str(tmp_path / "cache"))
    for name in tasks.NAMES:
        question = "one _ here" if name == "winogrande" else "what is this"
        line = json.dumps({"question": question, "choices": ["a longer answer", "no"], "answer": 1})
        (tmp_path / f"{name}.jsonl").write_text("\n".join([line] * 2))
    args = {"weights": 4.0, "hidden": 5.0, "cache": 3.0, "tasks": tmp_path, "items": 2, "cuts": (0, 1), "effort": "fast"}
    rest = {"device": "cpu", "out": tmp_path, "fresh": False, "threads": 1, "basis_bytes": 200_000}
    subject = tiny.causal(10)
    before = subject.block_weights()
    assert always_on.evaluate(subject, Words(), argparse.Namespace(**args, **rest)) == 0
    assert all((before[name] == after).all() for name, after in subject.block_weights().items())
    rows = json.loads((tmp_path / "always-on-tiny.json").read_text())["rows"]
    found = {(row["coder"], row["part"]): row for row in rows}
    assert abs(found["uncompressed", "none"]["divergence"]) < 1e-6
    every = found["tenfold", "all"]
    assert set(every["bits"]) == {"weights", "hidden", "cache"} and set(found["tenfold", "weights"]["bits"]) == {"weights"}
    for part, bits in (("weights", 4.0), ("hidden", 5.0), ("cache", 3.0)):
        assert abs(every["bits"][part] - bits) < 0.25 * bits
    # What was done to the weights is not undone by what comes on top, and each part costs something.
    assert found["tenfold", "weights"]["divergence"] < found["tenfold", "weights, cache"]["divergence"] < 2
    assert len(every["tasks"]["piqa"]["acc"]) == 2
    assert "against uncompressed" in capsys.readouterr().out
