"""From a model and text to a small model in one call: what is written, what it is worth, runs that were interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers_models import LLAMA, folder, logits, reference, run, texts

import tenfold
import tenfold.transformers
from tenfold.torch._layerwise import Passage
from tenfold.transformers import _compress, compress
from tenfold.transformers._budget import Budget, counts
from tenfold.transformers._correction import Drift, correct, damped
from tenfold.transformers._mixture import KINDS, beside

TEXTS = texts(16, 60, 1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("source") / "model", "llama")


@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("alloc", ["loss", "equal"])
def test_a_folder_that_loads(source: Path, tmp_path: Path, sequential: bool, alloc: str):
    report = compress(source, tmp_path / "small", texts=TEXTS, bits=4, alloc=alloc, sequential=sequential, check=True)
    assert len(report.weights) == 7 * LLAMA["num_hidden_layers"]
    assert abs(report.bits - 4) < 0.15 and report.tokens == 14 * 60
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    assert torch.equal(logits(model), logits(reference(tmp_path / "small")))
    with tenfold.open(tmp_path / "small") as archive:
        assert {name for name in archive if archive.info(name).compressed} == set(report.weights)
    before, predicted = report.perplexity
    measured, divergence = report.measured
    assert before < predicted < 1.5 * before and before * 0.9 < measured < 1.5 * before and 0 < divergence < 0.4
    assert not list(tmp_path.glob("*.parts"))
    assert f"{report.bits:.3f} bits" in str(report)


def test_better_than_importance_of_as_many_bytes(source: Path, tmp_path: Path):
    report = compress(source, tmp_path / "small", texts=TEXTS, bits=3)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    judged = texts(8, 60, 2)
    with torch.no_grad():
        raw = model(judged).logits.log_softmax(-1)
    with tenfold.torch.Importance(model) as seen, torch.no_grad():
        model(TEXTS)
    found = []
    small = AutoModelForCausalLM.from_pretrained(tmp_path / "small", dtype=torch.float32)
    vectors = seen.vectors()
    for name in report.weights:
        weight = model.get_parameter(name)
        blob = tenfold.encode(weight.detach(), bits=report.bits, importance=vectors[name])
        weight.data = torch.from_numpy(tenfold.decode(blob))
    for each in (small, model):
        with torch.no_grad():
            now = each(judged).logits.log_softmax(-1)
        found.append(float((raw.exp() * (raw - now)).sum(-1).mean()))
    assert found[0] < 0.7 * found[1]


def test_contexts_that_run_together_tell_the_same(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    alone = compress(source, tmp_path / "alone", texts=TEXTS, bits=3, check=True)
    # As on a device: four contexts a passage, and the odd ones in a smaller one.
    join = _compress.joined
    monkeypatch.setattr(_compress, "joined", lambda passages, _: join(passages, 4 * 60))
    joined = compress(source, tmp_path / "joined", texts=TEXTS, bits=3, check=True)
    assert [len(one.ids) for one in join([Passage(one[None]) for one in TEXTS[:14]], 4 * 60)] == [4, 4, 4, 2]
    assert joined.tokens == alone.tokens
    # How much layers with one input count beside each other comes from the first passage, which has other tokens: so not the same bits.
    assert joined.loss == pytest.approx(alone.loss, rel=0.2) and joined.measured[1] == pytest.approx(alone.measured[1], rel=0.2)
    assert joined.perplexity == pytest.approx(alone.perplexity, rel=0.02) and joined.measured[0] == pytest.approx(alone.measured[0], rel=0.1)


def test_weights_that_are_no_linear_layers_are_named(tmp_path: Path):
    source = folder(tmp_path / "model", "mixtral")
    report = compress(source, tmp_path / "small", texts=TEXTS[:8], bits=4)
    # Experts lie in one tensor for all of them, under other names than in the files.
    assert any("are copied as they are: model.layers.0.mlp.experts" in note for note in report.notes)
    assert set(report.weights) == {f"model.layers.{layer}.self_attn.{one}_proj.weight" for layer in range(3) for one in "qkvo"}
    assert torch.isfinite(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "small"))).all()


class Stop(Exception):
    """Someone pressed a key."""


def test_an_interrupted_run_goes_on(source: Path, tmp_path: Path):
    compress(source, tmp_path / "whole", texts=TEXTS, bits=3)
    told: list[int] = []

    def tell(done: int, total: int) -> None:
        told.append(done)
        assert total == 9
        raise Stop

    while True:
        try:
            compress(source, tmp_path / "small", texts=TEXTS, bits=3, progress=tell)
            break
        except Stop:
            assert not (tmp_path / "small").exists()
    assert told == list(range(1, 10))
    whole, again = (sorted((tmp_path / one).glob("*.safetensors")) for one in ("whole", "small"))
    assert [file.read_bytes() for file in whole] == [file.read_bytes() for file in again]


def test_mistakes_are_named(source: Path, tmp_path: Path):
    for match, options in {
        "no config.json": {"model": tmp_path},
        "alloc is 'loss' or 'equal'": {"alloc": "step"},
        "bits must be": {"bits": 0},
        "no weights to compress": {"exclude": ["model.layers.*"]},
        "brings no tokenizer": {"texts": ["words"], "model": folder(tmp_path / "bare", "tied")},
    }.items():
        with pytest.raises(tenfold.ArgumentError, match=match):
            compress(**{"model": source, "out": tmp_path / "small", "texts": TEXTS[:4], "fresh": True} | options)
    (tmp_path / "small").mkdir(exist_ok=True)
    with pytest.raises(tenfold.ArgumentError, match="overwrite=True"):
        compress(source, tmp_path / "small", texts=TEXTS)


def test_the_correction_finds_the_weights_that_come_nearest():
    x = torch.randn(4000, 12) @ torch.randn(12, 12)
    now = x + 0.3 * torch.randn(4000, 12) @ torch.randn(12, 12) * 0.3 + 0.05 * x.roll(1, 1)
    weight, stream, moved = torch.randn(6, 12), torch.randn(4000, 6), torch.randn(4000, 6) * 0.1
    moved = moved + 0.2 * now[:, :6]
    seen, held = (Drift.empty(12, torch.device("cpu")) for _ in range(2))
    for drift, part in ((seen, slice(0, 3000)), (held, slice(3000, 4000))):
        drift.add(x[part], now[part], {"w": (stream[part], (stream - moved)[part])}, torch.ones(part.stop - part.start))
    target, share = correct("w", weight, None, seen, held, 1e-9)
    assert share == 1.0
    wanted = torch.linalg.lstsq(now[:3000], (x @ weight.T + moved)[:3000]).solution.T
    assert torch.allclose(target, wanted, atol=1e-3)
    # What does not hold on other tokens is not taken.
    noise = Drift.empty(12, torch.device("cpu"))
    noise.add(-x + 2 * now, now, {"w": ((stream - moved) - moved, stream - moved)}, torch.ones(4000))
    assert correct("w", weight, None, seen, noise, 1e-9)[1] == 0.0


def test_one_step_meets_the_bits():
    budget, weights, inputs = Budget(2.5), {}, {}
    for name in "abcdef":
        spread = torch.randn(64, 64) * torch.logspace(-1, 1, 64)
        inputs[name] = spread.T @ spread / 64
        weights[name] = torch.randn(96, 64) * float(torch.rand(1) + 0.1)
        budget.expect(name, weights[name], inputs[name], None, 0.1)

    def real(name: str, step: float) -> int:
        return len(tenfold.encode_calibrated(weights[name], tenfold.curvature(inputs[name], damping=0.1), step=step * tenfold.curvature(inputs[name], damping=0.1).unit())[0])

    budget.settle(real)
    sizes = []
    for name in weights:
        sizes.append(real(name, budget.step()))
        budget.spend(name, sizes[-1])
    assert abs(8 * sum(sizes) / (6 * 96 * 64) - 2.5) < 0.1


def test_counts_are_those_of_the_factors():
    x = torch.randn(100, 8).double() @ torch.randn(8, 8).double()
    h = damped(x.T @ x / 100, 0.1)
    found = counts(x.T @ x / 100, 0.1)
    assert np.isclose(float(found.log().sum()), float(torch.linalg.slogdet(h)[1]), rtol=1e-6)
    # The last column has nothing behind it that could answer.
    assert np.isclose(float(found[-1]), float(h[-1, -1]))


def test_a_file_of_a_calibration_is_enough(source: Path, tmp_path: Path):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    path = tmp_path / "c.safetensors"
    tenfold.torch.calibrate_layers(model, TEXTS, path)
    options: dict[str, Any] = {"calibration": path, "exclude": ["model.embed_tokens.*", "lm_head.*"]}
    report = tenfold.compress(source, tmp_path / "small", bits=3, alloc="loss", **options)
    assert abs(report.bits_per_value - 3) < 0.1
    with torch.no_grad():
        raw = model(TEXTS).logits.log_softmax(-1)
        now = AutoModelForCausalLM.from_pretrained(tmp_path / "small", dtype=torch.float32)(TEXTS).logits.log_softmax(-1)
    assert 0 < float((raw.exp() * (raw - now)).sum(-1).mean()) < 0.5
    run("compress", source, "-o", tmp_path / "by-loss", "--loss", "0.05", "--calibration", path, "--exclude", "lm_head.*")
    assert torch.isfinite(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "by-loss"))).all()
    other = folder(tmp_path / "other", "gpt2")
    with pytest.raises(tenfold.ArgumentError, match="another model"):
        tenfold.compress(other, tmp_path / "none", bits=3, calibration=path)


def test_without_text_there_is_a_mixture(source: Path, tmp_path: Path):
    asked: list[str] = []

    def tokenizer(text: str) -> dict[str, list[int]]:
        asked.append(text)
        return {"input_ids": [ord(one) % LLAMA["vocab_size"] for one in text[:120]]}

    report = compress(source, tmp_path / "small", tokenizer=tokenizer, bits=4, context=40, contexts=3)
    kinds = tenfold.transformers.default_texts()
    assert set(kinds) == {"prose", "python", "c", "french", "chat"} and all(len(kind) >= 18 for kind in kinds.values())
    assert [text in kinds[kind] for text, kind in zip(asked, kinds, strict=True)] == [True] * 5
    assert report.tokens == 5 * 3 * 40 and abs(report.bits - 4) < 0.2
    with pytest.raises(tenfold.ArgumentError, match="no tokenizer"):
        compress(source, tmp_path / "other", bits=4)


def test_a_part_of_the_mixture_lies_beside_texts(source: Path, tmp_path: Path):
    def tokenizer(text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(one) % LLAMA["vocab_size"] for one in text[:120]]}

    model = AutoModelForCausalLM.from_pretrained(source)
    learnt = [Passage(one[None], 2.0) for one in texts(24, 60, 1)]
    added = beside(model, tokenizer, learnt, 0.2, 60)
    # One for twelve, of each kind; no more of a text than a context.
    assert [one.ids.shape for one in added] == [(1, 60)] * 2 * len(KINDS) and not torch.equal(added[0].ids, added[1].ids)
    masses = [sum(one.share * one.ids.numel() for one in part) for part in (added, learnt)]
    assert masses[0] == pytest.approx(0.2 * sum(masses))

    report = compress(source, tmp_path / "small", texts=TEXTS, tokenizer=tokenizer, bits=4)
    assert report.tokens == 14 * 60 + len(KINDS) * 64 and not report.notes
    alone = compress(source, tmp_path / "alone", texts=TEXTS, tokenizer=tokenizer, mixture=0, bits=4)
    assert alone.tokens == 14 * 60 and alone.loss != report.loss
    # Texts of token ids need no tokenizer; that it is missing is said.
    unknown = compress(source, tmp_path / "unknown", texts=TEXTS, bits=4)
    assert unknown.loss == alone.loss and any("nothing of the package's mixture" in note for note in unknown.notes)
    for part in (-0.1, 1.0, "all", float("nan")):
        with pytest.raises(tenfold.ArgumentError, match="mixture"):
            compress(source, tmp_path / "none", texts=TEXTS, mixture=part)
