"""Converts between users' objects and the numpy arrays that the native module reads and writes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ._errors import ArgumentError, DtypeError, RawDtypeWarning, UnsupportedError

_PLAIN = frozenset("bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64".split())
# Dtypes that numpy has only with ml_dtypes, and the unsigned integers of their size.
_FOREIGN = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


def as_input(tensor: Any) -> Any:
    """Returns an object whose memory the native module can read: an array, or a DLPack tensor unchanged."""
    if isinstance(tensor, np.ndarray):
        # A masked array would lose its mask silently.
        if isinstance(tensor, np.ma.MaskedArray):
            raise DtypeError("tenfold does not store masked arrays; pass x.filled(value)")
        return tensor
    if hasattr(tensor, "__dlpack__"):
        return tensor
    try:
        view = memoryview(tensor)
    except TypeError:
        if hasattr(tensor, "__array__"):
            return np.asarray(tensor)
        return tensor  # the native module raises the right error
    return np.asarray(view)


def as_blob(blob: Any) -> Any:
    """``bytes``, or a flat array of bytes over any other buffer."""
    if isinstance(blob, bytes):
        return blob
    try:
        return np.frombuffer(blob, dtype=np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        if isinstance(blob, (bytearray, memoryview)) and len(blob) == 0:
            return b""
        raise DtypeError(f"a blob must be bytes or a contiguous buffer of bytes, not {type(blob).__name__}: {error}") from None


def as_room(out: Any) -> Any:
    """Returns a writable array of bytes over a buffer for a blob."""
    if isinstance(out, np.ndarray):
        return out
    try:
        return np.frombuffer(out, dtype=np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise DtypeError(f"out must be a writable buffer of bytes, not {type(out).__name__}: {error}") from None


def dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype given as a string, a numpy or ml_dtypes dtype, or a torch dtype."""
    if isinstance(dtype, str):
        return dtype
    text = str(dtype)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        raise DtypeError(f"{dtype!r} is not a dtype") from None


def numpy_dtype(name: str) -> tuple[np.dtype, bool]:
    """Returns the numpy dtype of a name, and whether it is the true dtype rather than a raw view."""
    if name not in _FOREIGN:
        return np.dtype(name), True
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(_FOREIGN[name]), False
    return np.dtype(getattr(ml_dtypes, name)), True


def allocate(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Allocates an array for a tensor, of unsigned integers if numpy lacks the dtype."""
    if name not in _FOREIGN and name not in _PLAIN:
        raise UnsupportedError(f"tensors of dtype {name} are stored unchanged and cannot be read into arrays")
    dtype, _ = numpy_dtype(name)
    try:
        return np.empty(shape, dtype=dtype)
    except ValueError as error:
        # More dimensions than numpy supports, or an empty tensor whose other sizes overflow.
        raise UnsupportedError(f"numpy has no arrays of shape {shape}: {error}") from None


def convert(array: np.ndarray, name: str, dtype: Any) -> np.ndarray:
    """Converts the array of a tensor of dtype ``name`` to what the caller asked for."""
    own, true = numpy_dtype(name)
    if dtype is None:
        if not true:
            warnings.warn(
                f"numpy has no {name} without ml_dtypes: the array holds its bits as {own.name}. Install ml_dtypes, "
                f'or pass dtype="raw" (the bits, without this note) or dtype="float32"',
                RawDtypeWarning,
                stacklevel=4,
            )
        return array
    if isinstance(dtype, str) and dtype == "raw":
        return array.view(_FOREIGN[name]) if name in _FOREIGN else array
    wanted = dtype_name(dtype)
    if wanted == name:
        return array
    if wanted in _FOREIGN and not numpy_dtype(wanted)[1]:
        raise UnsupportedError(f"numpy has no {wanted} without ml_dtypes; install that package")
    try:
        target = numpy_dtype(wanted)[0]
    except TypeError:
        raise DtypeError(f"{dtype!r} is not a dtype") from None
    if not true:
        if name != "bfloat16":
            raise UnsupportedError(f"converting {name} needs ml_dtypes; install that package")
        # A bfloat16 is the upper half of a float32.
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(target, copy=False)


def row_range(rows: Any, count: int) -> tuple[int, int]:
    """Returns the first row and the row after the last, from a slice, a range, a pair or one number."""
    if isinstance(rows, slice):
        start, stop, step = rows.indices(count)
    elif isinstance(rows, range):
        start, stop, step = rows.start, rows.stop, rows.step
    elif isinstance(rows, (int, np.integer)):
        start = int(rows) + (count if rows < 0 else 0)
        stop, step = start + 1, 1
    else:
        try:
            start, stop = (int(n) for n in rows)
            step = 1
        except (TypeError, ValueError):
            raise DtypeError(f"rows must be a slice, a range, a pair or a number, not {rows!r}") from None
    if step != 1:
        raise ArgumentError(f"rows must be consecutive; a step of {step} is not possible")
    stop = max(start, stop)
    if start < 0 or stop > count:
        raise ArgumentError(f"rows {start} to {stop} are outside the tensor, which has {count} rows")
    return start, stop
