"""Checks of torch tensors, and their memory in the form that the native module takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from .. import _native
from .._arrays import as_blob
from .._errors import ArgumentError, DtypeError, UnsupportedError

_NAMES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"),
)
_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}
_NAME_OF = {dtype: name for name, dtype in _DTYPES.items()}

# Alignment of blobs and outputs on a device, in bytes.
ALIGNMENT = 16


def name_of(dtype: torch.dtype) -> str:
    """Returns the native module's name of a dtype."""
    name = _NAME_OF.get(dtype)
    if name is None:
        hint = "; pass torch.view_as_real(x)" if dtype.is_complex else ""
        raise DtypeError(f"tenfold does not store {dtype}, but {', '.join(_NAMES)}{hint}")
    return name


def dtype_of(name: str) -> torch.dtype:
    """Returns torch's dtype for a name of the native module."""
    return _DTYPES[name]


def as_dtype(dtype: Any) -> torch.dtype:
    """Returns the torch dtype that a caller states, by name or as such."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    raise DtypeError(f"{dtype!r} is not a torch dtype; pass one such as torch.float32")


def as_device(device: Any) -> torch.device:
    """Returns the device that a caller states, with its number."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(f"{device!r} is not a device: {error}") from None
    if found.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"tenfold works on cpu and cuda, not on {found.type}; move the tensor to one of them")
    if found.type == "cuda":
        if not torch.cuda.is_available():
            raise ArgumentError("torch finds no CUDA device; pass device='cpu'")
        if found.index is None:
            found = torch.device("cuda", torch.cuda.current_device())
    return found


def check_tensor(tensor: Any, what: str, contiguous: bool = True) -> torch.Tensor:
    """Refuses tensors without plain memory, and says what to do. Strides are free if it need not be contiguous."""
    if not isinstance(tensor, torch.Tensor):
        raise DtypeError(f"{what} must be a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise DtypeError(f"{what} is sparse or nested ({tensor.layout}); pass {what}.to_dense() or its parts")
    if tensor.is_quantized:
        raise DtypeError(f"{what} is quantised; pass {what}.dequantize() or {what}.int_repr()")
    if tensor.device.type == "meta":
        raise ArgumentError(f"{what} is on the meta device and has no values; load it or use torch.empty_like first")
    if tensor.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"{what} is on {tensor.device}; tenfold works on cpu and cuda: pass {what}.cpu()")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ArgumentError(
            f"{what} requires grad, and coding has no gradient; pass {what}.detach() or work under torch.no_grad()"
        )
    if contiguous and not tensor.is_contiguous():
        shape, strides = tuple(tensor.shape), tensor.stride()
        raise ArgumentError(f"{what} is not contiguous (shape {shape}, strides {strides}); pass {what}.contiguous()")
    if tensor.is_neg() or tensor.is_conj():
        raise ArgumentError(f"{what} is a lazy view; pass {what}.resolve_neg().resolve_conj()")
    if not _has_memory(tensor):
        raise ArgumentError(
            f"{what} has no memory of its own (a {type(tensor).__name__} whose storage was freed or lies elsewhere); "
            "pass a plain tensor, such as the result of to_local()"
        )
    return tensor


def is_turned(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in memory column by column, as transposed blobs have theirs: the last dimension comes first."""
    return tensor.ndim > 1 and not tensor.is_contiguous() and tensor.movedim(-1, 0).is_contiguous()


def turn(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same shape over the same contiguous memory that lies there column by column."""
    if tensor.ndim < 2:
        return tensor
    return tensor.view(tensor.shape[-1], *tensor.shape[:-1]).movedim(0, -1)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has memory: storages can be resized, and subclasses may have none."""
    try:
        end = tensor.storage_offset() * tensor.element_size() + tensor.nbytes
        return tensor.nbytes == 0 or (tensor.untyped_storage().nbytes() >= end and tensor.data_ptr() != 0)
    except (RuntimeError, NotImplementedError):
        return False


def check_aligned(tensor: torch.Tensor, what: str) -> None:
    """Refuses device memory that is not aligned as kernels need it."""
    if tensor.data_ptr() % ALIGNMENT:
        raise ArgumentError(
            f"{what} starts {tensor.data_ptr() % ALIGNMENT} bytes after a multiple of {ALIGNMENT}, which a device needs; "
            f"pass {what}.clone(), or cut at multiples of {ALIGNMENT} bytes"
        )


def check_blob(blob: torch.Tensor) -> torch.Tensor:
    """Refuses tensors of other dtypes than uint8."""
    check_tensor(blob, "blob")
    if blob.dtype != torch.uint8:
        raise DtypeError(f"a blob must have dtype torch.uint8, not {blob.dtype}; pass blob.view(torch.uint8)")
    return blob


def host_bytes(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a CPU tensor as a flat array of bytes, without a copy."""
    try:
        flat = tensor.detach().reshape(-1).view(torch.uint8)
        array: np.ndarray = flat.numpy()
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(f"the memory of this {type(tensor).__name__} cannot be reached: {error}") from None
    return array


# The native module takes bits as integers, and a dtype as a name.
_RAW = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def host_bits(tensor: torch.Tensor) -> np.ndarray:
    """The bits of a contiguous tensor as integers in its shape, for the native module: in place on the CPU, else a copy."""
    return host_bytes(tensor.cpu()).view(_RAW[tensor.element_size()]).reshape(tuple(tensor.shape))


def host_blob(blob: Any) -> Any:
    """Returns ``bytes`` or a flat array of bytes over a blob in host memory."""
    return host_bytes(check_blob(blob)) if isinstance(blob, torch.Tensor) else as_blob(blob)


def from_bytes(blob: bytes) -> torch.Tensor:
    """Returns a writable tensor of bytes."""
    tensor = torch.empty(len(blob), dtype=torch.uint8, device="cpu")
    tensor.numpy()[:] = np.frombuffer(blob, dtype=np.uint8)
    return tensor


def check_fits(out: torch.Tensor, info: _native.BlobInfo) -> None:
    """Refuses an output of another shape than the blob's tensor, or of a dtype that would lose more than precision."""
    own = dtype_of(info.dtype)
    if out.dtype != own and not (out.dtype.is_floating_point and own.is_floating_point):
        raise DtypeError(f"out has dtype {out.dtype}, but the tensor {own}; only floats are converted: pass a tensor of {own}")
    if tuple(out.shape) != info.shape:
        raise ArgumentError(f"out has shape {tuple(out.shape)}, but the tensor has {info.shape}")


def empty(shape: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Allocates a tensor. An impossible shape raises UnsupportedError, missing memory MemoryError."""
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        # torch raises RuntimeError for both; only sizes that it can represent can run out of memory.
        countable = math.prod(max(size, 1) for size in shape) * dtype.itemsize < 2**63
        if type(error) is RuntimeError and countable:
            raise MemoryError(str(error)) from None
        raise UnsupportedError(f"torch has no tensors of shape {tuple(shape)}: {error}") from None


def mark_written(tensor: torch.Tensor) -> None:
    """Tells autograd that a tensor has changed, as torch's in-place functions do."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
