"""A TenfoldCache with a file of bases: fitted to what a model computes, checked against the model, worth its while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from safetensors.torch import save_file
from transformers import DynamicCache, LlamaConfig
from transformers_models import llama, run, texts

from tenfold import ArgumentError, DataError
from tenfold.kv import Bases
from tenfold.transformers import TenfoldCache

SMALL = {"page": 16, "window": 8, "sinks": 2}
ROPE = "base=10000,head=32,pairing=halves"
PLAIN = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return llama(tmp_path_factory.mktemp("llama"))


def states(model: Any, ids: torch.Tensor) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids, past_key_values=cache)
    return cache


@pytest.fixture(scope="module", params=["1", "2", "all"])
def file(request: pytest.FixtureRequest, model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("bases")
    rows = {}
    for number, layer in enumerate(states(model, texts(1, 900, 1)).layers):
        rows[f"layers.{number}.k"] = layer.keys[0].transpose(0, 1).flatten(1).contiguous()
        rows[f"layers.{number}.v"] = layer.values[0].transpose(0, 1).flatten(1).contiguous()
    save_file(rows, base / "captured.safetensors")
    fit = ("--rope", ROPE, "--context", "900", "--group", request.param, "--rank", "all", "--bits", "10", "--parts", "0", "--json")
    run("basis", "fit", base / "captured.safetensors", "--out", base / "model.basis", *fit)
    return base / "model.basis"


def test_the_same_text_at_a_high_rate(model: Any, file: Path) -> None:
    ids = texts(2, 40, 2)
    cache = TenfoldCache(model.config, bits=10.0, bases=file, **SMALL)
    said = model.generate(ids, past_key_values=cache, **PLAIN)
    assert torch.equal(said, model.generate(ids, past_key_values=DynamicCache(config=model.config), **PLAIN))
    found = cache.report()
    assert found.compressed_tokens == 48 and found.bits <= 10.0 and found.keys == "as the basis has them"
    assert len({id(layer.group) for layer in cache.layers}) == len(Bases.open(file).groups)


def test_less_error_with_the_same_bits(model: Any, file: Path) -> None:
    exact = states(model, texts(1, 300, 3))
    errors: dict[str, dict[str, float]] = {}
    for name, bases in {"with": Bases.open(file), "without": None}.items():
        cache = TenfoldCache(model.config, bits=2.0, bases=bases, window=0)
        for number, layer in enumerate(exact.layers):
            cache.update(layer.keys, layer.values, number)
        errors[name] = {}
        for what in ("keys", "values"):
            pairs = [(getattr(mine, what), getattr(layer, what)) for mine, layer in zip(cache.layers, exact.layers, strict=True)]
            errors[name][what] = sum(float((mine - theirs).pow(2).sum()) for mine, theirs in pairs)
        assert cache.report().compressed_tokens == 256 and cache.report().bits <= 2.0
    for what in ("keys", "values"):
        assert errors["with"][what] < 0.6 * errors["without"][what]


@pytest.mark.parametrize("change", [{"num_hidden_layers": 4}, {"head_dim": 64}], ids=str)
def test_a_basis_of_another_model(model: Any, file: Path, change: dict[str, Any]) -> None:
    config = LlamaConfig(**{**model.config.to_dict(), **change})
    with pytest.raises(ArgumentError, match="the basis is for 3 layers with heads of 32 columns.*tenfold basis fit"):
        TenfoldCache(config, bits=3, bases=file)


def test_a_basis_for_other_heads(model: Any, file: Path) -> None:
    config = LlamaConfig(**{**model.config.to_dict(), "num_key_value_heads": 4})
    cache = TenfoldCache(config, bits=3, bases=file, **SMALL)
    new = torch.randn(1, 4, 40, 32)
    with pytest.raises(ArgumentError, match="column"):
        for layer in range(3):
            cache.update(new, new, layer)


def test_a_file_that_is_none(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.basis"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="model.basis"):
        TenfoldCache(model.config, bits=3, bases=path)
