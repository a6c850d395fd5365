"""Pages out of the store into blocks, on stages of their own: records are read and checked while other pages are decoded.

At most a window of pages is under way at once, whatever number requests wait for. What is wrong with a page stays its own matter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Any

import torch

from ..._errors import ArgumentError, DataError, MachineError, UnsupportedError
from ...torch import _device
from .._pages import KvPages
from .._reloads import Reloads, Trace
from .._stats import Counts
from ._blocks import Blocks, Pools
from ._plan import Page
from ._shape import Shape
from ._shelf import Complaints, Shelf, logger
from ._threads import cores, pool

# Pages that a device decodes at a time: enough to keep it busy, and little memory.
_AT_ONCE = 16

# Pages that are damaged, or of others: of another basis, shape or dtype, or made in a way that nobody here reads.
_OF_NO_USE = (DataError, ArgumentError, UnsupportedError)

Held = tuple[Page, memoryview]
# Why pages were not loaded.
Lost = dict[Page, Exception | str]
# A record, or why there is none.
Found = memoryview | Exception | str


class _Part:
    """Pages that are decoded together, as soon as the records of all of them have been read."""

    def __init__(self, pages: Sequence[Page], ready: Any) -> None:
        self.pages, self.ready = pages, ready
        self._found: dict[Page, Found] = {}
        self._lock = threading.Lock()

    def add(self, page: Page, found: Found) -> dict[Page, Found] | None:
        """Takes a record; gives all of them for the last."""
        with self._lock:
            self._found[page] = found
            return self._found if len(self._found) == len(self.pages) else None


class Loads:
    """Loads pages.

    Args:
        shape: what the cache looks like.
        pages: reads pages.
        shelf: this rank's part of the store.
        counts: of the worker.
        threads: that read, and as many that decode; 0 for one a core.
        tokens: whether this rank counts tokens: 1 or 0.
        trace: gets the timeline.
    """

    def __init__(
        self, shape: Shape, pages: KvPages, shelf: Shelf, counts: Counts, *, threads: int, tokens: int, trace: Trace
    ) -> None:
        self._shape, self._pages, self._shelf, self._counts, self._tokens = shape, pages, shelf, counts, tokens
        threads = threads or len(cores())
        # A device takes pages by parts: while one is decoded, the next is read.
        window = max(4 * threads, 2 * _AT_ONCE)
        self._reloads = Reloads(pool("tenfold-load", 1, background=False), threads, trace, window=window)
        self._loading: dict[str, tuple[Sequence[Page], list[Future[set[int]]]]] = {}
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
            parts = [_Part(pages[first : first + at_once], ready) for first in range(0, len(pages), at_once)]
            self._loading[request] = (pages, [self._begin_page(page, part) for part in parts for page in part.pages])

    def __bool__(self) -> bool:
        return bool(self._loading)

    def wait(self, seconds: float) -> None:
        """Waits until a load has ended, but not for long."""
        wait([future for _, futures in self._loading.values() for future in futures], seconds, FIRST_COMPLETED)

    def take(self) -> dict[str, set[int]]:
        """Requests all of whose loads have ended, one way or the other, and the blocks that nothing was loaded into."""
        ended = [request for request, (_, futures) in self._loading.items() if all(future.done() for future in futures)]
        return {name: self._lost_of(*self._loading.pop(name)) for name in ended}

    def wait_for_layer(self, name: str) -> None:
        """A layer is about to attend. Requests are not scheduled before all their layers are there, so nothing is waited for."""

    def take_lost(self) -> set[int]:
        """Blocks of requests that this step computes which nothing was loaded into. There are none: see :meth:`wait_for_layer`."""
        return set()

    def shutdown(self) -> None:
        """Ends the threads."""
        self._reloads.shutdown(cancel=True)

    @property
    def _blocks(self) -> Blocks:
        assert self._cache is not None, "vLLM registers its cache before the first step"
        return self._cache

    def _begin_page(self, page: Page, part: _Part) -> Future[set[int]]:
        """Reads a page, and decodes its part if it is the last of it; the result has the blocks that could not be loaded."""

        def read() -> tuple[Found, int]:
            return self._sized(self._read(page))

        def decode(found: Found) -> tuple[set[int], int]:
            everything = part.add(page, found)
            return (set(), 0) if everything is None else self._load(part, everything)

        return self._reloads.submit(read, decode)

    def _load(self, part: _Part, found: Mapping[Page, Found]) -> tuple[set[int], int]:
        """Decodes pages; returns the blocks that could not be loaded, and bytes that were."""
        held = [(page, one) for page in part.pages if isinstance(one := found[page], memoryview)]
        lost: Lost = {page: one for page, one in found.items() if not isinstance(one, memoryview)}
        if part.ready is not None:
            part.ready.synchronize()
        with self._timed(), self._counts.restoring():
            errors = self._fill(held)
        return self._settle([(page, len(payload)) for page, payload in held], errors, lost)

    def _lost_of(self, pages: Sequence[Page], futures: Sequence[Future[set[int]]]) -> set[int]:
        """Blocks that nothing was loaded into: all of a request whose pages have not been decoded to the end."""
        for future in futures:
            if error := future.exception():
                return self._settle([], [], {page: MachineError(f"{error!r} while it was loaded") for page in pages})[0]
        return set().union(*(future.result() for future in futures))

    def _read(self, page: Page) -> Found:
        """The record of a page, or why there is none."""
        with self._timed(), self._counts.reading():
            try:
                payload = self._shelf.get(page.key)
            except Exception as error:  # whatever it is, a request must not wait forever nor use what is not there
                return error
        return "its record is gone or of no use" if payload is None else payload

    def _sized(self, found: Found) -> tuple[Found, int]:
        return found, len(found) if isinstance(found, memoryview) else 0

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Counts the time of a thread."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._counts.add(load_seconds=time.perf_counter() - started)

    def _raw_bytes(self, page: Page) -> int:
        """What is decoded of a page, before it was compressed."""
        return self._blocks.page_bytes * len(page.blocks) * self._shape.block // self._shape.page

    def _settle(self, held: Sequence[tuple[Page, int]], found: Sequence[Exception | str | None], lost: Lost) -> tuple[set[int], int]:
        """Counts what came of pages of so many bytes; returns the blocks that could not be loaded, and bytes that were."""
        restored = 0
        for (page, size), wrong in zip(held, found, strict=True):
            if wrong is None:
                restored += self._raw_bytes(page)
                self._counts.loaded(self._raw_bytes(page), size, tokens_loaded=self._tokens * len(page.blocks) * self._shape.block)
            else:
                lost[page] = wrong
        for page, why in lost.items():
            self._lose(page, why)
        return {block for page in lost for block in page.blocks}, restored

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

    def _refused(self, error: Exception, found: Sequence[Exception | str | None]) -> None:
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
            row[self._part_of(page)] = self._blocks.slots(page.blocks)
            slots.append(row)
        return slots

    def _part_of(self, page: Page) -> slice:
        """Tokens of a page that go into blocks."""
        first = page.first * self._shape.block
        return slice(first, first + len(page.blocks) * self._shape.block)

    def _fill_on_host(self, page: Page, payload: memoryview) -> Exception | None:
        part = self._part_of(page)
        try:
            rooms = [self._blocks.room() for _ in self._shape.layers]
            self._pages.decode(payload, [keys for keys, _ in rooms], [values for _, values in rooms])
            for layer, (keys, values) in enumerate(rooms):
                self._blocks.write(layer, page.blocks, keys[part], values[part])
        except Exception as error:  # as above
            return error
        return None
