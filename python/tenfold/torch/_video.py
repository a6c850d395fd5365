"""Blobs of pictures (H.264, H.265, AV1) through the video engines of an NVIDIA GPU: NVDEC into tensors, NVENC where a GPU has it."""

from __future__ import annotations

import atexit
import threading
from types import TracebackType
from typing import Any

import torch

from .. import _native
from .._codec import encode_options
from .._errors import ArgumentError, UnsupportedError
from . import _cuda, _device
from ._tensors import (
    as_device,
    as_dtype,
    check_aligned,
    check_blob,
    check_fits,
    check_tensor,
    dtype_of,
    empty,
    from_bytes,
    host_bits,
    host_blob,
    mark_written,
    name_of,
)


def _on_engines(device: Any, what: str) -> torch.device:
    found = as_device(device)
    if not _device.is_ours(found):
        raise UnsupportedError(f"{what} needs a CUDA device with video engines, not {found}")
    return found


def _read(blob: Any) -> tuple[Any, _native.BlobInfo]:
    """Returns a blob's bytes in host memory, where its streams are checked, and what its header says."""
    if isinstance(blob, torch.Tensor) and _device.is_ours(check_blob(blob).device):
        blob = blob.reshape(-1).cpu()
    host = host_blob(blob)
    info = _native.inspect(host)
    if not _native.holds_pictures(info):
        raise UnsupportedError(f"video engines decode pictures, and the blob is {info.codec}; use tenfold.torch.decode")
    return host, info


