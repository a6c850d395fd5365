"""Compressed models on a CUDA device: the same logits, little memory, and a host that does not wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import no_waits
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers_models import IDS, compress, edit_config, folder, generated, reference

import tenfold.torch
import tenfold.transformers
from tenfold import DataError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module", params=["llama", "tied", "gpt2"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp(request.param)
    return compress(folder(base / "model", request.param), base / "small")


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS.cuda()).logits
    return found


@pytest.mark.parametrize("mapped", [True, False], ids=["device_map", "to"])
@pytest.mark.parametrize(
    "settings",
    [{"keep_compressed": False}, {"keep_compressed": True}, {"keep_compressed": True, "prefetch": False}],
    ids=["decoded", "kept", "no look-ahead"],
)
def test_logits_and_text_are_those_of_the_decoded_weights(small: Path, settings: dict[str, Any], mapped: bool) -> None:
    expected = reference(small).cuda()
    edit_config(small, {"prefetch": True, **settings})
    if mapped:
        pytest.importorskip("accelerate")
        model = AutoModelForCausalLM.from_pretrained(small, device_map={"": "cuda:0"})
    else:
        model = AutoModelForCausalLM.from_pretrained(small).cuda()
    for _ in range(3):
        assert torch.equal(logits(model), logits(expected))
    ids = IDS.cuda()
    out = [one.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0) for one in (model, expected)]
    assert torch.equal(*out)
    tenfold.torch.check()


@pytest.mark.parametrize("blobs", ["device", "pinned"])
@pytest.mark.parametrize("prefetch", [True, False], ids=["ahead", "in turn"])
def test_steps_replay_a_graph_with_the_same_bits(small: Path, prefetch: bool, blobs: str) -> None:
    settings = {"keep_compressed": True, "prefetch": prefetch, "blobs": blobs, "graph": True}
    edit_config(small, settings)
    model = AutoModelForCausalLM.from_pretrained(small).cuda()
    edit_config(small, {**settings, "graph": False})
    uncaptured = AutoModelForCausalLM.from_pretrained(small).cuda()
    plain = reference(small).cuda()
    how = {"do_sample": False, "pad_token_id": 0, "return_dict_in_generate": True, "output_logits": True}
    for prompt, tokens in ((IDS, 12), (IDS[:, :2], 20), (torch.cat([IDS, IDS.flip(1)]), 9), (IDS, 12)):
        outs = [
            one.generate(prompt.cuda(), max_new_tokens=tokens, cache_implementation="static", **how)
            for one in (model, uncaptured)
        ]
        assert torch.equal(outs[0].sequences, outs[1].sequences)
        assert all(torch.equal(a, b) for a, b in zip(outs[0].logits, outs[1].logits, strict=True))
        expected = plain.generate(prompt.cuda(), max_new_tokens=tokens, cache_implementation="static", disable_compile=True, **how)
        assert torch.equal(outs[0].sequences, expected.sequences)
        # And as without a static cache, which takes another way.
        model.generate(prompt.cuda(), max_new_tokens=4, **how)
    # Each text has a cache of its own; if it lies where the last one was, the graph still fits.
    assert 3 <= model.hf_quantizer.layers.captured <= 4
    assert uncaptured.hf_quantizer.layers.captured == 0
    tenfold.torch.check()


def test_beams_run_without_a_graph(small: Path) -> None:
    edit_config(small, {"keep_compressed": True, "prefetch": True, "blobs": "device", "graph": True})
    model, plain = AutoModelForCausalLM.from_pretrained(small).cuda(), reference(small).cuda()
    how = {"max_new_tokens": 8, "num_beams": 3, "do_sample": False, "pad_token_id": 0, "cache_implementation": "static"}
    assert torch.equal(model.generate(IDS.cuda(), **how), plain.generate(IDS.cuda(), disable_compile=True, **how))


def test_a_damaged_blob_ends_generating(small: Path) -> None:
    edit_config(small, {"keep_compressed": True, "prefetch": True, "blobs": "device", "graph": True})
    model = AutoModelForCausalLM.from_pretrained(small).cuda()
    held = model.hf_quantizer.layers.stages[2].held[0]
    held.blob().data[-9] ^= 0x40
    with pytest.raises(DataError, match=held.name):
        model.generate(IDS.cuda(), max_new_tokens=16, do_sample=False, pad_token_id=0, cache_implementation="static")
        tenfold.torch.check()


def test_a_model_may_move(small: Path) -> None:
    edit_config(small, {"keep_compressed": True, "prefetch": True})
    model = AutoModelForCausalLM.from_pretrained(small)
    text = generated(model)
    model.cuda()
    logits(model)
    assert torch.equal(generated(model.cpu()), text)


def test_nothing_waits(small: Path) -> None:
    edit_config(small, {"keep_compressed": True, "prefetch": True})
    model = AutoModelForCausalLM.from_pretrained(small).cuda()
    logits(model)
    logits(model)
    (ring,) = model.hf_quantizer.layers.rings
    torch.cuda.synchronize()
    with no_waits():
        for _ in range(2):
            for index in range(len(model.hf_quantizer.layers.stages)):
                ring.enter(index)
                ring.leave(index)


def test_peak_memory_is_the_compressed_size_and_three_layers(tmp_path: Path) -> None:
    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=16000,
        dtype="bfloat16",
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "model")
    small = compress(tmp_path / "model", tmp_path / "small", "--bits", "4", "--effort", "fast")
    edit_config(small, {"keep_compressed": True})
    stored = sum(file.stat().st_size for file in small.glob("*.safetensors"))
    # torch.matmul takes memory of its own, once.
    warm = torch.ones(1024, 1024, device="cuda", dtype=torch.bfloat16)
    warm = warm @ warm
    base = torch.cuda.memory_allocated()
    model = AutoModelForCausalLM.from_pretrained(small).cuda()
    layer = max(stage.nbytes for stage in model.hf_quantizer.layers.stages if not stage.is_table)
    logits(model)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    model.generate(IDS.cuda(), max_new_tokens=8, do_sample=False, pad_token_id=0)
    # 1 MiB for activations and cache, which have nothing to do with weights.
    assert stored < torch.cuda.max_memory_allocated() - base <= stored + 3 * layer + (1 << 20)


def test_a_corrupt_blob_is_found_on_the_device(small: Path) -> None:
    edit_config(small, {"keep_compressed": True, "prefetch": True})
    model = AutoModelForCausalLM.from_pretrained(small).cuda()
    held = model.hf_quantizer.layers.stages[2].held[0]
    held.blob().data[-9] ^= 0x40
    with pytest.raises(DataError, match=json.dumps(held.name).strip('"')):
        model.hf_quantizer.layers.check()
