"""Decodes and encodes tensors on a CUDA device. Workspaces come from torch's allocator, on its current stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from .. import _native
from .._errors import ArgumentError, DataError, UnsupportedError
from . import _device
from ._tensors import check_aligned, check_tensor, is_turned, mark_written, name_of
from ._verdicts import raise_bad, verdicts_of

# Tensors that are encoded at a time.
_AT_ONCE = 4
# Bytes fetched to read the header of a blob; most headers are shorter.
_PEEK = 1 << 16
# Attribute of blobs that were made here: None, or the version of the tensor when its header was read, and what that says. Other
# blobs may lie where something else was received, of which torch knows nothing.
_HEADER = "_tenfold_header"


@dataclass(frozen=True)
class Limits:
    """Limits of a decoding call."""

    checksums: bool = True
    max_bytes: int | None = None


def can_convert(info: _native.BlobInfo, dtype: torch.dtype) -> bool:
    """Whether a device decodes a blob directly to a dtype."""
    return _native.cuda_can_convert(info, name_of(dtype))


def can_queue(info: _native.BlobInfo) -> bool:
    """Whether a device decodes a blob without waiting."""
    try:
        _native.cuda_can_decode(info)
    except UnsupportedError:
        return False
    return True


def check_out(out: torch.Tensor) -> torch.Tensor:
    """Refuses outputs without plain memory. On a device one may lie column by column, for a transposed blob."""
    if isinstance(out, torch.Tensor) and _device.is_ours(out.device) and is_turned(out):
        check_tensor(out.movedim(-1, 0), "out")
        return out
    return check_tensor(out, "out")


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.nbytes


def _allocator(device: torch.device) -> Callable[[int], tuple[torch.Tensor, int]]:
    """Returns a function through which the native module uses torch's allocator."""

    def allocate(length: int) -> tuple[torch.Tensor, int]:
        room = torch.empty(length, dtype=torch.uint8, device=device)
        return room, room.data_ptr()

    return allocate


def requests(
    blobs: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    infos: Sequence[_native.BlobInfo | None],
    limits: Limits,
    multiprocessors: int | None = None,
) -> _native.DecodeRequests:
    """Makes the native requests: addresses, and the known headers, which save launches."""
    items = []
    for blob, out, info in zip(blobs, outs, infos, strict=True):
        check_aligned(blob, "blob")
        check_aligned(out, "out")
        items.append((_memory(blob), _memory(out), name_of(out.dtype), is_turned(out), info))
    return _native.DecodeRequests(items, limits.checksums, limits.max_bytes, multiprocessors)


