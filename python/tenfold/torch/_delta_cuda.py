"""Deltas on a CUDA device: what changes is read and written where the tensor lies, on torch's current stream."""

from __future__ import annotations

from typing import Any

import torch

from .. import _native
from .._errors import ArgumentError
from . import _device
from ._tensors import name_of

# The engine of each device, and what applies deltas there: it keeps its memory.
_appliers: dict[torch.device, tuple[_native.CudaDevice, _native.DeviceDelta]] = {}


def takes(tensor: torch.Tensor) -> bool:
    """Whether a device changes this tensor itself. Empty tensors have no memory there."""
    return _device.is_ours(tensor.device) and tensor.is_contiguous() and tensor.numel() > 0


def apply_(blob: Any, tensor: torch.Tensor, max_bytes: int | None) -> tuple[int, int]:
    """Sends a delta of the host to the tensor's device, applies it there, and waits.

    The device compares the values that change, old and new; an error leaves the tensor as it is.
    """
    if _device.is_capturing():
        raise ArgumentError("the call waits for the device, which a CUDA graph cannot capture; apply deltas between replays")
    device = tensor.device
    with _device.preserve_current(device):
        native = _device.native(device)
        known = _appliers.get(device)
        if known is None or known[0] is not native:
            known = _appliers[device] = (native, _native.DeviceDelta(native))
        memory = (tensor.data_ptr(), tensor.nbytes)
        stream = _device.stream(device).cuda_stream
        return known[1].apply(blob, memory, name_of(tensor.dtype), list(tensor.shape), stream, max_bytes)
