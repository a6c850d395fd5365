"""What a configuration says of rotary embeddings is what its model does to keys."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from transformers import AutoConfig, GPT2Config, LlamaConfig, SmolLM3Config

from tenfold.kv import PageCodec
from tenfold.transformers import TenfoldCache
from tenfold.transformers._cache_config import PAIRING, rotary_of

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}


def config_of(kind: str, **more: Any) -> Any:
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 2}
    return AutoConfig.for_model(kind, **sizes, sliding_window=None, pad_token_id=0, **more)


def turned(config: Any, positions: torch.Tensor) -> torch.Tensor:
    """A key that is the same for all tokens, turned to their positions as the model does: (tokens, heads, columns)."""
    module = importlib.import_module(f"transformers.models.{config.model_type}.modeling_{config.model_type}")
    (name,) = (name for name in dir(module) if name.endswith("RotaryEmbedding"))
    cos, sin = getattr(module, name)(config)(torch.zeros(1), positions[None])
    keys = torch.randn(1, 2, 1, 64, generator=torch.Generator().manual_seed(4)).repeat(1, 1, len(positions), 1)
    # Some models cut off by themselves what is not turned.
    width = cos.shape[-1]
    _, first = module.apply_rotary_pos_emb(keys[..., :width], keys[..., :width], cos, sin)
    return torch.cat([first, keys[..., width:]], dim=-1)[0].transpose(0, 1).contiguous()


def size(keys: torch.Tensor, rope: dict[str, Any] | None, position: int) -> int:
    """Bytes of a page of these keys, with values that take none."""
    codec = PageCodec(layers=1, rope=rope)
    return len(codec.encode([keys], [torch.zeros_like(keys)], position=position, step=0.05))


CASES = [(kind, {}) for kind in sorted(PAIRING)]
CASES += [("llama", {"rope_parameters": LLAMA3}), ("llama", {"rope_parameters": LINEAR})]
CASES += [("llama", {"rope_theta": 500.0}), ("phi", {"rope_parameters": {**LINEAR, "partial_rotary_factor": 0.5}})]


@pytest.mark.parametrize(("kind", "more"), CASES, ids=[f"{kind}-{'-'.join(more)}" for kind, more in CASES])
def test_turning_is_undone(kind: str, more: dict[str, Any]) -> None:
    config = config_of(kind, **more)
    rotary = rotary_of(config)
    assert rotary.rope is not None and rotary.about == "before RoPE"
    keys = turned(config, torch.arange(700, 764))
    # Rows that are all the same again take no more than such that were never turned, but for what says how they were.
    found = size(keys, rotary.rope, 700)
    assert found < size(turned(config, torch.zeros(64, dtype=torch.long)), None, 700) + 60
    other = {"halves": "neighbours", "neighbours": "halves"}[rotary.rope["pairing"]]
    for wrong in (None, {**rotary.rope, "base": rotary.rope["base"] * 3}, {**rotary.rope, "pairing": other}):
        assert size(keys, wrong, 700) > 1.4 * found


def test_the_cache_undoes_it_at_the_right_positions() -> None:
    config = config_of("llama")
    # The second sequence begins behind 30 tokens of padding.
    mask = torch.ones(2, 200, dtype=torch.long)
    mask[1, :30] = 0
    keys = torch.stack([turned(config, torch.arange(200)), turned(config, (torch.arange(200) - 30).clamp(min=0))]).transpose(1, 2)
    pages = {}
    for name, settings in {"told": {"attention_mask": mask}, "untold": {}, "as they are": {"rope": None}}.items():
        cache = TenfoldCache(config, step=0.05, window=0, **settings)
        cache.update(keys, torch.zeros_like(keys), 0)
        pages[name] = [[len(blob) for blob in page.blobs] for page in cache.layers[0].pages]
        assert len(pages[name]) == 3
        decoded = cache.layers[0].keys
        assert decoded is not None and (decoded - keys).abs().max() < 0.15
    for told, untold, plain in zip(*pages.values(), strict=True):
        assert max(told) < 0.4 * min(plain)
        assert untold[0] == told[0]
    # Padding is all at position 0, which no other offset makes good.
    assert pages["untold"][0][1] > 1.5 * pages["told"][0][1]


@pytest.mark.parametrize(
    ("config", "about"),
    [
        (GPT2Config(), "nothing is known of a rotary embedding of gpt2"),
        (SmolLM3Config(pad_token_id=0), "nothing is known of a rotary embedding of smollm3"),
        (config_of("llama", rope_parameters=YARN), "rotary embedding of type yarn is not undone"),
        (LlamaConfig(hidden_size=12, num_attention_heads=4, head_dim=3), "3 columns of a head"),
    ],
    ids=["none", "some layers", "yarn", "odd"],
)
def test_what_is_not_known_is_left_as_it_is(config: Any, about: str) -> None:
    assert about in TenfoldCache(config, bits=3).report().keys


def test_what_the_caller_says_counts() -> None:
    config = config_of("llama", rope_parameters=YARN)
    assert TenfoldCache(config, bits=3, rope={"head": 64, "base": 5000.0}).report().keys == "before RoPE"
    assert TenfoldCache(config_of("llama"), bits=3, rope=None).report().keys == "as they are"
