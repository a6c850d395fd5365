"""Caches by domain: texts, bases from sets of them, curves held against each other, and the program."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import kv_domains
import tiny
from common import domain_report, domains
from common.causal import tell
from common.kvpeers import Float8


class Letters:
    """A tokenizer whose tokens are characters."""

    chat_template = "turns in angle brackets"

    added_tokens_decoder = {0: SimpleNamespace(special=True), 5: SimpleNamespace(special=True), 6: SimpleNamespace(special=False)}

    def __len__(self) -> int:
        return 12

    def __call__(self, text):
        return SimpleNamespace(input_ids=[ord(c) for c in text])

    def apply_chat_template(self, messages, tokenize):
        assert not tokenize
        return "".join(f"<{one['role']}>{one['content']}" for one in messages)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", domains.TITLES)
def test_texts_to_judge_on_are_not_those_of_bases(name):
    fit = {"prose": 42, "chat": 18}.get(name, 24)
    found = domains.load(name, Letters(), 8, fit, 1024)
    assert found.judged.shape == (8, 1024) and found.fit.shape == (fit, 1024)
    every = [tuple(one.tolist()) for one in torch.cat([found.judged, found.fit])]
    assert len(set(every)) == 8 + fit
    again = domains.load(name, Letters(), 2, 1, 1024)
    assert torch.equal(again.judged, found.judged[:2]) and torch.equal(again.fit, found.fit[:1])


def test_too_few_texts_are_an_error():
    with pytest.raises(ValueError, match="python: there are texts for 8 contexts"):
        domains.load("python", Letters(), 9, 0, 1024)
    with pytest.raises(ValueError, match="python, judged: context 0 has"):
        domains.load("python", Letters(), 1, 0, 100_000)


def test_texts_that_there_are():
    assert [domains.available(name) for name in ("prose", "chat", "c", "numbers")] == [42, 18, 24, float("inf")]


def test_chats_are_in_the_models_template():
    text = domains.texts("chat", Letters(), "fit", 1)[0]
    assert text.startswith("<user>") and text.count("<user>") == text.count("<assistant>") > 4


def test_random_tokens_are_plain():
    found = domains.load("random", Letters(), 8, 0, 1024).judged
    assert sorted(set(found.flatten().tolist())) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


def test_largest_ratio_of_curves():
    ours, other = [(0.5, 0.1), (1.0, 0.01)], [(1.0, 0.1), (1.0 * 2**0.5, 0.03), (1.25, 0.01)]
    found, harm = domain_report.ratio(ours, other)
    assert found == pytest.approx(0.8) and harm == 0.01
    assert domain_report.ratio([(0.5, 0.2)], [(1.0, 0.1)]) is None


def test_bits_for_more_perplexity():
    def row(domain, coder, basis, bits, perplexity):
        return {"domain": domain, "coder": coder, "basis": basis, "bits": bits, "perplexity": perplexity}

    rows = {
        name: [row(name, "uncompressed", "none", 16.0, 10.0)]
        + [row(name, "tenfold", "all", factor * bits, 10 + more) for bits, more in ((0.5, 1.0), (1.0, 0.5), (2.0, 0.1))]
        for name, factor in (("prose", 1.0), ("c", 3.0))
    }
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in domain_report.growths(rows).splitlines()[2:]]
    assert [line[-2] for line in lines] == ["1.00", "3.00", "3.00", "2.00", "2.00", "6.00", "6.00", "4.00"]
    assert all(line[2] == line[-1] == "–" for line in lines)


def test_eight_bits():
    coded = Float8()({"one": np.float32([0.0, 1.0, -1000.0, 0.3])}, 8.0)
    assert coded.bits == 8 and coded.weights["one"].tolist() == [0, 1, -448, 0.3125]


def options(out, **changed) -> argparse.Namespace:
    given = {"domain": ["prose", "c"], "coders": None, "bases": ["none", *domain_report.BASES], "contexts": 2, "fit_contexts": 6}
    given |= {"steps": (0.3, 0.05), "dealt": (1.0, 4.0), "group": 3}
    given |= {"basis_bits": 6.0, "basis_bytes": 200_000, "page": 32, "effort": "balanced", "threads": 1, "out": out}
    return argparse.Namespace(**given | {"fresh": False, "fit_only": False} | changed)


def test_the_program(tmp_path, monkeypatch):
    monkeypatch.setenv("TENFOLD_EVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(domains, "TITLES", {"prose": "prose", "c": "C"})
    model = tiny.causal(3).model

    def load(name, _tokenizer, judged, fit, length):
        told = tell(model, judged + fit, length, seed=len(name) + (1 if judged else 0))
        return domains.Domain(name, told[:judged], told[judged:])

    monkeypatch.setattr(domains, "load", load)
    monkeypatch.setattr(kv_domains, "PLAIN", {0.5: (0.5, 0.1)})
    args = options(tmp_path)
    assert kv_domains.evaluate(kv_domains.Bench(model, None, args, 64), args) == 0
    rows = json.loads((tmp_path / "kv-domains.json").read_text())["rows"]
    found = {(row["domain"], row["coder"], row["basis"], row["at"]): row for row in rows}
    for basis in ("prose", "others", "all", "each", "none"):
        coarse, fine = (found["c", "tenfold", basis, at] for at in ((0.5, 0.1) if basis == "none" else args.steps))
        assert coarse["bits"] < fine["bits"] and coarse["divergence"] > fine["divergence"] > 0
    assert found["prose", "fp8", "none", 8.0]["divergence"] < found["prose", "RTN, groups of 64", "none", 2.0]["divergence"]
    page = (tmp_path / "kv-domains.md").read_text()
    assert ("c", "KVTC's recipe", "all", 1.0) in found and ("c", "KVTC's recipe", "each", 1.0) not in found
    assert "## Peers" in page and "| all but this domain" in page and (tmp_path / "kv-domains.png").stat().st_size > 10_000
    monkeypatch.setattr(kv_domains, "point", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(kv_domains.Passes, "gradients", lambda *_: pytest.fail("captured again"))
    assert kv_domains.evaluate(kv_domains.Bench(model, None, args, 64), args) == 0
