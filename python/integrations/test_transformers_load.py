"""Compressed folders load in transformers, and compute what the decoded weights compute."""

from __future__ import annotations

import copy
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from transformers import AutoModel, AutoModelForCausalLM
from transformers_models import IDS, compress, edit_config, folder, generated, logits, reference, run

import tenfold.torch
from tenfold import ArgumentError, UnsupportedError
from tenfold.transformers import TenfoldConfig

KINDS = ("llama", "tied", "sharded", "gpt2")


def load(path: Path, **options: Any) -> Any:
    """Loads with options of TenfoldConfig, by way of config.json so that transformers has nothing to warn of."""
    edit_config(path, options)
    return AutoModelForCausalLM.from_pretrained(path)


@pytest.fixture(scope="module", params=KINDS)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp(request.param)
    return compress(folder(base / "model", request.param), base / "small")


def test_the_folder_holds_everything_and_comes_back_as_it_was(tmp_path: Path) -> None:
    model = folder(tmp_path / "model", "sharded")
    small = compress(model, tmp_path / "small", "--lossless")
    config = json.loads((small / "config.json").read_text())
    assert config["quantization_config"] == {"quant_method": "tenfold", "format": 1}
    run("decompress", small, "-o", tmp_path / "back")
    names = sorted(path.name for path in model.iterdir())
    assert sorted(path.name for path in small.iterdir()) == names
    assert len([name for name in names if name.endswith(".safetensors")]) > 1
    for name in names:
        assert (tmp_path / "back" / name).read_bytes() == (model / name).read_bytes(), name


@pytest.mark.parametrize("keep", [False, True])
def test_logits_and_text_are_those_of_the_decoded_weights(small: Path, keep: bool) -> None:
    expected = reference(small)
    model = load(small, keep_compressed=keep)
    assert torch.equal(logits(model), logits(expected))
    assert torch.equal(generated(model), generated(expected))
    assert model.dtype == expected.dtype
    tied = expected.config.tie_word_embeddings
    assert (model.get_input_embeddings().weight is model.get_output_embeddings().weight) == tied


def test_lossless_gives_the_logits_of_the_original(tmp_path: Path) -> None:
    source = folder(tmp_path / "model", "llama")
    small = compress(source, tmp_path / "small", "--lossless")
    original = AutoModelForCausalLM.from_pretrained(source)
    assert torch.equal(logits(load(small, keep_compressed=True)), logits(original))


def test_layers_stay_compressed_and_take_turns_in_two_buffers(small: Path) -> None:
    model = load(small, keep_compressed=True)
    generated(model)
    weights = {name: tensor for name, tensor in model.state_dict().items() if tensor.dtype == torch.uint8}
    layers = model.hf_quantizer.layers
    assert sorted(weights) == sorted(held.name for stage in layers.stages for held in stage.held)
    assert len(layers.stages) == 3 + 2
    table, layer = (max(stage.nbytes for stage in layers.stages if stage.is_table == kind) for kind in (True, False))
    assert [ring.nbytes for ring in layers.rings] == [max(2 * layer, table)]
    plain = reference(small)
    assert model.get_memory_footprint() < 0.35 * plain.get_memory_footprint()
    # Outside a call nothing of the decoded weights is left in the modules.
    assert all(held.attribute not in held.module.__dict__ for stage in layers.stages for held in stage.held)


