"""What the plug-ins count: pages, bytes on both sides of the codec, the codec's time, and what follows from them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

Numbers = dict[str, int | float]

# Names and what they count, for all engines.
COUNTERS = {
    "pages_saved": "Pages that were encoded and stored.",
    "bytes_before": "Bytes of their keys and values before they were encoded.",
    "bytes_stored": "Bytes of the pages that were stored.",
    "encode_seconds": "Seconds in which at least one page was being encoded.",
    "pages_loaded": "Pages that were read and decoded.",
    "bytes_loaded": "Bytes of the pages that were loaded.",
    "bytes_restored": "Bytes of keys and values that were decoded from them.",
    "decode_seconds": "Seconds in which at least one page was being decoded.",
}

# What plug-ins count besides that reload pages on stages.
RELOADS = {
    "read_seconds": "Seconds in which the record of at least one page was being read and checked.",
    "reload_seconds": "Seconds in which at least one page was being read or decoded.",
}


def pays_below(raw: float, coded: float, seconds: float) -> float:
    """Bandwidth of a link, in bytes a second, below which compressing saves time.

    At a bandwidth B raw bytes take ``raw / B``, compressed ones ``coded / B`` and the codec's time.

    >>> pays_below(4e9, 1e9, 2.0)
    1500000000.0
    """
    return max(raw - coded, 0) / seconds if seconds > 0 else 0.0


def derived(counted: Mapping[str, int | float]) -> Numbers:
    """What follows from counts: the ratio of what was stored, the bandwidths below which saving and loading pay, and the overlap of reading
    and decoding reached over possible.

    >>> derived({"bytes_before": 4000, "bytes_stored": 1000, "encode_seconds": 2.0})
    {'ratio': 4.0, 'save_pays_below': 1500}
    >>> derived({"read_seconds": 2.0, "decode_seconds": 4.0, "reload_seconds": 5.0})
    {'load_overlap': 0.5}
    """
    found: Numbers = {}
    before, stored = counted.get("bytes_before", 0), counted.get("bytes_stored", 0)
    if stored:
        found["ratio"] = round(before / stored, 2)
    if counted.get("encode_seconds") and stored:
        found["save_pays_below"] = round(pays_below(before, stored, counted["encode_seconds"]))
    restored, loaded = counted.get("bytes_restored", 0), counted.get("bytes_loaded", 0)
    if counted.get("decode_seconds") and loaded:
        found["load_pays_below"] = round(pays_below(restored, loaded, counted["decode_seconds"]))
    read, decode = counted.get("read_seconds", 0), counted.get("decode_seconds", 0)
    if read and decode and counted.get("reload_seconds"):
        saved = read + decode - counted["reload_seconds"]
        found["load_overlap"] = round(min(max(saved / min(read, decode), 0.0), 1.0), 2)
    return found


def add(a: Mapping[str, int | float], b: Mapping[str, int | float]) -> Numbers:
    """The sum of two sets of counts, without those of ``b`` that are 0."""
    return {**a, **{name: a.get(name, 0) + value for name, value in b.items() if value}}


class Counts:
    """Counts of a plug-in, by whichever thread has something to count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh: Numbers = {}
        self._taken: Numbers = {}
        # Of each direction: how many threads are at it, and since when that is counted.
        self._busy: dict[str, tuple[int, float]] = {}

    def add(self, **more: int | float) -> None:
        """Counts something."""
        with self._lock:
            self._fresh = add(self._fresh, more)

    def saved(self, raw: int, coded: int, **more: int | float) -> None:
        """Counts a page that was stored."""
        self.add(pages_saved=1, bytes_before=raw, bytes_stored=coded, **more)

    def loaded(self, raw: int, coded: int, **more: int | float) -> None:
        """Counts a page that was decoded."""
        self.add(pages_loaded=1, bytes_restored=raw, bytes_loaded=coded, **more)

    @contextmanager
    def encoding(self) -> Iterator[None]:
        """In here a page is encoded. Threads that do so at the same time count once: a link would wait for them together."""
        with self._timed("encode_seconds"):
            yield

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Likewise for decoding."""
        with self._timed("decode_seconds"):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Likewise for reading on stages."""
        with self._timed("read_seconds", "reload_seconds"):
            yield

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Likewise for decoding on stages."""
        with self._timed("decode_seconds", "reload_seconds"):
            yield

    def take(self) -> Numbers:
        """What was counted since the last call; empty if nothing was."""
        with self._lock:
            self._settle()
            taken, self._fresh = self._fresh, {}
            self._taken = add(self._taken, taken)
        return taken

    def totals(self) -> Numbers:
        """All that was counted, and what follows from it."""
        with self._lock:
            self._settle()
            everything = add(self._taken, self._fresh)
        ordered = {name: everything[name] for name in COUNTERS if name in everything}
        return {**ordered, **everything, **derived(everything)}

    @contextmanager
    def _timed(self, *names: str) -> Iterator[None]:
        self._enter(names, 1)
        try:
            yield
        finally:
            self._enter(names, -1)

    def _enter(self, names: Sequence[str], more: int) -> None:
        with self._lock:
            self._settle()
            for name in names:
                threads, since = self._busy.get(name, (0, 0.0))
                self._busy[name] = (threads + more, since if threads else time.perf_counter())

    def _settle(self) -> None:
        """Counts the time until now."""
        now = time.perf_counter()
        for name, (threads, since) in self._busy.items():
            if threads:
                self._fresh = add(self._fresh, {name: now - since})
                self._busy[name] = (threads, now)


class Report:
    """A line in a log, once a minute at most, of what was counted so far: for engines that have no place for counts.

    Args:
        logger: where the line goes.
        counts: what it says.
        every: seconds between two lines.
    """

    def __init__(self, logger: logging.Logger, counts: Counts, every: float = 60.0) -> None:
        self._logger, self._counts, self._every = logger, counts, every
        self._last = time.monotonic()

    def remind(self) -> None:
        """Writes the line if it is due."""
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            self._logger.info("tenfold: %s", describe(self._counts.totals()))


def describe(totals: Mapping[str, int | float]) -> str:
    """Counts as text.

    >>> describe({"pages_saved": 2, "encode_seconds": 0.5, "save_pays_below": 3_000_000})
    'pages_saved=2 encode_seconds=0.500 save_pays_below=3000000'
    """
    parts = {name: f"{value:.3f}" if isinstance(value, float) else str(value) for name, value in totals.items()}
    return " ".join(f"{name}={value}" for name, value in parts.items()) or "nothing was stored or loaded so far"
