"""Pages of an engine's blocks, made while it generates, as tenfold's plug-in for vLLM makes them.

`tenfold.serving.vllm` cannot be imported without vLLM, so its calls are repeated here: a batch of pages waits for what the engine has
queued, then the device encodes it on a stream of low priority, one batch at a time, from threads that get what nobody else wants;
compressed bytes come to the host.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tenfold.kv import PageCodec
from tenfold.serving import KvPages
from tenfold.serving._streams import streams_of
from tenfold.torch import _device

# Tokens of a page.
PAGE = 64
# As the plug-in has them: pages that are encoded at a time, and threads, of which one has the device while the other deals with bytes.
AT_ONCE = 16
THREADS = 2


@dataclass(frozen=True)
class Page:
    """Where a page's tokens begin in the pools, and at which position."""

    slot: int
    position: int


@dataclass
class Stored:
    """What was stored in some time."""

    pages: int = 0
    # Compressed.
    nbytes: int = 0
    # Of the threads, in encoding.
    seconds: float = 0.0
    # Pages that were still to be made in the end.
    late: int = 0


@dataclass
class _Batch:
    pages: Sequence[Page]
    ready: Any
    future: Future[None] | None = field(default=None, repr=False)


class Storing:
    """Makes pages in threads of its own.

    Args:
        pools: keys and values of each layer.
        bases: a file of bases.
        goal: `{"bits": …}`, as the plug-in takes it, or `{"step": …}`.
    """

    def __init__(self, pools: Sequence[Sequence[torch.Tensor]], bases: Path, goal: dict[str, float]) -> None:
        self._pools, self._goal = pools, goal
        self._kv = KvPages(len(pools[0]), bases=bases, bits=goal["bits"], exact=0) if "bits" in goal else None
        self._codec = PageCodec(bases, effort="fast")
        self.device = pools[0][0].device
        self._streams = streams_of(self.device)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store", initializer=_in_background)
        self._one, self._lock = threading.Lock(), threading.Lock()
        self._pending: deque[_Batch] = deque()
        self._stored = Stored()
        self.page_bytes = sum(2 * PAGE * pool[0, 0].numel() for side in pools for pool in side)
        # The last pages, in the host's memory.
        self._kept: deque[bytes] = deque(maxlen=4 * AT_ONCE)

    @property
    def by_device(self) -> bool:
        """Whether the device makes pages."""
        if self._kv is not None:
            return self._kv.encodes_blocks(self.device, self.page_bytes // 2, PAGE)
        from tenfold.torch import _blocks

        return _blocks.encodes(self._codec, self.device, dict(self._goal))

    @property
    def pending(self) -> int:
        """Batches that are not done."""
        with self._lock:
            return len(self._pending)

    def start(self, pages: Sequence[Page]) -> None:
        """Starts to make pages of what the engine has queued so far."""
        ready = None if self._streams is None else self._streams.mark()
        for first in range(0, len(pages), AT_ONCE):
            batch = _Batch(pages[first : first + AT_ONCE], ready)
            with self._lock:
                self._pending.append(batch)
            batch.future = self._threads.submit(self._make, batch)

    def take(self) -> Stored:
        """What was stored since the last call. What is still to be made is forgotten, or waited for if it was begun."""
        with self._lock:
            found, self._stored = self._stored, Stored()
            left = list(self._pending)
        found.late = sum(len(batch.pages) for batch in left)
        for batch in left:
            if batch.future is not None and not batch.future.cancel():
                batch.future.result()
        with self._lock:
            self._pending.clear()
            self._stored = Stored()
        return found

    def page(self) -> bytes | None:
        """The last page that was made."""
        return self._kept[-1] if self._kept else None

    def shutdown(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(cancel_futures=True)

    def _make(self, batch: _Batch) -> None:
        if batch.ready is not None:
            batch.ready.synchronize()
        slots = [range(page.slot, page.slot + PAGE) for page in batch.pages]
        positions = [page.position for page in batch.pages]
        # One at a time, so that one has memory of the device.
        with self._one, nullcontext() if self._streams is None else _device.on(self._streams.saves):
            since = time.perf_counter()
            if self._kv is not None:
                made = self._kv.encode_blocks(slots, *self._pools, positions)
            else:
                made = self._codec.encode_blocks([list(row) for row in slots], *self._pools, positions=positions, **self._goal)
            seconds = time.perf_counter() - since
        with self._lock:
            self._kept.extend(made)
            self._pending.remove(batch)
            self._stored.pages += len(made)
            self._stored.nbytes += sum(map(len, made))
            self._stored.seconds += seconds


def _in_background() -> None:
    """Lets a thread have only what nobody else wants, as the plug-in's threads."""
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
