"""What devices say of the blobs that they decoded: kept there until someone asks, because asking means waiting."""

from __future__ import annotations

import threading
from typing import Any

import torch

from .. import _native
from . import _device
from ._tensors import as_device

# Verdicts of a stream before the bad ones among them are put aside; each takes 16 bytes.
_SLOTS = 1024
# The code is in the lower half of a verdict's first number; zero means that all went well.
_CODE = 0xFFFF_FFFF


class Verdicts:
    """Those of one stream, on its device."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._used = 0
        self._slots = _zeros(_SLOTS, device)
        # The first bad verdict of those that had to make room.
        self._first_bad = _zeros(1, device)

    def take(self, count: int) -> int:
        """The address of room for so many verdicts. The stream must be the current one."""
        with self._lock:
            if self._used + count > self._slots.shape[0]:
                self._fold(count)
            address = self._slots.data_ptr() + 16 * self._used
            self._used += count
            return address

    def _fold(self, count: int) -> None:
        """Makes room without waiting: the first bad verdict is picked out on the device."""
        bad = (self._slots[:, 0] & _CODE) != 0
        first = self._slots.index_select(0, bad.to(torch.uint8).argmax().view(1))
        self._first_bad.copy_(torch.where((self._first_bad[:, :1] & _CODE) != 0, self._first_bad, first))
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
    # Tensors that are made in inference mode cannot be written to outside it.
    with torch.inference_mode(False):
        return torch.zeros(count, 2, dtype=torch.int64, device=device)


def raise_bad(said: torch.Tensor) -> None:
    """Raises the first bad one of verdicts that have come to the host."""
    for one in said[(said[:, 0] & _CODE) != 0]:
        _native.cuda_decoded(one.numpy().tobytes())


_of_stream: dict[tuple[int | None, int], Verdicts] = {}


def verdicts_of(device: torch.device, stream: torch.cuda.Stream) -> Verdicts:
    """Those of a stream, which is the current one."""
    key = (device.index, stream.cuda_stream)
    found = _of_stream.get(key)
    if found is None:
        found = _of_stream.setdefault(key, Verdicts(device, stream))
    return found


def check(device: Any = None) -> None:
    """Waits for the blobs that were decoded on a device, or on all, and raises what is wrong with the first bad one.

    :func:`tenfold.torch.decode` of a blob that lies on a device does not wait for it, so it cannot say that the blob is
    damaged; this does, for all calls since the last check. What was decoded from a damaged blob is anything. Blobs of the host
    are checked before :func:`tenfold.torch.decode` returns.

    >>> import tenfold.torch
    >>> tenfold.torch.check()
    """
    index = None if device is None else as_device(device).index
    for (found, _), verdicts in list(_of_stream.items()):
        if device is None or found == index:
            verdicts.check()
