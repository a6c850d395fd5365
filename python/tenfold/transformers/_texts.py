"""Sample text as contexts: sets of strings or token ids, tokenised and cut."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .._errors import ArgumentError, DtypeError


@dataclass(frozen=True)
class TextSet:
    """One kind of text."""

    name: str | None
    weight: float
    # One-dimensional token ids.
    contexts: list[torch.Tensor]


def read_texts(
    model: PreTrainedModel, texts: Any, tokenizer: Any, context: int, most: int | None, sinks: int
) -> list[TextSet]:
    """Sets of contexts from what :func:`tenfold.kv.fit` takes."""
    length = min(context, getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None) or context)
    if length <= sinks or (most is not None and most < 1):
        raise ArgumentError(f"a context needs more than {sinks} tokens, and a set at least one context")
    cutter = _Cutter(model, tokenizer, length, most, sinks)
    if not isinstance(texts, Mapping):
        return [TextSet(None, 1.0, cutter.cut(texts, "texts"))]
    found = []
    for name, given in texts.items():
        if not isinstance(name, str):
            raise DtypeError(f"names of sets are strings, not {name!r}")
        weight: Any = 1.0
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Real):
            given, weight = given
        found.append(TextSet(name, float(weight), cutter.cut(given, f"set {name!r}")))
    return found


def share_of(part: TextSet, sets: Sequence[TextSet]) -> float:
    """How much a token of a set counts: sets count by their weights, however long they are."""
    return part.weight * (1.0 if len(sets) == 1 else 1000.0 / sum(len(ids) for ids in part.contexts))


@dataclass
class _Cutter:
    """Makes contexts of texts. A tokenizer is looked for once there is a string."""

    model: PreTrainedModel
    tokenizer: Any
    length: int
    most: int | None
    sinks: int

    def cut(self, texts: Any, what: str) -> list[torch.Tensor]:
        """Contexts of one set."""
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise DtypeError(f"{what}: must be a list of strings or of token ids, not {type(texts).__name__}")
        out: list[torch.Tensor] = []
        for text in texts:
            for ids in self._ids(text, what):
                pieces = [ids[first : first + self.length] for first in range(0, len(ids), self.length)]
                # The first tokens of a context are left out: a piece without others holds nothing.
                out += [piece for piece in pieces if len(piece) > self.sinks]
            if self.most is not None and len(out) >= self.most:
                return out[: self.most]
        if not out:
            raise ArgumentError(f"{what}: there is no text of more than {self.sinks} tokens to make bases from")
        return out

    def _ids(self, text: Any, what: str) -> list[torch.Tensor]:
        if isinstance(text, str):
            self.tokenizer = self.tokenizer or find_tokenizer(self.model)
            # Texts are cut to contexts here: that one is longer than the model's is no news.
            quiet = {"verbose": False} if isinstance(self.tokenizer, PreTrainedTokenizerBase) else {}
            text = self.tokenizer(text, **quiet)["input_ids"]
        try:
            ids = torch.as_tensor(text).cpu()
        except (TypeError, ValueError, RuntimeError):
            raise DtypeError(f"{what}: holds a {type(text).__name__} that is neither a string nor token ids") from None
        if not ids.numel():
            return []
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool or ids.dim() not in (1, 2):
            raise DtypeError(f"{what}: token ids are whole numbers in one or two dimensions, not {ids.dtype} {tuple(ids.shape)}")
        return list(ids.long().reshape(-1, ids.shape[-1]))


def find_tokenizer(model: PreTrainedModel) -> Any:
    """The tokenizer in a model's folder."""
    try:
        if not model.name_or_path:
            raise OSError("the model has no name or path")
        return AutoTokenizer.from_pretrained(model.name_or_path)
    except (OSError, ValueError, KeyError) as error:
        raise ArgumentError(f"the model brings no tokenizer ({error}); pass tokenizer=, or token ids") from error


def digest(model: PreTrainedModel, sets: list[TextSet], options: dict[str, Any]) -> str:
    """Names all that captured rows depend on: the model, by its configuration and a sample of its weights, texts and options."""
    found = hashlib.sha256()

    def add(text: str) -> None:
        found.update(f"{len(text)}:{text}".encode())

    add(model.config.to_json_string(use_diff=False))
    for name, weight in model.named_parameters():
        add(f"{name} {weight.dtype} {tuple(weight.shape)}")
        if weight.device.type != "meta" and weight.numel():
            flat = weight.detach().reshape(-1)
            add(str(flat[:: max(1, len(flat) // 16)][:16].tolist()))
    for part in sets:
        add(f"{part.name} {part.weight.hex()} {len(part.contexts)}")
        for ids in part.contexts:
            add(str(len(ids)))
            found.update(ids.numpy().tobytes())
    add(repr(sorted(options.items())))
    return found.hexdigest()
