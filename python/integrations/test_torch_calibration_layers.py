"""A language model calibrated layer by layer: the numbers of a direct computation, and runs that were interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from transformers_models import LLAMA, folder, llama, texts

import tenfold
from tenfold.torch import Calibration, calibrate_layers
from tenfold.torch import _layerwise as layerwise

pytestmark = pytest.mark.filterwarnings("ignore:.*saw fewer than")


def direct(model: Any, contexts: torch.Tensor, seed: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Inputs and gradients of all linear layers, with the whole model in one graph."""
    inputs: dict[str, list[torch.Tensor]] = {}
    gradients: dict[str, list[torch.Tensor]] = {}
    for number, ids in enumerate(contexts):
        kept: dict[str, torch.Tensor] = {}
        handles = []
        for name, layer in model.named_modules():
            if isinstance(layer, torch.nn.Linear):

                def see(_: Any, given: Any, out: torch.Tensor, name: str = f"{name}.weight") -> None:
                    inputs.setdefault(name, []).append(given[0][0].detach().double())
                    kept[name] = out

                handles.append(layer.register_forward_hook(see))
        loss = layerwise.sampled_loss(model(ids[None]).logits, seed + number)
        for handle in handles:
            handle.remove()
        for name, gradient in zip(kept, torch.autograd.grad(loss, list(kept.values()))):
            gradients.setdefault(name, []).append(gradient[0].double())
    return {name: torch.cat(each) for name, each in inputs.items()}, {name: torch.cat(each) for name, each in gradients.items()}


