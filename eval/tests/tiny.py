"""A language model so small that tests of programs take seconds."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from common.causal import Causal, tell


def causal(contexts: int) -> Causal:
    """A model with so many contexts of its own telling, two of them to judge on."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**size, num_key_value_heads=1, vocab_size=97, max_position_embeddings=64)).eval()
    # Wider weights than a fresh model has, so that its samples are worth predicting.
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" not in name:
                value.mul_(6)
    tokens = tell(model, contexts, 64, seed=1)
    return Causal("tiny", model, tokens[:2], tokens[2:], "a tiny model")
