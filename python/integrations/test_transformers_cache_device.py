"""A TenfoldCache whose pages a device decodes: a CUDA device, or the emulator in its place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tenfold
import tenfold.kv
import torch
from tenfold.torch._staged import Together
from tenfold.transformers import TenfoldCache, _cache_device
from test_torch_blocks import emulated
from test_torch_device import each
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=160
)
SMALL: dict[str, Any] = {"page": 16, "window": 8, "sinks": 2}


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch, emulated)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.1)
    return model.to(torch.bfloat16)


@pytest.fixture(scope="module")
def bases(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bases") / "model.basis"
    texts = [torch.randint(3, 160, (512,)).tolist() for _ in range(4)]
    tenfold.kv.fit(model.float(), texts, path, group=2, metric=False, max_bytes=1 << 20, progress=False)
    model.to(torch.bfloat16)
    return path


def states(sequences: int, tokens: int, device: torch.device, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(4, 2 * 16, generator=torch.Generator().manual_seed(7))
    few = torch.randn(sequences, tokens, 4, generator=generator) @ mix
    made = (few + 0.1 * torch.randn(few.shape, generator=generator)).bfloat16()
    return list(made.view(sequences, tokens, 2, 16).transpose(1, 2).to(device)[None].expand(2, -1, -1, -1, -1))


def both(monkeypatch: pytest.MonkeyPatch, device: torch.device, run: Any) -> tuple[Any, Any]:
    """What comes of it with pages decoded on the device, and on the host."""
    seen: list[bool] = []
    decode = _cache_device.OnDevice.decode

    def spy(self: Any, *args: Any) -> Any:
        made = decode(self, *args)
        seen.append(made is not None)
        return made

    monkeypatch.setattr(_cache_device.OnDevice, "decode", spy)
    there = run()
    assert seen and all(seen)
    monkeypatch.setattr(_cache_device.OnDevice, "decode", lambda *_: None)
    return there, run()


def near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Within what a device may be off by; a row of a group is two layers wide."""
    off = (found.float() - wanted.float()).abs().amax()
    assert off <= wanted.float().abs().amax() / 32, off


