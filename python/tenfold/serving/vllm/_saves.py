"""Pages from blocks into the store, by threads of their own.

The host makes a page from a copy, which is taken before the engine goes on. What a device makes is the business of
:mod:`._device_saves`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

import torch

from ..._errors import Error
from .._pages import KvPages
from .._stats import Counts
from ._blocks import Blocks
from ._device_saves import DeviceSaves
from ._options import Options
from ._plan import Page
from ._shape import Shape
from ._shelf import Complaints, Shelf, logger
from ._threads import pool

# vLLM kills processes that have not ended after 5 seconds, unless told otherwise, and Python takes some of them.
_LAST_SAVES = 3.0


class Saves:
    """Stores pages.

    Args:
        shape: what the cache looks like.
        options: the connector's settings.
        pages: makes pages.
        shelf: this rank's part of the store.
        counts: of the worker.
        tokens: whether this rank counts tokens: 1 or 0.
    """

    def __init__(
        self, shape: Shape, options: Options, pages: KvPages, shelf: Shelf, counts: Counts, *, tokens: int
    ) -> None:
        self._shape, self._options, self._pages, self._shelf = shape, options, pages, shelf
        self._counts, self._tokens = counts, tokens
        self._unsaved, self._dropped = Complaints(), Complaints()
        self._threads = pool("tenfold-save", options.threads, background=True)
        self._lock = threading.Lock()
        self._pending = 0
        self._cache: Blocks | None = None
        self._device: DeviceSaves | None = None
        # Pages on their way, by key.
        self.saving: dict[str, Future[None]] = {}

    def register(self, cache: Blocks) -> None:
        """Takes vLLM's cache."""
        self._cache = cache
        pools = cache.pools_on_device()
        if pools is not None:
            self._device = DeviceSaves(self._shape, cache, pools, self._pages, self)

    def start(self, pages: Sequence[Page]) -> None:
        """Starts to store pages. Calls of :meth:`before_writes` must follow before the engine writes to their blocks."""
        by_device = []
        # Two requests of a step may have the same page.
        for page in {page.key: page for page in pages}.values():
            if not self._admit(page):
                continue
            if self._device is not None and self._device.makes(page):
                by_device.append(page)
            else:
                self.copy(page)
        if self._device is not None:
            self._device.start(by_device)

    def before_writes(self, blocks: set[int]) -> None:
        """The engine is about to write to blocks: pages that are made of them come first."""
        if self._device is not None:
            self._device.before_writes(blocks)

    def shutdown(self) -> None:
        """Ends the threads. What waits to be stored gets a few seconds."""
        with self._lock:
            saving = list(self.saving.values())
        wait(saving, _LAST_SAVES)
        left = sum(future.cancel() for future in saving)
        if left:
            logger.warning("the engine ends before keys and values of %d pages were stored", left)
        if self._device is not None:
            self._device.shutdown()
        self._threads.shutdown(cancel_futures=True)

    @property
    def counts(self) -> Counts:
        """Of the worker."""
        return self._counts

    def track(self, pages: Sequence[Page], submit: Callable[[], Future[None]]) -> Future[None]:
        """Submits what makes and stores pages, and notes it before it can end."""
        with self._lock:
            future = submit()
            self.saving |= {page.key: future for page in pages}
        return future

    def copy(self, page: Page) -> None:
        """Copies a page to the host, so that its blocks are free, and leaves the rest to threads."""
        try:
            raw = self._blocks.read(page.blocks)
        except Exception as error:  # no memory of the device, for one
            self._give_up(page, error)
            return
        self.track([page], lambda: self._threads.submit(self._save, page, raw))

    def store(self, page: Page, payload: bytes, seconds: float) -> None:
        """Stores a page that was made in so many seconds."""
        started = time.perf_counter() - seconds
        try:
            self._shelf.put(page.key, payload)
        except (Error, MemoryError) as error:
            self._give_up(page, error)
            return
        seconds = time.perf_counter() - started
        tokens = self._tokens * self._shape.page
        self._counts.saved(self._blocks.page_bytes, len(payload), tokens_saved=tokens, save_seconds=seconds)
        self._release(page)

    @property
    def _blocks(self) -> Blocks:
        assert self._cache is not None, "vLLM registers its cache before the first step"
        return self._cache

    def _admit(self, page: Page) -> bool:
        """Makes room for a page, if it is wanted and there is any."""
        if self._shelf.contains(page.key):
            return False
        with self._lock:
            if page.key in self.saving:
                return False
            if self._pending + self._blocks.page_bytes <= self._options.max_pending_bytes:
                self._pending += self._blocks.page_bytes
                return True
        self._counts.add(pages_dropped=1)
        self._dropped.say(
            "keys and values come faster than they are compressed, so some are not stored; lossless pages, "
            "more threads or a larger max_pending_bytes may help"
        )
        return False

    def _save(self, page: Page, raw: list[torch.Tensor]) -> None:
        started = time.perf_counter()
        try:
            with self._counts.encoding():
                rows = [self._blocks.rows(blocks) for blocks in raw]
                payload = self._pages.encode([keys for keys, _ in rows], [values for _, values in rows], page.position)
        except (Error, MemoryError) as error:
            self._give_up(page, error)
        else:
            self.store(page, payload, time.perf_counter() - started)

    def _give_up(self, page: Page, error: BaseException) -> None:
        self._counts.add(pages_failed=1)
        self._unsaved.say(f"keys and values of a page were not stored, requests go on without: {error}")
        self._release(page)

    def _release(self, page: Page) -> None:
        with self._lock:
            self._pending -= self._blocks.page_bytes
            self.saving.pop(page.key, None)
