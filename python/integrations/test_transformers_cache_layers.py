"""What transformers does to the layers of a cache, beside a DynamicCache to which the same is done."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest
import torch

from conftest import same_bits
from transformers import DynamicCache, LlamaConfig

from tenfold.transformers import TenfoldCache

CONFIG = LlamaConfig(
    hidden_size=128, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=320
)
SMALL = {"page": 16, "window": 8, "sinks": 2}


class Twins:
    """A cache, and a DynamicCache beside it."""

    def __init__(self, sequences: int, tokens: int, dtype: torch.dtype = torch.bfloat16, **settings: Any) -> None:
        self.cache = TenfoldCache(CONFIG, **{"lossless": True, **SMALL, **settings})
        self.plain = DynamicCache(config=CONFIG)
        self.sequences, self.dtype = sequences, dtype
        self.add(tokens)

    def add(self, tokens: int) -> None:
        for layer in range(CONFIG.num_hidden_layers):
            keys, values = (torch.randn(self.sequences, 2, tokens, 32).to(self.dtype) for _ in range(2))
            given = self.cache.update(keys, values, layer)
            expected = self.plain.update(keys, values, layer)
            assert all(same_bits(a, b) for a, b in zip(given, expected, strict=True))

    def call(self, name: str, *arguments: Any) -> None:
        for cache in (self.cache, self.plain):
            getattr(cache, name)(*arguments)

    def check(self) -> None:
        assert len(self.cache) == len(self.plain)
        for mine, theirs in zip(self.cache.layers, self.plain.layers, strict=True):
            assert mine.get_seq_length() == theirs.get_seq_length()
            assert mine.get_mask_sizes(3) == theirs.get_mask_sizes(3)
            for name in ("keys", "values"):
                given, expected = getattr(mine, name), getattr(theirs, name)
                assert (given is None) == (expected is None)
                assert given is None or same_bits(given, expected.contiguous())

    def pages(self) -> int:
        return self.cache.report().compressed_tokens


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("group", [1, 2, 3])
def test_tokens_come_in(dtype: torch.dtype, group: int) -> None:
    twins = Twins(3, 1, dtype, group=group)
    for tokens in (1, 2, 30, 1, 1, 7, 40):
        twins.add(tokens)
        twins.check()
    # Of 83 tokens 2 and 8 are exact by order, and 9 wait for their page.
    assert twins.pages() == 64


@pytest.mark.parametrize("group", [1, 3])
# Tokens that are left: into the recent ones, all of them, into a page, to its edge, into the sinks, none, less than none.
@pytest.mark.parametrize("left", [59, 50, 41, 34, 33, 18, 17, 2, 1, 0, -5])
def test_crop(left: int, group: int) -> None:
    twins = Twins(2, 60, group=group)
    assert twins.pages() == 48
    twins.call("crop", left - 60)
    if left > 0:
        twins.check()
    else:
        assert twins.cache.get_seq_length() == 0
        twins.plain.reset()
    # A page that was cut stays as it is; the next one starts behind it.
    for tokens in (1, 40, 1):
        twins.add(tokens)
        twins.check()
    twins.call("crop", -30)
    twins.check()


def test_crop_of_nothing() -> None:
    twins = Twins(2, 60)
    twins.call("crop", 0)
    twins.check()
    TenfoldCache(CONFIG, bits=2).crop(-3)


@pytest.mark.parametrize("group", [1, 3])
def test_sequences_change_places(group: int) -> None:
    twins = Twins(4, 45, group=group)
    twins.call("reorder_cache", torch.tensor([3, 3, 0, 1]))
    twins.check()
    twins.add(30)
    twins.call("batch_repeat_interleave", 2)
    twins.sequences = 8
    twins.check()
    twins.add(1)
    twins.call("batch_select_indices", torch.tensor([7, 0, 2]))
    twins.sequences = 3
    twins.check()
    twins.call("batch_select_indices", torch.tensor([True, False, True]))
    twins.sequences = 2
    twins.add(20)
    twins.check()


def test_operations_on_an_empty_cache() -> None:
    twins = Twins(1, 1)
    twins.call("reset")
    for call in (("reorder_cache", torch.tensor([0])), ("batch_repeat_interleave", 2), ("batch_select_indices", torch.tensor([0]))):
        twins.call(*call)
    assert twins.cache.get_seq_length() == 0
    assert twins.cache.layers[0].keys is None


def test_layers_made_ready_before_they_are_used() -> None:
    cache = TenfoldCache(CONFIG, lossless=True, **SMALL)
    cache.early_initialization(2, 2, 32, torch.float16, torch.device("cpu"))
    assert cache.is_initialized and cache.get_seq_length() == 0
    new = torch.randn(2, 2, 30, 32).half()
    given, _ = cache.update(new, new, 0)
    assert same_bits(given.contiguous(), new)
    assert cache.report().compressed_tokens == 16


def test_reset() -> None:
    twins = Twins(2, 60)
    twins.call("reset")
    assert twins.cache.get_seq_length() == 0
    assert twins.cache.report().compressed_bytes == twins.cache.report().exact_bytes == 0
    # Another batch may follow.
    twins.sequences = 5
    twins.add(50)
    twins.check()


def test_a_copy_goes_its_own_way() -> None:
    twins = Twins(2, 60, group=2)
    kept = deepcopy(twins.cache)
    twins.add(40)
    assert kept.get_seq_length() == 60
    other = DynamicCache(config=CONFIG)
    other.layers = deepcopy(twins.plain.layers)
    other.crop(-40)
    assert same_bits(kept.layers[1].keys, other.layers[1].keys.contiguous())
    new = torch.ones(2, 2, 40, 32, dtype=torch.bfloat16)
    for layer in range(3):
        kept.update(new, new, layer)
    twins.check()
    assert kept.report().compressed_tokens == twins.pages()


def test_a_group_waits_for_its_last_layer() -> None:
    cache = TenfoldCache(CONFIG, lossless=True, group=3, **SMALL)
    new = torch.randn(1, 2, 60, 32)
    for layer in range(3):
        assert cache.report().compressed_tokens == 0
        cache.update(new, new, layer)
    found = cache.report()
    assert found.compressed_tokens == 48
    assert all(layer.pages[0].blobs[0] is cache.layers[0].pages[0].blobs[0] for layer in cache.layers)
    assert found.exact_bytes == 3 * 2 * (60 - 48) * 2 * 32 * 4


def test_the_cap_is_kept() -> None:
    cache = TenfoldCache(CONFIG, max_bytes=700, group=3, **SMALL)
    for layer in range(3):
        cache.update(torch.randn(4, 2, 100, 32), torch.randn(4, 2, 100, 32), layer)
    pages = cache.layers[0].pages
    assert len(pages) == 5
    assert all(0 < len(blob) <= 700 for page in pages for blob in page.blobs)


def test_the_report() -> None:
    twins = Twins(2, 60, lossless=False, bits=3.0)
    found = twins.cache.report()
    assert found.plain_bytes == 3 * 2 * 2 * 60 * 2 * 32 * 2
    assert found.exact_bytes == 3 * 2 * 2 * 12 * 2 * 32 * 2
    assert found.compressed_values == 3 * 2 * 2 * 48 * 2 * 32
    assert found.compressed_bytes == sum(
        len(blob) for layer in twins.cache.layers for page in layer.pages for blob in page.blobs
    )
    assert found.bits == 8 * found.compressed_bytes / found.compressed_values <= 3.0
    assert math.isclose(found.ratio, found.plain_bytes / (found.compressed_bytes + found.exact_bytes))
    assert "2 x 60 tokens, 48 of them compressed" in str(found)
    # Copies of sequences share their pages.
    twins.cache.batch_repeat_interleave(3)
    again = twins.cache.report()
    assert (again.compressed_bytes, again.bits) == (found.compressed_bytes, found.bits)
    assert (again.exact_bytes, again.plain_bytes) == (3 * found.exact_bytes, 3 * found.plain_bytes)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none(value: float) -> None:
    cache = TenfoldCache(CONFIG, bits=4.0, **SMALL)
    keys, values = torch.randn(1, 2, 60, 32), torch.randn(1, 2, 60, 32)
    keys[0, 1, 20, 5] = value
    values[0, 0, 30, 7] = value
    cache.update(keys, values, 0)
    given = cache.layers[0].keys, cache.layers[0].values
    for found, sent in zip(given, (keys, values), strict=True):
        assert found is not None
        odd = ~torch.isfinite(sent)
        assert torch.equal(~torch.isfinite(found), odd)
        assert torch.equal(found[odd].nan_to_num(0.5), sent[odd].nan_to_num(0.5))
        assert (found - sent)[~odd].abs().max() < 1.0
