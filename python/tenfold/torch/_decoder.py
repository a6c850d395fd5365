"""Repeated decoding of the same blobs on a device: everything is prepared once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from .. import _native
from .._errors import ArgumentError, UnsupportedError
from . import _cuda, _device
from ._tensors import check_blob, mark_written, turn
from ._verdicts import raise_bad


class Decoder:
    """Decodes the same blobs into the same tensors, such as a layer's weights before each use.

    It holds blobs, outputs, workspace and verdicts, checks requests and reads the blobs' headers once. A call only queues the
    kernels that decode on torch's current stream: it neither allocates nor waits, so a CUDA graph can capture it. On a new stream,
    a call first makes that stream wait for the previous one.

    A blob's bytes may come and go between calls, as where several layers take turns in one buffer, but at a call they must be those
    that the decoder was made with. Others are not decoded outside their memory, and wrong checksums of tiles are found; for another
    header, make another decoder.

    Args:
        blobs: tensors of uint8 on one CUDA device.
        outs: as many tensors there, contiguous, of the shapes of the blobs' tensors. Lossy blobs of floats of at most 32 bits
            decode to any float dtype of at most 32 bits.
        checksums: whether to check the checksums of tiles; headers are always checked. ``"once"`` checks them in the first call
            alone: what is wrong with a tile's stream is still found in all of them, but for damage that happens to fit.
        max_bytes: refuse a blob whose tensor is larger; 64 GiB by default.
        transposed_views: whether outputs of transposed blobs, as calibrated weights have them, become transposed views of the same
            memory, which :attr:`outs` has and calls return: ``.t()`` of a contiguous tensor. Otherwise such a blob is decoded to the
            workspace, which is larger by the tensor, and transposed from there, unless its output is such a view already.
        multiprocessors: how many to use at most, all by default. Decoding takes whole ones, so kernels of other streams wait for it
            or run on those that are left to them.

    Raises:
        DataError: a header is damaged. What is wrong with tiles, :meth:`check` says.
    """

    def __init__(
        self,
        blobs: Sequence[torch.Tensor],
        outs: Sequence[torch.Tensor],
        *,
        checksums: bool | Literal["once"] = True,
        max_bytes: int | None = None,
        multiprocessors: int | None = None,
        transposed_views: bool = False,
    ) -> None:
        if checksums not in (True, False, "once"):
            raise ArgumentError(f"checksums must be True, False or \"once\", not {checksums!r}")
        if multiprocessors is not None and multiprocessors < 1:
            raise ArgumentError(f"multiprocessors must be at least 1, not {multiprocessors}")
        if len(blobs) != len(outs) or not blobs:
            raise ArgumentError(f"there are {len(blobs)} blobs and {len(outs)} outputs; pass one output a blob")
        self._blobs = [check_blob(blob) for blob in blobs]
        self._outs = [_cuda.check_out(out) for out in outs]
        device = self._device = _cuda.one_device(self._blobs, self._outs)
        if not _device.is_ours(device):
            raise UnsupportedError(f"a Decoder needs a CUDA device, not {device}; use tenfold.torch.decode_many")
        with _device.preserve_current(device):
            infos = [_cuda.inspect(blob) for blob in self._blobs]
            if transposed_views:
                turned = [info.transposed and out.is_contiguous() for out, info in zip(self._outs, infos, strict=True)]
                self._outs = [turn(out) if turns else out for out, turns in zip(self._outs, turned, strict=True)]
            for out, info in zip(self._outs, infos, strict=True):
                try:
                    _native.cuda_can_decode(info)
                except UnsupportedError as error:
                    raise UnsupportedError(f"{error}: tenfold.torch.decode waits and takes any blob") from None
                if tuple(out.shape) != info.shape or not _cuda.can_convert(info, out.dtype):
                    raise ArgumentError(
                        f"an output is {out.dtype} {tuple(out.shape)}; its blob is {info.codec} {info.dtype} {info.shape}"
                    )
            def call(checks: bool) -> _native.DecodeRequests:
                return _cuda.requests(self._blobs, self._outs, infos, _cuda.Limits(checks, max_bytes), multiprocessors)

            self._call = call(bool(checksums))
            self._later = call(False) if checksums == "once" else self._call
            self._workspace = torch.empty(self._call.workspace_len, dtype=torch.uint8, device=device)
            self._status = torch.zeros(len(outs), 2, dtype=torch.int64, device=device)
            self._memory = (self._workspace.data_ptr(), self._workspace.nbytes)
            self._engine = _device.native(device)
            self._stream = _device.stream(device)
            # Once and for all, which saves each call a launch and 20 µs.
            self._engine.open(self._call, self._status.data_ptr(), self._memory, self._stream.cuda_stream)
            raise_bad(self._status.cpu())

    @property
    def outs(self) -> list[torch.Tensor]:
        """The tensors that calls write to."""
        return list(self._outs)

    @property
    def verdicts(self) -> torch.Tensor:
        """What the device said of each blob: two numbers, of which :meth:`check` makes an error and then zeros."""
        return self._status

    def __call__(self) -> list[torch.Tensor]:
        """Queues the decoding and returns the outputs."""
        with _device.preserve_current(self._device):
            stream = _device.stream(self._device)
            # During capture the caller is responsible for the order, and nothing outside the graph may be waited for.
            if stream != self._stream and not _device.is_capturing():
                stream.wait_stream(self._stream)
                for tensor in (*self._blobs, *self._outs, self._workspace, self._status):
                    tensor.record_stream(stream)
                self._stream = stream
            self._engine.decode_opened(self._call, self._status.data_ptr(), self._memory, stream.cuda_stream)
        self._call = self._later
        for out in self._outs:
            mark_written(out)
        return self._outs

    def check(self) -> None:
        """Waits for the last call and raises the error of the first bad blob, in any call since the last check."""
        with _device.preserve_current(self._device), _device.on(self._stream):
            said = self._status.to("cpu", copy=True)
            self._status.zero_()
        raise_bad(said)
