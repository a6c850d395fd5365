"""How soon the keys and values of a prefix are in an engine's blocks on the device, when they come from elsewhere: raw, as fp8, compressed.

Everything comes in chunks of some pages of 64 tokens. While one arrives, the one before crosses to the device and the one before that is
put into its blocks, on two streams in turn.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from _kv_caches import FP8, FP8_MOST, fp8_scale
from _kv_made import Made
from _kv_sources import Disk, Link, Pinned, Ring
from tenfold.kv import PageCodec

# Tokens of a block, and of a page.
BLOCK, PAGE = 16, 64


class Prefix:
    """Pools with the tokens of a prefix, in blocks in no order."""

    def __init__(self, made: Made, codec: PageCodec, tokens: int, chunk: int) -> None:
        self.made, self.codec, self.shape, self.device = made, codec, made.shape, made.device
        self.pages = tokens // PAGE
        tokens = self.pages * PAGE
        self.nbytes = self.shape.nbytes(tokens)
        blocks = tokens // BLOCK + 8
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(1))[: tokens // BLOCK]
        self.slots = (order[:, None] * BLOCK + torch.arange(BLOCK)).view(self.pages, PAGE)
        # The pages of each chunk, and their blocks on the device.
        self.chunks = [(first, min(first + chunk, self.pages)) for first in range(0, self.pages, chunk)]
        per_page = PAGE // BLOCK
        self.blocks = [order[first * per_page : last * per_page].to(self.device) for first, last in self.chunks]
        room = (blocks, BLOCK, self.shape.kv_heads, self.shape.head)
        self.pools = [
            [torch.zeros(room, dtype=torch.bfloat16, device=self.device) for _ in range(self.shape.layers)] for _ in range(2)
        ]
        where = self.slots.flatten().to(self.device)
        for side, layers in enumerate(self.pools):
            for layer, pool in enumerate(layers):
                flat = pool.view(-1, *pool.shape[2:])
                for start, rows in made.parts(layer, side, tokens):
                    flat[where[start : start + len(rows)]] = rows
        # What some layers must hold afterwards.
        self._known = {layer: [side[layer].clone() for side in self.pools] for layer in {0, self.shape.layers - 1}}

    def forget(self) -> None:
        """Empties the layers that are compared."""
        for layer in self._known:
            for side in self.pools:
                side[layer].zero_()

    def nmse(self) -> float:
        """Squared error of the layers that are compared, over their squares."""
        error = square = 0.0
        for layer, known in self._known.items():
            for pools, wanted in zip(self.pools, known):
                error += float((pools[layer].float() - wanted.float()).square().sum(dtype=torch.float64))
                square += float(wanted.float().square().sum(dtype=torch.float64))
        return error / square


class Form(ABC):
    """A prefix as bytes in host memory, and how a chunk of them gets into the blocks."""

    def __init__(self, prefix: Prefix, name: str) -> None:
        self.prefix, self.name = prefix, name
        # First and last byte of each chunk.
        self.bounds: list[tuple[int, int]] = []
        self.stored = torch.empty(0, dtype=torch.uint8)

    @abstractmethod
    def load(self, number: int, content: torch.Tensor) -> Any:
        """Queues all work for a chunk on the current stream. What it returns, if anything, is to be checked at the end."""

    def _room(self, lengths: list[int]) -> None:
        at = 0
        for length in lengths:
            self.bounds.append((at, at + length))
            at += length
        self.stored = torch.empty(at, dtype=torch.uint8, pin_memory=self.prefix.device.type == "cuda")


class Plain(Form):
    """Keys and values as they are or as fp8. A chunk is (layer, side, block, slot, head, column)."""

    def __init__(self, prefix: Prefix, dtype: torch.dtype) -> None:
        super().__init__(prefix, "fp8" if dtype == FP8 else "raw")
        self._dtype = dtype
        tokens = [PAGE * (last - first) for first, last in prefix.chunks]
        self._room([prefix.shape.nbytes(count) * dtype.itemsize // 2 for count in tokens])
        # Rows of whole blocks in words of 8 bytes, which scatter faster than numbers of 2.
        self._words = [[pool.view(len(pool), -1).view(torch.int64) for pool in side] for side in prefix.pools]
        self._scales = [[1.0 for _ in side] for side in prefix.pools]
        if dtype == FP8:
            self._scales = [[fp8_scale(float(pool.abs().amax())) for pool in side] for side in prefix.pools]
        for (start, end), blocks in zip(self.bounds, prefix.blocks):
            size = (end - start) // (2 * prefix.shape.layers)
            for at, layer, side in self._places():
                rows = prefix.pools[side][layer].index_select(0, blocks)
                if dtype == FP8:
                    rows = (rows / self._scales[side][layer]).clamp(-FP8_MOST, FP8_MOST).to(FP8)
                self.stored[start + at * size : start + (at + 1) * size].copy_(rows.flatten().view(torch.uint8))

    def load(self, number: int, content: torch.Tensor) -> None:
        blocks = self.prefix.blocks[number]
        rows = content.to(self.prefix.device, non_blocking=True).view(self._dtype).to(torch.bfloat16)
        rows = rows.view(2 * self.prefix.shape.layers, len(blocks), -1)
        for at, layer, side in self._places():
            scale = self._scales[side][layer]
            found = rows[at] if scale == 1 else rows[at] * scale
            self._words[side][layer].index_copy_(0, blocks, found.view(torch.int64))

    def _places(self) -> Iterator[tuple[int, int, int]]:
        """The place in a chunk of each layer and side."""
        for layer in range(self.prefix.shape.layers):
            for side in range(2):
                yield 2 * layer + side, layer, side


class Pages(Form):
    """Compressed pages."""

    def __init__(self, prefix: Prefix, step: float) -> None:
        super().__init__(prefix, "tenfold")
        positions = [PAGE * page for page in range(prefix.pages)]
        made = prefix.codec.encode_blocks(prefix.slots, *prefix.pools, positions=positions, step=step)
        lengths = [len(page) for page in made]
        self._lengths = [lengths[first:last] for first, last in prefix.chunks]
        self._room([sum(chunk) for chunk in self._lengths])
        self.stored.copy_(torch.frombuffer(bytearray(b"".join(made)), dtype=torch.uint8))

    def load(self, number: int, content: torch.Tensor) -> Any:
        rest, pages = content.numpy(), []
        for length in self._lengths[number]:
            pages.append(rest[:length])
            rest = rest[length:]
        first, last = self.prefix.chunks[number]
        return self.prefix.codec.decode_blocks(pages, self.prefix.slots[first:last].flatten(), *self.prefix.pools)


class Reloading:
    """Times all forms from all sources."""

    def __init__(self, arguments: argparse.Namespace, made: Made, bases: Path) -> None:
        self.arguments, self.made = arguments, made
        self.codec = PageCodec(bases, effort="fast")
        self.device, self.on_cuda = made.device, made.device.type == "cuda"
        self._streams = [torch.cuda.Stream(self.device) for _ in range(2)] if self.on_cuda else []

    def rows(self) -> Iterator[dict[str, Any]]:
        for context in self.arguments.contexts:
            try:
                yield from self._context(context)
            except torch.cuda.OutOfMemoryError as error:
                yield {"part": "prefix", "context": context, "out_of_memory": str(error).splitlines()[0]}
            except Exception as error:  # What was measured so far, and other contexts, must not be lost with it.
                traceback.print_exc()
                yield {"part": "prefix", "context": context, "failed": repr(error)}
            gc.collect()
            if self.on_cuda:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                getattr(torch._C, "_host_emptyCache", lambda: None)()

    def _context(self, context: int) -> Iterator[dict[str, Any]]:
        prefix = Prefix(self.made, self.codec, context, self.arguments.chunk)
        # All of them before the first is loaded: loading overwrites what they are made of.
        forms = [Plain(prefix, torch.bfloat16), Plain(prefix, FP8), Pages(prefix, self.arguments.step)]
        raw: dict[str, float] = {}
        for form in forms:
            prefix.forget()
            # The first time counts for nothing but the error.
            self._once(form, Pinned(form.stored, form.bounds))
            about = {"part": "prefix", "context": context, "form": form.name, "bytes": len(form.stored), "nmse": prefix.nmse()}
            about["bits"] = 16 * len(form.stored) / prefix.nbytes
            for name, source, note in self._sources(form):
                row = {**about, "source": name}
                if source is None:
                    yield {**row, "skipped": note}
                    continue
                row |= self._time(form, source)
                if isinstance(source, Disk):
                    row |= {"cached": source.cached, "note": source.note}
                if form.name == "raw":
                    raw[name] = row["ms"]
                ratio = prefix.nbytes / len(form.stored)
                row |= {"gbps": prefix.nbytes / row["ms"] / 1e6, "ratio": ratio, "source_gbps": len(form.stored) / row["ms"] / 1e6}
                if name in raw:
                    row |= {"over_raw": raw[name] / row["ms"], "realised": raw[name] / row["ms"] / ratio}
                yield row

    def _sources(self, form: Form) -> Iterator[tuple[str, Any, str]]:
        """The name of each source, and the source, or None and why there is none."""
        asked = self.arguments.sources
        if "pinned" in asked:
            yield "pinned", Pinned(form.stored, form.bounds), ""
        if "disk" in asked:
            with tempfile.TemporaryDirectory(dir=self.arguments.folder) as folder:
                if len(form.stored) > min(self.arguments.disk_gb * 1e9, 0.9 * shutil.disk_usage(folder).free):
                    yield "disk", None, f"a file of {len(form.stored) / 1e9:.1f} GB is too large"
                else:
                    disk = Disk(Path(folder) / form.name, form.stored, Ring(form.bounds, self.on_cuda))
                    yield "disk", disk, ""
                    disk.close()
        if "link" in asked:
            for rate in self.arguments.links:
                yield f"link {rate:g} Gb/s", Link(form.stored, form.bounds, rate), ""

    def _time(self, form: Form, source: Any) -> dict[str, Any]:
        """Milliseconds until the blocks are ready and checked, the median of some rounds: fewer if they take long."""
        checked, ready = [], []
        until = time.perf_counter() + self.arguments.row_seconds
        while len(checked) < self.arguments.rounds and (not checked or time.perf_counter() < until):
            if isinstance(source, Disk):
                source.forget()
            done, whole = self._once(form, source)
            ready.append(done)
            checked.append(whole)
        return {"ms": statistics.median(checked), "ready_ms": statistics.median(ready), "rounds": checked}

    def _once(self, form: Form, source: Any) -> tuple[float, float]:
        """Milliseconds until all blocks are ready, and until they are known to be whole."""
        loading = []
        self._wait()
        since = time.perf_counter()
        for number, content, give_back in source.chunks():
            with torch.cuda.stream(self._streams[number % 2]) if self.on_cuda else nullcontext():
                loading.append(form.load(number, content))
                give_back(self._event())
        self._wait()
        ready = time.perf_counter()
        for one in loading:
            if one is not None:
                one.check()
        return 1e3 * (ready - since), 1e3 * (time.perf_counter() - since)

    def _event(self) -> Any:
        """After all that is queued on the current stream."""
        if not self.on_cuda:
            return None
        event = torch.cuda.Event(blocking=True)
        event.record()
        return event

    def _wait(self) -> None:
        if self.on_cuda:
            torch.cuda.synchronize()