# Where pages are, and how much stays decoded: nothing, one group of two, all.
WAYS: dict[str, dict[str, Any]] = {
    "device": {},
    "pinned": {"offload": True},
    "a group decoded": {"decoded_bytes": 1 << 19},
    "all decoded": {"decoded_bytes": 1 << 24, "offload": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("goal", [{"bits": 4.0}, {"step": 0.02}, {"lossless": True}], ids=str)
def test_the_same_values(
    goal: dict[str, Any], way: str, device: torch.device, bases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[torch.Tensor]:
        cache, given = TenfoldCache(CONFIG, bases=bases, **SMALL, **goal, **WAYS[way]), []
        for step, tokens in enumerate((50, 1, 1, 20, 1, 33, 1, 1)):
            for layer in range(4):
                both = cache.update(*states(2, tokens, device, 10 * step + layer), layer)
                # What is kept decoded is written to again.
                given.extend(states.clone() for states in both)
        assert cache.report().compressed_tokens > 0
        return given

    there, here = both(monkeypatch, device, run)
    for found, wanted in zip(there, here, strict=True):
        assert found.device == wanted.device == device or device.type == "cuda"
        near(found, wanted)
        if "lossless" in goal:
            assert torch.equal(found, wanted)


@pytest.mark.parametrize("way", WAYS)
def test_crops_beams_and_copies(way: str, device: torch.device, bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[torch.Tensor]:
        cache, given = TenfoldCache(CONFIG, bases=bases, step=0.02, **SMALL, **WAYS[way]), []

        def add(tokens: int, sequences: int, seed: int) -> None:
            for layer in range(4):
                both = cache.update(*states(sequences, tokens, device, seed + layer), layer)
                given.extend(states.clone() for states in both)

        add(60, 2, 0)
        cache.reorder_cache(torch.tensor([1, 1], device=device))
        add(1, 2, 10)
        cache.batch_repeat_interleave(2)
        add(1, 4, 20)
        cache.crop(-30)
        add(1, 4, 30)
        other = copy.deepcopy(cache)
        add(17, 4, 40)
        for layer in range(4):
            given.extend(other.update(*states(4, 1, device, 50 + layer), layer))
        return given

    there, here = both(monkeypatch, device, run)
    for found, wanted in zip(there, here, strict=True):
        near(found, wanted)


def test_generation(device: torch.device, model: LlamaForCausalLM, bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = copy.deepcopy(model).to(device)
    ids = torch.randint(3, 160, (1, 40), generator=torch.Generator().manual_seed(3)).to(device)
    how = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    plain = on.generate(ids, past_key_values=DynamicCache(config=CONFIG), **how)
    there, here = both(
        monkeypatch,
        device,
        lambda: on.generate(ids, past_key_values=TenfoldCache(CONFIG, bases=bases, lossless=True, **SMALL), **how),
    )
    assert torch.equal(there, here) and torch.equal(there, plain)


def test_pages_that_a_device_does_not_decode(device: torch.device, bases: Path) -> None:
    # Padding has position 0 over and over, which a device does not turn.
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[1, :20] = 0
    cache = TenfoldCache(CONFIG, bases=bases, bits=4.0, attention_mask=mask, **SMALL)
    for step in range(2):
        for layer in range(4):
            keys, _ = cache.update(*states(2, 40, device, step), layer)
    assert keys.shape[2] == 80 and torch.isfinite(keys).all()
    # It was asked once, and the host has done it since.
    assert not cache.layers[0].group._device._able


def test_pages_stay_where_they_are_until_there_are_more(device: torch.device, bases: Path) -> None:
    cache = TenfoldCache(CONFIG, bases=bases, bits=4.0, **SMALL)
    held = []
    for step, tokens in enumerate((300, 1, 1, 16, 1)):
        for layer in range(4):
            cache.update(*states(1, tokens, device, step), layer)
        held.append(cache.layers[0].group._device._held)
    assert held[0] is None and held[1] is held[2] is not held[4]
    # What was there stays, and the new page is staged beside it.
    assert held[4].chunks[0] is held[1].chunks[0] and [chunk.count for chunk in held[4].chunks] == [18, 1]
    cache.reset()
    assert cache.layers[0].group._device._held is None


def test_what_is_decoded_stays_within_its_budget(device: torch.device, bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Any] = []
    decode = Together.decode
    monkeypatch.setattr(Together, "decode", lambda self, pools: decoded.extend(pools) or decode(self, pools))
    for budget, groups in ((0, 2), (1 << 19, 1), (1 << 24, 0)):
        cache = TenfoldCache(CONFIG, bases=bases, bits=4.0, decoded_bytes=budget, **SMALL)
        for step, tokens in enumerate((60, 1, 1)):
            decoded.clear()
            for layer in range(4):
                cache.update(*states(1, tokens, device, step), layer)
        # For the last token: what was not kept.
        assert len(decoded) == groups
        keys = cache.layers[0].keys
        before = keys.clone()
        cache.update(*states(1, 1, device, 9), 0)
        assert torch.equal(keys, before)


def test_pages_that_the_device_makes(device: torch.device, bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    encode = _cache_device.OnDevice.encode

    def spy(self: Any, *args: Any) -> list[bytes] | None:
        found = encode(self, *args)
        made.append(found is not None)
        return found

    monkeypatch.setattr(_cache_device.OnDevice, "encode", spy)
    given: list[list[torch.Tensor]] = []
    for on_device in (True, False):
        if not on_device:
            monkeypatch.setattr(_cache_device.OnDevice, "encode", lambda *_: None)
        cache = TenfoldCache(CONFIG, bases=bases, step=0.1, effort="fast", **SMALL)
        given.append([])
        for step, tokens in enumerate((50, 1, 20, 1)):
            for layer in range(4):
                given[-1].extend(cache.update(*states(2, tokens, device, 10 * step + layer), layer))
        assert cache.report().compressed_tokens == 48
    assert made == [True] * len(made) and len(made) >= 4
    for found, wanted in zip(*given, strict=True):
        assert float((found.float() - wanted.float()).square().mean()) < 0.02


@pytest.mark.parametrize("way", WAYS)
def test_what_a_fault_left_undecoded_is_not_handed_out(
    way: str, device: torch.device, bases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = TenfoldCache(CONFIG, bases=bases, bits=4.0, **SMALL, **WAYS[way])
    for layer in range(4):
        cache.update(*states(1, 60, device, layer), layer)
    wanted = [layer.keys.clone() for layer in cache.layers]
    for layer in cache.layers:
        layer.group._device._forget_all()

    def full(self: Any, pools: Any) -> Any:
        for keys, values in pools:
            for pool in (*keys, *values):
                pool.fill_(float("nan"))
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(Together, "decode", full)
        with pytest.raises(torch.OutOfMemoryError):
            _ = cache.layers[0].keys
    for layer, before in zip(cache.layers, wanted, strict=True):
        assert torch.equal(layer.keys, before)
