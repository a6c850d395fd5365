"""Weights with calibration and their peers: recipes on small matrices, tasks on made-up questions, the program on a tiny model."""

from __future__ import annotations

import argparse
import json

import pytest
import torch
from common import gptq, tasks
from common.domains import Domain
from transformers import BatchEncoding

import tiny
import weights
import weights_text


def correlated(rows: int, cols: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix and the second moments of its inputs."""
    torch.manual_seed(1)
    x = (torch.randn(2000, cols // 4) @ torch.randn(cols // 4, cols) / 4 + torch.randn(2000, cols)) * torch.logspace(-0.5, 0.5, cols)
    return torch.randn(rows, cols), x.T @ x / 2000


def loss(weight: torch.Tensor, inputs: torch.Tensor, found: torch.Tensor) -> float:
    off = found - weight
    return float(((off @ inputs) * off).sum())


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_recipes_beat_rounding(bits: int):
    weight, inputs = correlated(48, 256)
    plain = torch.empty_like(weight)
    for first in (0, 128):
        part = weight[:, first : first + 128]
        plain[:, first : first + 128] = gptq.snap(part, *gptq.grid(part, 2**bits - 1), 2**bits - 1)
    by_gptq = gptq.gptq(weight, inputs, bits, 128)
    by_awq = gptq.awq(weight, inputs, inputs.diagonal().sqrt(), bits, 128)
    assert loss(weight, inputs, by_gptq) < 0.8 * loss(weight, inputs, plain)
    assert loss(weight, inputs, by_awq) < 0.9 * loss(weight, inputs, plain)
    # As many points as the bits allow, in each row of a group.
    assert max(len(row.unique()) for row in by_gptq[:, :128]) <= 2**bits


class Words:
    """A tokenizer of one token a character."""

    chat_template = None

    def __call__(self, text: str) -> BatchEncoding:
        return BatchEncoding({"input_ids": [ord(one) % 97 for one in text]})


def test_choices_are_scored_by_likelihood(tmp_path):
    model = tiny.causal(3).model
    lines = [{"question": "what is this", "choices": ["a longer answer", "no"], "answer": 1}] * 3
    for name in tasks.NAMES:
        question = "one _ here" if name == "winogrande" else "what is this"
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(one | {"question": question}) for one in lines))
    (item, *_) = tasks.read(tmp_path, "arc_easy", 2)
    found = tasks.score(tasks.of_model(model), Words(), [item])
    with torch.no_grad():
        sums = []
        for choice in (" a longer answer", " no"):
            ids = torch.tensor(Words()("Question: what is this\nAnswer:" + choice).input_ids)
            logs = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])
            sums.append(float(logs[-len(choice) :].sum()))
    assert found.acc == [sums[1] > sums[0]] and found.acc_norm == [sums[1] / 2 > sums[0] / 15]
    (item, *_) = tasks.read(tmp_path, "winogrande")
    assert item.before == ("one a longer answer", "one no") and item.scored == (" here", " here")


def test_differences_are_paired():
    assert tasks.paired([True, False], [True, False]) == (0.0, 0.0)
    mean, error = tasks.paired([True, True, False, False], [True, False, False, False])
    assert mean == -0.25 and error == pytest.approx(0.25)


def test_the_program(tmp_path, capsys):
    subject = tiny.causal(10)
    args = {"bits": (3.0,), "only": None, "effort": "balanced", "threads": 1, "out": tmp_path, "fresh": False}
    rest = {"tasks": None, "items": None, "device": "cpu", "whole": (2.0, 4.0), "types": [], "fit_text": None, "mixture": 0.25}
    assert weights.evaluate(subject, Words(), argparse.Namespace(**args, **rest)) == 0
    rows = json.loads((tmp_path / "weights-tiny.json").read_text())["rows"]
    found = {(row["coder"], row["asked"]): row for row in rows}
    raw = found["uncompressed", 32]
    assert abs(raw["divergence"]) < 1e-6 and raw["perplexity"] == pytest.approx(subject.perplexity(subject.judged), rel=1e-3)
    best, plain = found["tenfold calibrated, sequential", 3.0], found["tenfold plain", 3.0]
    beside = found["tenfold calibrated, sequential, 0.25 of the mixture", 3.0]
    assert beside["settings"]["tokens"] > best["settings"]["tokens"] and beside["divergence"] < plain["divergence"]
    assert best["divergence"] < plain["divergence"] and abs(best["bits"] - 3) < 0.2
    assert {"GPTQ, groups of 128", "AWQ, groups of 128"} <= {name for name, _ in found}
    assert found["GPTQ, groups of 128", 4.0]["divergence"] < found["GPTQ, groups of 128", 2.0]["divergence"]
    assert "divergence, nats a token" in capsys.readouterr().out


def test_the_program_for_other_text(tmp_path, capsys):
    subject = tiny.causal(10)
    texts = {}
    for number, name in enumerate(sorted({kind for mixture in weights_text.MIXTURES.values() for kind in mixture})):
        apart = torch.randint(97, (3, 64), generator=torch.Generator().manual_seed(number))
        texts[name] = Domain(name, subject.judged if name == "prose" else apart[:1], subject.chosen if name == "prose" else apart)
    args = {"bits": (3.0,), "only": ["prose"], "effort": "balanced", "threads": 1, "out": tmp_path, "fresh": False}
    rest = {"tasks": None, "device": "cpu", "fit_contexts": 8, "judged_contexts": 2}
    assert weights_text.evaluate(subject, texts, Words(), argparse.Namespace(**args, **rest)) == 0
    rows = json.loads((tmp_path / "weights-text-tiny.json").read_text())["rows"]
    found = {(row["coder"], row["on_text"]): row["on"]["prose"]["divergence"] for row in rows}
    assert ("calibrated", "random tokens") not in found
    assert found["calibrated", "prose"] < found["importance", "prose"] and abs(found["uncompressed", ""]) < 1e-6
    assert found["calibrated", "prose and code"] < found["importance", "prose and code"]
    assert found["calibrated", "prose, 0.1 of the mixture"] not in (found["calibrated", "prose"], found["calibrated", "prose and code"])
    assert "prose and code" in capsys.readouterr().out


def test_contexts_are_spread_over_more_text(tmp_path):
    path = tmp_path / "more.txt"
    # A token a character: 10 contexts of 8, the number of each in its first.
    path.write_text("".join(f"{index}......." for index in range(10)))
    firsts = [[ids[0] - ord("0") for ids in weights_text.spread(path, Words(), most, 8).tolist()] for most in (2, 5, 99)]
    assert firsts == [[0, 5], [0, 2, 4, 6, 8], list(range(10))]
    path.write_text("short")
    assert weights_text.spread(path, Words(), 3, 8).shape == (0, 8)
