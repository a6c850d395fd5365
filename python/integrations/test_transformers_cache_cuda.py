"""A TenfoldCache of a model on a CUDA device: the same values, on that device, whatever stream is current."""

from __future__ import annotations

import pytest
import torch

from conftest import same_bits
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from tenfold.transformers import TenfoldCache

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

CONFIG = LlamaConfig(
    hidden_size=128, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=320
)
SMALL = {"page": 16, "window": 8, "sinks": 2, "lossless": True}


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("beams", [1, 3])
def test_the_same_text(group: int, beams: int) -> None:
    model = LlamaForCausalLM(CONFIG).to(torch.bfloat16).cuda().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.08)
    ids = torch.randint(3, 320, (2, 40)).cuda()
    said = []
    for cache in (DynamicCache(config=CONFIG), TenfoldCache(CONFIG, group=group, **SMALL)):
        said.append(
            model.generate(
                ids, past_key_values=cache, num_beams=beams, max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None
            )
        )
    assert torch.equal(said[0], said[1])


def test_values_that_are_still_being_computed() -> None:
    # The copy to the host must wait for the stream on which the keys are made, and work behind it for the pages.
    cache = TenfoldCache(CONFIG, **SMALL)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        large = torch.randn(4096, 4096, device="cuda")
        for _ in range(20):
            large = torch.tanh(large @ large)
        keys = large[: 2 * 60 * 32 // 64, :64].reshape(1, 2, 60, 32).contiguous()
        given, _ = cache.update(keys, keys, 0)
        again, _ = cache.update(keys[:, :, :1], keys[:, :, :1], 0)
    side.synchronize()
    assert given.is_cuda and same_bits(given, keys)
    assert again.device == keys.device and same_bits(again[:, :, :60].contiguous(), keys)
    assert cache.report().compressed_tokens == 48


def test_sequences_are_reordered_by_a_tensor_on_the_device() -> None:
    cache, plain = TenfoldCache(CONFIG, **SMALL), DynamicCache(config=CONFIG)
    new = torch.randn(3, 2, 60, 32, device="cuda")
    for one in (cache, plain):
        one.update(new, new, 0)
        one.reorder_cache(torch.tensor([2, 2, 0], device="cuda"))
    assert same_bits(cache.layers[0].keys, plain.layers[0].keys.contiguous())
