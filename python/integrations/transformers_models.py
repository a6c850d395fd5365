"""Tiny models with made-up weights, as folders, and the command that compresses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

import tenfold.transformers  # noqa: F401 - registers the method
from tenfold import _native

LLAMA = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 64,
}
IDS = torch.tensor([[1, 5, 250, 17, 17, 3]])


def folder(path: Path, kind: str) -> Path:
    """Saves a model: "llama", "tied", "sharded" (llama in several files), "gpt2" or "mixtral"."""
    torch.manual_seed(3)
    if kind == "gpt2":
        model: Any = GPT2LMHeadModel(GPT2Config(n_embd=128, n_layer=3, n_head=4, vocab_size=320, n_positions=64))
    elif kind == "mixtral":
        model = MixtralForCausalLM(MixtralConfig(**LLAMA, num_local_experts=4))
    else:
        model = LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=kind == "tied")).to(torch.bfloat16)
    # The weights that transformers makes up would give nearly the same logits for all tokens.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.08)
    model.save_pretrained(path, max_shard_size="250KB" if kind == "sharded" else "1GB")
    (path / "tokenizer.json").write_text('{"version": "1.0"}')
    return path


def run(*arguments: object) -> None:
    """The command `tenfold`."""
    assert _native.main(["tenfold", *(str(argument) for argument in arguments), "--quiet"]) == 0


def compress(source: Path, target: Path, *goal: str) -> Path:
    run("compress", source, "-o", target, *(goal or ("--bits", "4")))
    return target


def reference(small: Path, **options: Any) -> Any:
    """The model of the decompressed folder: what transformers makes of the same values without tenfold."""
    plain = small.with_name(small.name + "-plain")
    if not plain.exists():
        run("decompress", small, "-o", plain)
    return AutoModelForCausalLM.from_pretrained(plain, **options)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits
    return found


def generated(model: Any) -> torch.Tensor:
    found: torch.Tensor = model.generate(IDS, max_new_tokens=8, do_sample=False, pad_token_id=0)
    return found


def edit_config(path: Path, change: dict[str, Any]) -> None:
    """Changes the quantization_config of a folder."""
    file = path / "config.json"
    config = json.loads(file.read_text())
    config["quantization_config"].update(change)
    file.write_text(json.dumps(config))


def llama(path: Path) -> Any:
    """A tiny Llama in f32, out of a folder that is made there."""
    return AutoModelForCausalLM.from_pretrained(folder(path / "model", "llama"), dtype=torch.float32).eval()


def texts(count: int, tokens: int, seed: int) -> torch.Tensor:
    """Of few words, so that keys and values have structure."""
    return torch.randint(3, 40, (count, tokens), generator=torch.Generator().manual_seed(seed))
