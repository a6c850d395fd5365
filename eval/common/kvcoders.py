"""What may stand between a model and its KV cache: tenfold's pages, and the interface of all coders of caches.
Caches go in and come out; every coder counts all bytes that its decoder would need, but for bases, which belong to the
model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tenfold
import torch
from tenfold.kv import Bases, PageCodec
from tenfold.torch import _blocks

from common.cache import Cache, Rotary
from common.parallel import each


@dataclass
class CodedCaches:
    """Caches after a coder, and what they took."""

    caches: list[Cache]
    bits: float
    """Bits a value, side information included."""
    settings: dict[str, Any] = field(default_factory=dict)


class CacheCoder(Protocol):
    """A coder of caches at a rate."""

    def __call__(self, caches: Sequence[Cache], bits: float) -> CodedCaches:
        """Encodes and decodes caches at about so many bits a value."""


def bf16(values: np.ndarray) -> np.ndarray:
    """Values as a cache in bf16 holds them: what `exact` means for tokens that are kept."""
    return torch.from_numpy(values).bfloat16().float().numpy()


@dataclass(frozen=True)
class Pages:
    """tenfold: pages of tokens of all layers, as `tenfold.kv.PageCodec` makes and reads them, behind a file of bases that carry the
    metric, all with one step. The step is what the rate asks for. Pages that are capped keep to the rate one by one instead."""

    path: Path | None
    """Of the bases."""
    rotary: Rotary
    tokens: int = 64
    """Of a page."""
    sinks: int = 1
    """Tokens at the start of a context that are kept exact, in bf16."""
    effort: str = "best"
    threads: int = 0
    capped: bool = False
    without: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a codec without bases."""
    device: torch.device | None = None
    """A CUDA device that makes pages of blocks in its memory and decodes them there. The CPU still finds the step, so that both
    code with the same one, and makes the first page of a context, which has exact tokens."""

    def __call__(self, caches: Sequence[Cache], bits: float) -> CodedCaches:
        goal: dict[str, float]
        if self.capped:
            goal = {"max_bytes": int(bits * caches[0].size / caches[0].keys.shape[1] * self.tokens / 8)}
        else:
            goal = {"step": self.step(caches[0], bits)}
        return self.at(caches, **goal)

    def at(self, caches: Sequence[Cache], **goal: float) -> CodedCaches:
        """Caches after pages with this goal."""
        coded, stored = self._code(caches, 0, goal)
        return CodedCaches(coded, 8 * stored / sum(cache.size for cache in caches), self.settings(**goal))

    def step(self, cache: Cache, bits: float) -> float:
        """The step at which a cache takes about so many bits a value, found on a fourth of its pages."""
        tokens = cache.keys.shape[1]
        # Not the first page, if there are others: it alone has exact tokens.
        starts = range(self.tokens, tokens, 4 * self.tokens) or range(1)
        exact = 16 * self.sinks / tokens if starts[0] else 0.0
        parts = [Cache(*(one[:, first : first + self.tokens] for one in cache)) for first in starts]
        size = sum(part.size for part in parts)

        def taken(step: float) -> float:
            pages = [self._encode([part], first, {"step": step}) for first, part in zip(starts, parts)]
            return exact + 8 * sum(len(page) for found in pages for page in found) / size

        return step_of(self._variances, bits, taken)

    def settings(self, **goal: float) -> dict[str, Any]:
        """For the report."""
        stored = 0 if self.path is None else self.path.stat().st_size
        return {**goal, **self.without, "page": self.tokens, "sinks": self.sinks, "basis_bytes": stored}

    def code(self, cache: Cache, *, first: int = 0, **goal: float) -> tuple[Cache, int]:
        """A cache, whose first token is the `first` of its context, after pages, and their bytes."""
        (decoded,), stored = self._code([cache], first, goal)
        return decoded, stored

    def _code(self, caches: Sequence[Cache], first: int, goal: Mapping[str, float]) -> tuple[list[Cache], int]:
        """All caches at once, so that no core waits for the last pages of each."""
        if self.device is not None:
            coded = [self._code_on(self.device, cache, first, goal) for cache in caches]
            return [cache for cache, _ in coded], sum(size for _, size in coded)
        pages = self._encode(caches, first, goal)
        room = [[torch.empty(one.shape, dtype=torch.bfloat16) for one in cache] for cache in caches]

        outs = [pair for sides in room for pair in zip(*(one.split(self.tokens, dim=1) for one in sides))]
        self._codecs[1].decode_many(pages, outs)

        return [self._before_positions(*sides, first) for sides in room], sum(map(len, pages))

    def _code_on(self, device: torch.device, cache: Cache, first: int, goal: Mapping[str, float]) -> tuple[Cache, int]:
        """A cache after pages of a device, and their bytes. Its tokens are the slots of the blocks."""
        if not _blocks.encodes(self._codecs[1], device, dict(goal)):
            raise ValueError(f"{device} makes no pages of effort {self.effort} with this goal and these bases")
        keys, values = self._as_cached(cache, first)
        pools = [[layer.to(device) for layer in side] for side in (keys, values)]
        room = [[torch.zeros_like(layer) for layer in side] for side in pools]
        # Pages of one codec and length go together.
        tables: dict[tuple[bool, int], list[torch.Tensor]] = {}
        for slots in torch.arange(cache.keys.shape[1]).split(self.tokens):
            tables.setdefault((bool(first + slots[0]), len(slots)), []).append(slots)
        stored = 0
        for (later, _), rows in tables.items():
            table, starts = torch.stack(rows), [first + int(slots[0]) for slots in rows]
            pages = self._codecs[later].encode_blocks(table, *pools, positions=starts, **goal)
            self._codecs[1].decode_blocks(pages, table.flatten(), *room).check()
            stored += sum(map(len, pages))
        return self._before_positions(*(torch.stack(side).cpu() for side in room), first), stored

    def _before_positions(self, keys: torch.Tensor, values: torch.Tensor, first: int) -> Cache:
        """A cache of what was decoded: keys with positions, in bf16."""
        return Cache(self.rotary.turn(keys.float().numpy(), first=first, back=True), values.float().numpy())

    def _as_cached(self, cache: Cache, first: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys with their positions in and values, in bf16, as a model caches them."""
        turned = self.rotary.turn(cache.keys, first=first)
        return torch.from_numpy(turned).bfloat16(), torch.from_numpy(cache.values).bfloat16()

    def _encode(self, caches: Sequence[Cache], first: int, goal: Mapping[str, float]) -> list[bytes]:
        """Pages as caches in bf16 give them, one after the other: keys with their positions in."""
        pages = []
        for cache in caches:
            sides = [one.split(self.tokens, dim=1) for one in self._as_cached(cache, first)]
            pages += [
                ([one.contiguous() for one in keys], [one.contiguous() for one in values], first + index * self.tokens)
                for index, (keys, values) in enumerate(zip(*sides))
            ]
        kinds = [[page for page in pages if bool(page[2]) is later] for later in (False, True)]
        coded = each(lambda kind: iter(kind[0].encode_many(kind[1], **goal)), zip(self._codecs, kinds))
        return [next(coded[bool(page[2])]) for page in pages]

    @cached_property
    def _codecs(self) -> tuple[PageCodec, PageCodec]:
        """For the page that a context starts with, and for all others."""
        how = (self.effort, self.sinks, self.threads)
        if self.path is None:
            return _made(self.without, *how)
        return _behind(self.path, self.path.stat().st_mtime_ns, *how)

    @cached_property
    def _variances(self) -> np.ndarray:
        if self.path is None:
            raise ValueError("pages without bases are asked for a step, not a rate")
        return variances(self.path)


@lru_cache(maxsize=1)
def _behind(path: Path, _changed: int, effort: str, sinks: int, threads: int) -> tuple[PageCodec, PageCodec]:
    """Codecs behind a file of bases: kept, as preparing wide bases takes many seconds, and pages of other goals have the same."""
    return _made({"bases": Bases.open(path)}, effort, sinks, threads)


def _made(given: Mapping[str, Any], effort: str, sinks: int, threads: int) -> tuple[PageCodec, PageCodec]:
    """Codecs of which the first keeps so many tokens exact."""
    starts, later = (PageCodec(**given, effort=effort, exact=(exact, 0), threads=threads) for exact in (sinks, 0))
    return starts, later


def variances(path: Path) -> np.ndarray:
    """Of all coordinates of a file of bases; zeros where there is no vector."""
    with tenfold.open(path) as file:
        found = [np.square(file.read(name, dtype=np.float32)) for name in file if name.endswith(".deviations")]
        columns = sum(file.info(name).shape[0] for name in file if name.endswith(".means"))
    held = np.concatenate(found)
    return np.pad(held, (0, columns - len(held)))


def step_of(variances: np.ndarray, bits: float, taken: Callable[[float], float]) -> float:
    """The step that gives a rate: from the variances of coordinates, then corrected with what a step really takes. What no vector
    was stored for takes bits too, on some texts most of them, so nothing is assumed but that finer steps take more."""
    step = ideal_step(variances, bits)
    fine = coarse = None
    for _ in range(8):
        found = taken(step)
        if abs(found - bits) < 0.01 * bits:
            break
        # A bit more or less halves or doubles a step where all values are coded, and changes it more where few are.
        if found > bits:
            fine = step, found
        else:
            coarse = step, found
        if fine and coarse:
            share = np.log(bits / coarse[1]) / np.log(fine[1] / coarse[1])
            step = float(coarse[0] * (fine[0] / coarse[0]) ** min(max(share, 0.1), 0.9))
        else:
            step *= float(min(max(found / bits, 0.25), 4.0))
    return step


def ideal_step(variances: np.ndarray, bits: float) -> float:
    """The step at which Gaussian coordinates of these variances take so many bits a value at best: errors of a quarter
    of the squared step, where the variance is larger than that."""
    low, high = 1e-12 * float(variances.max()), float(variances.max())
    for _ in range(60):
        level = np.sqrt(low * high)
        rate = np.log2(np.maximum(variances / level, 1)).sum() / 2 / len(variances)
        low, high = (low, level) if rate < bits else (level, high)
    return float(2 * np.sqrt(level))
