"""The KV cache and hidden states of models: what is taken, what is put in their place, the coders between."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tenfold
import torch

import kv
import tiny
from common import bars, bases, outside
from common.cache import Cache, Passes, Rotary, layers_of, rows
from common.causal import Causal, tell
from common.coders import Coded
from common.cuts import InBasis, Plain
from common.kvcoders import Pages, variances
from common.kvpeers import AsItIs, HadamardScalar, InPictures, Kvtc, deal, lloyd_max
from common.rounding import RoundToNearest

ROPE = "base=10000.0,head=32,pairing=halves"


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def subject() -> Causal:
    return tiny.causal(10)


@pytest.fixture(scope="module")
def passes(subject) -> Passes:
    return Passes(subject.model)


@pytest.fixture(scope="module")
def captured(subject, passes, tmp_path_factory) -> bases.Captured:
    return bases.Captured.of(tmp_path_factory.mktemp("captured") / "tiny", passes, subject.chosen, cuts=(0, 1), every=2)


@pytest.fixture(scope="module")
def fitted(captured, tmp_path_factory) -> dict[str, Path]:
    """Files of bases for caches, all layers together, and for cuts."""
    folder = tmp_path_factory.mktemp("bases")
    captured.fit(folder / "cache.basis", ["keys", "values"], group=3, bits=6.0, rope=ROPE)
    captured.fit(folder / "hidden.basis", ["hidden"], bits=5.0)
    return {name: folder / f"{name}.basis" for name in ("cache", "hidden")}


@pytest.fixture(scope="module")
def seen(captured):
    return captured.statistics["keys"], captured.statistics["values"]


def test_the_cache_is_the_models_own(subject, passes):
    context = subject.judged[0]
    cache = passes.cache(context)
    with torch.inference_mode():
        own = subject.model(context[None], use_cache=True).past_key_values
    turned = Rotary(subject.model, 64).turn(cache.keys)
    for layer in range(3):
        keys, values = own.layers[layer].keys[0], own.layers[layer].values[0]
        assert np.allclose(layers_of(turned[layer], 1)[0].reshape(64, 1, 32), keys.numpy().transpose(1, 0, 2), atol=1e-4)
        assert np.allclose(cache.values[layer].reshape(64, 1, 32), values.numpy().transpose(1, 0, 2), atol=1e-6)
    assert np.allclose(Rotary(subject.model, 64).turn(turned, back=True), cache.keys, atol=1e-4)
    assert np.array_equal(layers_of(rows(cache.keys), 3), cache.keys)


def test_loss_is_that_of_the_cache_put_in(subject, passes):
    context = subject.judged[0]
    cache = passes.cache(context)
    raw = passes.loss(context, None)
    assert passes.loss(context, cache) == pytest.approx(raw, rel=1e-5)
    assert passes.loss(context, None, {1: lambda hidden: hidden}) == pytest.approx(raw, rel=1e-5)
    assert passes.loss(context, Cache(cache.keys, 0 * cache.values)) > raw + 1
    assert passes.loss(context, None, {1: lambda hidden: 0 * hidden}) > raw + 1
    assert passes.loss(context, None) == pytest.approx(raw)
    moved = passes.cache(context, {1: lambda hidden: -hidden})
    assert np.array_equal(moved.keys[:2], cache.keys[:2]) and not np.allclose(moved.keys[2], cache.keys[2])


def test_contexts_of_several_lengths_share_a_pass(subject, passes):
    texts, turned = [subject.judged[0], subject.judged[0, 5:24]], {1: lambda hidden: hidden[::-1].copy()}
    caches = passes.caches(texts, turned)
    assert [cache.keys.shape[1] for cache in caches] == [64, 19]
    for text, cache in zip(texts, caches):
        for both, alone in zip(cache, passes.cache(text, turned)):
            assert np.allclose(both, alone, atol=1e-4)
    for text, cache, both in zip(texts, caches, passes.predictions(texts, caches, turned)):
        assert torch.allclose(both, passes.logits(text, cache, turned), atol=1e-3)
    moved = passes.predictions(texts, [caches[0], Cache(caches[1].keys, 0 * caches[1].values)], turned)
    assert torch.allclose(moved[0], passes.logits(texts[0], caches[0], turned), atol=1e-3)
    assert not torch.allclose(moved[1], passes.logits(texts[1], caches[1], turned), atol=1e-1)


def test_streamed_pages_see_older_ones_decoded(subject, passes):
    context, rotary, firsts = subject.judged[0], Rotary(subject.model, 64), []

    def exact(first: int, cache: Cache) -> Cache:
        firsts.append((first, cache.keys.shape[1]))
        return cache

    raw = passes.loss(context, None)
    assert passes.streamed(context, 24, rotary, exact) == pytest.approx(raw, rel=1e-4)
    assert firsts == [(0, 24), (24, 24), (48, 16)]
    assert passes.streamed(context, 24, rotary, lambda _, cache: Cache(cache.keys, 0 * cache.values)) > raw + 1
    # A page sees itself as it was.
    whole = passes.streamed(context, 64, rotary, lambda _, cache: Cache(cache.keys, 0 * cache.values))
    assert whole == pytest.approx(raw, rel=1e-4)


def test_the_metric_foresees_what_errors_do(subject, passes, seen):
    # Divergence from the exact predictions, by errors along directions that the metric holds for bad and for harmless.
    metric = seen[1].metric[1]
    curvature, axes = np.linalg.eigh(metric)
    assert curvature[-1] > 4 * max(curvature[0], 0)
    context = subject.judged[0]
    cache = passes.cache(context)
    signs = np.random.default_rng(0).choice(np.float32([-1, 1]), (64, 1))

    def harm(direction: np.ndarray) -> float:
        losses = []
        for sign in (1, -1):
            values = cache.values.copy()
            values[1] += sign * 0.3 * signs * direction
            losses.append(passes.loss(context, Cache(cache.keys, values)))
        return sum(losses) / 2 - passes.loss(context, cache)

    assert harm(axes[:, -1]) > 2 * abs(harm(axes[:, 0]))


def test_captured_tensors_are_kept(subject, passes, captured, monkeypatch):
    monkeypatch.setattr(passes, "take", lambda *_: pytest.fail("captured again"))
    again = bases.Captured.of(captured.folder, passes, subject.chosen, (0, 1))
    for kind, one in again.statistics.items():
        for name, value in vars(one).items():
            assert np.array_equal(getattr(captured.statistics[kind], name), value)


def test_bases_are_files_within_their_bytes(captured, fitted, tmp_path):
    small = captured.fit(tmp_path / "small.basis", ["keys", "values"], group=3, bits=3.0, max_bytes=9_000, rope=ROPE)
    assert small["bytes"] == (tmp_path / "small.basis").stat().st_size <= 9_000 < fitted["cache"].stat().st_size
    assert small["bits"] < 3.0
    spread = variances(fitted["cache"])
    assert len(spread) == 2 * 96 and np.all(spread >= 0)
    assert [group["layers"] for group in small["groups"]] == [[0, 1, 2]] * 2


def test_pages_meet_rates_and_keep_sinks(subject, passes, fitted):
    caches = [passes.cache(context) for context in subject.judged]
    pages = Pages(fitted["cache"], Rotary(subject.model, 64), tokens=16, sinks=2, effort="balanced", threads=1)
    coarse, fine = (pages(caches, bits) for bits in (2.5, 6.0))
    assert coarse.bits == pytest.approx(2.5, rel=0.1) and fine.bits == pytest.approx(6.0, rel=0.1)
    assert coarse.settings["basis_bytes"] == fitted["cache"].stat().st_size
    kinds = (caches, fine.caches, coarse.caches)
    losses = [sum(passes.loss(c, k) for c, k in zip(subject.judged, some)) for some in kinds]
    assert losses[1] == pytest.approx(losses[0], rel=0.02) and losses[2] > losses[1]
    assert np.allclose(coarse.caches[1].values[:, :2], caches[1].values[:, :2], rtol=0.01)
    assert not np.allclose(coarse.caches[1].values[:, 2:], caches[1].values[:, 2:], rtol=0.01)
    # Pages of all tokens have less overhead.
    whole = replace(pages, tokens=64)
    assert whole.code(caches[0], step=0.05)[1] < pages.code(caches[0], step=0.05)[1]


def test_pages_keep_to_their_bytes(subject, passes, fitted):
    cache = passes.cache(subject.judged[0])
    pages = Pages(fitted["cache"], Rotary(subject.model, 64), tokens=16, effort="balanced", threads=1, capped=True)
    coded = pages([cache], 5.0)
    most = coded.settings["max_bytes"]
    assert most == 5.0 * 16 * 2 * 96 / 8
    assert 4.0 < coded.bits <= 5.0
    with pytest.raises(tenfold.LimitError):
        pages([cache], 0.1)


def test_pages_of_a_later_place_are_the_same(subject, passes, fitted):
    cache = passes.cache(subject.judged[0])
    pages = Pages(fitted["cache"], Rotary(subject.model, 64), tokens=16, effort="balanced", threads=1)
    whole, _ = pages.code(cache, step=0.05)
    part, _ = pages.code(Cache(cache.keys[:, 32:], cache.values[:, 32:]), first=32, step=0.05)
    assert np.array_equal(part.values, whole.values[:, 32:]) and np.array_equal(part.keys, whole.keys[:, 32:])


def test_peers_on_the_cache_as_it_is(subject, passes):
    caches = [passes.cache(context) for context in subject.judged]
    rotary = Rotary(subject.model, 64)
    kept = AsItIs(RoundToNearest(32), rotary, sinks=8)(caches, 2.0)
    assert kept.bits == 3 * 7 / 8 + 16 / 8
    assert np.allclose(kept.caches[0].values[:, :8], caches[0].values[:, :8], rtol=0.01)
    assert np.square(kept.caches[0].values[:, 8:] - caches[0].values[:, 8:]).mean() > 0
    for coder, side in ((RoundToNearest(32), 1.0), (HadamardScalar(32), 0.5)):
        errors = []
        for bits in (2.0, 4.0, 8.0):
            coded = AsItIs(coder, rotary)(caches, bits)
            assert coded.bits == bits + side
            errors.append(np.square(coded.caches[1].keys - caches[1].keys).mean() / np.var(caches[1].keys))
        assert errors[0] > 4 * errors[1] > 16 * errors[2] and errors[2] < 1e-3


def test_numbers_for_a_gaussian():
    assert np.allclose(lloyd_max(1), [-0.798, 0.798], atol=1e-3)
    assert np.allclose(lloyd_max(2), [-1.510, -0.453, 0.453, 1.510], atol=3e-3)


def test_bits_are_dealt_as_an_exhaustive_search_would():
    variances = np.array([30.0, 4.0, 1.0, 0.2])
    from common.kvpeers import ERRORS

    def error(dealt):
        return sum(v * ERRORS[b] for v, b in zip(variances, dealt))

    best = min((d for d in np.ndindex(6, 6, 6, 6) if sum(d) == 8), key=error)
    assert tuple(deal(variances, 2.0)) == best
    assert deal(variances, 0.0).sum() == 0


def test_kvtc_counts_exact_tokens(subject, passes, seen):
    caches = [passes.cache(context) for context in subject.judged]
    kvtc = Kvtc.fitted(seen)
    coded = kvtc(caches, 4.0)
    assert coded.bits == pytest.approx(4.0, rel=0.1)
    assert np.allclose(coded.caches[0].values[:, :4], caches[0].values[:, :4], rtol=0.01)
    kept = kvtc.keeping(16)(caches, 6.0)
    assert np.allclose(kept.caches[0].values[:, -16:], caches[0].values[:, -16:], rtol=0.01)
    assert kept.settings["dealt"] < 6.0 - 2.5
    errors = [np.square(kvtc(caches, bits).caches[0].keys - caches[0].keys).mean() for bits in (2.0, 4.0)]
    assert errors[0] > 2 * errors[1]


class Rounded:
    """One step for all values of a tensor, finer by half for each bit more."""

    def __call__(self, weights, bits: float) -> Coded:
        def one(values: np.ndarray) -> np.ndarray:
            step = values.std() * 2.0 ** (2 - bits)
            return np.rint(values / step) * step

        return Coded({name: one(values) for name, values in weights.items()}, bits)


def test_components_as_pictures(subject, passes, seen):
    caches = [passes.cache(context) for context in subject.judged]
    errors = []
    # Rounding stands in for the codec: what is tested is what lies around it.
    for bits in (4.0, 6.0):
        pictures = InPictures.fitted(seen, Rounded())
        coded = pictures(caches, bits)
        assert coded.bits == pytest.approx(bits, rel=0.01)
        assert 0 < coded.settings["basis_bytes"] <= 2 * 2 * 96 * 96
        assert np.allclose(coded.caches[1].keys[:, 0], caches[1].keys[:, 0], rtol=0.01)
        errors.append([np.square(getattr(c, kind) - getattr(o, kind)).mean() for c, o in zip(coded.caches, caches) for kind in ("keys", "values")])
    assert all(coarse > 4 * fine > 0 for coarse, fine in zip(*errors))


def test_components_as_pictures_of_x265(subject, passes, seen):
    coder, why = outside.find_x265()
    if coder is None:
        pytest.skip(why)
    caches = [passes.cache(context) for context in subject.judged]
    coded = [InPictures.fitted(seen, coder)(caches, bits) for bits in (2.0, 4.0)]
    assert [one.bits for one in coded] == [pytest.approx(2.0, rel=0.05), pytest.approx(4.0, rel=0.05)]
    errors = [np.square(one.caches[0].values - caches[0].values).mean() for one in coded]
    assert errors[0] > 4 * errors[1] > 0


def test_cuts_count_what_goes_through(subject, passes, fitted):
    cuts = (0, 1)
    hidden = passes.take(subject.judged[0], ["hidden"])["hidden"][:2]
    for coder in (InBasis(fitted["hidden"], effort="balanced", threads=1), Plain(RoundToNearest(64))):
        at = coder(hidden, cuts, 5.0)
        raw = sum(passes.loss(context, None) for context in subject.judged)
        loss = sum(passes.loss(context, None, at.changes) for context in subject.judged)
        assert at.values == 2 * hidden.size
        assert at.bits == pytest.approx(5.0, rel=0.12)
        assert raw != loss == pytest.approx(raw, rel=0.1)


def options(out, **changed) -> argparse.Namespace:
    given = {"bits": (2.5, 6.0, 6.5), "parts": kv.PARTS, "group": 3, "page": 32, "cuts": (0, 1), "cut_bits": (5.0,)}
    given |= {"only": ("tenfold", "RTN", "Hadamard", "recipe"), "video_bits": (3.0,), "effort": "balanced"}
    given |= {"fit_text": None, "threads": 1, "out": out, "fresh": False, "choose": False}
    given |= {"basis_bits": 6.0, "basis_bytes": 200_000, "bases": None, "device": "cpu", "pages": "cpu"}
    return argparse.Namespace(**given | changed)


def test_bits_at_the_same_harm():
    curve = [(2.0, 10.5), (0.5, 12.0), (1.0, 11.0), (1.4, 11.2)]
    assert bars.bits_at(curve, 11.0) == (pytest.approx(1.0), "")
    between, sign = bars.bits_at(curve, 10.7)
    assert 1.0 < between < 2.0 and sign == ""
    assert bars.bits_at(curve, 13.0) == (0.5, "<") and bars.bits_at(curve, 10.0) == (2.0, ">")


def test_bars_tell_better_from_worse():
    def row(coder, bits, perplexity):
        return {"part": "kv", "coder": coder, "bits": bits, "perplexity": perplexity, "divergence": perplexity / 10 - 1}

    rows_ = [row("tenfold", 0.5, 11.0), row("tenfold", 1.0, 10.4), row("worse", 2.0, 10.6), row("better", 0.4, 10.7)]
    rows_ += [row("beyond", 3.0, 10.1), row("below", 0.8, 10.1), row("coarse", 0.3, 12.0), row("poor", 0.6, 12.0)]
    rows_.append({key: value for key, value in row("half", 2.0, 10.6).items() if key != "divergence"})
    lines = bars.peers(rows_, 10.0).splitlines()[2:]
    found = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[5:8:2]] for line in lines}
    told = {"worse": "yes", "better": "no", "beyond": "–", "below": "no", "coarse": "–", "poor": "yes"}
    assert found == {name: [word, word] for name, word in told.items()} | {"half": ["yes", "–"]}
    limits = bars.limits(rows_, 10.0, [("kv", 1.4, 0.05), ("kv", 0.7, 0.05), ("hidden", 3.5, 0.01)]).splitlines()[2:]
    assert [line.split("|")[-2].strip() for line in limits] == ["yes", "no"]


def test_the_program(subject, tmp_path, monkeypatch):
    monkeypatch.setenv("TENFOLD_EVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kv, "BARS", (("kv", 6.2, 0.05),))
    assert kv.evaluate(subject, options(tmp_path)) == 0
    kept = json.loads((tmp_path / "kv-tiny.json").read_text())
    rows_ = {(row["part"], row["coder"], row["asked"]): row for row in kept["rows"]}
    raw = rows_["none", "uncompressed", 16]["perplexity"]
    assert rows_["kv", "tenfold", 6.0]["perplexity"] == pytest.approx(raw, rel=0.05)
    assert rows_["kv", "tenfold", 2.5]["perplexity"] > rows_["kv", "tenfold", 6.0]["perplexity"]
    assert rows_["streamed", "tenfold", 6.5]["perplexity"] == pytest.approx(raw, rel=0.05)
    assert rows_["both", "tenfold", 6.0]["cut_bits"] == pytest.approx(5.0, rel=0.12)
    assert rows_["kv", "tenfold, capped pages", 2.5]["bits"] <= 2.5
    taken = rows_["both", "tenfold", 6.0]
    assert 0 < taken["settings"]["basis_bytes"] + taken["cut_settings"]["basis_bytes"] <= 200_000
    assert rows_["kv", "tenfold", 2.5]["divergence"] > rows_["kv", "tenfold", 6.0]["divergence"] > 0
    assert rows_["none", "uncompressed", 16]["divergence"] == 0
    page = (tmp_path / "kv-tiny.md").read_text()
    assert "## KV cache and hidden states at cuts" in page and "| RTN, groups of 64" in page
    assert "## Bars" in page and "## KV cache: bits of tenfold where a peer is as good" in page
    assert all((tmp_path / f"kv-tiny-{part}.png").stat().st_size > 10_000 for part in kv.PARTS)
    monkeypatch.setattr(kv.Bench, "point", lambda *_: pytest.fail("measured again"))
    assert kv.evaluate(subject, options(tmp_path)) == 0
