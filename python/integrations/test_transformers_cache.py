"""generate with a TenfoldCache: where pages give back every bit, or nearly, it says what it says with a DynamicCache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transformers import AutoModelForCausalLM, DynamicCache
from transformers_models import folder

from tenfold.transformers import TenfoldCache

# Small enough that a prompt of 40 tokens fills pages.
SMALL = {"page": 16, "window": 8, "sinks": 2}
PROMPT = 40
PLAIN = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    base = tmp_path_factory.mktemp("models")
    kinds = ("llama", "gpt2", "mixtral")
    return {kind: AutoModelForCausalLM.from_pretrained(folder(base / kind, kind)).eval() for kind in kinds}


@pytest.fixture
def llama(models: dict[str, Any]) -> Any:
    return models["llama"]


def prompts(count: int, tokens: int = PROMPT) -> torch.Tensor:
    return torch.randint(3, 320, (count, tokens), generator=torch.Generator().manual_seed(5))


def both(model: Any, ids: torch.Tensor, cache: TenfoldCache, **settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What a model says with a DynamicCache, and with another cache."""
    said = []
    for one in (DynamicCache(config=model.config), cache):
        torch.manual_seed(11)
        said.append(model.generate(ids, past_key_values=one, **{**PLAIN, **settings}))
    return said[0], said[1]


@pytest.mark.parametrize("group", [1, 2, 3])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mixtral"])
def test_the_same_text(models: dict[str, Any], kind: str, group: int) -> None:
    model = models[kind]
    cache = TenfoldCache(model.config, lossless=True, group=group, **SMALL)
    expected, said = both(model, prompts(2), cache)
    assert torch.equal(said, expected)
    # 59 tokens went through the model; the last was only chosen. Three pages fit between 2 sinks and a window of 8.
    found = cache.report()
    assert (found.sequences, found.tokens, found.compressed_tokens) == (2, 59, 48)


@pytest.mark.parametrize("goal", [{"bits": 10.0}, {"step": 0.002}, {"max_bytes": 2600}], ids=["bits", "step", "max_bytes"])
def test_the_same_text_at_a_high_rate(models: dict[str, Any], goal: dict[str, Any]) -> None:
    model = models["mixtral"]
    cache = TenfoldCache(model.config, **goal, **SMALL)
    expected, said = both(model, prompts(2), cache)
    assert torch.equal(said, expected)
    assert 0 < cache.report().bits < 14


def test_a_low_rate_costs_little_memory(llama: Any) -> None:
    cache = TenfoldCache(llama.config, bits=2.0, page=64, window=16, sinks=4)
    with torch.no_grad():
        llama(prompts(2, 16 + 4 + 4 * 64), past_key_values=cache)
    found = cache.report()
    assert found.compressed_tokens == 4 * 64
    assert 1.8 < found.bits <= 2.0
    assert found.ratio > 4.5


@pytest.mark.parametrize(
    "settings",
    [
        {"do_sample": True, "top_k": 50},
        {"num_beams": 3},
        {"num_beams": 3, "num_return_sequences": 3},
        {"num_beams": 2, "do_sample": True},
        {"do_sample": True, "num_return_sequences": 2},
        {"prefill_chunk_size": 7},
    ],
    ids=["sampling", "beams", "beams returned", "beams sampled", "returned", "chunks"],
)
@pytest.mark.parametrize("group", [1, 3])
def test_ways_to_generate(llama: Any, settings: dict[str, Any], group: int) -> None:
    expected, said = both(llama, prompts(2), TenfoldCache(llama.config, lossless=True, group=group, **SMALL), **settings)
    assert torch.equal(said, expected)


def test_an_assistant(llama: Any, models: dict[str, Any]) -> None:
    # What the assistant proposes is mostly refused, and cropped.
    expected, said = both(
        llama, prompts(1), TenfoldCache(llama.config, lossless=True, **SMALL), assistant_model=models["mixtral"]
    )
    assert torch.equal(said, expected)


def test_prompt_lookup(llama: Any) -> None:
    ids = prompts(1, 10).repeat(1, 4)
    expected, said = both(llama, ids, TenfoldCache(llama.config, lossless=True, **SMALL), prompt_lookup_num_tokens=4)
    assert torch.equal(said, expected)


@pytest.mark.parametrize("group", [1, 3])
def test_a_conversation_goes_on(llama: Any, group: int) -> None:
    said = []
    for cache in (DynamicCache(config=llama.config), TenfoldCache(llama.config, lossless=True, group=group, **SMALL)):
        text = prompts(2)
        for turn in range(3):
            question = prompts(2, 20 + turn)
            text = llama.generate(torch.cat([text, question], dim=1), past_key_values=cache, **{**PLAIN, "max_new_tokens": 5})
        said.append(text)
    assert torch.equal(said[0], said[1])


@pytest.mark.parametrize("told", [True, False])
def test_padding(llama: Any, told: bool) -> None:
    ids = prompts(3)
    mask = torch.ones_like(ids)
    mask[0, :25] = 0
    mask[2, :7] = 0
    cache = TenfoldCache(llama.config, step=1e-4, attention_mask=mask if told else None, **SMALL)
    for settings in ({}, {"num_beams": 2}):
        expected, said = both(llama, ids, cache, attention_mask=mask, **settings)
        assert torch.equal(said, expected)
        cache.reset(attention_mask=mask if told else None)


def test_a_compiled_model(llama: Any) -> None:
    compiled = torch.compile(llama, backend="eager")
    cache = TenfoldCache(llama.config, lossless=True, **SMALL)
    ids = prompts(1)
    with torch.no_grad():
        logits = compiled(ids, past_key_values=cache).logits
        assert torch.allclose(logits, llama(ids).logits, atol=0.1)
    assert cache.report().compressed_tokens == 16


def test_a_prompt_that_is_kept(llama: Any) -> None:
    # As in transformers' guide: one prompt, many questions.
    from copy import deepcopy

    start = TenfoldCache(llama.config, lossless=True, group=2, **SMALL)
    ids = prompts(1)
    with torch.no_grad():
        llama(ids, past_key_values=start)
    before = start.report()
    for seed in range(2):
        asked = torch.cat([ids, torch.full((1, 20), 9 + seed)], dim=1)
        said = llama.generate(asked, past_key_values=deepcopy(start), **PLAIN)
        assert torch.equal(said, llama.generate(asked, past_key_values=DynamicCache(config=llama.config), **PLAIN))
    assert start.report() == before
