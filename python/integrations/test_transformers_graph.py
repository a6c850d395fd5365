"""Steps of ``generate`` with a static cache: the same bits with a graph and without. No device is needed: see ``streams.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from streams import World
from transformers import AutoModelForCausalLM, StaticCache
from transformers_models import IDS, compress, edit_config, folder, reference

import tenfold.torch
from tenfold import ArgumentError, DtypeError, UnsupportedError
from tenfold.torch import _device
from tenfold.transformers import TenfoldConfig

HOW = {"do_sample": False, "pad_token_id": 0, "return_dict_in_generate": True, "output_logits": True}
STATIC = {**HOW, "cache_implementation": "static"}


@pytest.fixture(scope="module", params=["llama", "tied", "gpt2"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp(request.param)
    return compress(folder(base / "model", request.param), base / "small")


def load(path: Path, **settings: Any) -> Any:
    edit_config(path, {"keep_compressed": True, **settings})
    return AutoModelForCausalLM.from_pretrained(path)


def emulated(model: Any, patch: pytest.MonkeyPatch) -> World:
    world = World(patch)
    for ring in model.hf_quantizer.layers.rings:
        ring.reset()
    return world


def same(one: Any, other: Any) -> bool:
    return torch.equal(one.sequences, other.sequences) and all(map(torch.equal, one.logits, other.logits))


@pytest.mark.parametrize("prefetch", [True, False], ids=["ahead", "in turn"])
@pytest.mark.parametrize("blobs", ["device", "pinned"])
def test_generated_text_is_that_without_a_graph(
    small: Path, monkeypatch: pytest.MonkeyPatch, blobs: str, prefetch: bool
) -> None:
    monkeypatch.setattr(_device, "pin", lambda memory: None)
    monkeypatch.setattr(_device, "unpin", lambda address: None)
    model = load(small, blobs=blobs, prefetch=prefetch, graph=True)
    prompts = [(IDS, 10), (IDS[:, :2], 14), (torch.cat([IDS, IDS.flip(1)]), 8), (IDS, 3)]
    # Here, on the CPU, nothing is captured. The weights of a plain model lie elsewhere, where the CPU may add in another order.
    expected = [model.generate(ids, max_new_tokens=count, **STATIC) for ids, count in prompts]
    beams = model.generate(IDS, max_new_tokens=6, num_beams=3, **STATIC).sequences
    growing = model.generate(IDS, max_new_tokens=6, **HOW)
    assert model.hf_quantizer.layers.captured == 0
    world = emulated(model, monkeypatch)
    for (ids, count), right in zip(prompts, expected, strict=True):
        assert same(model.generate(ids, max_new_tokens=count, **STATIC), right)
    captured = model.hf_quantizer.layers.captured
    assert 3 <= captured <= 4
    assert sum(graph.replays for graph in world.graphs) >= 7 + 11 + 5
    assert torch.equal(model.generate(IDS, max_new_tokens=6, num_beams=3, **STATIC).sequences, beams)
    assert same(model.generate(IDS, max_new_tokens=6, **HOW), growing)
    assert model.hf_quantizer.layers.captured == captured
    assert world.conflicts() == []


def test_models_with_pinned_blobs_are_saved_and_dequantized(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_device, "pin", lambda memory: None)
    monkeypatch.setattr(_device, "unpin", lambda address: None)
    model = load(small, blobs="pinned", prefetch=True, graph=True)
    expected = model.generate(IDS, max_new_tokens=6, **HOW)
    model.save_pretrained(tmp_path / "saved")
    assert same(load(tmp_path / "saved", blobs="device").generate(IDS, max_new_tokens=6, **HOW), expected)
    names = sorted(model.state_dict())
    model.dequantize()
    assert sorted(model.state_dict()) == names and not any(one.dtype == torch.uint8 for one in model.state_dict().values())
    assert torch.equal(model.generate(IDS, max_new_tokens=6, **HOW).sequences, expected.sequences)
    tied = model.config.tie_word_embeddings
    assert (model.get_input_embeddings().weight is model.get_output_embeddings().weight) == tied
    edit_config(small, {"blobs": "device"})


def test_a_loop_of_ones_own_keeps_earlier_outputs(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(model: Any) -> list[Any]:
        cache = StaticCache(config=model.config, max_cache_len=32)
        with torch.no_grad():
            outs = [model(IDS, past_key_values=cache)]
            for at in range(6):
                token, place = torch.tensor([[at + 7]]), torch.tensor([[IDS.shape[1] + at]])
                outs.append(model(token, past_key_values=cache, position_ids=place))
        assert all(out.past_key_values is cache for out in outs)
        return [out.logits for out in outs]

    expected = steps(reference(small))
    model = load(small, blobs="device", prefetch=True)
    emulated(model, monkeypatch)
    assert all(map(torch.equal, steps(model), expected))
    assert model.hf_quantizer.layers.captured == 1


def test_no_graph_where_none_is_wanted(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(small, blobs="device", prefetch=True, graph=False)
    expected = reference(small).generate(IDS, max_new_tokens=6, **STATIC)
    world = emulated(model, monkeypatch)
    assert same(model.generate(IDS, max_new_tokens=6, **STATIC), expected)
    assert not world.graphs and model.hf_quantizer.layers.captured == 0
    edit_config(small, {"graph": True})


def test_a_step_that_waits_says_so(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(small, blobs="device", prefetch=True, graph=True)
    emulated(model, monkeypatch)
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, args: float(args[0].sum()) and None)
    with pytest.raises(UnsupportedError, match="graph=False"):
        model.generate(IDS, max_new_tokens=6, **STATIC)
    hook.remove()
    expected = reference(small).generate(IDS, max_new_tokens=6, **STATIC)
    assert same(model.generate(IDS, max_new_tokens=6, **STATIC), expected)


def test_any_model_of_transformers_can_be_compressed_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder(tmp_path / "model", "llama"))
    expected = model.generate(IDS, max_new_tokens=8, **STATIC)
    tenfold.torch.compress_module(model, lossless=True, graph=True)
    assert same(model.generate(IDS, max_new_tokens=8, **STATIC), expected)
    World(monkeypatch)
    for ring in model.__dict__["_tenfold_kept"].layers.rings:
        ring.reset()
    assert same(model.generate(IDS, max_new_tokens=8, **STATIC), expected)
    assert model.__dict__["_tenfold_kept"].layers.captured == 1


def test_settings_that_do_not_exist() -> None:
    with pytest.raises(ArgumentError, match="'device' or 'pinned'"):
        TenfoldConfig(keep_compressed=True, blobs="disk")
    with pytest.raises(DtypeError, match="must be True or False"):
        TenfoldConfig(graph="yes")  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match="must be True or False"):
        TenfoldConfig(keep_compressed=True, multiply="yes")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match='True, False or "once"'):
        TenfoldConfig(keep_compressed=True, checksums="twice")  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_pinned_blobs_need_a_device(small: Path) -> None:
    with pytest.raises(ArgumentError, match="no CUDA device"):
        load(small, blobs="pinned")
    edit_config(small, {"blobs": "device"})
