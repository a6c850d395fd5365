"""Multiple-choice questions, scored as lm-evaluation-harness does: the choice whose text the model finds likeliest behind the question."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from common.cache import Passes

Predict = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
"""Logits of several texts, tokens × vocabulary each."""

NAMES = ("piqa", "arc_easy", "arc_challenge", "openbookqa", "winogrande")


@dataclass(frozen=True)
class Item:
    """A question: the text before each choice, the text that is scored, and the right one."""

    before: tuple[str, ...]
    scored: tuple[str, ...]
    answer: int
    lengths: tuple[int, ...]
    """In bytes, for `acc_norm`."""


@dataclass(frozen=True)
class Scores:
    """Of one set: right or wrong by item, by likelihood and by likelihood a byte."""

    acc: list[bool]
    acc_norm: list[bool]

    def row(self) -> dict[str, str]:
        """For a report: a digit an item."""
        return {"acc": _digits(self.acc), "acc_norm": _digits(self.acc_norm)}


def answers(digits: str) -> list[bool]:
    """Right or wrong by item, of a report."""
    return [digit == "1" for digit in digits]


def _digits(answers: Sequence[bool]) -> str:
    return "".join("01"[answer] for answer in answers)


def read(folder: Path, name: str, most: int | None = None) -> list[Item]:
    """The items of one set; every nth of them if there are more than `most`."""
    lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    if most is not None and len(lines) > most:
        lines = [lines[index * len(lines) // most] for index in range(most)]
    return [_item(name, json.loads(line)) for line in lines]


def _item(name: str, found: dict) -> Item:
    question, choices = found["question"], found["choices"]
    lengths = tuple(len(choice.encode()) for choice in choices)
    if name == "winogrande":
        # The sentence with the choice filled in; what is scored is all behind it.
        start, rest = question.split("_", 1)
        return Item(tuple(start + choice for choice in choices), (rest,) * len(choices), found["answer"], (1,) * len(choices))
    before = {"piqa": f"Question: {question}\nAnswer:", "openbookqa": question}.get(name, f"Question: {question}\nAnswer:")
    return Item((before,) * len(choices), tuple(f" {choice}" for choice in choices), found["answer"], lengths)


def of_model(model: PreTrainedModel) -> Predict:
    """What a model predicts."""
    passes = Passes(model)
    return lambda texts: passes.predictions(texts, None)


def score(predict: Predict, tokenizer: PreTrainedTokenizerBase, items: Sequence[Item], device: str = "cpu") -> Scores:
    """Which items are answered rightly. A GPU gets more rows at once."""
    batch = 64 if device.startswith("cuda") else 16
    rows = [(number, at, *_tokens(tokenizer, item, at)) for number, item in enumerate(items) for at in range(len(item.scored))]
    rows.sort(key=lambda row: len(row[2]))
    found: dict[tuple[int, int], float] = {}
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        for (number, at, _, _), value in zip(part, _likelihoods(predict, [row[2:] for row in part])):
            found[number, at] = value
    acc, norm = [], []
    for number, item in enumerate(items):
        sums = [found[number, at] for at in range(len(item.scored))]
        acc.append(max(range(len(sums)), key=sums.__getitem__) == item.answer)
        each = [value / length for value, length in zip(sums, item.lengths)]
        norm.append(max(range(len(each)), key=each.__getitem__) == item.answer)
    return Scores(acc, norm)


def _tokens(tokenizer: PreTrainedTokenizerBase, item: Item, at: int) -> tuple[list[int], int]:
    """Tokens of a choice behind its question, and how many of them are the question's."""
    whole = tokenizer(item.before[at] + item.scored[at]).input_ids
    return whole, min(len(tokenizer(item.before[at]).input_ids), len(whole) - 1)


def _likelihoods(predict: Predict, rows: list[tuple[list[int], int]]) -> Iterator[float]:
    texts = [torch.tensor(ids) for ids, _ in rows]
    for logits, ids, (_, first) in zip(predict(texts), texts, rows):
        first = max(first, 1)
        logs = logits[first - 1 : -1].float().log_softmax(-1)
        yield float(logs.gather(1, ids[first:, None].to(logs.device)).double().sum())


def paired(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, float]:
    """Mean difference on the same items, and its standard error."""
    differences = [float(b) - float(a) for a, b in zip(before, after, strict=True)]
    mean = sum(differences) / len(differences)
    spread = sum((one - mean) ** 2 for one in differences) / max(len(differences) - 1, 1)
    return mean, math.sqrt(spread / len(differences))
