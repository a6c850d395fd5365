"""A worker of vLLM's connector without an engine: a cache, as FlashAttention keeps it, and what is in it.

Of vLLM it takes what the connector imports: none of its kernels, so tests of a device need no vLLM that was built for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from emulated import COLUMNS, HEADS, LAYERS, rows
from vllm_setup import said

from tenfold.serving import Identity, KvPages
from tenfold.serving.vllm._options import Options
from tenfold.serving.vllm._plan import Page, Plan
from tenfold.serving.vllm._shape import Shape
from tenfold.serving.vllm._shelf import Shelf
from tenfold.serving.vllm._worker import Worker

BLOCK, PAGE, BLOCKS = 16, 32, 40
NAMES = tuple(f"layer.{number}" for number in range(LAYERS))
SHAPE = Shape(NAMES, BLOCK, PAGE, HEADS, COLUMNS, "bfloat16", 1)
PAGES = [Page("a", 0, (5, 2)), Page("b", PAGE, (1, 4)), Page("c", 2 * PAGE, (0, 3))]
ELSEWHERE = [Page("a", 0, (15, 12)), Page("b", PAGE, (11, 14)), Page("c", 2 * PAGE, (10, 13))]


class Rows:
    """FlashAttention, Triton and others: a row for each token and head, keys before values."""

    def do_kv_cache_update(self, layer: Any, key: Any, value: Any, cache: Any, slots: Any) -> None:
        tokens = cache.shape[2]
        cache[slots // tokens, :, slots % tokens] = torch.cat((key, value), dim=-1)


class Latent:
    """MLA's backends: a row for each token, the latent before its rotary part."""

    def do_kv_cache_update(self, latent: Any, rotary: Any, cache: Any, slots: Any, dtype: str, scale: Any) -> None:
        cache.flatten(0, 1)[slots] = torch.cat((latent, rotary.squeeze(1)), dim=-1)


def layers_of(shape: Shape, impl: Any) -> dict[str, Any]:
    return {name: SimpleNamespace(impl=impl) for name in shape.layers}


class Rig:
    """A worker, its cache, and what is in it."""

    def __init__(self, device: torch.device, bases: Path, folder: Path, **settings: Any) -> None:
        dtype = settings.pop("dtype", torch.bfloat16)
        options = Options.parse({"path": str(folder), "bases": str(bases), "threads": 2, "exact": 0} | settings)
        self.by_layer = options.by_layer
        self.pages = KvPages(LAYERS, bases=bases, exact=options.exact, threads=1)
        self.shelf = Shelf(options.path, Identity("model"), options.max_store_bytes)
        self.worker = Worker(SHAPE, options, self.pages, self.shelf, 0)
        size = (BLOCKS, HEADS, BLOCK, 2 * COLUMNS)
        self.caches = {name: torch.zeros(size, dtype=dtype, device=device) for name in NAMES}
        with said():
            self.worker.register(self.caches, layers_of(SHAPE, Rows()))

    def write(self, page: Page, seed: int) -> None:
        """Puts made-up keys and values into the blocks of a page, as a step does."""
        slots = torch.tensor([block * BLOCK + token for block in page.blocks for token in range(BLOCK)])
        for cache, key, value in zip(self.caches.values(), *rows(PAGE, seed), strict=True):
            both = [side.view(PAGE, HEADS, COLUMNS).to(cache.device, cache.dtype) for side in (key, value)]
            Rows().do_kv_cache_update(None, *both, cache, slots.to(cache.device))

    def error(self, page: Page, seed: int) -> float:
        """How far what its blocks hold is from made-up keys and values, of their size."""
        off = size = 0.0
        for cache, key, value in zip(self.caches.values(), *rows(PAGE, seed), strict=True):
            held = cache[list(page.blocks)].transpose(1, 2).flatten(0, 1).float().cpu()
            for have, want in zip(held.split(COLUMNS, -1), (key, value), strict=True):
                want = want.view(PAGE, HEADS, COLUMNS).float()
                off, size = off + float((have - want).square().sum()), size + float(want.square().sum())
        return off / size

    def save(self, *pages: Page) -> None:
        self.worker.save(Plan(saves=list(pages)))
        self.settle()

    def settle(self) -> None:
        while saving := list(self.worker._saves.saving.values()):
            wait(saving, 60)
        assert self.worker._saves._pending == 0

    def load(self, *pages: Page) -> set[int]:
        """Blocks that could not be loaded: before a request is scheduled, or in the step that computes it."""
        plan = Plan(loads={"request": list(pages)}, idle=not self.by_layer)
        self.worker.before_writes(plan)
        self.worker.load(plan, by_layer=self.by_layer)
        if self.by_layer:
            for name in NAMES:
                self.worker.wait_for_layer(name)
            assert not self.worker.take_finished(plan), "vLLM hears of requests that wait, alone"
        else:
            while not self.worker.take_finished(plan):
                pass
        return self.worker.take_failed()

    def counts(self) -> dict[str, Any]:
        found = self.worker.stats()
        return {} if found is None else found.data

    def payload(self, key: str) -> bytes:
        found = self.shelf.get(key)
        assert found is not None
        return bytes(found)


def flip(payload: bytes, at: int) -> bytes:
    bent = bytearray(payload)
    bent[at] ^= 1 << at % 8
    return bytes(bent)


class Scarce:
    """Memory that there is for so many allocations."""

    def __init__(self, patch: pytest.MonkeyPatch, most: int) -> None:
        self.asked, self._most = 0, most
        for name in ("empty", "zeros"):
            patch.setattr(torch, name, self._short(getattr(torch, name)))

    def _short(self, allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def instead(*args: Any, **more: Any) -> torch.Tensor:
            self.asked += 1
            if self.asked > self._most:
                raise torch.OutOfMemoryError("no memory")
            return allocate(*args, **more)

        return instead