@pytest.mark.parametrize("prefetch", [True, False])
def test_each_layer_is_decoded_once_a_pass_and_ahead_of_time(
    small: Path, prefetch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(small, keep_compressed=True, prefetch=prefetch)
    logits(model)
    calls: list[str] = []
    decode_many = tenfold.torch.decode_many

    def counted(*args: Any) -> None:
        calls.append(threading.current_thread().name)
        decode_many(*args)

    monkeypatch.setattr(tenfold.torch, "decode_many", counted)
    logits(model)
    stages = len(model.hf_quantizer.layers.stages)
    # The embeddings for a next pass are decoded while nobody waits for them.
    deadline = time.monotonic() + 30
    while len(calls) < stages and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(calls) == stages
    assert all(name.startswith("tenfold") == prefetch for name in calls)


def test_layers_may_run_out_of_order_and_fail(small: Path) -> None:
    model = load(small, keep_compressed=True)
    expected = logits(reference(small))
    stages = model.hf_quantizer.layers.stages
    layers = [model.get_submodule(stage.name) for stage in stages if not stage.is_table]
    with torch.no_grad(), pytest.raises((AttributeError, TypeError)):
        layers[2]("no tensor")
    assert torch.equal(logits(model), expected)
    with torch.no_grad():
        model(torch.cat([IDS, IDS]))
    assert torch.equal(logits(model), expected)


def test_inference_mode_comes_and_goes(small: Path) -> None:
    model = load(small, keep_compressed=True)
    expected = logits(reference(small))
    with torch.inference_mode():
        assert torch.equal(model(IDS).logits, expected)
    assert torch.equal(logits(model), expected)


def test_another_dtype_may_be_asked_for(small: Path) -> None:
    plain = reference(small, dtype=torch.float16)
    for keep in (False, True):
        edit_config(small, {"keep_compressed": keep})
        model = AutoModelForCausalLM.from_pretrained(small, dtype=torch.float16)
        assert torch.equal(logits(model), logits(plain))


@pytest.mark.parametrize("keep", [False, True])
def test_the_model_without_its_head(small: Path, tmp_path: Path, keep: bool) -> None:
    """Names differ then between the files and the model."""
    edit_config(small, {"keep_compressed": keep})
    model = AutoModel.from_pretrained(small)
    reference(small)
    plain = AutoModel.from_pretrained(small.with_name(small.name + "-plain"))
    with torch.no_grad():
        expected = plain(IDS).last_hidden_state
        assert torch.equal(model(IDS).last_hidden_state, expected)
        model.save_pretrained(tmp_path / "saved")
        again = AutoModel.from_pretrained(tmp_path / "saved")
        assert torch.equal(again(IDS).last_hidden_state, expected)
    with tenfold.open(tmp_path / "saved") as saved:
        assert sum(saved.info(name).compressed for name in saved) > 12


def test_an_argument_says_how_to_load(tmp_path: Path) -> None:
    small = compress(folder(tmp_path / "model", "llama"), tmp_path / "small")
    with pytest.warns(UserWarning, match="loading attributes"):
        model = AutoModelForCausalLM.from_pretrained(small, quantization_config=TenfoldConfig(keep_compressed=True))
    assert model.hf_quantizer.layers is not None
    assert torch.equal(logits(model), logits(reference(small)))


def test_decoded_models_can_be_trained(small: Path) -> None:
    model = load(small, keep_compressed=False)
    model(IDS, labels=IDS).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_gradients_through_compressed_layers_are_refused(small: Path) -> None:
    model = load(small, keep_compressed=True)
    expected = logits(model)
    # Nothing asks for a gradient, so none is refused.
    assert torch.equal(model(IDS).logits, expected)
    next(parameter for parameter in model.parameters() if parameter.is_floating_point()).requires_grad_(True)
    with pytest.raises(ArgumentError, match="torch.no_grad"):
        model(IDS)
    assert torch.equal(logits(model), expected)


def test_copies_of_compressed_models_are_refused(small: Path) -> None:
    with pytest.raises(UnsupportedError, match="load it once more"):
        copy.deepcopy(load(small, keep_compressed=True))
    decoded = load(small, keep_compressed=False)
    assert torch.equal(logits(copy.deepcopy(decoded)), logits(decoded))


def test_one_thread_at_a_time(small: Path) -> None:
    model = load(small, keep_compressed=True)
    stages = model.hf_quantizer.layers.stages
    layer = model.get_submodule(next(stage.name for stage in stages if not stage.is_table))
    hook = layer.register_forward_pre_hook(lambda *_: logits(model))
    with pytest.raises(ArgumentError, match="one thread at a time"):
        logits(model)
    hook.remove()
    assert torch.equal(logits(model), logits(reference(small)))


def test_dequantize_gives_a_plain_model(small: Path) -> None:
    model = load(small, keep_compressed=True)
    expected = logits(model)
    model.dequantize()
    assert torch.equal(logits(model), expected)
    assert all(parameter.is_floating_point() and parameter.requires_grad for parameter in model.parameters())
    assert not hasattr(model.config, "quantization_config")
    tied = model.config.tie_word_embeddings
    assert (model.get_input_embeddings().weight is model.get_output_embeddings().weight) == tied


def test_experts_are_decoded_and_merged(tmp_path: Path) -> None:
    small = compress(folder(tmp_path / "model", "mixtral"), tmp_path / "small")
    expected = logits(reference(small))
    model = load(small)
    assert torch.equal(logits(model), expected)
    model.save_pretrained(tmp_path / "saved")
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "saved")), expected)
    with pytest.raises(UnsupportedError, match="experts.*keep_compressed=False"):
        load(small, keep_compressed=True)
