"""`tenfold.kv.fit`: text to a file of bases in one call, which can be interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers_models import llama, texts

import tenfold.kv
from tenfold import ArgumentError, DtypeError, LimitError
from tenfold.kv import Bases, HiddenCodec, PageCodec
from tenfold.transformers import _capture, _work, fit_bases

OPTIONS: dict[str, Any] = {"group": 3, "bits": 4, "max_bytes": 10**6, "every": 2, "context": 60}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(autouse=True)
def _small_samples() -> Any:
    # Bases of few tokens may save less than none, which is not what is tested here.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the basis of .* saves", UserWarning)
        yield


def other(count: int, tokens: int, seed: int) -> torch.Tensor:
    """Text of other words."""
    return texts(count, tokens, seed) + 200


class Words:
    """A tokenizer: a token for each word."""

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [3 + len(word) for word in text.split()]}


def test_lists_are_what_fit_bases_takes(model: Any, tmp_path: Path) -> None:
    contexts = texts(8, 60, 1)
    tenfold.kv.fit(model, list(contexts), tmp_path / "a.basis", hidden=[1], **OPTIONS)
    tenfold.kv.fit(model, [ids.tolist() for ids in contexts], tmp_path / "b.basis", hidden=[1], **OPTIONS)
    # The same tokens in one piece, which are cut.
    tenfold.kv.fit(model, [contexts.flatten()], tmp_path / "c.basis", hidden=[1], **OPTIONS)
    options = {name: value for name, value in OPTIONS.items() if name != "context"}
    fit_bases(model, contexts, tmp_path / "d.basis", hidden=[1], **options)
    made = {(tmp_path / f"{name}.basis").read_bytes() for name in "abcd"}
    assert len(made) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.basis", "b.basis", "c.basis", "d.basis"]
    assert Bases.open(tmp_path / "a.basis").sets == []
    HiddenCodec(tmp_path / "a.basis", 1)


def test_strings_are_tokenised_and_cut(model: Any, tmp_path: Path) -> None:
    said = " ".join("x" * (1 + n * 7 % 30) for n in range(400))
    ids = [3 + len(word) for word in said.split()]
    seen: list[tuple[int, int]] = []
    report = tenfold.kv.fit(
        model, [said, "too short"], tmp_path / "a.basis", tokenizer=Words(), progress=lambda *now: seen.append(now), **OPTIONS
    )
    tenfold.kv.fit(model, [ids], tmp_path / "b.basis", **OPTIONS)
    assert (tmp_path / "a.basis").read_bytes() == (tmp_path / "b.basis").read_bytes()
    # 400 tokens are six contexts of 60 and one of 40, each without its first four.
    assert report["sets"][0]["tokens"] == 400 - 7 * 4 and seen == [(n, 7) for n in range(1, 8)]
    fewer = tenfold.kv.fit(model, [ids], tmp_path / "c.basis", contexts=4, **OPTIONS)
    assert fewer["sets"][0]["tokens"] == 4 * 56
    # The folder of this model has no tokenizer that works.
    with pytest.raises(ArgumentError, match="tokenizer="):
        tenfold.kv.fit(model, [said], tmp_path / "d.basis", **OPTIONS)


def test_sets_share_a_basis_by_their_weights(model: Any, tmp_path: Path) -> None:
    a, b = list(texts(8, 60, 1)), list(other(4, 60, 2))

    def gains(weight: float, **more: Any) -> tuple[dict[str, Any], float, float]:
        options = OPTIONS | {"overwrite": True, "max_bytes": 10**6} | more
        report = tenfold.kv.fit(model, {"prose": a, "code": (b, weight)}, tmp_path / "x.basis", **options)
        first, second = (part["gains"]["values"]["at"][1]["basis"] for part in report["sets"])
        return report, first, second

    report, *light = gains(0.02)
    about = [(part["name"], part["weight"], part["tokens"]) for part in report["sets"]]
    assert about == [("prose", 1.0, 8 * 56), ("code", 0.02, 4 * 56)]
    assert Bases.open(tmp_path / "x.basis").sets == []
    _, *heavy = gains(50.0)
    assert heavy[0] < light[0] and heavy[1] > light[1], (light, heavy)
    report, *own = gains(1.0, each=True)
    bases = Bases.open(tmp_path / "x.basis")
    assert bases.sets == ["prose", "code"] and bases.groups == [(0, 3)] and bases.layers == 3
    assert {group["set"] for group in report["groups"]} == {"prose", "code"}
    PageCodec(bases)


def test_metrics_have_shares_too(model: Any, tmp_path: Path) -> None:
    capture = _work.Capture.of(model, (), 4, 0)

    def metric(name: str, *contexts: tuple[torch.Tensor, float]) -> dict[str, torch.Tensor]:
        folder = tmp_path / name
        folder.mkdir()
        capture.run([_work.Context(ids[None], weight=weight) for ids, weight in contexts], folder)
        return _work._Sums.open(folder / "gradients.safetensors").means()

    a, b = texts(1, 60, 1)[0], other(1, 60, 2)[0]
    # Tokens are sampled anew for each context of a run, so a context stands at the same place in all of them.
    both, first = metric("both", (a, 3.0), (b, 1.0)), metric("first", (a, 1.0))
    light = metric("light", (a, 1e-9), (b, 1.0))
    for name, found in both.items():
        torch.testing.assert_close(found, 0.75 * first[name] + 0.25 * light[name], rtol=1e-3, atol=1e-6 * found.abs().max())


@pytest.mark.parametrize("limits", [(3, 4, 6), (1, 5, 6)])
def test_work_goes_on_where_it_was(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, ...]) -> None:
    given = {"prose": list(texts(6, 60, 1)), "code": (list(other(3, 60, 2)), 2.0)}
    tenfold.kv.fit(model, given, tmp_path / "whole.basis", each=True, **OPTIONS)
    out, folder = tmp_path / "again.basis", tmp_path / "again.basis.capture"
    passes: list[str] = []

    def counting(name: str, limit: int) -> Any:
        plain = getattr(_capture, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if len(passes) >= limit:
                raise KeyboardInterrupt
            passes.append(name)
            return plain(*args, **kwargs)

        return call

    # Of nine contexts, five are measured: 14 passes. Some interruptions are between the two of a context.
    for limit in limits:
        passes.clear()
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(_work, "take", counting("take", limit))
            patched.setattr(_work, "gradients", counting("gradients", limit))
            tenfold.kv.fit(model, given, out, each=True, **OPTIONS)
        assert not out.exists() and folder.is_dir()
        assert not model.training
    passes.clear()
    with monkeypatch.context() as patched:
        patched.setattr(_work, "take", counting("take", 99))
        patched.setattr(_work, "gradients", counting("gradients", 99))
        tenfold.kv.fit(model, given, out, each=True, **OPTIONS)
    assert len(passes) == 14 - sum(limits), "nothing is done twice"
    assert out.read_bytes() == (tmp_path / "whole.basis").read_bytes()
    assert not folder.exists()


def test_other_arguments_are_refused(model: Any, tmp_path: Path) -> None:
    out, folder = tmp_path / "a.basis", tmp_path / "a.basis.capture"
    given = list(texts(6, 60, 1))
    small = OPTIONS | {"max_bytes": 300}
    # What cannot be met shows at the end only: the rows stay.
    with pytest.raises(LimitError):
        tenfold.kv.fit(model, given, out, **small)
    assert len(list(folder.glob("rows-*.safetensors"))) == 6
    for change in ({"sinks": 3}, {"every": 3}, {"seed": 1}, {"metric": False}, {"hidden": [1]}, {"contexts": 5}, {"context": 30}):
        with pytest.raises(ArgumentError, match=r"a\.basis\.capture .* fresh=True"):
            tenfold.kv.fit(model, given, out, **(small | change))
    for texts_changed in (given[:5], [*given[:5], given[5] + 1], {"a": given}, {"a": (given, 2.0)}):
        with pytest.raises(ArgumentError, match="fresh=True"):
            tenfold.kv.fit(model, texts_changed, out, **small)
    weight = model.model.layers[1].mlp.up_proj.weight
    with torch.no_grad():
        kept = weight[0, 0].item()
        weight[0, 0] = kept + 1
    try:
        with pytest.raises(ArgumentError, match="fresh=True"):
            tenfold.kv.fit(model, given, out, **small)
    finally:
        with torch.no_grad():
            weight[0, 0] = kept
    assert len(list(folder.glob("rows-*.safetensors"))) == 6
    # What only matters at the end may change.
    told: list[int] = []
    tenfold.kv.fit(model, given, out, **(small | {"max_bytes": 10**6, "group": 1}))
    assert Bases.open(out).groups == [(0, 1), (1, 1), (2, 1)] and not folder.exists()
    with pytest.raises(ArgumentError, match="overwrite"):
        tenfold.kv.fit(model, given, out, progress=lambda done, _: told.append(done), **OPTIONS)
    assert not told and not folder.exists(), "refused before anything was captured"


def test_a_fresh_start(model: Any, tmp_path: Path) -> None:
    out, folder = tmp_path / "a.basis", tmp_path / "a.basis.capture"
    with pytest.raises(LimitError):
        tenfold.kv.fit(model, list(texts(6, 60, 1)), out, **(OPTIONS | {"max_bytes": 300}))
    tenfold.kv.fit(model, list(texts(6, 60, 2)), out, fresh=True, **OPTIONS)
    assert not folder.exists()
    folder.mkdir()
    (folder / "plan.json.new").write_text("{")
    tenfold.kv.fit(model, list(texts(6, 60, 2)), out, overwrite=True, **OPTIONS)
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(ArgumentError, match="something else"):
            tenfold.kv.fit(model, list(texts(6, 60, 2)), out, fresh=fresh, overwrite=True, **OPTIONS)
    assert (folder / "thesis.tex").read_text() == "mine"


def test_bad_input(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "a.basis"

    def refused(kind: type[Exception], words: str, given: Any, **change: Any) -> None:
        with pytest.raises(kind, match=words):
            tenfold.kv.fit(model, given, out, **(OPTIONS | change))

    good = list(texts(4, 60, 1))
    refused(DtypeError, "a list of strings", "some text")
    refused(DtypeError, "a list of strings", {"a": "some text"})
    refused(DtypeError, "names of sets", {1: good})
    refused(DtypeError, "whole numbers", [torch.zeros(20)])
    refused(DtypeError, "neither a string", [object()])
    refused(ArgumentError, "no text of more than 4 tokens", [])
    refused(ArgumentError, "set 'b': there is no text", {"a": good, "b": [[1, 2, 3]]})
    refused(ArgumentError, "letters, digits", {"a.b": good})
    refused(ArgumentError, "1 to 16 sets", {f"s{n}": good for n in range(17)})
    refused(ArgumentError, "1 to 16 sets", {})
    for weight in (0, -1.0, float("nan"), float("inf")):
        refused(ArgumentError, "positive", {"a": (good, weight)})
    refused(ArgumentError, "name them", good, each=True)
    refused(ArgumentError, "every", good, every=0)
    refused(ArgumentError, "group", good, group=0)
    refused(ArgumentError, "bits a value", good, bits=100)
    refused(ArgumentError, "hidden", good, hidden=[3])
    refused(ArgumentError, "sinks", good, sinks=-1)
    refused(ArgumentError, "more than 4 tokens", good, context=4)
    refused(ArgumentError, "at least one context", good, contexts=0)
    assert list(tmp_path.iterdir()) == []


def test_losses_are_warned_of(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _work._native.fit_bases

    def losing(*args: Any) -> str:
        return json.dumps(json.loads(plain(*args)) | {"warnings": ["set 'code': it loses"]})

    monkeypatch.setattr(_work._native, "fit_bases", losing)
    with pytest.warns(UserWarning, match="it loses"):
        tenfold.kv.fit(model, list(texts(4, 60, 1)), tmp_path / "a.basis", **OPTIONS)


def test_no_bar_where_there_is_no_terminal(model: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tenfold.kv.fit(model, list(texts(4, 60, 1)), tmp_path / "a.basis", **OPTIONS)
    assert capfd.readouterr() == ("", "")
    pytest.importorskip("tqdm")
    tenfold.kv.fit(model, list(texts(4, 60, 1)), tmp_path / "a.basis", overwrite=True, progress=True, **OPTIONS)
    shown = capfd.readouterr().err
    assert "capture" in shown and "4/4" in shown and "fit" in shown


def test_pages_need_no_torch() -> None:
    text = "import sys, tenfold.kv; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)
