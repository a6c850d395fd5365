"""A key-value cache for ``generate`` that keeps older tokens compressed."""

from __future__ import annotations

import math
import os
from typing import Any, Literal

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache

from .._errors import ArgumentError, DtypeError, UnsupportedError
from ..kv import Bases, PageCodec
from ._cache_config import Rotary, decoder_config, head_dim_of, layers_of, rotary_of
from ._cache_layer import PagedLayer
from ._cache_pages import Group, Plan
from ._cache_report import CacheReport, report


class TenfoldCache(Cache):
    """Keys and values of a model with full attention: first and recent tokens exact, older ones compressed in pages.

    One of ``bits``, ``max_bytes``, ``step`` and ``lossless`` is needed.

    Args:
        config: the model's configuration, ``model.config``.
        bits: bits of a compressed key or value, all that a page needs counted.
        max_bytes: bytes of a page, which holds ``page`` tokens of one sequence in all layers of a group. Never exceeded.
        step: step of quantisation, in the units of keys and values, or of the basis.
        lossless: whether pages give back every bit.
        bases: a file that ``tenfold basis fit`` made for the model, or one already open. It names the groups of layers.
        page: tokens of a page, 16 to 256.
        window: recent tokens that stay exact at least; up to a page more wait until a page is full.
        sinks: first tokens that stay exact.
        group: layers that are compressed together, where no basis names them.
        rope: "auto" undoes the rotary embedding of keys before they are compressed, if the configuration says what it is; a
            dict as of :class:`tenfold.kv.PageCodec` says it; None leaves keys as they are. A basis knows by itself.
        steps: how much coarser than others keys and values are quantised.
        attention_mask: of a batch of prompts with padding at the left, so that positions are known.
        effort: as of :func:`tenfold.encode`.
        threads: that code pages; 0 means all cores.
        offload: pages lie in the host's memory, whatever the model runs on; there is no other way so far.

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
        offload: bool = True,
    ) -> None:
        if not offload:
            raise UnsupportedError("offload=False: pages are coded and kept on the host so far; leave offload out")
        goal = _goal(bits=bits, max_bytes=max_bytes, step=step, lossless=lossless or None)
        plan = Plan(_number("sinks", sinks, 0), _number("window", window, 0), _number("page", page, 16, 256))
        config = decoder_config(config)
        count = layers_of(config)
        if not 1 <= _number("group", group, 1) <= count:
            raise ArgumentError(f"group={group}, but the model has {count} layers")
        codec, self._rotary = _codec(config, count, bases, group, rope, effort=effort, steps=steps, threads=threads)
        layers: list[PagedLayer] = []
        for index, (_, members) in enumerate(codec.groups):
            together = Group(codec.part(index), goal, plan)
            layers.extend(PagedLayer(together, plan) for _ in range(members))
        super().__init__(layers=layers)  # type: ignore[arg-type]
        self._tell(attention_mask)

    def reset(self, attention_mask: torch.Tensor | None = None) -> None:
        """Forgets all tokens; the next prompts may have another padding."""
        super().reset()  # type: ignore[no-untyped-call]
        self._tell(attention_mask)

    def report(self) -> CacheReport:
        """What the cache holds: tokens, bytes, bits a value."""
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
    """What makes pages of a model, and what that does to keys."""
    if bases is None:
        if rope == "auto":
            rotary = rotary_of(config)
        else:
            rotary = Rotary(rope, "as they are" if rope is None else "before RoPE")
        return PageCodec(layers=count, group=group, rope=rotary.rope, **options), rotary
    if rope != "auto" or group != 1:
        raise ArgumentError("a basis says by itself which layers it groups and how keys are turned; leave group and rope out")
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
        raise DtypeError("lossless is True or False")
    elif not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise ArgumentError(f"{name}={value!r}; a positive number is needed")
    return goal


def _number(name: str, value: object, least: int, most: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        span = f"from {least} to {most}" if most is not None else f"of {least} or more"
        raise ArgumentError(f"{name}={value!r}; a whole number {span} is needed")
    return value


def _left_padding(mask: torch.Tensor | None) -> list[int]:
    """How many tokens of padding each prompt begins with."""
    if mask is None:
        return []
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or not mask.numel():
        raise DtypeError("attention_mask is a tensor (sequences, tokens) of zeros and ones, as a tokenizer makes it")
    real = mask.cpu() != 0
    if bool((real[:, :-1] & ~real[:, 1:]).any()) or not bool(real[:, -1].all()):
        raise ArgumentError("attention_mask has padding at the right; generate needs it at the left: padding_side='left'")
    return [int(count) for count in (~real).sum(1)]
