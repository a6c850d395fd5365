"""Engines of vLLM on tiny models with made-up weights, in the process of the tests."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import vllm_setup  # noqa: F401 - before vLLM
import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer import get_kv_transfer_group

from tenfold import _native

BLOCK, PAGE = 32, 64
WORDS = 320
LLAMA = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": WORDS,
    "max_position_embeddings": 1024,
    "eos_token_id": None,
}


def model_folder(path: Path, *, seed: int = 3, window: int | None = None) -> Path:
    """Saves a model; with a window it is one of Mistral's kind."""
    torch.manual_seed(seed)
    if window is None:
        model: Any = LlamaForCausalLM(LlamaConfig(**LLAMA))
    else:
        model = MistralForCausalLM(MistralConfig(**LLAMA, head_dim=32, sliding_window=window))
    # The weights that transformers makes up would give nearly the same logits for all tokens.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.08)
    model.to(torch.bfloat16).save_pretrained(path)
    return path


def fit_bases(model: Path, tokens: list[int], path: Path) -> None:
    """Makes a file of bases from what a model computes for some text."""
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    cache = DynamicCache(config=loaded.config)
    with torch.no_grad():
        loaded(torch.tensor([tokens]), past_key_values=cache)
    rows = {}
    for number, layer in enumerate(cache.layers):
        rows[f"layers.{number}.k"] = layer.keys[0].transpose(0, 1).flatten(1).contiguous()
        rows[f"layers.{number}.v"] = layer.values[0].transpose(0, 1).flatten(1).contiguous()
    captured = path.with_name("captured.safetensors")
    save_file(rows, captured)
    rope = ["--rope", "base=10000,head=32,pairing=halves", "--context", str(len(tokens))]
    arguments = ["basis", "fit", str(captured), "--out", str(path), *rope, "--bits", "12", "--force", "--quiet"]
    assert _native.main(["tenfold", *arguments]) == 0


def prompt(tokens: int, seed: int = 0) -> list[int]:
    """Made-up text; prompts of one seed start alike."""
    words = random.Random(seed)
    return [words.randrange(3, WORDS) for _ in range(tokens)]


def transfer(store: dict[str, Any], role: str = "kv_both", policy: str = "recompute") -> KVTransferConfig:
    return KVTransferConfig(
        kv_connector="TenfoldConnector",
        kv_connector_module_path="tenfold.serving.vllm",
        kv_role=role,
        kv_load_failure_policy=policy,
        kv_connector_extra_config=store,
    )


class Engine:
    """An engine that is asked with tokens and answers the likeliest ones."""

    def __init__(
        self, model: Path, store: dict[str, Any] | None = None, *, role: str = "kv_both", **settings: Any
    ) -> None:
        if store is not None:
            settings.setdefault("kv_transfer_config", transfer(store, role))
        self.llm = LLM(
            model=str(model),
            **{
                "skip_tokenizer_init": True,
                "enforce_eager": True,
                "max_model_len": 512,
                "block_size": BLOCK,
                "kv_cache_memory_bytes": 16 << 20,
                "dtype": "float32",
                "disable_log_stats": False,
                **settings,
            },
        )

    def answers(self, prompts: Sequence[list[int]], tokens: int = 10, **more: Any) -> list[list[int]]:
        asked = [{"prompt_token_ids": one, **more} for one in prompts]
        how = SamplingParams(max_tokens=tokens, temperature=0, detokenize=False)
        return [list(out.outputs[0].token_ids) for out in self.llm.generate(asked, how, use_tqdm=False)]

    @property
    def worker(self) -> Any:
        """The connector's side in the worker."""
        return get_kv_transfer_group()._worker

    def counts(self) -> dict[str, float]:
        """The connector's counters, once all that was to be stored is."""
        wait(list(self.worker._saves.saving.values()), 60)
        # They come with a step.
        self.answers([[1, 2, 3]], 1)
        found = {metric.name: metric.value for metric in self.llm.get_metrics() if hasattr(metric, "value")}
        own = "vllm:tenfold_"
        counts = {name.removeprefix(own): value for name, value in found.items() if name.startswith(own) and value}
        return counts | {"hits": found["vllm:external_prefix_cache_hits"]}

    def forget(self) -> dict[str, float]:
        """Empties the engine's own cache, so that prompts are looked up in the store; returns the counters."""
        counts = self.counts()
        assert self.llm.reset_prefix_cache()
        return counts

    def close(self) -> None:
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()


class _Asked:
    """As much of a request as its hashes need."""

    def __init__(self, tokens: list[int]) -> None:
        self.all_token_ids = tokens
        self.num_tokens = len(tokens)
        self.block_hashes: list[bytes] = []
        self.mm_features: list[Any] = []
        self.lora_request = self.cache_salt = self.prompt_embeds = None


def keys_of(llm: Any, asked: list[int]) -> list[str]:
    """Keys of a prompt's pages: hashes of their second blocks."""
    hashes = llm.llm_engine.engine_core.engine_core.request_block_hasher(_Asked(asked))
    return [hashed.hex() for hashed in hashes[1::2]]


@contextmanager
def engine(*args: Any, **settings: Any) -> Iterator[Engine]:
    """An engine that is shut down behind the block, which stores what is left to store."""
    made = Engine(*args, **settings)
    try:
        yield made
    finally:
        made.close()
