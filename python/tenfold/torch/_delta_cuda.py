"""Deltas on a CUDA device: what changes is read and written where the tensor lies, on torch's current stream."""

from __future__ import annotations

from collections.abc import Sequence
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


def fingerprints(tensors: Sequence[torch.Tensor]) -> list[str]:
    """The fingerprints of tensors that :func:`takes` takes, hashed where they lie."""
    _refuse_capture()
    found: dict[int, str] = {}
    for device in {tensor.device for tensor in tensors}:
        there = [at for at, tensor in enumerate(tensors) if tensor.device == device]
        asked = [(tensors[at], name_of(tensors[at].dtype)) for at in there]
        with _device.preserve_current(device):
            memory = [((one.data_ptr(), one.nbytes), name, list(one.shape)) for one, name in asked]
            prints = _native.cuda_fingerprints(_device.native(device), memory, _device.stream(device).cuda_stream)
        found |= zip(there, prints, strict=True)
    return [found[at] for at in range(len(tensors))]


def _refuse_capture() -> None:
    if _device.is_capturing():
        raise ArgumentError("the call waits for the device, which a CUDA graph cannot capture; apply deltas between replays")


def apply_(blob: Any, tensor: torch.Tensor, max_bytes: int | None, check_only: bool = False) -> tuple[int, int]:
    """Sends a delta of the host to the tensor's device, applies it there, and waits.

    The device compares the values that change, old and new; an error leaves the tensor as it is, and so does ``check_only``.
    """
    _refuse_capture()
    device = tensor.device
    with _device.preserve_current(device):
        native = _device.native(device)
        known = _appliers.get(device)
        if known is None or known[0] is not native:
            known = _appliers[device] = (native, _native.DeviceDelta(native))
        memory = (tensor.data_ptr(), tensor.nbytes)
        stream = _device.stream(device).cuda_stream
        return known[1].apply(blob, memory, name_of(tensor.dtype), list(tensor.shape), stream, max_bytes, check_only)