def test_the_numbers_are_those_of_the_whole_model(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(6, 40, 1)
    inputs, gradients = direct(model, contexts, 5)
    found = calibrate_layers(model, contexts, tmp_path / "c.safetensors", seed=5)
    assert set(found) == set(inputs)
    for name in ("model.layers.0.self_attn.o_proj.weight", "model.layers.1.mlp.down_proj.weight", "lm_head.weight"):
        x, squares = inputs[name], gradients[name].square()
        weights = squares.sum(1)
        assert np.allclose(found.inputs(name), (x * weights[:, None]).T @ x / weights.sum(), rtol=1e-3, atol=1e-4 * float(x.square().mean()))
        assert np.allclose(found.outputs(name), squares.mean(0), rtol=1e-3)
    shared = [found.layers[f"model.layers.2.self_attn.{one}_proj.weight"].matrix for one in "qkv"]
    assert len(set(shared)) == 1
    assert not list(tmp_path.glob("*.parts")) and found.layers == Calibration.open(tmp_path / "c.safetensors").layers
    found.check(model.state_dict())


def test_plainly_all_tokens_count_the_same(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(4, 40, 1)
    inputs, _ = direct(model, contexts, 0)
    found = Calibration.collect(model, contexts, tmp_path / "c.safetensors", weighted=False)
    name = "model.layers.2.mlp.down_proj.weight"
    x = inputs[name]
    assert np.allclose(found.inputs(name), x.T @ x / len(x), rtol=1e-3, atol=1e-4 * float(x.square().mean()))
    assert found.outputs(name) is None


def test_texts_count_by_their_share(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(2, 40, 1)
    inputs, _ = direct(model, contexts, 0)
    found = calibrate_layers(model, [(contexts[0], 1.0), (contexts[1], 3.0)], tmp_path / "c.safetensors", weighted=False)
    x = inputs["model.layers.1.self_attn.o_proj.weight"]
    expected = (x[:40].T @ x[:40] + 3 * x[40:].T @ x[40:]) / 160
    assert np.allclose(found.inputs("model.layers.1.self_attn.o_proj.weight"), expected, rtol=1e-3, atol=1e-4 * float(x.square().mean()))


@pytest.mark.parametrize("kind", ["layers", "whole"])
def test_other_architectures(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(2)
    config = GPTNeoXConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=64)
    model, contexts = GPTNeoXForCausalLM(config).eval(), texts(3, 20, 4)
    if kind == "whole":
        monkeypatch.setattr(layerwise, "find_layers", lambda _: None)
    inputs, gradients = direct(model, contexts, 0)
    found = calibrate_layers(model, contexts, tmp_path / "c.safetensors")
    name = "gpt_neox.layers.0.mlp.dense_4h_to_h.weight"
    weights = gradients[name].square().sum(1)
    x = inputs[name]
    assert np.allclose(found.inputs(name), (x * weights[:, None]).T @ x / weights.sum(), rtol=1e-3, atol=1e-4 * float(x.square().mean()))
    assert np.allclose(found.outputs(name), gradients[name].square().mean(0), rtol=1e-3)
    assert all(parameter.requires_grad for parameter in model.parameters())


class Stop(Exception):
    """Someone pressed a key."""


@pytest.mark.parametrize("weighted", [True, False])
def test_interrupted_runs_go_on(tmp_path: Path, weighted: bool):
    model, contexts = llama(tmp_path), texts(3, 30, 1)
    whole = calibrate_layers(model, contexts, tmp_path / "whole.safetensors", weighted=weighted)
    path, told = tmp_path / "c.safetensors", []

    def tell(done: int, total: int) -> None:
        told.append(done)
        raise Stop

    while True:
        try:
            found = calibrate_layers(model, contexts, path, weighted=weighted, progress=tell)
            break
        except Stop:
            assert not path.exists() and (tmp_path / "c.safetensors.parts").is_dir()
    assert told == list(range(1, 7 if weighted else 4))
    assert found.layers == whole.layers
    assert all(np.array_equal(found.inputs(name), whole.inputs(name)) for name in whole)


def test_another_run_in_progress_is_not_mixed_in(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(2, 30, 1)
    path = tmp_path / "c.safetensors"

    def tell(*_: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        calibrate_layers(model, contexts, path, progress=tell)
    with pytest.raises(tenfold.ArgumentError, match="other text or other options"):
        calibrate_layers(model, contexts, path, seed=1)
    assert len(calibrate_layers(model, contexts, path, seed=1, fresh=True)) == 22
    (tmp_path / "d.safetensors.parts").mkdir()
    (tmp_path / "d.safetensors.parts" / "mine").touch()
    with pytest.raises(tenfold.ArgumentError, match="something else"):
        calibrate_layers(model, contexts, tmp_path / "d.safetensors")


def test_mistakes_are_named(tmp_path: Path):
    model = llama(tmp_path)
    with pytest.raises(tenfold.ArgumentError, match="no contexts"):
        calibrate_layers(model, [], tmp_path / "c.safetensors")
    with pytest.raises(tenfold.DtypeError, match="token ids"):
        calibrate_layers(model, [torch.randn(4)], tmp_path / "c.safetensors")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 3] = torch.inf
    with pytest.raises(tenfold.DataError, match="layers.1.mlp.down_proj.weight are not all finite"):
        calibrate_layers(model, texts(2, 30, 1), tmp_path / "c.safetensors", weighted=False)


def test_half_precision_models(tmp_path: Path):
    from transformers import AutoModelForCausalLM

    path = folder(tmp_path / "model", "tied")
    model = AutoModelForCausalLM.from_pretrained(path)
    found = calibrate_layers(model, texts(2, 30, 1), tmp_path / "c.safetensors")
    # The head is the table of embeddings.
    assert len(found) == 7 * LLAMA["num_hidden_layers"] and "lm_head.weight" not in found


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_layers_visit_a_cuda_device(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(3, 30, 1)
    here = calibrate_layers(model, contexts, tmp_path / "c.safetensors", weighted=False)
    there = calibrate_layers(model, contexts, tmp_path / "d.safetensors", weighted=False, device="cuda")
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())
    for name in here:
        assert np.allclose(here.inputs(name), there.inputs(name), rtol=1e-2, atol=1e-4)
