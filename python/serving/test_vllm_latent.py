"""An engine whose model has latent attention (MLA): its rows are found again, split into rotary columns and others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_engines import PAGE, WORDS, Engine, engine, prompt
import torch
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

# Few of everything, but for the columns of latent rows, which kernels have fixed.
CONFIG = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": WORDS,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "first_k_dense_replace": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_group": 1,
    "topk_group": 1,
    "max_position_embeddings": 1024,
    "eos_token_id": None,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("latent")
    torch.manual_seed(3)
    made = DeepseekV2ForCausalLM(DeepseekV2Config(**CONFIG))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.08)
    made.to(torch.bfloat16).save_pretrained(path)
    return path


def rows_of(one: Engine, blocks: Sequence[int]) -> list[torch.Tensor]:
    """What blocks hold, in each layer."""
    return one.worker._saves._cache.read(list(blocks))


@pytest.mark.parametrize("rate", [{"lossless": True}, {"bits": 8, "exact": 0}], ids=str)
def test_latent_rows_are_found_again(model: Path, tmp_path: Path, rate: dict[str, Any]) -> None:
    asked = prompt(3 * PAGE + 8)
    with engine(model, {"path": str(tmp_path)} | rate, dtype="bfloat16") as one:
        shape = one.worker._shape
        assert (shape.head, shape.latent, shape.columns) == (64, 512, (64, 512))
        # What blocks hold when a page is made of them, and when one was decoded into others.
        seen: dict[int, list[torch.Tensor]] = {}
        found: dict[int, list[torch.Tensor]] = {}
        copy, fill = one.worker._saves.copy, one.worker._loads._fill

        def copied(page: Any) -> None:
            seen[page.position] = rows_of(one, page.blocks)
            copy(page)

        def filled(held: Any) -> Any:
            said = fill(held)
            found.update({page.position: rows_of(one, page.blocks) for page, _ in held})
            return said

        one.worker._saves.copy, one.worker._loads._fill = copied, filled
        first = one.answers([asked])
        counts = one.forget()
        assert counts["pages_saved"] == 3 and counts["bytes_stored"] < counts["bytes_before"]
        again = one.answers([asked])
        assert one.counts()["hits"] == 3 * PAGE
    assert seen.keys() == found.keys() and len(seen) == 3
    for position, layers in seen.items():
        for want, have in zip(layers, found[position], strict=True):
            if "lossless" in rate:
                assert torch.equal(want, have)
            off = (want.float() - have.float()).square().mean()
            assert want.any() and off < 1e-3 * want.float().square().mean()
    assert "lossless" not in rate or again == first
