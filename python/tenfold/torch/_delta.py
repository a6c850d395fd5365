"""Deltas of torch tensors. Contiguous ones are changed where they lie; others pass through the host, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import _native
from .._errors import ArgumentError, DtypeError, Error, UnsupportedError
from . import _delta_cuda
from ._tensors import check_tensor, dtype_of, empty, host_bits, host_blob, host_bytes, mark_written, name_of


def plain(tensor: Any, what: str) -> torch.Tensor:
    """Refuses tensors without plain memory; strides are free. Parameters may require grad: versions have none."""
    checked = check_tensor(tensor.detach() if isinstance(tensor, torch.Tensor) else tensor, what, contiguous=False)
    name_of(checked.dtype)
    return checked


def on_host(tensor: torch.Tensor) -> np.ndarray:
    """The bits of a plain tensor as an array of its shape: in place where it is contiguous on the CPU, else a copy."""
    return host_bits(tensor.cpu().contiguous())


def named(tensor: Any, what: str) -> tuple[np.ndarray, str]:
    """The bits of a tensor, and its dtype."""
    tensor = plain(tensor, what)
    return on_host(tensor), name_of(tensor.dtype)


def from_host(data: bytes, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor on the CPU, from its bytes."""
    try:
        own = dtype_of(dtype)
    except KeyError:
        raise UnsupportedError(f"torch tensors of dtype {dtype} are not supported") from None
    tensor = empty(shape, own, torch.device("cpu"))
    host_bytes(tensor)[:] = np.frombuffer(data, np.uint8)
    return tensor


def write(target: torch.Tensor, new: torch.Tensor) -> None:
    """Writes new values to a tensor, wherever it lies."""
    plain(target, "tensor").copy_(new)


def memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What two names of one tensor have in common. Empty tensors have no memory to share."""
    if tensor.numel() == 0:
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def make(base: Any, new: Any, threads: int) -> bytes:
    """Makes a delta from two tensors, wherever they lie."""
    base, new = plain(base, "base"), plain(new, "new")
    if base.dtype != new.dtype:
        raise DtypeError(f"a delta is made from two tensors of one dtype, not from {base.dtype} and {new.dtype}")
    return _native.delta_make(on_host(base), on_host(new), name_of(new.dtype), threads)


def fingerprint(tensor: torch.Tensor) -> str:
    """The fingerprint of a tensor."""
    return fingerprints([tensor])[0]


def fingerprints(tensors: Sequence[torch.Tensor]) -> list[str]:
    """The fingerprints of tensors. Contiguous ones on a device are hashed there; others are copied to the host, one at a time."""
    tensors = [plain(tensor, "tensor") for tensor in tensors]
    there = [at for at, tensor in enumerate(tensors) if _delta_cuda.takes(tensor)]
    found = dict(zip(there, _delta_cuda.fingerprints([tensors[at] for at in there]), strict=True)) if there else {}
    return [
        found[at] if at in found else _native.delta_fingerprint(on_host(tensor), name_of(tensor.dtype))
        for at, tensor in enumerate(tensors)
    ]


def copy(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy to apply a delta to."""
    return plain(tensor, "base").clone(memory_format=torch.contiguous_format)


