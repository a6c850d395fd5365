"""Any sequence of operations leaves a TenfoldCache with what a DynamicCache has."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest
import torch

from conftest import same_bits
from transformers import DynamicCache, LlamaConfig

from tenfold.transformers import TenfoldCache

CONFIG = LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=2, vocab_size=32)


class Pair:
    """Two caches to which the same is done."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sequences, self.tokens = random.randint(1, 3), 0
        choices = {"page": [16, 17, 32], "window": [0, 1, 8, 40], "sinks": [0, 1, 4, 30], "group": [1, 2, 3]}
        settings = {name: random.choice(values) for name, values in choices.items()}
        self.cache, self.plain = TenfoldCache(CONFIG, lossless=True, **settings), DynamicCache(config=CONFIG)

    def add(self) -> None:
        tokens = self.random.choice([1, 1, 2, 15, 16, 33, 70])
        for layer in range(3):
            keys, values = (torch.randn(self.sequences, 2, tokens, 32) for _ in range(2))
            given, expected = self.cache.update(keys, values, layer), self.plain.update(keys, values, layer)
            assert all(same_bits(a.contiguous(), b) for a, b in zip(given, expected, strict=True))
        self.tokens += tokens

    def crop(self) -> None:
        count = self.random.randrange(self.tokens)
        self.cache.crop(-count)
        self.plain.crop(-count)
        self.tokens -= count

    def select(self) -> None:
        chosen = torch.tensor([self.random.randrange(self.sequences) for _ in range(self.random.randint(1, 4))])
        self.cache.batch_select_indices(chosen)
        self.plain.batch_select_indices(chosen)
        self.sequences = len(chosen)

    def repeat(self) -> None:
        if self.sequences < 4:
            self.cache.batch_repeat_interleave(2)
            self.plain.batch_repeat_interleave(2)
            self.sequences *= 2

    def copy(self) -> None:
        self.cache = deepcopy(self.cache)

    def check(self) -> None:
        found = self.cache.report()
        assert (found.sequences, found.tokens) == (self.sequences, self.tokens)
        for mine, theirs in zip(self.cache.layers, self.plain.layers, strict=True):
            assert mine.get_seq_length() == theirs.get_seq_length()
            for name in ("keys", "values"):
                assert same_bits(getattr(mine, name), getattr(theirs, name).contiguous())


@pytest.mark.parametrize("seed", range(40))
def test_any_sequence(seed: int) -> None:
    pair = Pair(Random(seed))
    pair.add()
    for _ in range(pair.random.randint(3, 14)):
        pair.random.choice([pair.add, pair.add, pair.add, pair.crop, pair.select, pair.repeat, pair.copy])()
        pair.check()
