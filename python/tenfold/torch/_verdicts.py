"""Verdicts of devices on decoded blobs. They stay on the device until someone asks, because asking means waiting."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Protocol

import torch

from .. import _native
from . import _device
from ._tensors import as_device

# Verdicts that a stream collects before it keeps only the first bad one; each takes 16 bytes.
_SLOTS = 1024
# The code is in the lower half of a verdict's first number; zero means success.
CODE = 0xFFFF_FFFF


class Verdicts:
    """The verdicts of one stream, on its device."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._used = 0
        self._slots = _zeros(_SLOTS, device)
        # The first bad one of the verdicts already folded away.
        self._first_bad = _zeros(1, device)

    def take(self, count: int) -> int:
        """Reserves room for this many verdicts and returns its address. The stream must be the current one."""
        with self._lock:
            if self._used + count > self._slots.shape[0]:
                self._fold(count)
            address = self._slots.data_ptr() + 16 * self._used
            self._used += count
            return address

    def _fold(self, count: int) -> None:
        """Makes room without waiting: the device picks the first bad verdict."""
        self._first_bad.copy_(first_bad(torch.cat([self._first_bad, self._slots])))
        if count > self._slots.shape[0]:
            self._slots = _zeros(count, self._slots.device)
        else:
            self._slots.zero_()
        self._used = 0

    def check(self) -> None:
        """Waits for the stream, forgets all verdicts and raises the first bad one."""
        with self._lock, _device.on(self._stream):
            said = torch.cat([self._first_bad, self._slots[: self._used]]).cpu()
            self._first_bad.zero_()
            self._slots.zero_()
            self._used = 0
        raise_bad(said)


def _zeros(count: int, device: torch.device) -> torch.Tensor:
    # Tensors made in inference mode cannot be written outside it.
    with torch.inference_mode(False):
        return torch.zeros(count, 2, dtype=torch.int64, device=device)


def first_bad(said: torch.Tensor) -> torch.Tensor:
    """The first bad one of verdicts, or a good one, as one row; does not wait."""
    bad = (said[:, 0] & CODE) != 0
    return said.index_select(0, bad.to(torch.uint8).argmax().view(1))


def raise_bad(said: torch.Tensor) -> None:
    """Raises the first bad one of verdicts in host memory."""
    for one in said[(said[:, 0] & CODE) != 0]:
        _native.cuda_decoded(one.numpy().tobytes())


class Watched(Protocol):
    """Something that decodes again and again and knows what the device said."""

    @property
    def device(self) -> torch.device | None: ...

    def report(self) -> None:
        """Waits, and raises the first error since the last report."""


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()


def watch(one: Watched) -> None:
    """Lets :func:`check` ask something that decodes by itself, as long as it exists."""
    _watched.add(one)


_of_stream: dict[tuple[int | None, int], Verdicts] = {}


def verdicts_of(device: torch.device, stream: torch.cuda.Stream) -> Verdicts:
    """Returns the verdicts of a stream, which must be the current one."""
    key = (device.index, stream.cuda_stream)
    found = _of_stream.get(key)
    if found is None:
        found = _of_stream.setdefault(key, Verdicts(device, stream))
    return found


def check_streams(index: int | None) -> None:
    """Asks only the streams, of a device or of all: not what decodes by itself."""
    for (found, _), verdicts in list(_of_stream.items()):
        if index is None or found == index:
            verdicts.check()


def check(device: Any = None) -> None:
    """Waits for the blobs decoded on a device, or on all devices, and raises the error of the first bad one.

    :func:`tenfold.torch.decode` does not wait for a blob on a device, so it cannot report a damaged blob; this function
    does, for all calls since the last check, and for modules whose weights stay compressed. The tensor decoded from a
    damaged blob is undefined. Blobs in host memory are checked before :func:`tenfold.torch.decode` returns.

    >>> import tenfold.torch
    >>> tenfold.torch.check()
    """
    index = None if device is None else as_device(device).index
    check_streams(index)
    for watched in list(_watched):
        at = watched.device
        if at is not None and (device is None or at.index == index):
            watched.report()