def apply_(
    pairs: Sequence[tuple[Any, torch.Tensor]],
    names: Sequence[str] | None,
    verify: str,
    threads: int,
    max_bytes: int | None,
    infos: Sequence[_native.DeltaInfo] | None = None,
) -> list[tuple[int, int]]:
    """Applies deltas in place, each to the tensor beside it. All are held against their tensors before a byte changes. ``infos`` is what the
    deltas say of themselves, where that is known: reading it takes as long as checking every byte.

    A device compares the values that change as it writes. So with ``verify="touched"`` each of its tensors is checked when its turn comes.
    """
    blobs = [host_blob(blob) for blob, _ in pairs]
    tensors = [_target(tensor, name_at(names, at)) for at, (_, tensor) in enumerate(pairs)]
    infos = [_native.delta_inspect(blob) for blob in blobs] if infos is None else infos
    for at, (info, tensor) in enumerate(zip(infos, tensors, strict=True)):
        _check_fits(tensor, info, name_at(names, at))
    there = [at for at, tensor in enumerate(tensors) if _delta_cuda.takes(tensor)]
    here = [at for at, tensor in enumerate(tensors) if at not in there and _is_direct(tensor)]
    staged = [at for at in range(len(tensors)) if at not in there and at not in here]
    memory = [(blobs[at], host_bytes(tensors[at])) for at in here]
    # 1. Devices hash their tensors and hold them against their deltas.
    known: list[int] = []
    if verify == "whole" and there:
        prints = _delta_cuda.fingerprints([tensors[at] for at in there])
        known = [
            at
            for at, found in zip(there, prints, strict=True)
            if found in (infos[at].base, infos[at].result)
            and _is_known(found, infos[at], _on_device(blobs[at], tensors[at], name_at(names, at), max_bytes, True))
        ]
    # 2. What is not written along with the check, or was left by an interrupted application, or is another base, is held against its deltas
    # on the host, a copy at a time.
    for at in staged + ([at for at in there if at not in known] if verify == "whole" else []):
        pair = (blobs[at], host_bytes(tensors[at].cpu().contiguous()))
        _native.delta_apply([pair], _of(names, [at]), verify, threads, max_bytes, True)
    if there and here:
        _native.delta_apply(memory, _of(names, here), verify, threads, max_bytes, True)
    # 3. Tensors on a device.
    done = {at: _on_device(blobs[at], tensors[at], name_at(names, at), max_bytes) for at in there}
    # 4. Those of the host: all are checked, then written.
    done |= zip(here, _native.delta_apply(memory, _of(names, here), verify, threads, max_bytes), strict=True)
    for at in here:
        mark_written(tensors[at])
    # 5. The others.
    for at in staged:
        done[at] = _through_host(blobs[at], tensors[at], _of(names, [at]), threads, max_bytes)
    return [done[at] for at in range(len(pairs))]


def name_at(names: Sequence[str] | None, at: int) -> str:
    """What a message calls a tensor."""
    return "tensor" if names is None else f"tensor {names[at]!r}"


def _of(names: Sequence[str] | None, at: Sequence[int]) -> list[str] | None:
    return None if names is None else [names[i] for i in at]


def _on_device(blob: Any, tensor: torch.Tensor, what: str, max_bytes: int | None, check_only: bool = False) -> tuple[int, int]:
    try:
        done = _delta_cuda.apply_(blob, tensor, max_bytes, check_only)
    except Error as error:
        raise type(error)(f"{what}: {error}") from None
    if not check_only:
        mark_written(tensor)
    return done


def _is_known(found: str, info: _native.DeltaInfo, counts: tuple[int, int]) -> bool:
    """Whether a tensor with this fingerprint is what the delta starts from, or what it ends in."""
    written, before = counts
    return (before == 0 and found == info.base) or (written == 0 and found == info.result)


def _is_direct(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory is changed where it is."""
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def _target(tensor: Any, what: str) -> torch.Tensor:
    strides = tensor.stride() if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided else ()
    if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, strides)):
        raise ArgumentError(f"{what} is expanded: several of its values share memory; pass {what}.clone()")
    target = plain(tensor, what)
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise ArgumentError(f"{what} was made in inference mode and is changed there alone; call this in torch.inference_mode()")
    return target


def _check_fits(tensor: torch.Tensor, info: _native.DeltaInfo, what: str) -> None:
    own = dtype_of(info.dtype)
    if tensor.dtype != own:
        raise DtypeError(f"{what} has dtype {tensor.dtype}, but the delta is for {own}")
    if tuple(tensor.shape) != info.shape:
        raise ArgumentError(f"{what} has shape {tuple(tensor.shape)}, but the delta is for {info.shape}")


def _through_host(
    blob: Any, tensor: torch.Tensor, names: list[str] | None, threads: int, max_bytes: int | None
) -> tuple[int, int]:
    """Writes a tensor with strides. The base is known by now, so the values that change are compared alone."""
    copied = tensor.cpu().clone(memory_format=torch.contiguous_format)
    [done] = _native.delta_apply([(blob, host_bytes(copied))], names, "touched", threads, max_bytes)
    if done[0]:
        tensor.copy_(copied)
    return done
