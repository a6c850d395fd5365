"""The text that a model is calibrated on where the caller has none: a little of several kinds, whose sources and licences texts/README.md names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from transformers import PreTrainedModel

from ..torch._layerwise import Passage
from ._texts import read_texts

KINDS = ("prose", "python", "c", "french", "chat")
"""Kinds of text in the mixture, each of which counts the same."""
# One context of each kind is added for so many of a user, but of no kind more than so many.
FOR_ONE, MOST = 12, 8


def default_texts(tokenizer: Any = None, kinds: Sequence[str] = KINDS) -> dict[str, list[str]]:
    """The mixture that :func:`compress` takes if there is no other text, in pieces of some 1,000 tokens: 42 of Wikipedia, 24 each of
    Python, C and French documentation, and 18 of chats.

    Text like that which a model will meet is better. To add some of your own: ``{**default_texts(), "mine": [...]}``.

    Args:
        tokenizer: brings the template of chats; without one, or where it has none, turns stand line by line.
        kinds: those wanted, of "prose", "python", "c", "french" and "chat".

    >>> import tenfold.transformers
    >>> texts = tenfold.transformers.default_texts(kinds=["prose", "c"])
    >>> {name: len(kind) for name, kind in texts.items()}
    {'prose': 42, 'c': 24}
    """
    return {kind: [_as_text(part, tokenizer) for part in stored_texts(kind)] for kind in kinds}


def beside(model: PreTrainedModel, tokenizer: Any, learnt: Sequence[Passage], part: float, context: int) -> list[Passage]:
    """Contexts of the mixture that make up a part of all that counts, beside those of a user."""
    count = min(max(len(learnt) // FOR_ONE, 1), MOST)
    texts = default_texts(tokenizer)
    # A set for each text, which gives one context.
    chosen = {f"{kind} {index}": [found[index * len(found) // count]] for kind, found in texts.items() for index in range(count)}
    single = [one.contexts[0] for one in read_texts(model, chosen, tokenizer, context, 1, 1)]
    mass = sum(one.share * one.ids.numel() for one in learnt)
    share = part / (1 - part) * mass / sum(len(ids) for ids in single)
    return [Passage(ids[None], share) for ids in single]


@cache
def stored_texts(kind: str) -> tuple[Any, ...]:
    """Texts of a kind: strings, or turns of a chat."""
    folder = files(__package__) / "texts"
    if kind == "chat":
        return tuple(json.loads((folder / "chat.json").read_text(encoding="utf-8")))
    # A form feed ends a text.
    return tuple((folder / f"{kind}.txt").read_text(encoding="utf-8").split("\f\n"))


def _as_text(part: Any, tokenizer: Any) -> str:
    return part if isinstance(part, str) else as_chat(part, tokenizer)


def as_chat(turns: Sequence[str], tokenizer: Any) -> str:
    """What a user and the model say in turns, in the model's own template if it has one."""
    if getattr(tokenizer, "chat_template", None) is None:
        return "\n".join(turns)
    messages = [{"role": ("user", "assistant")[index % 2], "content": turn} for index, turn in enumerate(turns)]
    return str(tokenizer.apply_chat_template(messages, tokenize=False))
