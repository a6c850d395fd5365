"""Pages out of the store into blocks, by threads of their own: each request's until all of them have ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import torch

from ..._errors import ArgumentError, DataError, MachineError, UnsupportedError
from ...torch import _device
from .._pages import KvPages
from .._stats import Counts
from ._blocks import Blocks, Pools
from ._plan import Page
from ._shape import Shape
from ._shelf import Complaints, Shelf, logger
from ._threads import pool

# Pages that a device decodes at a time: enough to keep it busy, and little memory.
_AT_ONCE = 16

# Pages that are damaged, or of others: of another basis, shape or dtype, or made in a way that nobody here reads.
_OF_NO_USE = (DataError, ArgumentError, UnsupportedError)

Held = tuple[Page, memoryview]
# Why pages were not loaded.
Lost = dict[Page, Exception | str]


class Loads:
    """Loads pages.

    Args:
        shape: what the cache looks like.
        pages: reads pages.
        shelf: this rank's part of the store.
        counts: of the worker.
        threads: how many.
        tokens: whether this rank counts tokens: 1 or 0.
    """

    def __init__(
        self, shape: Shape, pages: KvPages, shelf: Shelf, counts: Counts, *, threads: int, tokens: int
    ) -> None:
        self._shape, self._pages, self._shelf, self._counts, self._tokens = shape, pages, shelf, counts, tokens
        self._threads = pool("tenfold-load", threads, background=False)
        self._loading: dict[str, list[Future[set[int]]]] = {}
        self._unread = Complaints()
        self._cache: Blocks | None = None
        # Until there is a page that the device does not decode.
        self._pools: Pools | None = None

    def register(self, cache: Blocks) -> None:
        """Takes vLLM's cache."""
        self._cache = cache
        self._pools = cache.pools_on_device()

    def start(self, loads: Mapping[str, Sequence[Page]], *, by_layer: bool) -> None:
        """Starts to load pages of requests.

        Args:
            loads: pages of each request.
            by_layer: whether :meth:`wait_for_layer` is called in this step, for all layers.
        """
        if not loads:
            return
        streams = self._blocks.streams
        # What the engine has queued may still use these blocks: those of a request that was preempted, for one.
        ready = None if streams is None else streams.mark()
        at_once = 1 if self._pools is None else _AT_ONCE
        for request, pages in loads.items():
            parts = [pages[first : first + at_once] for first in range(0, len(pages), at_once)]
            self._loading[request] = [self._threads.submit(self._load, part, ready) for part in parts]

    def __bool__(self) -> bool:
        return bool(self._loading)

    def wait(self, seconds: float) -> None:
        """Waits until a load has ended, but not for long."""
        wait([future for futures in self._loading.values() for future in futures], seconds, FIRST_COMPLETED)

    def take(self) -> dict[str, set[int]]:
        """Requests all of whose loads have ended, one way or the other, and the blocks that nothing was loaded into."""
        ended = [request for request, futures in self._loading.items() if all(future.done() for future in futures)]
        return {name: set().union(*(future.result() for future in self._loading.pop(name))) for name in ended}

    def wait_for_layer(self, name: str) -> None:
        """A layer is about to attend. Requests are not scheduled before all their layers are there, so nothing is waited for."""

    def take_lost(self) -> set[int]:
        """Blocks of requests that this step computes which nothing was loaded into. There are none: see :meth:`wait_for_layer`."""
        return set()

    def shutdown(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(cancel_futures=True)

    @property
    def _blocks(self) -> Blocks:
        assert self._cache is not None, "vLLM registers its cache before the first step"
        return self._cache

    def _load(self, pages: Sequence[Page], ready: Any) -> set[int]:
        """Loads pages; returns the blocks that could not be loaded."""
        started = time.perf_counter()
        held, lost = self._read(pages)
        if ready is not None:
            ready.synchronize()
        with self._counts.decoding():
            found = self._fill(held)
        return self._settle(held, found, lost, started)

    def _read(self, pages: Sequence[Page]) -> tuple[list[Held], Lost]:
        """Records of pages, and what is wrong with those that there are none of."""
        held: list[Held] = []
        lost: Lost = {}
        for page in pages:
            try:
                payload = self._shelf.get(page.key)
            except Exception as error:  # whatever it is, a request must not wait forever nor use what is not there
                lost[page] = error
                continue
            if payload is None:
                lost[page] = "its record is gone or of no use"
            else:
                held.append((page, payload))
        return held, lost

    def _settle(self, held: Sequence[Held], found: Sequence[Exception | None], lost: Lost, started: float) -> set[int]:
        """Counts what came of pages; returns the blocks that could not be loaded."""
        for (page, payload), wrong in zip(held, found, strict=True):
            if wrong is None:
                tokens = len(page.blocks) * self._shape.block
                raw = self._blocks.page_bytes * tokens // self._shape.page
                self._counts.loaded(raw, len(payload), tokens_loaded=self._tokens * tokens)
            else:
                lost[page] = wrong
        self._counts.add(load_seconds=time.perf_counter() - started)
        for page, why in lost.items():
            self._lose(page, why)
        return {block for page in lost for block in page.blocks}

    def _lose(self, page: Page, why: Exception | str) -> None:
        if isinstance(why, _OF_NO_USE):
            self._shelf.discard(page.key)
        self._counts.add(pages_lost=1)
        self._unread.say(f"a page at token {page.position} is computed again: {why}")

    def _fill(self, held: Sequence[Held]) -> list[Exception | None]:
        """Decodes pages into their blocks; what is wrong with each."""
        if self._pools is not None and held:
            try:
                found = self._fill_on_device(held, *self._pools)
                self._counts.add(pages_by_device=found.count(None))
                return found
            except (UnsupportedError, MachineError) as error:
                if len(held) > 1:
                    return [self._fill([one])[0] for one in held]
                found = [self._fill_on_host(*held[0])]
                self._refused(error, found)
                return found
            except Exception as error:  # damage that shows before anything is decoded, or no memory: of which page?
                return [error] if len(held) == 1 else [self._fill([one])[0] for one in held]
        return [self._fill_on_host(*one) for one in held]

    def _refused(self, error: Exception, found: Sequence[Exception | None]) -> None:
        """The device has refused pages. If the host can read one, it reads all of them from now on; else they are of no use."""
        if None in found and self._pools is not None:
            self._pools = None
            logger.info("pages are decoded on the host: %s", error)

    def _fill_on_device(self, held: Sequence[Held], keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> list[Exception | None]:
        """Compressed bytes go to the device, and come out in blocks."""
        streams = self._blocks.streams
        assert streams is not None, "pools are those of a device"
        try:
            with _device.on(streams.loads):
                return self._pages.decode_blocks([payload for _, payload in held], self._slots(held), keys, values)
        finally:
            # If it failed half way, nothing may be written to these blocks once the engine hears of it.
            streams.loads.synchronize()

    def _slots(self, held: Sequence[Held]) -> list[list[int]]:
        """Where tokens of pages go; those that are in the cache already go nowhere."""
        slots = []
        for page, _ in held:
            row = [-1] * self._shape.page
            first = page.first * self._shape.block
            row[first : first + len(page.blocks) * self._shape.block] = self._blocks.slots(page.blocks)
            slots.append(row)
        return slots

    def _fill_on_host(self, page: Page, payload: memoryview) -> Exception | None:
        first = page.first * self._shape.block
        part = slice(first, first + len(page.blocks) * self._shape.block)
        try:
            rooms = [self._blocks.room() for _ in self._shape.layers]
            self._pages.decode(payload, [keys for keys, _ in rooms], [values for _, values in rooms])
            for layer, (keys, values) in enumerate(rooms):
                self._blocks.write(layer, page.blocks, keys[part], values[part])
        except Exception as error:  # as above
            return error
        return None
