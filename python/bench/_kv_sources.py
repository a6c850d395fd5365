"""Where the chunks of a prefix come from: pinned memory, a file, or a link of so many bits a second."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

# Buffers of a ring.
DEPTH = 4

# A chunk's number, its bytes, and what to tell when its work is queued: an event after which the bytes may be overwritten, or None.
Chunk = tuple[int, torch.Tensor, Callable[[Any], None]]


class Pinned:
    """Chunks that are in memory already."""

    def __init__(self, stored: torch.Tensor, bounds: list[tuple[int, int]]) -> None:
        self._stored, self._bounds = stored, bounds

    def chunks(self) -> Iterator[Chunk]:
        for number, (start, end) in enumerate(self._bounds):
            yield number, self._stored[start:end], lambda event: None


class Ring:
    """Pinned buffers between a thread that fills them and the device, which reads them. One is filled again when it has been read."""

    def __init__(self, bounds: list[tuple[int, int]], pinned: bool) -> None:
        self._bounds = bounds
        most = max(end - start for start, end in bounds)
        self._buffers = [torch.empty(most, dtype=torch.uint8, pin_memory=pinned) for _ in range(min(DEPTH, len(bounds)))]

    def chunks(self, fill: Callable[[int, torch.Tensor], None]) -> Iterator[Chunk]:
        """Chunks in their order, each as soon as `fill` has put its bytes, from a start, into a buffer."""
        free: queue.SimpleQueue[tuple[torch.Tensor, Any]] = queue.SimpleQueue()
        ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for buffer in self._buffers:
            free.put((buffer, None))

        def work() -> None:
            try:
                for start, end in self._bounds:
                    buffer, read = free.get()
                    if read is not None:
                        read.synchronize()
                    fill(start, buffer[: end - start])
                    ready.put(buffer)
            except BaseException as error:  # Raised where the chunks are awaited.
                ready.put(error)

        threading.Thread(target=work, daemon=True).start()
        for number, (start, end) in enumerate(self._bounds):
            buffer = ready.get()
            if isinstance(buffer, BaseException):
                raise buffer
            yield number, buffer[: end - start], lambda event, buffer=buffer: free.put((buffer, event))


class Link:
    """Chunks over a link of so many gigabits a second.

    The bytes lie in pinned memory already, as where a network card writes them. What the link takes is time: a chunk is handed over when
    all bytes up to its end would have arrived, and at once if that was while the last one was being dealt with.
    """

    def __init__(self, stored: torch.Tensor, bounds: list[tuple[int, int]], gigabits: float) -> None:
        self._stored, self._bounds, self._rate = stored, bounds, gigabits * 1e9 / 8

    def chunks(self) -> Iterator[Chunk]:
        since = time.perf_counter()
        for number, (start, end) in enumerate(self._bounds):
            while (left := since + end / self._rate - time.perf_counter()) > 0:
                time.sleep(left)
            yield number, self._stored[start:end], lambda event: None


class Disk:
    """Bytes of a file, which the system is asked to forget before each round."""

    def __init__(self, path: Path, stored: torch.Tensor, ring: Ring) -> None:
        self._path, self._ring = path, ring
        # The share of the file that was in the page cache before the last round; None if the system does not say.
        self.cached: float | None = None
        with open(path, "wb", buffering=0) as file:
            content = memoryview(stored.numpy())
            # By parts: one call writes 2 GiB at most.
            at = 0
            while at < len(content):
                at += file.write(content[at : at + (64 << 20)])
            os.fsync(file.fileno())

    def close(self) -> None:
        """Removes the file."""
        self._path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Drops the file from the page cache, if possible."""
        with open(self._path, "rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self.cached = _cached(file.fileno())

    @property
    def note(self) -> str:
        """What to say if the file may not have come from the disk."""
        if self.cached is None:
            return "perhaps from the page cache"
        return f"{100 * self.cached:.0f} % from the page cache" if self.cached > 0.1 else ""

    def chunks(self) -> Iterator[Chunk]:
        with open(self._path, "rb", buffering=0) as file:

            def fill(start: int, buffer: torch.Tensor) -> None:
                room = memoryview(buffer.numpy())
                file.seek(start)
                while room:
                    count = file.readinto(room)
                    if not count:
                        raise EOFError(f"{self._path} is shorter than it was written")
                    room = room[count:]

            yield from self._ring.chunks(fill)


def _cached(file: int) -> float | None:
    """The share of a file that is in the page cache, by some of its bytes: reading others would have to wait."""
    length, found = os.fstat(file).st_size, 0
    for part in range(64):
        try:
            os.preadv(file, [bytearray(1)], length * part // 64, os.RWF_NOWAIT)
            found += 1
        except BlockingIOError:
            continue
        except (AttributeError, OSError):
            return None
    return found / 64
