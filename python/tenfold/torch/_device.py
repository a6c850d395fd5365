"""The only functions that deal with CUDA devices: the native engine, the current stream, uploads.

All other CUDA code works on addresses, so tests can replace these functions with an emulated device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch

from .. import _native
from .._errors import ArgumentError

_opened: dict[int, _native.CudaDevice] = {}
_sides: dict[int, list[torch.cuda.Stream]] = {}


def is_ours(device: torch.device) -> bool:
    """Whether the CUDA engine handles tensors on a device."""
    return device.type == "cuda"


def native(device: torch.device) -> _native.CudaDevice:
    """Returns the engine on a device. It shares the primary context with torch."""
    found = _opened.get(device.index)
    if found is None:
        found = _opened[device.index] = _native.CudaDevice(device.index)
    return found


def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a device has."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def stream(device: torch.device) -> torch.cuda.Stream:
    """Returns torch's current stream on a device."""
    return torch.cuda.current_stream(device)


def sides(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """Returns streams for work beside the current one: the same ones each time, since the allocator keeps memory for each."""
    streams = _sides.setdefault(device.index, [])
    while len(streams) < count:
        streams.append(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    return streams[:count]


def share(tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Tells the allocator that another stream uses a tensor too."""
    tensor.record_stream(stream)


def mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Returns an event that a stream reaches once it has done all that was queued on it."""
    event: torch.cuda.Event = stream.record_event()
    return event


def passed(event: torch.cuda.Event) -> bool:
    """Whether a device has come to an event."""
    return bool(event.query())  # type: ignore[no-untyped-call]


@contextmanager
def preserve_current(device: torch.device) -> Iterator[None]:
    """Restores the caller's current device afterwards: the engine makes its own device current in this thread."""
    if torch.cuda.current_device() == device.index:
        yield
    else:
        with torch.cuda.device(device):
            yield


def on(stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
    """Makes a stream the current one."""
    return torch.cuda.stream(stream)


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured."""
    return torch.cuda.is_current_stream_capturing()


def synchronize(device: torch.device) -> None:
    """Waits for all work on a device."""
    torch.cuda.synchronize(device)


def pinned(*shape: int) -> torch.Tensor:
    """Returns zeros in host memory that a device writes to without waiting."""
    return torch.zeros(shape, dtype=torch.int64, device="cpu", pin_memory=True)


def staging(length: int) -> torch.Tensor:
    """Returns host memory that a device reads without waiting. It is not used again before the device has read it."""
    return torch.empty(length, dtype=torch.uint8, device="cpu", pin_memory=True)


def pin(memory: torch.Tensor) -> None:
    """Lets devices read host memory without waiting. ``unpin`` it before it is freed.

    torch's own pinned memory comes in powers of two; a model of 70 billion weights would take 10 GB more.
    """
    if not torch.cuda.is_available():
        raise ArgumentError("torch finds no CUDA device to pin memory for; leave the blobs where the model is")
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(int(runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)))


def unpin(address: int) -> None:
    """Undoes ``pin``."""
    torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


def upload(blob: bytes | np.ndarray, device: torch.device) -> torch.Tensor:
    """Copies a blob from host memory to a device through pinned memory, on the current stream."""
    pinned = torch.empty(len(blob), dtype=torch.uint8, device="cpu", pin_memory=True)
    pinned.numpy()[:] = np.frombuffer(blob, dtype=np.uint8)
    return pinned.to(device, non_blocking=True)
