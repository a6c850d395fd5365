"""The worker's side: moves pages from the store into blocks, and from blocks into the store, on its own threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import torch

from ..._errors import DataError, Error, MachineError, UnsupportedError
from .._pages import KvPages
from ._blocks import Blocks
from ._options import Options
from ._plan import Page, Plan
from ._shape import Shape
from ._shelf import Complaints, Shelf, logger
from ._stats import Counts, Stats
from ._threads import pool

# A step with nothing to compute waits this long for loads, in seconds.
_NAP = 0.01
# vLLM kills processes that have not ended after 5 seconds, unless told otherwise, and Python takes some of them.
_LAST_SAVES = 3.0


class Worker:
    """Carries plans out.

    Args:
        shape: what the cache looks like.
        options: the connector's settings.
        pages: makes and reads pages.
        shelf: this rank's part of the store.
        rank: the tensor-parallel rank; the first counts tokens.
    """

    def __init__(self, shape: Shape, options: Options, pages: KvPages, shelf: Shelf, rank: int) -> None:
        self._shape = shape
        self._options = options
        self._pages = pages
        self._shelf = shelf
        self._tokens = int(rank == 0)
        self._counts = Counts()
        self._unread, self._unsaved, self._dropped = Complaints(), Complaints(), Complaints()
        self._readers = pool("tenfold-load", options.threads, background=False)
        self._writers = pool("tenfold-save", options.threads, background=True)
        self._loading: dict[str, list[Future[set[int]]]] = {}
        self._failed: set[int] = set()
        self._lock = threading.Lock()
        self._saving: dict[str, Future[None]] = {}
        self._pending = 0
        self._blocks: Blocks | None = None
        # On a CUDA device, until there is a page that it does not decode.
        self._pools: tuple[list[torch.Tensor], list[torch.Tensor]] | None = None

    def register(self, caches: Mapping[str, torch.Tensor], layers: Mapping[str, Any]) -> None:
        """Takes vLLM's cache."""
        self._blocks = Blocks(self._shape, caches, layers)
        device = next(iter(caches.values())).device
        if self._blocks.stream is not None:
            self._pools = self._blocks.pools()
        if device.type != "cpu":
            logger.warning("TenfoldConnector has been tested with engines on CPUs, and not yet on %s", device.type)

    def load(self, plan: Plan) -> None:
        """Starts all loads of a plan."""
        for request, pages in plan.loads.items():
            self._loading[request] = [self._readers.submit(self._load, page) for page in pages]

    def save(self, plan: Plan) -> None:
        """Copies pages that are to be stored, so that the engine may go on; the rest is done by other threads."""
        for page in plan.saves:
            with self._lock:
                known = page.key in self._saving
                room = self._pending + self._cache.page_bytes <= self._options.max_pending_bytes
            if known or self._shelf.contains(page.key):
                continue
            if not room:
                self._counts.add(pages_dropped=1)
                self._dropped.say(
                    "keys and values come faster than they are compressed, so some are not stored; lossless pages, "
                    "more threads or a larger max_pending_bytes may help"
                )
                continue
            raw = self._cache.read(page.blocks)
            with self._lock:
                self._pending += self._cache.page_bytes
                self._saving[page.key] = self._writers.submit(self._save, page, raw)

    def take_finished(self, plan: Plan) -> set[str]:
        """Requests all of whose loads have ended, one way or the other."""
        if plan.idle and self._loading:
            wait([future for futures in self._loading.values() for future in futures], _NAP, FIRST_COMPLETED)
        ended = {request for request, futures in self._loading.items() if all(future.done() for future in futures)}
        for request in ended:
            self._failed = self._failed.union(*(future.result() for future in self._loading.pop(request)))
        return ended

    def take_failed(self) -> set[int]:
        """Blocks of finished requests that nothing was loaded into."""
        failed, self._failed = self._failed, set()
        return failed

    def stats(self) -> Stats | None:
        """Counts since the last call."""
        return self._counts.take()

    def shutdown(self) -> None:
        """Ends the threads. What waits to be stored gets a few seconds."""
        self._readers.shutdown(cancel_futures=True)
        with self._lock:
            saving = list(self._saving.values())
        wait(saving, _LAST_SAVES)
        left = sum(future.cancel() for future in saving)
        if left:
            logger.warning("the engine ends before keys and values of %d pages were stored", left)
        self._writers.shutdown(cancel_futures=True)

    @property
    def _cache(self) -> Blocks:
        assert self._blocks is not None, "vLLM registers its cache before the first step"
        return self._blocks

    def _load(self, page: Page) -> set[int]:
        """Loads a page; returns the blocks that it could not be loaded into."""
        started = time.perf_counter()
        try:
            payload = self._shelf.get(page.key)
            if payload is not None:
                self._fill(page, payload)
                tokens = self._tokens * len(page.blocks) * self._shape.block
                self._counts.add(tokens_loaded=tokens, pages_loaded=1, load_seconds=time.perf_counter() - started)
                return set()
            why = "its record is gone or of no use"
        except Exception as error:  # whatever it is, a request must not wait forever nor use what is not there
            if isinstance(error, DataError):
                self._shelf.discard(page.key)
            why = str(error)
        self._counts.add(pages_lost=1)
        self._unread.say(f"a page at token {page.position} is computed again: {why}")
        return set(page.blocks)

    def _fill(self, page: Page, payload: memoryview) -> None:
        if self._pools is not None:
            try:
                self._fill_on_device(page, payload, *self._pools)
                return
            except (UnsupportedError, MachineError) as error:
                self._pools = None
                logger.info("pages are decoded on the host: %s", error)
        first = page.first * self._shape.block
        part = slice(first, first + len(page.blocks) * self._shape.block)
        rooms = [self._cache.room() for _ in self._shape.layers]
        self._pages.decode(payload, [keys for keys, _ in rooms], [values for _, values in rooms])
        for layer, (keys, values) in enumerate(rooms):
            self._cache.write(layer, page.blocks, keys[part], values[part])

    def _fill_on_device(
        self, page: Page, payload: memoryview, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
    ) -> None:
        """Compressed bytes go to the device, and come out in blocks."""
        block = self._shape.block
        slots = [-1] * self._shape.page
        for number, at in zip(page.blocks, range(page.first * block, self._shape.page, block), strict=False):
            slots[at : at + block] = range(number * block, (number + 1) * block)
        with torch.cuda.stream(self._cache.stream):
            self._pages.decode_blocks(payload, slots, keys, values)

    def _save(self, page: Page, raw: list[torch.Tensor]) -> None:
        started = time.perf_counter()
        try:
            rows = [self._cache.rows(blocks) for blocks in raw]
            payload = self._pages.encode([keys for keys, _ in rows], [values for _, values in rows], page.position)
            self._shelf.put(page.key, payload)
        except (Error, MemoryError) as error:
            self._counts.add(pages_failed=1)
            self._unsaved.say(f"keys and values of a page were not stored, requests go on without: {error}")
        else:
            self._counts.add(
                tokens_saved=self._tokens * self._shape.page,
                pages_saved=1,
                bytes_stored=len(payload),
                bytes_before=self._cache.page_bytes,
                save_seconds=time.perf_counter() - started,
            )
        finally:
            with self._lock:
                self._pending -= self._cache.page_bytes
                self._saving.pop(page.key, None)
