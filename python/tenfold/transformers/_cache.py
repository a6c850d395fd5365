"""A key-value cache for ``generate`` that keeps older tokens compressed."""

from __future__ import annotations

import math
import os
from typing import Any, Literal

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache

from .._errors import ArgumentError, DtypeError
from ..kv import Bases, PageCodec
from ._cache_config import Rotary, decoder_config, head_dim_of, layers_of, rotary_of
from ._cache_device import Budget
from ._cache_layer import PagedLayer
from ._cache_pages import Group, Plan
from ._cache_report import CacheReport, report


class TenfoldCache(Cache):
    """Keys and values of a model with full attention: first and recent tokens exact, older ones compressed in pages.

    State one of ``bits``, ``max_bytes``, ``step`` and ``lossless``.

    Args:
        config: the model's configuration, ``model.config``.
        bits: bits a compressed value, every byte of a page counted.
        max_bytes: bytes of a page, which holds ``page`` tokens of one sequence in all layers of a group. Never exceeded.
        step: quantiser step, in the units of keys and values, or of the basis.
        lossless: whether pages keep every bit.
        bases: a file that ``tenfold basis fit`` made for the model, or an open one. It defines the groups of layers.
        page: tokens of a page, 16 to 256.
        window: recent tokens that stay exact. Up to a page more wait until they fill one.
        sinks: first tokens that stay exact.
        group: layers that are compressed together, if there are no bases.
        rope: "auto" undoes the rotary embedding of keys before compression, if the configuration describes it; a dict
            states it, as in :class:`tenfold.kv.PageCodec`; None leaves keys unchanged. With bases the file states it.
        steps: factors on the quantiser steps of keys and of values.
        attention_mask: mask of a batch of prompts with padding on the left, from which positions follow.
        effort: as in :func:`tenfold.encode`.
        threads: worker threads; 0 uses all cores.
        offload: whether compressed pages stay in pinned memory of the host. A CUDA device then gets those of the next layers while it
            computes. By default they stay on the device.
        decoded_bytes: bytes of the device that may hold decoded keys and values from one token to the next, whole groups of layers: the
            more, the less is decoded for each token.

    A CUDA device makes pages and decodes them itself if there are bases and keys and values are bfloat16; else the host does. Effort "fast"
    is what it is quick with.

    >>> from transformers import LlamaConfig
    >>> from tenfold.transformers import TenfoldCache
    >>> cache = TenfoldCache(LlamaConfig(), bits=2.5)
    >>> cache.get_seq_length(), cache.report().keys
    (0, 'before RoPE')
    """

    layers: list[PagedLayer]  # type: ignore[assignment] # theirs may be of any kind

    def __init__(
        self,
        config: PreTrainedConfig,
        *,
        bits: float | None = None,
        max_bytes: int | None = None,
        step: float | None = None,
        lossless: bool = False,
        bases: Bases | str | os.PathLike[str] | None = None,
        page: int = 64,
        window: int = 128,
        sinks: int = 4,
        group: int = 1,
        rope: dict[str, Any] | Literal["auto"] | None = "auto",
        steps: tuple[float, float] = (1.0, 1.0),
        attention_mask: torch.Tensor | None = None,
        effort: str = "balanced",
        threads: int = 0,
        offload: bool = False,
        decoded_bytes: int = 0,
    ) -> None:
        goal = _goal(bits=bits, max_bytes=max_bytes, step=step, lossless=lossless or None)
        plan = Plan(_number("sinks", sinks, 0), _number("window", window, 0), _number("page", page, 16, 256))
        config = decoder_config(config)
        count = layers_of(config)
        if not 1 <= _number("group", group, 1) <= count:
            raise ArgumentError(f"group={group}, but the model has {count} layers")
        codec, self._rotary = _codec(config, count, bases, group, rope, effort=effort, steps=steps, threads=threads)
        layers: list[PagedLayer] = []
        budget = Budget(_number("decoded_bytes", decoded_bytes, 0), bool(offload))
        groups = [Group(codec.part(index), goal, plan, budget) for index in range(len(codec.groups))]
        for together, after, (_, members) in zip(groups, [*groups[1:], groups[0]], codec.groups, strict=True):
            together.precede(after, leads=together is groups[0])
            layers.extend(PagedLayer(together, plan) for _ in range(members))
        super().__init__(layers=layers)  # type: ignore[arg-type]
        self._tell(attention_mask)

    def reset(self, attention_mask: torch.Tensor | None = None) -> None:
        """Forgets all tokens. The next prompts may have other padding."""
        super().reset()  # type: ignore[no-untyped-call]
        self._tell(attention_mask)

    def report(self) -> CacheReport:
        """Reports what the cache holds: tokens, bytes, bits a value."""
        return report(self.layers, self._rotary.about)

    def _tell(self, attention_mask: torch.Tensor | None) -> None:
        padding = _left_padding(attention_mask)
        for layer in self.layers:
            layer.told = padding


def _codec(
    config: PreTrainedConfig,
    count: int,
    bases: Bases | str | os.PathLike[str] | None,
    group: int,
    rope: dict[str, Any] | Literal["auto"] | None,
    **options: Any,
) -> tuple[PageCodec, Rotary]:
    """Makes the page codec of a model, and says how it treats keys."""
    if bases is None:
        if rope == "auto":
            rotary = rotary_of(config)
        else:
            rotary = Rotary(rope, "as they are" if rope is None else "before RoPE")
        return PageCodec(layers=count, group=group, rope=rotary.rope, **options), rotary
    if rope != "auto" or group != 1:
        raise ArgumentError("the file of bases states groups and rotary positions; leave group and rope out")
    bases = bases if isinstance(bases, Bases) else Bases.open(bases)
    head = head_dim_of(config)
    if bases.layers != count or (head is not None and bases.head_dim is not None and bases.head_dim != head):
        raise ArgumentError(
            f"the basis is for {bases.layers} layers with heads of {bases.head_dim} columns, the model has {count} layers "
            f"with heads of {head}; fit a basis for this model with `tenfold basis fit`"
        )
    return PageCodec(bases, **options), Rotary(None, "as the basis has them")


def _goal(**asked: Any) -> dict[str, Any]:
    goal = {name: value for name, value in asked.items() if value is not None}
    if len(goal) != 1:
        raise ArgumentError(f"pass one of bits, max_bytes, step and lossless, not {' and '.join(goal) or 'none'}")
    ((name, value),) = goal.items()
    if name == "max_bytes":
        _number(name, value, 1)
    elif name == "lossless" and value is not True:
        raise DtypeError("lossless must be True or False")
    elif not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise ArgumentError(f"{name} must be a positive number, not {value!r}")
    return goal


def _number(name: str, value: object, least: int, most: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        span = f"from {least} to {most}" if most is not None else f"of {least} or more"
        raise ArgumentError(f"{name} must be a whole number {span}, not {value!r}")
    return value


def _left_padding(mask: torch.Tensor | None) -> list[int]:
    """Counts the tokens of padding at the start of each prompt."""
    if mask is None:
        return []
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or not mask.numel():
        raise DtypeError("attention_mask must be a tensor (sequences, tokens) of zeros and ones, as a tokenizer makes it")
    real = mask.cpu() != 0
    if bool((real[:, :-1] & ~real[:, 1:]).any()) or not bool(real[:, -1].all()):
        raise ArgumentError("attention_mask has padding on the right; generate needs it on the left: set padding_side='left'")
    return [int(count) for count in (~real).sum(1)]