def _is_direct(own: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether pictures become elements of a dtype without another pass."""
    floats = [dtype.is_floating_point and dtype.itemsize <= 4 for dtype in (own, wanted)]
    return wanted == own or all(floats)


class VideoPending:
    """A blob on its way through the engines: what :meth:`VideoDecoder.submit` returns.

    Dropping it gives it up, which waits until nothing is written for it any more.
    """

    def __init__(
        self,
        native: _native.VideoPending,
        room: torch.Tensor,
        out: torch.Tensor | None,
        dtype: torch.dtype,
        stream: torch.cuda.Stream,
    ) -> None:
        self._native, self._room, self._out, self._dtype, self._stream = native, room, out, dtype, stream

    @property
    def ready(self) -> bool:
        """Whether :meth:`result` would return without waiting for an engine."""
        return self._native.ready

    def result(self) -> torch.Tensor:
        """Waits for the engines and returns the tensor: what torch's current stream does from now on sees it.

        Raises:
            DataError: the pictures are not what the blob says, or decode to other samples. The tensor's values mean nothing.
            MachineError: no engine answered in time.
        """
        room, out = self._room, self._out
        with _device.preserve_current(room.device):
            stream = _device.stream(room.device)
            self._native.result(stream.cuda_stream)
            if stream != self._stream:
                _device.share(room, stream)
            mark_written(room)
            if out is None:
                return room.to(self._dtype)
            return out if out is room else out.copy_(room)

    def abandon(self) -> None:
        """Gives the blob up, and waits until nothing is written for it."""
        self._native.abandon()


class VideoDecoder:
    """The decoding engines (NVDEC) of a CUDA device, held open: threads for them, and decoders that are kept for the next blob.

    Making a decoder takes 40 to 160 ms, so keep one of these; :func:`tenfold.torch.decode` keeps one for each device. All functions
    may be called from several threads at once.

    Args:
        device: a CUDA device.
        lanes: engines to use; 0 for all, with a second decoder on each for the blob that is submitted meanwhile.
        idle_bytes: device memory that decoders without work may keep; 1 GiB by default, or a thirty-second of the device's if that is more.
        patience: seconds that engines may be silent before a call gives up; 10 by default.

    Raises:
        EngineUnavailableError: the GPU has no such engines, or its driver lacks their library.

    >>> import tenfold, tenfold.torch
    >>> def decode_all(blobs):
    ...     with tenfold.torch.VideoDecoder("cuda") as video:
    ...         pending = [video.submit(blob) for blob in blobs]
    ...         return [one.result() for one in pending]
    """

    def __init__(
        self, device: Any = "cuda", *, lanes: int = 0, idle_bytes: int | None = None, patience: float | None = None
    ) -> None:
        if lanes < 0 or (idle_bytes is not None and idle_bytes < 0):
            raise ArgumentError("lanes and idle_bytes must not be negative")
        self._device = _on_engines(device, "a VideoDecoder")
        with _device.preserve_current(self._device):
            self._lanes = _native.VideoLanes(_device.native(self._device), lanes, idle_bytes, patience)

    @property
    def device(self) -> torch.device:
        """The device."""
        return self._device

    @property
    def counters(self) -> dict[str, int]:
        """What was done so far: ``lanes``, decoders that are ``open``, were ``created``, ``reused`` or ``reconfigured``, ``pictures``."""
        return self._lanes.counters

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._lanes.closed

    def submit(
        self, blob: Any, *, out: torch.Tensor | None = None, dtype: Any = None, max_bytes: int | None = None
    ) -> VideoPending:
        """Starts decoding a blob; the engines work beside what torch's streams do.

        The blob is checked in full before this returns: header, checksums, streams. Nothing is written before what the current stream
        has to do now is done; until the result is there, the tensor must not be used.

        Args:
            blob: bytes, any contiguous buffer, or a tensor of uint8. The host checks the blob and hands its pictures to the driver, so
                one on a device is copied to the host first, which waits.
            out: contiguous tensor of the device to write into, of the tensor's shape; a new one by default.
            dtype: dtype of the result; by default the blob's. Floats of at most 32 bits are written as any such dtype.
            max_bytes: refuse a blob whose tensor is larger; 64 GiB by default.

        Raises:
            DataError: the blob is damaged.
            UnsupportedError: the engines do not decode such pictures.
        """
        if out is not None and dtype is not None:
            raise ArgumentError("out excludes dtype: that of out applies")
        if max_bytes is not None and max_bytes < 0:
            raise ArgumentError("max_bytes must not be negative")
        wanted = None if dtype is None else as_dtype(dtype)
        with _device.preserve_current(self._device):
            if _device.is_capturing():
                raise ArgumentError("a CUDA graph cannot capture video engines; decode before or after")
            host, info = _read(blob)
            own = dtype_of(info.dtype)
            if out is not None:
                check_tensor(out, "out")
                check_fits(out, info)
                if out.device != self._device:
                    raise ArgumentError(f"out is on {out.device}, but the decoder on {self._device}")
                wanted = out.dtype
            final = own if wanted is None else wanted
            direct = _is_direct(own, final)
            room = out if out is not None and direct else empty(info.shape, final if direct else own, self._device)
            check_aligned(room, "out")
            stream = _device.stream(self._device)
            memory = (room.data_ptr(), room.nbytes)
            native = self._lanes.submit(host, room, memory, name_of(room.dtype), max_bytes, stream.cuda_stream)
        return VideoPending(native, room, out, final, stream)

    def decode(
        self, blob: Any, *, out: torch.Tensor | None = None, dtype: Any = None, max_bytes: int | None = None
    ) -> torch.Tensor:
        """Decodes a blob on all engines and waits: :meth:`submit` and :meth:`VideoPending.result` at once."""
        return self.submit(blob, out=out, dtype=dtype, max_bytes=max_bytes).result()

    def close(self) -> None:
        """Waits for what was submitted, whose results can still be taken, and closes the decoders."""
        self._lanes.close()

    def __enter__(self) -> VideoDecoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<VideoDecoder on {self._device}, {'closed' if self.closed else self.counters}>"


class VideoEncoder:
    """The encoding engines (NVENC) of a CUDA device, held open: tensors into blobs of pictures that the decoding engines take.

    Data-centre GPUs have none. Samples are made on the host, to which a tensor is copied; the engines code them, and the device's
    decoding engines check each picture.

    Args:
        codec: "h264", "h265" or "av1".
        device: a CUDA device.
        bits: bits a value; 2.5 if no goal is stated.
        depth: bits of a sample: 8 or 10; by default 8, or more where 8 cannot reach the goal.
        qp: a fixed quantiser in place of a goal.
        scale: what shares a centre and a scale: "tensor", "columns" or "rows=N".
        options: another goal, and ``effort``, ``threads`` and ``prepare``, as in :func:`tenfold.encode`.

    Raises:
        EngineUnavailableError: the GPU has no such engine, or its driver lacks the library.
    """

    def __init__(
        self,
        codec: str = "h265",
        *,
        device: Any = "cuda",
        bits: float | None = None,
        depth: int | None = None,
        qp: int | None = None,
        scale: str = "tensor",
        **options: Any,
    ) -> None:
        self._options = encode_options(bits=bits, **options)
        self._how = (codec, depth, qp, scale)
        self._device = _on_engines(device, "a VideoEncoder")
        with _device.preserve_current(self._device):
            self._sessions = _native.VideoSessions(_device.native(self._device))

    def encode(self, tensor: torch.Tensor) -> torch.Tensor:
        """Encodes a tensor of the device into a blob: a tensor of uint8 there. Waits."""
        if check_tensor(tensor, "tensor").device != self._device:
            raise ArgumentError(f"the tensor is on {tensor.device}, but the encoder on {self._device}")
        return _encode(self._sessions, tensor, self._options, *self._how)

    def close(self) -> None:
        """Closes the sessions, so that other programs can have them."""
        self._sessions.close()

    def __enter__(self) -> VideoEncoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _encode(
    sessions: _native.VideoSessions,
    tensor: torch.Tensor,
    options: _native.EncodeOptions,
    codec: str,
    depth: int | None = None,
    qp: int | None = None,
    scale: str = "tensor",
) -> torch.Tensor:
    with _device.preserve_current(tensor.device):
        lanes = shared_decoder(tensor.device)._lanes
        blob = sessions.encode(lanes, host_bits(tensor), name_of(tensor.dtype), options, codec, depth, qp, scale)
    return from_bytes(blob).to(tensor.device)


_lock = threading.Lock()
_decoders: dict[torch.device, VideoDecoder] = {}
_sessions: dict[torch.device, _native.VideoSessions] = {}


def shared_decoder(device: torch.device) -> VideoDecoder:
    """Returns the decoder that :func:`tenfold.torch.decode` keeps open on a device."""
    with _lock:
        found = _decoders.get(device)
        if found is None:
            found = _decoders[device] = VideoDecoder(device)
        return found


def encode(tensor: torch.Tensor, options: _native.EncodeOptions, codec: str) -> torch.Tensor:
    """Encodes a tensor of a device with sessions that are kept open."""
    device = _on_engines(check_tensor(tensor, "tensor").device, f"codec={codec!r}")
    with _lock:
        sessions = _sessions.get(device)
        if sessions is None:
            with _device.preserve_current(device):
                sessions = _sessions[device] = _native.VideoSessions(_device.native(device))
    return _encode(sessions, tensor, options, codec)


def decode(
    blob: Any, device: torch.device, out: torch.Tensor | None, dtype: torch.dtype | None, limits: _cuda.Limits, layers: int
) -> torch.Tensor:
    """Decodes a blob of pictures on a device with decoders that are kept open. Waits."""
    if layers:
        raise ArgumentError("pictures have no layers; leave layers out")
    return shared_decoder(device).decode(blob, out=out, dtype=dtype, max_bytes=limits.max_bytes)


@atexit.register
def close_all() -> None:
    """Closes what is kept open, while there still is a driver."""
    with _lock:
        decoders, sessions = list(_decoders.values()), list(_sessions.values())
        _decoders.clear()
        _sessions.clear()
    for decoder in decoders:
        decoder.close()
    for session in sessions:
        session.close()
