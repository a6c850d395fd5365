"""Pages that a CUDA device makes and decodes, in the evaluation of caches: on the emulator, or on a device where there is one."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from tenfold import _native
from tenfold.torch import _device

import kv
import tiny
from common import bases
from common.cache import Cache, Passes, Rotary
from common.causal import Causal
from common.kvcoders import Pages
from test_kv import ROPE, options

EMULATED = getattr(_native.CudaDevice, "emulated", None)


class OnlyStream:
    """The emulator's stream, which has done everything as soon as it is asked to, and its own event."""

    cuda_stream = 0

    def wait_stream(self, other: object) -> None:
        """There is no other."""

    def wait_event(self, event: object) -> None:
        """It is over."""

    def record_event(self) -> OnlyStream:
        return self

    def synchronize(self) -> None:
        """It is done."""


@pytest.fixture(params=["emulator", "cuda"])
def device(request, monkeypatch) -> torch.device:
    torch.set_num_threads(1)
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        return torch.device("cuda", 0)
    if EMULATED is None:
        pytest.skip("a build without the feature emulator")
    native, stream = EMULATED(1 << 32), OnlyStream()
    instead = {
        "is_ours": lambda device: device.type == "cpu",
        "native": lambda device: native,
        "stream": lambda device: stream,
        "sides": lambda device, count: [stream] * count,
        "share": lambda tensor, stream: None,
        "preserve_current": lambda device: nullcontext(),
        "is_capturing": lambda: False,
        "on": lambda stream: nullcontext(),
        "staging": lambda length: torch.empty(length, dtype=torch.uint8),
    }
    for name, function in instead.items():
        monkeypatch.setattr(_device, name, function)
    return torch.device("cpu")


@pytest.fixture(scope="module")
def subject() -> Causal:
    return tiny.causal(10)


@pytest.fixture(scope="module")
def basis(subject, tmp_path_factory) -> Path:
    """A file of bases for caches, all layers together."""
    folder = tmp_path_factory.mktemp("bases")
    captured = bases.Captured.of(folder / "tiny", Passes(subject.model), subject.chosen, cuts=(0, 1), every=2)
    captured.fit(folder / "cache.basis", ["keys", "values"], group=3, bits=6.0, rope=ROPE)
    return folder / "cache.basis"


@pytest.mark.parametrize("goal", [{"step": 0.05}, {"max_bytes": 2000}])
@pytest.mark.parametrize("tokens", [16, 24, 64])
def test_pages_of_a_device_are_the_cpus(subject, basis, device, tokens, goal):
    caches = [Passes(subject.model).cache(context) for context in subject.judged]
    here = Pages(basis, Rotary(subject.model, 64), tokens=tokens, sinks=2, effort="fast", threads=1)
    there = Pages(basis, here.rotary, tokens=tokens, sinks=2, effort="fast", threads=1, device=device)
    ours, theirs = here.at(caches, **goal), there.at(caches, **goal)
    # What a page of the device is behind, in bits a value at the same error. Tiny pages show what a blob's own bytes weigh, and
    # the finer their step, the less do tables that were made without them fit.
    behind = 0.5 if tokens == 16 and "max_bytes" in goal else 0.2
    assert theirs.bits == pytest.approx(ours.bits, rel=0.1)
    for cache, one, other in zip(caches, ours.caches, theirs.caches):
        for exact, expected, found in zip(cache, one, other):
            errors = np.square(found - exact).mean() / np.square(expected - exact).mean()
            assert abs(theirs.bits - ours.bits + np.log2(errors) / 2) < behind
            assert np.allclose(found[:, :2], expected[:, :2], rtol=0.01, atol=1e-3 * abs(exact).max())


def test_pages_of_a_later_place_are_the_same(subject, basis, device):
    cache = Passes(subject.model).cache(subject.judged[0])
    pages = Pages(basis, Rotary(subject.model, 64), tokens=16, effort="fast", threads=1, device=device)
    whole, _ = pages.code(cache, step=0.05)
    part, _ = pages.code(Cache(cache.keys[:, 32:], cache.values[:, 32:]), first=32, step=0.05)
    assert (part.values == whole.values[:, 32:]).all() and (part.keys == whole.keys[:, 32:]).all()


def test_lossless_pages_of_a_device(subject, basis, device):
    cache = Passes(subject.model).cache(subject.judged[0])
    here, there = (
        Pages(basis, Rotary(subject.model, 64), tokens=16, effort="balanced", threads=1, device=where) for where in (None, device)
    )
    (ours, _), (theirs, _) = here.code(cache, lossless=True), there.code(cache, lossless=True)
    assert (ours.keys == theirs.keys).all() and (ours.values == theirs.values).all()
    with pytest.raises(ValueError, match="makes no pages of effort balanced"):
        there.code(cache, nmse=0.01)


def test_the_program_holds_both_against_each_other(subject, basis, device, tmp_path):
    changed = {"parts": ("kv", "streamed"), "only": ("tenfold",), "effort": "fast", "pages": "both", "bases": basis}
    assert kv.evaluate(subject, options(tmp_path, **changed, bits=(2.5, 6.0))) == 0
    rows = json.loads((tmp_path / "kv-tiny-device.json").read_text())["rows"]
    found = {(row["part"], row["coder"], row["asked"]): row for row in rows}
    for part, coder, asked in (("kv", "tenfold", 2.5), ("kv", "tenfold", 6.0), ("streamed", "tenfold", 2.5)):
        here, there = found[part, coder, asked], found[part, coder + kv.ON_DEVICE, asked]
        assert there["settings"] == here["settings"]
        assert there["bits"] == pytest.approx(here["bits"], rel=0.1)
        assert there["perplexity"] == pytest.approx(here["perplexity"], rel=0.02)
    page = (tmp_path / "kv-tiny-device.md").read_text()
    assert "## Pages of the device beside the CPU's" in page and "within 0.2 %" in page
    assert 0 < found["kv", "tenfold" + kv.ON_DEVICE, 2.5]["noise"] < 0.05
    assert not list(tmp_path.glob("*.png"))
