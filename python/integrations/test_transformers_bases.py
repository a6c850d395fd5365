"""Bases that are fitted to a model in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel
from transformers_models import llama, texts

from tenfold import ArgumentError, Error, UnsupportedError
from tenfold.kv import Bases, HiddenCodec
from tenfold.transformers import TenfoldCache, _capture, _rotary, fit_bases
from tenfold.transformers._cache_config import rotary_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return llama(tmp_path_factory.mktemp("llama"))


def test_rows_are_those_of_the_projections(model: Any) -> None:
    ids, seen = texts(2, 50, 1), {}
    attention = model.model.layers[1].self_attn
    handles = [
        getattr(attention, name).register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out}))
        for name in ("k_proj", "v_proj")
    ]
    try:
        with torch.no_grad():
            taken, _ = _capture.take(model, ids, 3, [1])
            states = model(ids, output_hidden_states=True).hidden_states
    finally:
        for handle in handles:
            handle.remove()
    rope = rotary_of(model.config).rope
    for name, wanted in (("layers.1.k_before_rope", seen["k_proj"]), ("layers.1.v", seen["v_proj"]), ("layers.1.hidden", states[1])):
        rows = _capture.rows(name, taken[name], rope, 4)
        torch.testing.assert_close(rows, wanted[:, 4:].flatten(0, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pairing", ["halves", "neighbours"])
def test_positions_of_parts_of_heads(pairing: str) -> None:
    rope = {"head": 8, "base": 100.0, "pairing": pairing, "turned": 4, "scaling": ("llama3", 8.0, 1.0, 4.0, 64.0)}
    keys = torch.randn(2, 3, 20, 8, generator=torch.Generator().manual_seed(1))
    back = _rotary.undo_rotary(keys, rope)
    assert torch.equal(back[..., 0, :], keys[..., 0, :]) and torch.equal(back[..., 4:], keys[..., 4:])
    torch.testing.assert_close(back.norm(dim=-1), keys.norm(dim=-1))
    assert not torch.allclose(back[..., 5, :4], keys[..., 5, :4])


def divergence(model: Any, bases: Path | None, bits: float) -> tuple[float, float]:
    """How far predictions behind a compressed cache are from the exact ones, and the bits that values took."""
    first, last = texts(4, 160, 9).split([128, 32], 1)
    total, taken = 0.0, []
    for a, b in zip(first, last):
        exact, coded = DynamicCache(config=model.config), TenfoldCache(
            model.config, bits=bits, bases=bases, page=64, window=0, sinks=0, group=3 if bases is None else 1
        )
        with torch.no_grad():
            said = []
            for cache in (exact, coded):
                model(a[None], past_key_values=cache)
                said.append(model(b[None], past_key_values=cache).logits[0].log_softmax(-1))
        total += torch.nn.functional.kl_div(said[1], said[0], log_target=True, reduction="batchmean").item()
        taken.append(coded.report().bits)
    return total, float(np.mean(taken))


def test_a_metric_is_worth_its_while(model: Any, tmp_path: Path) -> None:
    contexts = texts(12, 200, 2)
    found = fit_bases(model, contexts, tmp_path / "metric.basis", group=3, bits=4, hidden=[2], max_bytes=10**6, every=1)
    fit_bases(model, contexts, tmp_path / "plain.basis", group=3, bits=4, metric=False, max_bytes=10**6)
    bases = Bases.open(tmp_path / "metric.basis")
    assert bases.layers == 3 and bases.groups == [(0, 3)] and bases.head_dim == 32
    assert found["bytes"] == bases.nbytes and {entry["kind"] for entry in found["groups"]} == {"keys", "values", "hidden"}
    none, plain, metric = (divergence(model, path, 2.5) for path in (None, tmp_path / "plain.basis", tmp_path / "metric.basis"))
    assert max(plain[1], metric[1]) < none[1] + 0.1
    assert metric[0] < plain[0] < none[0], (none, plain, metric)
    with torch.no_grad():
        states = model(texts(1, 100, 3), output_hidden_states=True).hidden_states[2].contiguous()
    codec = HiddenCodec(bases, 2)
    back = torch.empty_like(states)
    codec.decode(codec.encode(states, bits=6), out=back)
    assert ((back - states)[:, 4:] ** 2).mean() < 0.02 * states[:, 4:].var()


def test_bad_input(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "model.basis"
    with pytest.raises(ArgumentError, match="no contexts"):
        fit_bases(model, [], out)
    with pytest.raises(ArgumentError, match="token ids"):
        fit_bases(model, [torch.tensor([1, 2, 3])], out)
    with pytest.raises(ArgumentError, match="hidden"):
        fit_bases(model, texts(1, 50, 1), out, hidden=[3])
    with pytest.raises(ArgumentError, match="group"):
        fit_bases(model, texts(1, 50, 1), out, group=0)
    assert not out.exists()
    fit_bases(model, texts(4, 60, 1), out, group=1, metric=False, max_bytes=10**6)
    with pytest.raises(Error, match="exists|overwrite"):
        fit_bases(model, texts(4, 60, 1), out, group=1, metric=False, max_bytes=10**6)
    fit_bases(model, texts(4, 60, 1), out, group=1, metric=False, max_bytes=10**6, overwrite=True)


def test_models_without_rotary_positions(tmp_path: Path) -> None:
    torch.manual_seed(1)
    gpt = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=320, n_positions=128)).eval()
    fit_bases(gpt, texts(6, 100, 4), tmp_path / "gpt.basis", group=2, max_bytes=10**6)
    cache = TenfoldCache(gpt.config, bits=8, bases=tmp_path / "gpt.basis", page=16, window=8)
    gpt.generate(texts(1, 60, 5), past_key_values=cache, max_new_tokens=5, do_sample=False, pad_token_id=0)
    assert cache.report().bits < 9
    with pytest.raises(UnsupportedError):
        from transformers import MistralConfig, MistralForCausalLM

        tiny = MistralConfig(
            hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=50, sliding_window=8
        )
        fit_bases(MistralForCausalLM(tiny), texts(1, 40, 6), tmp_path / "none.basis")
