"""Reads a model's configuration for a cache: its layers, and the rotary positions of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig
from transformers.cache_utils import get_layer_types_and_kwargs

from .._errors import DtypeError, UnsupportedError

# Models whose attention caches keys after rotating all or the first columns of a head, and which columns they pair.
# Other models may skip layers or rotate other columns, so their keys are compressed unchanged.
PAIRING = {
    "arcee": "halves",
    "cohere": "neighbours",
    "gemma": "halves",
    "glm": "neighbours",
    "gpt_neox": "halves",
    "granite": "halves",
    "llama": "halves",
    "mistral": "halves",
    "mixtral": "halves",
    "olmo": "halves",
    "olmo2": "halves",
    "phi": "halves",
    "phi3": "halves",
    "qwen2": "halves",
    "qwen2_moe": "halves",
    "qwen3": "halves",
    "qwen3_moe": "halves",
    "seed_oss": "halves",
    "stablelm": "halves",
    "starcoder2": "halves",
}
# Of these, models that may rotate only the first columns of a head.
PARTIAL = frozenset({"glm", "gpt_neox", "phi", "phi3", "stablelm"})
# Models of latent attention (MLA) whose rotary columns serving engines cache as pairs of neighbours.
LATENT = frozenset({"deepseek_v2", "deepseek_v3", "kimi_k2"})


@dataclass(frozen=True)
class Rotary:
    """What is known about a model's rotary embedding."""

    # As PageCodec takes it; None if keys are coded unchanged.
    rope: dict[str, Any] | None
    # For people.
    about: str


def decoder_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """Returns the part of a configuration that describes the layers with a cache."""
    if not isinstance(config, PreTrainedConfig):
        raise DtypeError(f"a TenfoldCache needs a configuration, not a {type(config).__name__}: pass model.config")
    if config.is_encoder_decoder:
        raise UnsupportedError(
            f"{config.model_type} has an encoder: its cache is two, one of which never grows; TenfoldCache is for models with a "
            "decoder only, so leave past_key_values to transformers"
        )
    found: PreTrainedConfig = config.get_text_config(decoder=True)
    if getattr(found, "cross_attention_layers", None):
        raise UnsupportedError(
            f"{found.model_type} has layers of cross-attention, which never grow; use transformers.DynamicCache for this model"
        )
    return found


def layers_of(config: PreTrainedConfig) -> int:
    """Counts the layers with keys and values. Refuses layers that keep something else."""
    kinds, _ = get_layer_types_and_kwargs(config)
    other = sorted({kind for kind in kinds if kind != "full_attention"})
    if other:
        raise UnsupportedError(
            f"{config.model_type} has layers of {' and '.join(other)}; TenfoldCache holds full attention only, where no token is "
            "ever forgotten: use transformers.DynamicCache for this model"
        )
    return len(kinds)


def head_dim_of(config: PreTrainedConfig) -> int | None:
    """Returns the columns of a head, if the configuration has them."""
    if getattr(config, "head_dim", None):
        return int(config.head_dim)
    hidden, heads = getattr(config, "hidden_size", None), getattr(config, "num_attention_heads", None)
    return int(hidden) // int(heads) if hidden and heads else None


def rotary_of(config: PreTrainedConfig) -> Rotary:
    """Returns how a model rotated its keys, if that is known and can be undone.

    >>> from transformers import GPT2Config, LlamaConfig
    >>> rotary_of(LlamaConfig(hidden_size=256, num_attention_heads=4)).about
    'before RoPE'
    >>> rotary_of(GPT2Config()).about
    'as they are: nothing is known of a rotary embedding of gpt2'
    """
    kind, head = config.model_type, head_dim_of(config)
    stored = getattr(config, "rope_parameters", None)
    if kind not in PAIRING or head is None or not isinstance(stored, Mapping) or "rope_theta" not in stored:
        return Rotary(None, f"as they are: nothing is known of a rotary embedding of {kind}")
    scaling = _scaling(stored)
    if isinstance(scaling, str):
        return Rotary(None, f"as they are: rotary embedding of type {scaling} is not undone")
    factor = float(stored.get("partial_rotary_factor", 1.0)) if kind in PARTIAL else 1.0
    turned = int(head * factor)
    if turned < 2 or turned % 2:
        return Rotary(None, f"as they are: {turned} columns of a head are turned")
    rope = {
        "head": head,
        "base": float(stored["rope_theta"]),
        "pairing": PAIRING[kind],
        "turned": turned if turned < head else None,
        "scaling": scaling,
    }
    return Rotary(rope, "before RoPE")


def latent_rotary_of(config: PreTrainedConfig) -> Rotary:
    """Returns how a serving engine rotated the rotary columns of a model's latent rows, if that is known and can be undone.

    >>> from transformers import DeepseekV3Config
    >>> latent_rotary_of(DeepseekV3Config()).rope["pairing"]
    'neighbours'
    """
    kind, head = config.model_type, getattr(config, "qk_rope_head_dim", None)
    stored = getattr(config, "rope_parameters", None)
    if kind not in LATENT or not head or not isinstance(stored, Mapping) or "rope_theta" not in stored:
        return Rotary(None, f"as they are: nothing is known of the rotary columns of {kind}")
    scaling = _scaling(stored)
    if isinstance(scaling, str):
        return Rotary(None, f"as they are: rotary embedding of type {scaling} is not undone")
    rope = {"head": int(head), "base": float(stored["rope_theta"]), "pairing": "neighbours", "scaling": scaling}
    return Rotary(rope, "before RoPE")


def _scaling(stored: Mapping[str, Any]) -> tuple[Any, ...] | str | None:
    """Returns the scaling of frequencies as PageCodec takes it, or the name of an unknown one."""
    kind = stored.get("rope_type", "default")
    if kind == "default":
        return None
    if kind == "linear":
        return ("linear", float(stored["factor"]))
    if kind == "llama3":
        low, high = float(stored["low_freq_factor"]), float(stored["high_freq_factor"])
        return ("llama3", float(stored["factor"]), low, high, float(stored["original_max_position_embeddings"]))
    return str(kind)
