"""Kinds of text that a cache may hold, each as contexts of tokens: some to judge on, others for bases.

Texts to judge on lie in eval/data/domains, those for bases and calibrations in the package, of other sources; READMEs there name them. A form
feed ends what one context is made of, so no context runs from one source into the next. Numbers and random tokens are made here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tenfold.transformers._mixture import as_chat, default_texts, stored_texts
from transformers import PreTrainedTokenizerBase

from common.causal import DATA

TITLES = {
    "prose": "prose (WikiText-2)",
    "python": "Python (standard library)",
    "c": "C (zstd)",
    "french": "French (documentation)",
    "chat": "chat (the model's template)",
    "numbers": "lists of numbers",
    "random": "random tokens",
}
"""All domains, in the order of tables."""
PARTS = ("judged", "fit")


@dataclass(frozen=True)
class Domain:
    """Contexts × tokens of one kind of text."""

    name: str
    judged: torch.Tensor
    fit: torch.Tensor
    """For bases; never judged."""


def load(name: str, tokenizer: PreTrainedTokenizerBase, judged: int, fit: int, length: int = 1024) -> Domain:
    """The first contexts of a domain, so many of each part."""
    counts = dict(zip(PARTS, (judged, fit)))
    if name == "random":
        return Domain(name, **{part: random_tokens(tokenizer, count, length, part) for part, count in counts.items()})
    made = {part: texts(name, tokenizer, part, count) for part, count in counts.items()}
    return Domain(name, **{part: contexts(f"{name}, {part}", tokenizer, found, length) for part, found in made.items()})


def texts(name: str, tokenizer: PreTrainedTokenizerBase, part: str, count: int) -> list[str]:
    """Texts of a domain that is not random, one for each context."""
    if name == "numbers":
        return [numbers(seed(part, index)) for index in range(count)]
    folder = DATA / "domains"
    if part == "fit":
        found = default_texts(tokenizer, [name])[name]
    elif name == "chat":
        chats = json.loads((folder / f"chat-{part}.json").read_text(encoding="utf-8"))
        found = [as_chat(turns, tokenizer) for turns in chats]
    else:
        found = (folder / f"{name}-{part}.txt").read_text(encoding="utf-8").split("\f\n")
    if len(found) < count:
        raise ValueError(f"{name}: there are texts for {len(found)} contexts ({part}), not for {count}")
    return found[:count]


def available(name: str) -> float:
    """Texts that there are of a domain for bases: a number, or no limit for what is made."""
    if name in ("numbers", "random"):
        return float("inf")
    return len(stored_texts(name))


def contexts(what: str, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int) -> torch.Tensor:
    """The first tokens of each text."""
    ids = [tokenizer(text).input_ids[:length] for text in texts]
    for index, one in enumerate(ids):
        if len(one) < length:
            raise ValueError(f"{what}: context {index} has {len(one)} tokens, not {length}")
    return torch.tensor(ids, dtype=torch.long)


def seed(part: str, index: int) -> list[int]:
    """The seed of a context that is made; parts have none in common."""
    return [PARTS.index(part), index]


def random_tokens(tokenizer: PreTrainedTokenizerBase, count: int, length: int, part: str) -> torch.Tensor:
    """Tokens of the vocabulary, each as likely as any other; none of the special ones."""
    special = {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    plain = np.array([id for id in range(len(tokenizer)) if id not in special])
    drawn = [np.random.default_rng(seed(part, index)).choice(plain, length) for index in range(count)]
    return torch.from_numpy(np.stack(drawn)) if drawn else torch.empty(0, length, dtype=torch.long)


def numbers(seed: Sequence[int], characters: int = 4096) -> str:
    """Lists of numbers of several kinds, a list a line: at least so many characters, more than a context takes."""
    rng = np.random.default_rng(list(seed))
    kinds: list[Callable[[int], list[str]]] = [
        lambda n: [str(v) for v in rng.integers(0, 10 ** int(rng.integers(1, 7)), n)],
        lambda n: [str(v) for v in np.sort(rng.integers(0, 10_000, n))],
        lambda n: [str(v) for v in rng.integers(1, 50) + np.arange(n) * rng.integers(1, 20)],
        lambda n: [f"{v:.3f}" for v in rng.standard_normal(n)],
        lambda n: [f"{v:.2f}" for v in rng.lognormal(3, 1, n)],
        lambda n: [f"{v:.2f}" for v in 100 + np.cumsum(rng.standard_normal(n))],
        lambda n: [f"{v:.3e}" for v in rng.lognormal(0, 8, n)],
    ]
    lines: list[str] = []
    while sum(map(len, lines)) < characters:
        values = kinds[rng.integers(len(kinds))](int(rng.integers(5, 25)))
        lines.append(("[{}]\n", "{}\n")[rng.integers(2)].format((", ", ",", " ")[rng.integers(3)].join(values)))
    return "".join(lines)
