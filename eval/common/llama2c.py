"""Models in the format of llama2.c, as a Llama of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

HEADER = 7
"""Integers of 32 bits in front of the weights."""


def load(path: Path) -> LlamaForCausalLM:
    """Reads a model whose output layer is its embedding (a vocabulary size above zero says so)."""
    raw = np.fromfile(path, dtype="<i4", count=HEADER)
    dim, hidden, layers, heads, kv_heads, vocab, length = (int(v) for v in raw)
    if vocab <= 0:
        raise ValueError(f"{path} has an output layer of its own, which is not read here")
    config = LlamaConfig(
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocab,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    kv = dim // heads * kv_heads
    state: dict[str, torch.Tensor] = {}

    def put(name: str, *shape: int, rope_heads: int = 0) -> None:
        for layer in range(layers):
            value = reader.take(*shape)
            state[f"model.layers.{layer}.{name}.weight"] = _halves(value, rope_heads) if rope_heads else value

    reader = _Reader(np.fromfile(path, dtype="<f4", offset=4 * HEADER))
    state["model.embed_tokens.weight"] = reader.take(vocab, dim)
    put("input_layernorm", dim)
    put("self_attn.q_proj", dim, dim, rope_heads=heads)
    put("self_attn.k_proj", kv, dim, rope_heads=kv_heads)
    put("self_attn.v_proj", kv, dim)
    put("self_attn.o_proj", dim, dim)
    put("post_attention_layernorm", dim)
    put("mlp.gate_proj", hidden, dim)
    put("mlp.down_proj", dim, hidden)
    put("mlp.up_proj", hidden, dim)
    state["model.norm.weight"] = reader.take(dim)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    return model


class _Reader:
    def __init__(self, values: np.ndarray) -> None:
        self._values, self._at = values, 0

    def take(self, *shape: int) -> torch.Tensor:
        count = int(np.prod(shape))
        part = self._values[self._at : self._at + count]
        if part.size != count:
            raise ValueError("the model file is too short")
        self._at += count
        return torch.from_numpy(part.reshape(shape).copy())


def _halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows in the order that transformers rotates them: llama2.c turns neighbours, transformers halves of a head."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns).contiguous()
