"""A part of a calibration of a model in a folder, on text: what a task of :func:`tenfold.ray.calibrate` does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from .._errors import ArgumentError
from ..torch._layerwise import Passage
from ..torch._parts import calibrate_part
from ._compress import TOGETHER, joined
from ._mixture import default_texts
from ._texts import TextSet, find_tokenizer, read_texts, share_of


def calibrate_text_part(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    texts: Any,
    part: int,
    of: int,
    *,
    tokenizer: Any = None,
    context: int = 1024,
    contexts: int | None = None,
    device: str = "cpu",
    threads: int = 1,
    **options: Any,
) -> None:
    """Loads the model and makes the part, on so many threads of this process. Options are those of :func:`calibrate_part`."""
    torch.set_num_threads(threads)
    source = Path(model)
    if not (source / "config.json").exists():
        raise ArgumentError(f"{source} is not the folder of a model: it has no config.json")
    # On a CPU half precision is slow, and sums are better without it.
    loaded = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32 if device == "cpu" else "auto")
    if texts is None:
        tokenizer = tokenizer or find_tokenizer(loaded)
        texts = default_texts(tokenizer)
    passages = passages_of(read_texts(loaded, texts, tokenizer, context, contexts, 1), TOGETHER if device != "cpu" else 0)
    calibrate_part(loaded, [(one.ids, one.share) for one in passages], out, part, of, device=device, **options)


def passages_of(sets: list[TextSet], together: int) -> list[Passage]:
    """Contexts of all kinds. The first one, which all parts run, is alone; of others, up to `together` tokens make one passage."""
    single = [Passage(ids[None], share_of(part, sets)) for part in sets for ids in part.contexts]
    return single[:1] + joined(single[1:], together)
