"""Decoding and encoding where tensors lie on a CUDA device. Workspaces come from torch's allocator, on its current stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .. import _native
from .._errors import ArgumentError, DataError
from . import _device
from ._tensors import check_aligned, name_of, written
from ._verdicts import raise_bad, verdicts_of

# Lossy blobs of these come out as any of them; all others as what they are.
_CONVERTIBLE = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32")
_CODECS = ("lossy", "lossless")
# Transforms that a device undoes where it decodes; the CPU undoes others.
_ON_THE_WAY = ("column weights", "row weights", "kept elements")
# Bytes of a blob that are fetched to look at its header; most headers are shorter.
_PEEK = 1 << 16


@dataclass(frozen=True)
class Limits:
    """What a call of decode asks for beside blobs and outputs."""

    checksums: bool = True
    max_bytes: int | None = None


def converts(info: _native.BlobInfo, dtype: torch.dtype) -> bool:
    """Whether a device decodes a blob straight to a dtype."""
    name = name_of(dtype)
    return name == info.dtype or (info.codec == "lossy" and name in _CONVERTIBLE and info.dtype in _CONVERTIBLE)


def undoes(info: _native.BlobInfo) -> bool:
    """Whether a device decodes a blob and undoes all its transforms."""
    if info.layers:
        return False
    return len(set(info.transforms)) == len(info.transforms) and all(name in _ON_THE_WAY for name in info.transforms)


def requests(
    blobs: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    infos: Sequence[_native.BlobInfo | None],
    limits: Limits,
) -> _native.DecodeRequests:
    """The native form of a call: addresses, and what is known of the blobs, which saves launches."""
    items = []
    for blob, out, info in zip(blobs, outs, infos, strict=True):
        check_aligned(blob, "blob")
        check_aligned(out, "out")
        codec = info.codec if info is not None and info.codec in _CODECS else None
        memory = (blob.data_ptr(), blob.nbytes), (out.data_ptr(), out.nbytes)
        items.append((*memory, name_of(out.dtype), codec))
    return _native.DecodeRequests(items, limits.checksums, limits.max_bytes)


def one_device(blobs: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> torch.device:
    """The device of all these tensors, of which there is one at least."""
    device = outs[0].device
    for tensor, what in [(blob, "a blob") for blob in blobs] + [(out, "an output") for out in outs]:
        if tensor.device != device:
            raise ArgumentError(f"{what} is on {tensor.device}, others are on {device}; move it with .to({str(device)!r})")
    return device


def decode(
    blobs: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    infos: Sequence[_native.BlobInfo | None],
    limits: Limits,
) -> None:
    """Queues the decoding of blobs that lie on the device. Nobody waits; verdicts stay there until ``check``."""
    device = one_device(blobs, outs)
    call = requests(blobs, outs, infos, limits)
    with _device.entered(device):
        stream = _device.stream(device)
        # Freed when this returns, and handed out again only to what comes later on this stream.
        workspace = torch.empty(call.workspace_len, dtype=torch.uint8, device=device)
        status = verdicts_of(device, stream).take(len(call))
        memory = (workspace.data_ptr(), workspace.nbytes)
        _device.native(device).decode(call, status, memory, stream.cuda_stream)
    for out in outs:
        written(out)


def decode_from_host(
    blobs: Sequence[bytes | np.ndarray],
    outs: Sequence[torch.Tensor],
    infos: Sequence[_native.BlobInfo | None],
    limits: Limits,
) -> None:
    """Decodes blobs of the host into tensors of a device, and waits to see whether they are sound."""
    device = one_device([], outs)
    with _device.entered(device):
        stream = _device.stream(device)
        uploaded = [_device.upload(blob, device) for blob in blobs]
        call = requests(uploaded, outs, infos, limits)
        workspace = torch.empty(call.workspace_len, dtype=torch.uint8, device=device)
        status = torch.zeros(len(call), 2, dtype=torch.int64, device=device)
        memory = (workspace.data_ptr(), workspace.nbytes)
        _device.native(device).decode(call, status.data_ptr(), memory, stream.cuda_stream)
        for out in outs:
            written(out)
        raise_bad(status.cpu())


def inspect(blob: torch.Tensor) -> _native.BlobInfo:
    """Reads the header of a blob on a device. Waits for it."""
    flat = blob.reshape(-1)
    try:
        return _native.inspect(flat[:_PEEK].cpu().numpy())
    except DataError:
        if flat.numel() <= _PEEK:
            raise
        return _native.inspect(flat.cpu().numpy())


def encode(tensor: torch.Tensor, options: _native.EncodeOptions) -> torch.Tensor:
    """A tensor on a device to a blob on it. Waits for the blob's size."""
    check_aligned(tensor, "tensor")
    name, shape, device = name_of(tensor.dtype), list(tensor.shape), tensor.device
    engine = _device.native(device)

    def attempt(exact: bool) -> tuple[torch.Tensor | None, int]:
        room = torch.empty(_native.max_encoded_len(name, shape), dtype=torch.uint8, device=device)
        workspace_len = engine.encode_workspace_len(name, shape, options, exact)
        workspace = torch.empty(workspace_len, dtype=torch.uint8, device=device)
        status = torch.zeros(2, dtype=torch.int64, device=device)
        engine.encode(
            (tensor.data_ptr(), tensor.nbytes),
            name,
            shape,
            (room.data_ptr(), room.nbytes),
            options,
            exact,
            status.data_ptr(),
            (workspace.data_ptr(), workspace.nbytes),
            _device.stream(device).cuda_stream,
        )
        there, size = _native.cuda_encoded(status.cpu().numpy().tobytes())
        # A copy: the room is as large as the tensor.
        return (room[:size].clone() if there else None), size

    with _device.entered(device):
        blob: torch.Tensor = _native.meet_goal(
            name, tensor.numel(), options, lambda: attempt(True), lambda: attempt(False)
        )
    return blob
