"""The programs from end to end, on models so small that they take seconds."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import encoder
import features
import perplexity
import tiny
from common import report
from common.causal import Causal


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def subject() -> Causal:
    return tiny.causal(4)


def options(out, *, bits, only=("tenfold", "RTN, groups of 64", "NF4", "Hadamard")) -> argparse.Namespace:
    return argparse.Namespace(
        bits=bits, video_bits=(3.0,), only=only, effort="balanced", threads=1, out=out, fresh=False
    )


def test_perplexity_of_all_coders(subject, tmp_path, capsys):
    weights = subject.block_weights()
    assert len(weights) == 21
    assert perplexity.evaluate(subject, options(tmp_path, bits=(2.5, 8.0))) == 0
    kept = json.loads((tmp_path / "perplexity-tiny.json").read_text())
    rows = {(row["coder"], row["asked"]): row for row in kept["rows"]}
    raw = rows["uncompressed", 32]["perplexity"]
    for how in ("equal", "step", "ramp", "recipe", "equal + importance", "step + importance", "ramp + importance"):
        fine, coarse = rows[f"tenfold {how}", 8.0], rows[f"tenfold {how}", 2.5]
        assert fine["perplexity"] == pytest.approx(raw, rel=0.01), how
        assert coarse["perplexity"] > fine["perplexity"], how
        assert coarse["bits"] == pytest.approx(2.5, rel=0.05), how
    assert len(rows["tenfold ramp", 2.5]["settings"]["tried"]) >= 3
    assert rows["RTN, groups of 64", 3.0]["bits"] == 3.5
    assert rows["NF4", 4.0]["bits"] == 4.25
    assert rows["RTN, groups of 64", 2.0]["nmse"] > rows["RTN, groups of 64", 4.0]["nmse"]
    run = kept["runs"][0]
    assert run["command"] and run["machine"] and run["packages"]["tenfold"]
    assert (tmp_path / "perplexity-tiny.png").stat().st_size > 10_000
    assert "tenfold ramp" in (tmp_path / "perplexity-tiny.md").read_text()
    # The model is as it was.
    assert all(np.array_equal(weights[name], value) for name, value in subject.block_weights().items())


def test_a_second_run_goes_on_where_the_first_was(subject, tmp_path, monkeypatch):
    perplexity.evaluate(subject, options(tmp_path, bits=(4.0,), only=("equal",)))
    measured = []
    monkeypatch.setattr(perplexity, "point", lambda s, w, c, bits: measured.append(bits) or {"bits": bits, "perplexity": 9.0})
    perplexity.evaluate(subject, options(tmp_path, bits=(4.0, 5.0), only=("tenfold equal",)))
    assert measured == [5.0, 5.0]
    kept = json.loads((tmp_path / "perplexity-tiny.json").read_text())
    assert [row["run"] for row in kept["rows"]] == [0, 0, 0, 1, 1]
    subject.source = "another one"
    with pytest.raises(SystemExit, match="--fresh"):
        perplexity.evaluate(subject, options(tmp_path, bits=(4.0,)))


def test_sentence_encoder(tmp_path):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=60, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)

    def tokenizer(texts, **_):
        ids = [[hash_of(word) for word in text.split()] for text in texts]
        width = max(map(len, ids))
        pad = [row + [0] * (width - len(row)) for row in ids]
        mask = [[1] * len(row) + [0] * (width - len(row)) for row in ids]
        return {"input_ids": torch.tensor(pad), "attention_mask": torch.tensor(mask)}

    def hash_of(word: str) -> int:
        return 1 + sum(map(ord, word)) % 59

    text = " ".join(f"w{i * i % 83} x{i % 7} y{i % 11}" + (" ." if i % 5 == 4 else "") for i in range(100))
    found = encoder.sentences(text)
    assert len(found) == 20
    subject = encoder.Encoder(BertModel(config).eval(), tokenizer, found)
    kept = report.Report(tmp_path / "encoder.json", "tiny")
    # The pooler has no part in embeddings, and tokens are few.
    with pytest.warns(UserWarning, match="no part in the loss"), pytest.warns(UserWarning, match="saw fewer than"):
        learnt = encoder.calibrate(subject, found, tmp_path / "calibration.safetensors")
    encoder.evaluate(subject, kept, (2.0, 8.0), 1, learnt)
    encoder.show(kept, tmp_path)
    rows = {(row["coder"], row["asked"]): row for row in kept.rows}
    assert rows["uncompressed", 32]["top10_kept"] == 1
    assert rows["tenfold equal", 8.0]["cosine"] > rows["tenfold equal", 2.0]["cosine"]
    assert rows["tenfold equal", 8.0]["rank_correlation"] > 0.9
    # Judged on what it was calibrated on, which is few sentences: enough to see that it is used.
    assert rows["tenfold calibrated, loss", 2.0]["cosine"] > rows["tenfold equal", 2.0]["cosine"]
    assert rows["GPTQ, groups of 128", 4.0]["cosine"] > rows["RTN, groups of 128", 2.0]["cosine"]
    assert (tmp_path / "encoder.png").exists()


def test_features(tmp_path):
    random = np.random.default_rng(0)
    weights = {"a": random.standard_normal((64, 96), np.float32), "b": random.standard_normal((32, 64), np.float32)}
    sounds = random.standard_normal((50, 96), np.float32)
    run = features.Subject("tiny", "a tiny model", weights, lambda w: np.tanh(sounds @ w["a"].T / 10) @ w["b"].T)
    kept = report.Report(tmp_path / "features.json", "tiny")
    features.evaluate(run, kept, (2.0, 6.0), 1)
    features.show(kept, [run], tmp_path)
    rows = {(row["coder"], row["asked"]): row for row in kept.rows}
    assert rows["tenfold equal", 6.0]["feature_nmse"] < 0.01 < rows["tenfold equal", 2.0]["feature_nmse"]
    assert (tmp_path / "features-tiny.png").exists()
