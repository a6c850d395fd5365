"""What a TenfoldCache cannot do is refused, when it is made or when it is first used, in words that say what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from tenfold import ArgumentError, DtypeError, LimitError, NotFoundError, UnsupportedError
from tenfold.transformers import TenfoldCache

CONFIG = LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, vocab_size=64)


def states(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("MistralConfig", "sliding_attention"),
        ("Gemma3TextConfig", "sliding_attention"),
        ("Llama4TextConfig", "chunked_attention"),
        ("MambaConfig", "linear_attention"),
        ("JambaConfig", "linear_attention"),
        ("DeepseekV32Config", "indexed_attention"),
        ("MllamaConfig", "cross-attention"),
        ("T5Config", "has an encoder"),
        ("WhisperConfig", "has an encoder"),
    ],
)
def test_other_kinds_of_attention(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        TenfoldCache(getattr(transformers, name)(), bits=3)


@pytest.mark.parametrize("config", [None, {"num_hidden_layers": 2}, LlamaForCausalLM(CONFIG)])
def test_what_is_no_configuration(config: Any) -> None:
    with pytest.raises(DtypeError, match="pass model.config"):
        TenfoldCache(config, bits=3)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "pass one of bits, max_bytes, step and lossless, not none"),
        ({"bits": 3, "step": 0.1}, "not bits and step"),
        ({"bits": 0}, "bits must be a positive number, not 0"),
        ({"bits": float("nan")}, "bits must be a positive number, not nan"),
        ({"step": -1.0}, "step must be a positive number, not -1.0"),
        ({"bits": "3"}, "bits must be a positive number, not '3'"),
        ({"max_bytes": 0}, "max_bytes must be a whole number of 1 or more, not 0"),
        ({"max_bytes": 99.5}, "max_bytes must be a whole number of 1 or more, not 99.5"),
        ({"lossless": 3}, "lossless must be True or False"),
        ({"bits": 3, "page": 8}, "page must be a whole number from 16 to 256, not 8"),
        ({"bits": 3, "page": 512}, "page must be a whole number from 16 to 256, not 512"),
        ({"bits": 3, "window": -1}, "window must be a whole number of 0 or more, not -1"),
        ({"bits": 3, "sinks": 1.5}, "sinks must be a whole number of 0 or more, not 1.5"),
        ({"bits": 3, "group": 0}, "group must be a whole number of 1 or more, not 0"),
        ({"bits": 3, "group": 3}, "group=3, but the model has 2 layers"),
        ({"bits": 3, "decoded_bytes": -1}, "decoded_bytes must be a whole number of 0 or more, not -1"),
        ({"bits": 3, "rope": {"head": 64, "base": 0.5}}, "rotary positions"),
        ({"bits": 3, "steps": (0.0, 1.0)}, "step"),
        ({"bits": 3, "effort": "heroic"}, "effort"),
        ({"bits": 3, "attention_mask": [[1, 1]]}, "attention_mask must be a tensor"),
        ({"bits": 3, "attention_mask": torch.tensor([[1, 1, 0]])}, "padding_side='left'"),
        ({"bits": 3, "attention_mask": torch.tensor([[1, 0, 1]])}, "padding_side='left'"),
    ],
    ids=str,
)
def test_settings(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ArgumentError, DtypeError, UnsupportedError), match=reason):
        TenfoldCache(CONFIG, **settings)


def test_a_basis_that_is_not_there() -> None:
    with pytest.raises(NotFoundError, match="nowhere.basis"):
        TenfoldCache(CONFIG, bits=3, bases="nowhere.basis")


@pytest.mark.parametrize("settings", [{"group": 2}, {"rope": None}])
def test_a_basis_and_what_it_says_by_itself(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="leave group and rope out"):
        TenfoldCache(CONFIG, bits=3, bases="nowhere.basis", **settings)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float8_e4m3fn])
def test_dtypes(dtype: torch.dtype) -> None:
    cache = TenfoldCache(CONFIG, bits=3)
    with pytest.raises(DtypeError, match="bfloat16, float16 or float32"):
        cache.update(states(1, 2, 5, 32, dtype=dtype), states(1, 2, 5, 32, dtype=dtype), 0)


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        (states(2, 2, 1, 32), states(2, 2, 1, 32)),
        (states(1, 4, 1, 32), states(1, 4, 1, 32)),
        (states(1, 2, 1, 16), states(1, 2, 1, 16)),
        (states(1, 2, 2, 32), states(1, 2, 1, 32)),
        (states(1, 2, 1, 32, dtype=torch.bfloat16), states(1, 2, 1, 32, dtype=torch.bfloat16)),
    ],
    ids=["batch", "heads", "columns", "tokens", "dtype"],
)
def test_other_states_than_before(keys: torch.Tensor, values: torch.Tensor) -> None:
    cache = TenfoldCache(CONFIG, bits=3)
    cache.update(states(1, 2, 5, 32), states(1, 2, 5, 32), 0)
    with pytest.raises(ArgumentError, match="reset|keys of 2 tokens, but values of 1"):
        cache.update(keys, values, 0)
    assert cache.get_seq_length() == 5


def test_a_mask_of_another_batch() -> None:
    cache = TenfoldCache(CONFIG, bits=3, attention_mask=torch.ones(3, 5))
    with pytest.raises(ArgumentError, match="3 sequences, and now there are 4"):
        cache.update(states(4, 2, 5, 32), states(4, 2, 5, 32), 0)


def test_gradients() -> None:
    model = LlamaForCausalLM(CONFIG)
    with pytest.raises(ArgumentError, match=r"torch.no_grad\(\)"):
        model(torch.ones(1, 5, dtype=torch.long), past_key_values=TenfoldCache(CONFIG, bits=3))


def test_a_cap_that_no_page_keeps() -> None:
    cache = TenfoldCache(CONFIG, max_bytes=10, window=0, page=16)
    with pytest.raises(LimitError):
        cache.update(states(1, 2, 40, 32), states(1, 2, 40, 32), 0)
    # Nothing is lost.
    assert cache.get_seq_length() == 40


def test_crop_to_a_length() -> None:
    with pytest.raises(ArgumentError, match="pass -n"):
        TenfoldCache(CONFIG, bits=3).crop(5)


def test_layers_that_were_changed_one_by_one() -> None:
    cache = TenfoldCache(CONFIG, lossless=True, group=2, page=16, window=0)
    new = states(1, 2, 40, 32)
    for layer in range(2):
        cache.update(new, new, layer)
    cache.layers[0].crop(-30)
    with pytest.raises(ArgumentError, match="as a whole, not its layers"):
        for layer in range(2):
            cache.update(new, new, layer)


def test_sequences_that_are_not_there() -> None:
    cache = TenfoldCache(CONFIG, bits=3)
    cache.update(states(2, 2, 5, 32), states(2, 2, 5, 32), 0)
    with pytest.raises(IndexError):
        cache.reorder_cache(torch.tensor([0, 2]))


def test_offloading_of_layers() -> None:
    with pytest.raises(UnsupportedError, match="pass offload=True"):
        TenfoldCache(CONFIG, bits=3).offload(0)


def test_a_graph_of_the_whole_model() -> None:
    model = torch.compile(LlamaForCausalLM(CONFIG).eval(), fullgraph=True, backend="eager")
    with torch.no_grad(), pytest.raises(RuntimeError, match="compile without fullgraph=True"):
        model(torch.ones(1, 5, dtype=torch.long), past_key_values=TenfoldCache(CONFIG, bits=3))


def test_a_static_cache_beside() -> None:
    model = LlamaForCausalLM(CONFIG)
    with pytest.raises(ValueError, match="use only one of the two"):
        model.generate(
            torch.ones(1, 5, dtype=torch.long),
            past_key_values=TenfoldCache(CONFIG, bits=3),
            cache_implementation="static",
            max_new_tokens=2,
        )
