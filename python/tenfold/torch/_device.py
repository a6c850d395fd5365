"""The few things of torch that know what a CUDA device is: its native twin, the current stream, memory from the host.

Everything else of the CUDA side works on addresses, so that tests can put an emulated device in the place of these functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch

from .. import _native

_opened: dict[int, _native.CudaDevice] = {}


def is_ours(device: torch.device) -> bool:
    """Whether tensors there are for the CUDA engine."""
    return device.type == "cuda"


def native(device: torch.device) -> _native.CudaDevice:
    """The engine on a device, in torch's context: both use the primary one."""
    found = _opened.get(device.index)
    if found is None:
        found = _opened[device.index] = _native.CudaDevice(device.index)
    return found


def stream(device: torch.device) -> torch.cuda.Stream:
    """torch's current stream on a device."""
    return torch.cuda.current_stream(device)


@contextmanager
def entered(device: torch.device) -> Iterator[None]:
    """Keeps the caller's current device: a call of the engine makes its own device current in this thread."""
    if torch.cuda.current_device() == device.index:
        yield
    else:
        with torch.cuda.device(device):
            yield


def on(stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
    """Makes a stream the current one."""
    return torch.cuda.stream(stream)


def capturing() -> bool:
    """Whether calls go to a CUDA graph."""
    return torch.cuda.is_current_stream_capturing()


def upload(blob: bytes | np.ndarray, device: torch.device) -> torch.Tensor:
    """A blob of the host on a device, through pinned memory; ordered on the current stream."""
    pinned = torch.empty(len(blob), dtype=torch.uint8, device="cpu", pin_memory=True)
    pinned.numpy()[:] = np.frombuffer(blob, dtype=np.uint8)
    return pinned.to(device, non_blocking=True)
