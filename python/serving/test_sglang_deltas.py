"""Weights of SGLang's own Llama, brought up to date by deltas through SGLang's own updater, on the CPU."""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tenfold
import torch
from safetensors.torch import load_file
from tenfold import delta
from transformers import LlamaConfig, LlamaForCausalLM

with warnings.catch_warnings():
    # SGLang says what it does not do without a GPU.
    warnings.simplefilter("ignore")
    from sglang.srt import runtime_context
    from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
    from sglang.srt.models import llama
    from sglang.srt.server_args import ServerArgs
    from tenfold.serving.sglang import load_delta

pytestmark = pytest.mark.filterwarnings("default")

CONFIG = LlamaConfig(
    hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=320
)
LOADER = "tenfold.serving.sglang.load_delta"
ALONE = types.SimpleNamespace(is_first_rank=True, is_last_rank=True, world_size=1, rank_in_group=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    LlamaForCausalLM(CONFIG).to(torch.bfloat16).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """SGLang's model with the folder's weights. Rotary positions have no weights, and want kernels that are not here."""
    monkeypatch.setattr(llama, "get_rope", lambda *args, **options: torch.nn.Identity())
    before = runtime_context.snapshot_context()
    runtime_context.publish(ServerArgs(model_path=str(folder), device="cpu", skip_tokenizer_init=True), role="test")
    ranks = {name: 0 for name in ("tp_rank", "pp_rank", "attn_tp_rank", "attn_dcp_rank", "attn_cp_rank")}
    sizes = {name: 1 for name in ("tp_size", "pp_size", "attn_tp_size", "attn_cp_size")}
    try:
        with runtime_context.get_parallel().override(**ranks, **sizes, pp_group=ALONE, tp_group=ALONE):
            made = llama.LlamaForCausalLM(CONFIG).to(torch.bfloat16)
            made.load_weights(list(load_file(folder / "model.safetensors").items()))
            yield made
    finally:
        runtime_context.restore_context(before)


def updater(model: Any) -> WeightUpdater:
    unused = {name: None for name in ("model_config", "update_model_fields", "recapture_cuda_graph", "get_model_runner")}
    return WeightUpdater(
        tp_rank=0, device="cpu", gpu_id=0, custom_weight_loaders=[LOADER], get_model=lambda: model, **unused
    )  # fmt: skip


def content(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, b[name]) for name, tensor in a.items())


def moved(state: dict[str, torch.Tensor], *parts: str) -> dict[str, torch.Tensor]:
    """A version in which tensors with these parts in their names have changed."""
    changed = lambda x: torch.where(torch.rand(x.shape) < 0.2, x + 0.5, x).to(x.dtype)  # noqa: E731
    return {name: changed(x) if any(part in name for part in parts) else x for name, x in state.items()}


def test_the_model_has_the_weights_that_it_would_load(model: Any, folder: Path) -> None:
    states = [load_file(folder / "model.safetensors")]
    # Of the fused matrix of the first step one part changes alone.
    states.append(moved(states[0], "k_proj", "norm"))
    states.append(moved(states[1], ""))
    wanted = []
    for state in states:
        model.load_weights(list(state.items()))
        wanted.append(weights(model))
    model.load_weights(list(states[0].items()))
    first, second = (content(delta.make(states[n], states[n + 1])) for n in (0, 1))

    update = updater(model).update_weights_from_tensor
    update([("tenfold.base", content(str(folder).encode()))], LOADER)
    with pytest.raises(tenfold.WrongBaseError):
        update([("tenfold.delta", second)], LOADER)
    assert same(weights(model), wanted[0])
    assert update([("tenfold.delta", first)], LOADER) == (True, "Success")
    assert same(weights(model), wanted[1]) and not same(wanted[1], wanted[0])
    assert update([("tenfold.delta", second)], LOADER) == (True, "Success")
    assert same(weights(model), wanted[2])
    # The folder brings it back.
    update([("tenfold.base", content(str(folder).encode())), ("tenfold.delta", first)], LOADER)
    assert same(weights(model), wanted[1])


def test_what_could_not_be_loaded_is_loaded_with_the_next(
    model: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [load_file(folder / "model.safetensors")]
    states += [moved(states[0], "mlp")]
    states += [moved(states[1], "embed")]
    update = updater(model).update_weights_from_tensor
    update([("tenfold.base", content(str(folder).encode()))], LOADER)
    with monkeypatch.context() as patch:
        patch.setattr(model, "load_weights", lambda named: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            update([("tenfold.delta", content(delta.make(states[0], states[1])))], LOADER)
    update([("tenfold.delta", content(delta.make(states[1], states[2])))], LOADER)
    made = weights(model)
    model.load_weights(list(states[2].items()))
    assert same(made, weights(model))


def test_refusals(model: Any, folder: Path) -> None:
    with pytest.raises(tenfold.ArgumentError, match="'tenfold.base' before"):
        load_delta(model, [("tenfold.delta", content(b"x"))])
    with pytest.raises(tenfold.ArgumentError, match="neither"):
        load_delta(model, [("w", torch.zeros(3))])


def test_compressed_folders_will_do(model: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    packed = tmp_path_factory.mktemp("packed") / "model.safetensors"
    state = load_file(folder / "model.safetensors")
    tenfold.save(state, packed, lossless=True)
    load_delta(model, [("tenfold.base", content(str(packed).encode()))])
    new = moved(state, "mlp")
    load_delta(model, [("tenfold.delta", content(delta.make(state, new)))])
    made = weights(model)
    model.load_weights(list(new.items()))
    assert same(made, weights(model))