def one_device(blobs: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> torch.device:
    """Returns the one device of all these tensors; there is at least one tensor."""
    device = outs[0].device
    for tensor, what in [(blob, "a blob") for blob in blobs] + [(out, "an output") for out in outs]:
        if tensor.device != device:
            raise ArgumentError(f"{what} is on {tensor.device}, but others are on {device}; move it with .to({str(device)!r})")
    return device


def decode(
    blobs: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    infos: Sequence[_native.BlobInfo | None],
    limits: Limits,
) -> None:
    """Queues the decoding of blobs on the device without waiting; verdicts stay there until ``check``."""
    device = one_device(blobs, outs)
    call = requests(blobs, outs, infos, limits)
    with _device.preserve_current(device):
        stream = _device.stream(device)
        # Freed when this returns; the allocator reuses it only for later work on this stream.
        workspace = torch.empty(call.workspace_len, dtype=torch.uint8, device=device)
        status = verdicts_of(device, stream).take(len(call))
        _device.native(device).decode(call, status, _memory(workspace), stream.cuda_stream)
    for out in outs:
        mark_written(out)


def decode_from_host(
    blobs: Sequence[bytes | np.ndarray],
    outs: Sequence[torch.Tensor],
    infos: Sequence[_native.BlobInfo | None],
    limits: Limits,
) -> None:
    """Decodes blobs in host memory into tensors on a device, and waits for the verdicts."""
    device = one_device([], outs)
    with _device.preserve_current(device):
        stream = _device.stream(device)
        uploaded = [_device.upload(blob, device) for blob in blobs]
        call = requests(uploaded, outs, infos, limits)
        workspace = torch.empty(call.workspace_len, dtype=torch.uint8, device=device)
        status = torch.zeros(len(call), 2, dtype=torch.int64, device=device)
        _device.native(device).decode(call, status.data_ptr(), _memory(workspace), stream.cuda_stream)
        for out in outs:
            mark_written(out)
        raise_bad(status.cpu())


def inspect(blob: torch.Tensor) -> _native.BlobInfo:
    """Reads the header of a blob on a device. Waits for it, unless it has been read before and is ours."""
    info = known(blob)
    if info is None:
        info = _read_header(blob.reshape(-1))
        if hasattr(blob, _HEADER):
            setattr(blob, _HEADER, (blob._version, info))
    return info


def known(blob: torch.Tensor) -> _native.BlobInfo | None:
    """What the header of a blob says, if it was made here, has been read, and was not written to since."""
    header = getattr(blob, _HEADER, None)
    return header[1] if header is not None and header[0] == blob._version else None


def _read_header(flat: torch.Tensor) -> _native.BlobInfo:
    try:
        return _native.inspect(flat[:_PEEK].cpu().numpy())
    except DataError:
        if flat.numel() <= _PEEK:
            raise
        return _native.inspect(flat.cpu().numpy())


def decode_any(
    blob: torch.Tensor, out: torch.Tensor, limits: Limits, layers: int, host: bytes | np.ndarray | None = None
) -> None:
    """Decodes a blob on the device, whatever it takes, into a tensor of its own dtype and shape. Waits.

    Args:
        blob: bytes on the device.
        out: where to.
        limits: what to check, and how much to allow.
        layers: how many layers to take; 0 for all.
        host: the same bytes on the host, where the caller has them.
    """
    device = one_device([blob], [out])
    with _device.preserve_current(device):
        stream = _device.stream(device).cuda_stream
        _device.native(device).decode_any(
            _memory(blob), _memory(out), layers, limits.checksums, limits.max_bytes, host, _allocator(device), stream
        )
    mark_written(out)


def multiply(matrix: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """Queues the product of a matrix and a vector on a device, to which a bias may be added."""
    device = out.device
    with _device.preserve_current(device):
        stream = _device.stream(device).cuda_stream
        added = None if bias is None else _memory(bias)
        _device.native(device).multiply(_memory(matrix), _memory(vector), added, _memory(out), name_of(out.dtype), stream)


def encode_many(tensors: Sequence[torch.Tensor], options: _native.EncodeOptions) -> list[torch.Tensor]:
    """Encodes tensors of one device, several at a time, each on one of a few streams. Waits for the sizes of the blobs."""
    device = tensors[0].device
    main = _device.stream(device)
    # The largest first, so that none of them is waited for alone.
    left = iter(sorted(range(len(tensors)), key=lambda i: -tensors[i].nbytes))
    blobs: dict[int, torch.Tensor] = {}
    lock = threading.Lock()

    def work(stream: torch.cuda.Stream) -> None:
        with _device.on(stream):
            while True:
                with lock:
                    i = next(left, None)
                if i is None:
                    return
                blobs[i] = encode(tensors[i], options)
                # It is of the stream's memory, and will be used on the other.
                _device.share(blobs[i], main)

    streams = _device.sides(device, min(_AT_ONCE, len(tensors)))
    for stream in streams:
        stream.wait_stream(main)
    try:
        with ThreadPoolExecutor(len(streams), thread_name_prefix="tenfold") as pool:
            for done in [pool.submit(work, stream) for stream in streams]:
                done.result()
    finally:
        for stream in streams:
            main.wait_stream(stream)
    return [blobs[i] for i in range(len(tensors))]


def encode_calibrated(tensor: torch.Tensor, options: _native.EncodeOptions) -> tuple[torch.Tensor, float]:
    """Encodes a matrix on a device with the curvature of its options; returns the blob there and the predicted rise of the loss. Waits."""
    check_aligned(tensor, "tensor")
    device = tensor.device
    with _device.preserve_current(device):
        stream = _device.stream(device).cuda_stream
        blob, loss, _, _ = _device.native(device).encode_calibrated(
            _memory(tensor), name_of(tensor.dtype), list(tensor.shape), options, _allocator(device), stream
        )
    return blob, loss


def curvature_unit(curvature: _native.Curvature, device: torch.device) -> float:
    """``Curvature.unit``, factored on a device. Waits."""
    with _device.preserve_current(device):
        stream = _device.stream(device).cuda_stream
        return _device.native(device).curvature_unit(curvature, _allocator(device), stream)


def encode(tensor: torch.Tensor, options: _native.EncodeOptions) -> torch.Tensor:
    """Encodes a tensor on a device into a blob there. Waits for the blob's size."""
    check_aligned(tensor, "tensor")
    device = tensor.device
    with _device.preserve_current(device):
        stream = _device.stream(device).cuda_stream
        blob: torch.Tensor = _device.native(device).encode(
            _memory(tensor), name_of(tensor.dtype), list(tensor.shape), options, _allocator(device), stream
        )
    # Inference tensors do not count how often they were written to.
    if not blob.is_inference():
        setattr(blob, _HEADER, None)
    return blob
