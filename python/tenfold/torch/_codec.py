"""One tensor to one blob and back; both are torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _native
from .._codec import encode_options, goal_text, layer_count, stated_goal
from .._errors import ArgumentError
from . import _cuda, _device, _video
from ._tensors import (
    as_device,
    as_dtype,
    check_blob,
    check_fits,
    check_tensor,
    dtype_of,
    empty,
    from_bytes,
    host_bits,
    host_blob,
    host_bytes,
    mark_written,
    name_of,
    turn,
)


def encode(tensor: torch.Tensor, *, bits: float | None = None, codec: str | None = None, **options: Any) -> torch.Tensor:
    """Encodes a tensor into a blob: a tensor of uint8 on the same device.

    A CUDA device encodes its own tensors, on torch's current stream; the call waits for the blob's size. The tensor is
    read in place, so it must be contiguous.

    Args:
        tensor: of any dtype that tenfold stores. Integers and booleans are always stored losslessly.
        bits: bits a value; 2.5 if no goal is stated.
        codec: "h264", "h265" or "av1" has the video engine of a CUDA device code the tensor as pictures, as
            :class:`tenfold.torch.VideoEncoder` does; by default tenfold's own codec.
        options: another goal (``ratio``, ``mse``, ``nmse``, ``max_error``, ``max_bytes``, ``step``, ``round_bits``,
            ``lossless``), and ``effort``, ``threads``, ``lane_values``, ``importance``, ``prepare`` and ``residual``,
            all as in :func:`tenfold.encode`. On a CUDA device ``prepare="auto"`` copies a small patch of the tensor to the
            host. If values are not finite, ``importance`` and transforms that you state copy all of it; so do ``mse``
            and ``nmse`` with transforms.

    >>> import torch, tenfold.torch
    >>> x = torch.randn(256, 256).to(torch.float8_e4m3fn)
    >>> blob = tenfold.torch.encode(x, lossless=True)
    >>> bool((tenfold.torch.decode(blob).view(torch.uint8) == x.view(torch.uint8)).all())
    True
    """
    if codec is not None:
        if torch.compiler.is_compiling():
            raise ArgumentError("codec does not work under torch.compile; encode outside the compiled function")
        return _video.encode(tensor, encode_options(bits=bits, **options), codec)
    if torch.compiler.is_compiling():
        if options.pop("importance", None) is not None:
            raise ArgumentError("importance does not work under torch.compile; encode outside the compiled function")
        if options.pop("residual", None) is not None:
            raise ArgumentError("residual does not work under torch.compile; encode outside the compiled function")
        how = {name: options.pop(name) for name in ("effort", "threads", "lane_values") if name in options}
        goal, value = stated_goal(bits=bits, **options)
        blob: torch.Tensor = torch.ops.tenfold.encode(tensor, goal, value, **how)
        return blob
    return encode_with(tensor, encode_options(bits=bits, **options))


def encode_with(tensor: torch.Tensor, options: _native.EncodeOptions) -> torch.Tensor:
    """Encodes with native options."""
    check_tensor(tensor, "tensor")
    # An empty tensor has no memory on a device.
    if _device.is_ours(tensor.device) and tensor.numel() > 0:
        return _cuda.encode(tensor, options)
    array = host_bits(tensor)
    return from_bytes(_native.encode(array, options, name_of(tensor.dtype))).to(tensor.device)


def settle_with(tensor: torch.Tensor, options: _native.EncodeOptions) -> _native.EncodeOptions:
    """Native options with a plan for tensors like this one, which is on the CPU."""
    check_tensor(tensor, "tensor")
    return options.settle(host_bits(tensor), name_of(tensor.dtype))


def encode_calibrated_with(tensor: torch.Tensor, options: _native.EncodeOptions) -> tuple[torch.Tensor, float]:
    """Encodes a matrix, where it lies, with the curvature of native options; returns the blob there and the predicted rise of the loss."""
    check_tensor(tensor, "tensor")
    if _device.is_ours(tensor.device) and tensor.numel() > 0:
        return _cuda.encode_calibrated(tensor, options)
    array = host_bits(tensor)
    blob, loss, _, _ = _native.encode_calibrated(array, options, name_of(tensor.dtype))
    return from_bytes(blob).to(tensor.device), loss


def curvature_unit(curvature: _native.Curvature, device: torch.device) -> float:
    """What a step is multiplied by so that one number serves a whole model; a CUDA device factors the curvature."""
    return _cuda.curvature_unit(curvature, as_device(device)) if _device.is_ours(device) else curvature.unit()


def encode_many(tensors: Sequence[torch.Tensor], *, bits: float | None = None, **options: Any) -> list[torch.Tensor]:
    """Encodes tensors into as many blobs, each the one that :func:`encode` makes of it.

    A tensor of a few million values leaves most of a CUDA device idle, and the call waits for its size. Here several are encoded at a
    time, on streams of their own between what the current stream did before and does after; each takes a workspace of about
    its own size meanwhile. The CPU takes one after the other, with all of its cores.

    Args:
        tensors: of any dtypes and shapes.
        bits: bits a value; 2.5 if no goal is stated.
        options: as of :func:`encode`, for all of them; ``importance`` and ``residual`` are stated tensor by tensor.

    >>> import torch, tenfold.torch
    >>> layer = [torch.randn(64, 64), torch.randn(64)]
    >>> blobs = tenfold.torch.encode_many(layer, lossless=True)
    >>> all(torch.equal(x, tenfold.torch.decode(blob)) for x, blob in zip(layer, blobs))
    True
    """
    for name in ("importance", "residual"):
        if options.get(name) is not None:
            raise ArgumentError(f"{name} is stated tensor by tensor; encode_many does not take it, encode does")
    if isinstance(tensors, torch.Tensor):
        raise ArgumentError("encode_many takes several tensors; encode takes one")
    how = encode_options(bits=bits, **options)
    tensors = [check_tensor(tensor, "tensor") for tensor in tensors]
    together = [i for i, tensor in enumerate(tensors) if _device.is_ours(tensor.device) and tensor.numel() > 0]
    if len(together) > 1 and len({tensors[i].device for i in together}) == 1:
        made = dict(zip(together, _cuda.encode_many([tensors[i] for i in together], how), strict=True))
    else:
        made = {}
    return [made[i] if i in made else encode_with(tensor, how) for i, tensor in enumerate(tensors)]


def decode(
    blob: Any,
    *,
    out: torch.Tensor | None = None,
    device: Any = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    checksums: bool = True,
    threads: int = 0,
    max_bytes: int | None = None,
    layers: int | None = None,
    contiguous: bool = False,
) -> torch.Tensor:
    """Decodes a blob into a torch tensor.

    A blob in host memory is checked in full before this returns, wherever the tensor goes. A CUDA device decodes its
    own blobs on torch's current stream. With ``out``, or with ``shape`` and ``dtype``, nothing waits for the device,
    and :func:`tenfold.torch.check` reports faults later. Without them the call waits for the blob's header, and for the
    whole blob if it has layers or transforms that take a pass of their own; with ``out`` or ``shape`` a device refuses
    such a blob. ``tenfold.capabilities("cuda", waits=False)`` lists what a device takes then.

    A transposed blob, as calibrated weights have it, is the matrix column by column. A CUDA device hands it on like that, as
    ``.t()`` of a contiguous tensor: same shape, same values, other strides. ``contiguous``, ``shape``, or a contiguous ``out``
    make it row by row, which takes another pass over the tensor.

    Blobs of pictures (H.264, H.265, AV1) are decoded by the video engines of a CUDA device, as :class:`tenfold.torch.VideoDecoder` does,
    and the call waits. The host hands them to the driver, so a blob that lies on the device is copied from there; with ``out`` or
    ``shape`` only one in host memory is taken.

    Args:
        blob: bytes, any contiguous buffer, or a tensor of uint8 on the CPU or a CUDA device.
        out: contiguous tensor to write into, of the tensor's shape; it is returned. Values are converted to its dtype. For a
            transposed blob on a CUDA device it may be ``.t()`` of a contiguous tensor.
        device: where the result goes; by default the blob's device, or the CPU.
        dtype: dtype of the result; by default the blob's.
        shape: shape of the result, if the caller knows it.
        checksums: whether a CUDA device checks the checksums of tiles. Headers are always checked, and the CPU checks
            everything.
        threads: worker threads of the CPU; 0 uses all cores.
        max_bytes: refuse a blob whose tensor is larger; 64 GiB by default.
        layers: decode only this many layers of a layered blob, as in :func:`tenfold.decode`.
        contiguous: whether the result must lie row by row, whatever the blob.

    >>> import torch, tenfold.torch
    >>> x = torch.arange(6, dtype=torch.float16).reshape(2, 3)
    >>> blob = tenfold.torch.encode(x, lossless=True)
    >>> tenfold.torch.decode(blob)
    tensor([[0., 1., 2.],
            [3., 4., 5.]], dtype=torch.float16)
    >>> tenfold.torch.decode(blob, out=torch.empty(2, 3)).dtype
    torch.float32
    """
    if torch.compiler.is_compiling():
        if layers is not None:
            raise ArgumentError("layers does not work under torch.compile; decode outside the compiled function")
        return _decode_traced(blob, out, dtype, shape)
    count = layer_count(layers)
    if out is not None and (device is not None or dtype is not None or shape is not None):
        raise ArgumentError("out excludes device, dtype and shape: those of out apply")
    wanted = None if dtype is None else as_dtype(dtype)
    source = _source(blob)
    if out is not None:
        target = _cuda.check_out(out).device
    elif device is not None:
        target = as_device(device)
    else:
        target = blob.device if isinstance(blob, torch.Tensor) else torch.device("cpu")
    if out is None and shape is not None:
        if wanted is None:
            raise ArgumentError("shape needs dtype; leave out both to read them from the blob's header")
        # Of this shape and no other strides, which callers who know the shape may rely on.
        out = empty(tuple(shape), wanted, target)
    limits = _limits(checksums, threads, max_bytes)
    if isinstance(source, torch.Tensor):
        if target != source.device:
            raise ArgumentError(f"the blob is on {source.device}, but the result on {target}; move one of them with .to(…)")
        return _from_device(source, out, wanted, limits, count, contiguous)
    return _from_host(source, target, out, wanted, limits, threads, count, contiguous)


def _limits(checksums: bool, threads: int, max_bytes: int | None) -> _cuda.Limits:
    if threads < 0 or (max_bytes is not None and max_bytes < 0):
        raise ArgumentError("threads and max_bytes must not be negative")
    return _cuda.Limits(checksums, max_bytes)


def _source(blob: Any) -> Any:
    """Returns a blob as it will be read: a tensor on a device, or bytes in host memory."""
    if isinstance(blob, torch.Tensor) and _device.is_ours(check_blob(blob).device):
        return blob
    return host_blob(blob)


def _room(info: _native.BlobInfo, dtype: torch.dtype, device: torch.device, contiguous: bool) -> torch.Tensor:
    """Room for what a device decodes: column by column where the blob is, unless it must be contiguous."""
    room = empty(info.shape, dtype, device)
    return turn(room) if info.transposed and not contiguous else room


def _from_device(
    blob: torch.Tensor,
    out: torch.Tensor | None,
    dtype: torch.dtype | None,
    limits: _cuda.Limits,
    layers: int,
    contiguous: bool,
) -> torch.Tensor:
    if out is not None:
        _cuda.decode([blob], [out], [_cuda.known(blob)], limits)
        return out
    info = _cuda.inspect(blob)
    own = dtype_of(info.dtype)
    final = dtype or own
    if _native.holds_pictures(info):
        return _video.decode(blob, blob.device, None, dtype, limits, layers)
    if not _cuda.can_queue(info):
        return _decode_any(blob, None, info, final, limits, layers)
    result = _room(info, final if _cuda.can_convert(info, final) else own, blob.device, contiguous)
    _cuda.decode([blob], [result], [info], limits)
    return result.to(final)


def _decode_any(
    blob: torch.Tensor, host: Any, info: _native.BlobInfo, dtype: torch.dtype, limits: _cuda.Limits, layers: int
) -> torch.Tensor:
    """Decodes on a device and waits: for layers, and transforms that take a pass of their own."""
    result = empty(info.shape, dtype_of(info.dtype), blob.device)
    if result.numel() > 0:
        _cuda.decode_any(blob, result, limits, layers, host)
    return result.to(dtype)


def _from_host(
    blob: Any,
    target: torch.device,
    out: torch.Tensor | None,
    dtype: torch.dtype | None,
    limits: _cuda.Limits,
    threads: int,
    layers: int = 0,
    contiguous: bool = False,
) -> torch.Tensor:
    info = _native.inspect(blob)
    if out is not None:
        check_fits(out, info)
        dtype = out.dtype
    own = dtype_of(info.dtype)
    final = dtype or own
    if _device.is_ours(target) and _native.holds_pictures(info):
        return _video.decode(blob, target, out, None if out is not None else dtype, limits, layers)
    if _device.is_ours(target) and not _cuda.can_queue(info):
        result = _decode_any(_device.upload(blob, target), blob, info, final, limits, layers)
        return result if out is None else out.copy_(result)
    on_device = _device.is_ours(target)
    direct = final == own or (on_device and _cuda.can_convert(info, final))
    if out is not None and direct:
        result = out
    else:
        result = _room(info, final if direct else own, target, contiguous or not on_device)
    if on_device:
        _cuda.decode_from_host([blob], [result], [info], limits)
    else:
        _native.decode_into(blob, host_bytes(result), None, threads, limits.max_bytes, layers)
        mark_written(result)
    if out is None:
        return result.to(final)
    return out if result is out else out.copy_(result)


def decode_many(
    blobs: Sequence[Any],
    outs: Sequence[torch.Tensor],
    *,
    checksums: bool = True,
    threads: int = 0,
    max_bytes: int | None = None,
) -> None:
    """Decodes blobs into as many tensors, as :func:`decode` does; on a CUDA device in one launch.

    Blobs on a device are decoded without waiting, and :func:`check` reports faults later; blobs in host memory are
    checked before this returns. One call for all tensors of a layer is faster than one call a tensor.

    >>> import torch, tenfold.torch
    >>> layer = [torch.randn(64, 64), torch.randn(64)]
    >>> blobs = [tenfold.torch.encode(x, lossless=True) for x in layer]
    >>> outs = [torch.empty_like(x) for x in layer]
    >>> tenfold.torch.decode_many(blobs, outs)
    >>> all(torch.equal(x, y) for x, y in zip(layer, outs))
    True
    """
    if len(blobs) != len(outs):
        raise ArgumentError(f"there are {len(blobs)} blobs and {len(outs)} outputs; pass one output a blob")
    if torch.compiler.is_compiling():
        torch.ops.tenfold.decode_many(list(blobs), list(outs))
        return
    limits = _limits(checksums, threads, max_bytes)
    there, here, pictures = [], [], []
    for blob, out in zip(blobs, outs, strict=True):
        source = _source(blob)
        _cuda.check_out(out)
        if isinstance(source, torch.Tensor):
            there.append((source, out))
        elif (
            _device.is_ours(out.device)
            and _cuda.can_convert(info := _native.inspect(source), out.dtype)
            and _cuda.can_queue(info)
        ):
            check_fits(out, info)
            here.append((source, out, info))
        elif _device.is_ours(out.device) and _native.holds_pictures(_native.inspect(source)):
            # Together they keep all engines busy.
            decoder = _video.shared_decoder(out.device)
            pictures.append(decoder.submit(source, out=out, max_bytes=max_bytes))
        else:
            _from_host(source, out.device, out, None, limits, threads)
    if there:
        _cuda.decode([one[0] for one in there], [one[1] for one in there], [_cuda.known(one[0]) for one in there], limits)
    if here:
        _cuda.decode_from_host([one[0] for one in here], [one[1] for one in here], [one[2] for one in here], limits)
    for pending in pictures:
        pending.result()


def _decode_traced(blob: Any, out: torch.Tensor | None, dtype: Any, shape: Sequence[int] | None) -> torch.Tensor:
    """What torch.compile traces: one operator, whose shape and dtype must be known without the blob."""
    if out is not None:
        torch.ops.tenfold.decode_into(blob, out)
        return out
    if shape is None or dtype is None:
        raise ArgumentError("under torch.compile state out, or shape and dtype: tracing cannot read the blob")
    result: torch.Tensor = torch.ops.tenfold.decode(blob, shape, dtype)
    return result


class Codec:
    """Options stated once and used for many tensors; the arguments are those of :func:`encode`.

    >>> import torch, tenfold.torch
    >>> codec = tenfold.torch.Codec(bits=4, effort="fast")
    >>> codec
    Codec(bits=4, effort='fast')
    >>> blob = codec.encode(torch.ones(64, 64))
    >>> float(codec.decode(blob).mean())
    1.0
    """

    def __init__(self, *, bits: float | None = None, **options: Any) -> None:
        self._options = encode_options(bits=bits, **options)
        self._effort = options.get("effort", "balanced")
        self._threads = options.get("threads", 0)

    def encode(self, tensor: torch.Tensor) -> torch.Tensor:
        """Encodes a tensor, as :func:`tenfold.torch.encode` does."""
        return encode_with(tensor, self._options)

    def decode(
        self, blob: Any, *, out: torch.Tensor | None = None, device: Any = None, dtype: Any = None
    ) -> torch.Tensor:
        """Decodes a blob, whatever it was encoded with, as :func:`tenfold.torch.decode` does."""
        return decode(blob, out=out, device=device, dtype=dtype, threads=self._threads)

    def decode_many(self, blobs: Sequence[Any], outs: Sequence[torch.Tensor]) -> None:
        """Decodes many blobs, as :func:`tenfold.torch.decode_many` does."""
        decode_many(blobs, outs, threads=self._threads)

    def __repr__(self) -> str:
        return f"Codec({goal_text(self._options)}, effort={self._effort!r})"
