"""Pages that a CUDA device makes of blocks as they are, on a stream of low priority, while the engine goes on.

Compressed bytes alone come to the host. Until a page is made nothing may be written to its blocks, which the engine does not know:
it may free them, and use them for another request. So before each step :meth:`DeviceSaves.before_writes` hears which blocks the step
writes to. Pages of these that are being made are waited for; those that wait for their turn are copied to the host. vLLM takes
blocks that were freed long ago first, so neither is common.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import torch

from ..._errors import Error, MachineError, UnsupportedError
from ...torch import _device
from .._pages import KvPages
from ._blocks import Blocks, Pools
from ._plan import Page
from ._shape import Shape
from ._shelf import Complaints, logger
from ._threads import pool

if TYPE_CHECKING:
    from ._saves import Saves

# Pages that the device encodes at a time: enough to keep it busy, and little memory.
_AT_ONCE = 16
# One has the device while the other writes files.
_THREADS = 2


class _Batch:
    """Pages that are made together."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self.pages = pages
        self.blocks = {block for page in pages for block in page.blocks}
        # Set as soon as nothing of its blocks is needed any more.
        self.read = threading.Event()
        self.future: Future[None] = Future()


class DeviceSaves:
    """Makes pages.

    Args:
        shape: what the cache looks like.
        cache: vLLM's.
        pools: its keys and values.
        pages: the codec.
        saves: what stores pages, and makes those that the device does not.
    """

    def __init__(self, shape: Shape, cache: Blocks, pools: Pools, pages: KvPages, saves: Saves) -> None:
        self._cache, self._pools, self._pages, self._saves = cache, pools, pages, saves
        self._threads = pool("tenfold-save-device", _THREADS, background=True)
        self._one = threading.Lock()
        self._batches: list[_Batch] = []
        self._refused = Complaints()
        # Of pages with the first token of a context, and of others. Asked once: it copies bases to the device.
        self._makes = {first: self._asked(0 if first else shape.page) for first in (True, False)}

    def makes(self, page: Page) -> bool:
        """Whether the device makes a page."""
        return self._makes[page.position == 0]

    def start(self, pages: Sequence[Page]) -> None:
        """Starts to make pages of what the engine has queued so far."""
        if not pages:
            return
        streams = self._cache.streams
        assert streams is not None, "pools are those of a device"
        ready = streams.mark()
        for first in range(0, len(pages), _AT_ONCE):
            self._submit(_Batch(pages[first : first + _AT_ONCE]), ready)

    def before_writes(self, blocks: set[int]) -> None:
        """The engine is about to write to blocks: pages that are made of them come first."""
        self._batches = [batch for batch in self._batches if not batch.read.is_set()]
        for batch in self._batches:
            if batch.blocks.isdisjoint(blocks):
                continue
            if batch.future.cancel():
                for page in batch.pages:
                    self._saves.copy(page)
                batch.read.set()
            else:
                batch.read.wait()

    def shutdown(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(cancel_futures=True)

    def _asked(self, position: int) -> bool:
        try:
            return self._pages.encodes_blocks(self._cache.device, self._cache.page_values, position)
        except (Error, torch.OutOfMemoryError) as error:
            logger.info("pages are encoded on the host: %s", error)
            return False

    def _submit(self, batch: _Batch, ready: torch.cuda.Event) -> None:
        batch.future = self._saves.track(batch.pages, lambda: self._threads.submit(self._make, batch, ready))
        self._batches.append(batch)

    def _make(self, batch: _Batch, ready: torch.cuda.Event) -> None:
        try:
            ready.synchronize()
            started = time.perf_counter()
            made = self._encode(batch.pages)
        except Exception as error:  # whatever the device does not do, the host can
            self._refuse(error)
            self._copy(batch.pages)
            return
        finally:
            batch.read.set()
        seconds = (time.perf_counter() - started) / len(made)
        for page, payload in zip(batch.pages, made, strict=True):
            self._saves.counts.add(pages_by_device=1)
            self._saves.store(page, payload, seconds)

    def _encode(self, pages: Sequence[Page]) -> list[bytes]:
        streams = self._cache.streams
        assert streams is not None, "pools are those of a device"
        slots = [self._cache.slots(page.blocks) for page in pages]
        # One at a time, so that one has memory of the device.
        with self._one, self._saves.counts.encoding(), _device.on(streams.saves):
            return self._pages.encode_blocks(slots, *self._pools, [page.position for page in pages])

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, (UnsupportedError, MachineError)):
            self._makes = dict.fromkeys(self._makes, False)
        self._refused.say(f"the host encodes pages that the device does not: {error}")

    def _copy(self, pages: Sequence[Page]) -> None:
        streams = self._cache.streams
        assert streams is not None, "pools are those of a device"
        with _device.on(streams.saves):
            for page in pages:
                self._saves.copy(page)
