"""One tensor to one blob and back."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _native
from ._arrays import allocate, as_blob, as_input, as_room, convert, dtype_name, row_range
from ._errors import ArgumentError, DtypeError

DEFAULT_BITS = 2.5


def stated_goal(**goals: Any) -> tuple[str, float | None]:
    """Returns the stated goal, or ``bits=2.5`` if there is none."""
    for name in goals:
        if name not in _native.GOALS:
            raise TypeError(f"unexpected keyword argument {name!r}; goals are {', '.join(_native.GOALS)}")
    stated = {name: value for name, value in goals.items() if value is not None and (name != "lossless" or value)}
    if len(stated) > 1:
        raise ArgumentError(f"state one goal at a time: {', '.join(stated)} were given")
    name, value = next(iter(stated.items()), ("bits", DEFAULT_BITS))
    if name == "lossless":
        return name, None
    try:
        return name, float(value)
    except (TypeError, ValueError, OverflowError):
        raise DtypeError(f"{name} must be a number, not {value!r}") from None


def column_importance(importance: Any) -> list[float] | None:
    """Converts importance to an array of one number a column."""
    if importance is None:
        return None
    try:
        numbers = np.asarray(importance, np.float64)
    except (TypeError, ValueError):
        raise DtypeError("importance must be numbers, one a column of the tensor") from None
    if numbers.ndim != 1:
        raise ArgumentError(f"importance must have one dimension (one number a column), not {numbers.ndim}")
    listed: list[float] = numbers.tolist()
    return listed


def residual_goals(residual: Any) -> list[tuple[str, float | None]]:
    """Returns the goals of further layers, from a mapping with one goal or a list of mappings."""
    if residual is None:
        return []
    each = [residual] if isinstance(residual, Mapping) else residual
    if isinstance(each, str | bytes) or not isinstance(each, Iterable):
        raise DtypeError(f"residual must be a goal, such as {{'bits': 3.5}}, or a list of them, not {residual!r}")
    goals = []
    for one in each:
        if not isinstance(one, Mapping):
            raise DtypeError(f"a residual's goal must be a mapping, such as {{'bits': 3.5}}, not {one!r}")
        lossy = [name for name in _native.GOALS if name != "lossless"]
        if any(name not in lossy for name in one) or all(value is None for value in one.values()):
            raise ArgumentError(f"a residual's goal must be one of {', '.join(lossy)}, not {dict(one)!r}")
        goals.append(stated_goal(**one))
    return goals


def encode_options(
    *,
    effort: str = "balanced",
    threads: int = 0,
    lane_values: int = 0,
    importance: Any = None,
    prepare: str | None = None,
    residual: Any = None,
    format: str | None = None,
    curvature: _native.Curvature | None = None,
    **goal: Any,
) -> _native.EncodeOptions:
    """Makes the native options, with a goal as :func:`stated_goal` returns it."""
    name, number = stated_goal(**goal)
    if threads < 0 or not 0 <= lane_values <= 65536:
        raise ArgumentError("threads and lane_values must not be negative, and lane_values at most 65536")
    columns = column_importance(importance)
    if columns is not None and name in ("lossless", "max_error", "round_bits"):
        raise ArgumentError(f"importance weights errors and cannot be combined with {name}; leave out one of the two")
    layers = residual_goals(residual)
    return _native.EncodeOptions(name, number, effort, threads, lane_values, columns, prepare, layers, format, curvature)


def goal_text(options: _native.EncodeOptions) -> str:
    """The goal as an argument."""
    name, number = options.goal
    return f"{name}=True" if number is None else f"{name}={number:.12g}"


def _on_cuda(tensor: Any) -> bool:
    """Whether this is a torch tensor on a CUDA device. Does not import torch."""
    return getattr(tensor, "is_cuda", False) is True


def encode(
    tensor: Any,
    *,
    bits: float | None = None,
    ratio: float | None = None,
    mse: float | None = None,
    nmse: float | None = None,
    max_error: float | None = None,
    max_bytes: int | None = None,
    step: float | None = None,
    round_bits: int | None = None,
    lossless: bool = False,
    effort: str = "balanced",
    threads: int = 0,
    lane_values: int = 0,
    importance: Any = None,
    prepare: str | None = None,
    residual: Any = None,
    format: str | None = None,
    curvature: _native.Curvature | None = None,
    dtype: Any = None,
) -> bytes:
    """Encodes a tensor into a blob: a self-describing, checksummed byte string.

    Args:
        tensor: a numpy array, anything on the CPU with DLPack (torch, JAX …) or the buffer protocol, or a torch tensor
            on a CUDA device, which encodes it. It is read in place, so it must be contiguous and little-endian.
            Integers and booleans are always stored losslessly.
        bits: bits a value, every byte of the blob counted. State at most one goal; ``bits=2.5`` is the default.
        ratio: bytes of the tensor over bytes of the blob.
        mse: mean squared error at most this.
        nmse: mean squared error over the tensor's variance at most this.
        max_error: no value is off by more than this.
        max_bytes: the blob takes at most this many bytes.
        step: quantise with this step, whatever rate and error that gives.
        round_bits: round to the nearest of 2^round_bits − 1 numbers, equally spaced between minus and plus the largest
            magnitude; 2 to 16. Entropy coding makes the blob smaller than that.
        lossless: every bit comes back.
        effort: "fast", "balanced" or "best": how hard to search. Decoding takes the same time.
        threads: worker threads; 0 uses all cores.
        lane_values: values coded by one lane of a tile, 32 to 65536; 0 lets the encoder choose. Fewer values make
            single rows faster to read and the blob longer.
        importance: how much a squared error counts in each column (the last dimension), one number a column. For a
            weight matrix that is the mean square of the inputs that the column is multiplied with. ``mse`` and ``nmse``
            then mean weighted errors.
        prepare: transforms of the values before they are quantised: ``"auto"`` for those that take the fewest bits,
            ``"none"``, or transforms joined by ``+``, such as ``"means"``, ``"hadamard:128"``, ``"dct:8"``, ``"delta:8"``,
            ``"rope:head=64,base=10000"``. Default: ``"auto"`` at effort "balanced" and "best", ``"none"`` at "fast". Keys,
            values and hidden states gain by it, weights do not.
        residual: the goal of a second layer, which stores the error of the first, such as ``{"bits": 3.5}`` or
            ``{"round_bits": 8}``. A list of goals adds that many layers, up to seven. A rate counts the bytes of its
            layer alone; an error is that of the sum up to its layer. ``importance`` and ``prepare`` apply to the first
            layer only.
        format: newest format that all readers of the blob know, ``"1.0"``, ``"1.1"`` or ``"1.2"``; the newest by default.
        curvature: what errors of a linear layer's matrix cost its model, from :func:`curvature`; takes the place of
            ``importance`` and ``prepare``. :func:`encode_calibrated` says what came of it.
        dtype: true element type of a raw view, such as ``"bfloat16"`` for an array of uint16.

    >>> import numpy as np, tenfold
    >>> x = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32)
    >>> blob = tenfold.encode(x, bits=3)
    >>> 2.9 < len(blob) * 8 / x.size < 3.1
    True
    >>> y = tenfold.decode(blob)
    >>> bool(np.mean((x - y) ** 2) < 0.03)
    True
    >>> np.array_equal(tenfold.decode(tenfold.encode(x, lossless=True)), x)
    True
    >>> layered = tenfold.encode(x, bits=3.5, residual={"bits": 3.5})
    >>> bool(np.mean((x - tenfold.decode(layered)) ** 2) < 1e-3)
    True
    """
    codec = Codec(
        bits=bits,
        ratio=ratio,
        mse=mse,
        nmse=nmse,
        max_error=max_error,
        max_bytes=max_bytes,
        step=step,
        round_bits=round_bits,
        lossless=lossless,
        effort=effort,
        threads=threads,
        lane_values=lane_values,
        importance=importance,
        prepare=prepare,
        residual=residual,
        format=format,
        curvature=curvature,
    )
    return codec.encode(tensor, dtype=dtype)


def curvature(inputs: Any, outputs: Any = None, *, damping: float | None = None) -> _native.Curvature:
    """What errors of a linear layer's weights cost its model, from a calibration run.

    Args:
        inputs: E[x·xᵀ] of the layer's inputs, a symmetric matrix; or a list of blocks on its diagonal, for layers that are
            too wide for all of it.
        outputs: E[g²] of the gradients at the layer's outputs, one number each. All count the same by default.
        damping: share of its size that is added to each number on the diagonal; the fewer tokens, the more.
    """
    blocks = inputs if isinstance(inputs, list | tuple) else [inputs]
    try:
        squares = [np.ascontiguousarray(block, np.float32) for block in blocks]
        counts = None if outputs is None else np.asarray(outputs, np.float64).ravel().tolist()
    except (TypeError, ValueError):
        raise DtypeError("inputs must be a matrix of numbers or a list of them, outputs a number for each output") from None
    return _native.Curvature(squares, counts, damping)


def encode_calibrated(
    tensor: Any,
    inputs: Any,
    outputs: Any = None,
    *,
    damping: float | None = None,
    effort: str = "balanced",
    threads: int = 0,
    format: str | None = None,
    **goal: Any,
) -> tuple[bytes, float]:
    """Encodes the matrix of a linear layer (outputs × inputs) so that its model loses least, and returns the blob and the
    predicted rise of the loss: ½ · Σ E[g²]ᵢ · δᵢ·E[x·xᵀ]·δᵢᵀ over the errors δ.

    ``inputs``, ``outputs`` and ``damping`` are those of :func:`curvature`, or ``inputs`` is its result. The goal is ``bits``,
    ``ratio``, ``max_bytes`` or ``step``. Where importance alone would cost less, that is what the blob has. A torch tensor on a CUDA device is
    encoded there.

    >>> import numpy as np, tenfold
    >>> random = np.random.default_rng(0)
    >>> x = random.standard_normal((1000, 64)) @ random.standard_normal((64, 64))
    >>> w = random.standard_normal((128, 64)).astype(np.float32)
    >>> blob, loss = tenfold.encode_calibrated(w, x.T @ x / 1000, bits=3)
    >>> by_importance = tenfold.encode(w, bits=3, importance=(x**2).mean(0))
    >>> loss < tenfold.curvature(x.T @ x / 1000).loss(w, tenfold.decode(by_importance))
    True
    """
    of = inputs if isinstance(inputs, _native.Curvature) else curvature(inputs, outputs, damping=damping)
    options = encode_options(effort=effort, threads=threads, format=format, curvature=of, **goal)
    if _on_cuda(tensor):
        from . import torch

        on_device, loss = torch._codec.encode_calibrated_with(tensor, options)
        return on_device.cpu().numpy().tobytes(), loss
    blob, loss, _, _ = _native.encode_calibrated(as_input(tensor), options)
    return blob, loss


def layer_count(layers: int | None) -> int:
    """Returns the number of layers to decode as the native module takes it: 0 means all."""
    if layers is None:
        return 0
    if layers < 1:
        raise ArgumentError(f"layers must be at least 1, not {layers}")
    return layers


def decode(
    blob: Any,
    *,
    out: Any = None,
    dtype: Any = None,
    rows: Any = None,
    threads: int = 0,
    max_bytes: int | None = None,
    device: Any = None,
    layers: int | None = None,
) -> Any:
    """Decodes a blob into a new numpy array, into ``out``, or into a torch tensor on a ``device``.

    Args:
        blob: bytes, or any contiguous buffer.
        out: a numpy array or a CPU tensor of another library (torch …) to write into, of the tensor's dtype (or unsigned
            integers in place of bfloat16 and float8) and shape, or a flat array of as many bytes; it is returned. A
            torch tensor on a CUDA device is decoded there, as in :func:`tenfold.torch.decode`.
        dtype: None for the tensor's own; "raw" for unsigned integers in place of bfloat16 and float8; any other dtype
            converts the values. bfloat16 and float8 need the package ml_dtypes; without it arrays hold the bits as
            unsigned integers, and a :class:`RawDtypeWarning` says so.
        rows: only these rows of the tensor, seen as rows × last dimension: a slice, a range, a pair or one number. The
            result has two dimensions. Only the tiles that hold them are read.
        threads: worker threads; 0 uses all cores.
        max_bytes: refuse a blob whose tensor is larger; 64 GiB by default.
        device: a torch device, such as ``"cuda"``, that decodes the blob and holds the resulting tensor, as in
            :func:`tenfold.torch.decode`.
        layers: decode only this many layers of a layered blob, from the first on, for a coarser tensor; all by default.

    >>> import numpy as np, tenfold
    >>> blob = tenfold.encode(np.arange(12.0).reshape(4, 3), lossless=True)
    >>> tenfold.decode(blob, rows=slice(1, 3))
    array([[3., 4., 5.],
           [6., 7., 8.]])
    >>> out = np.empty((4, 3))
    >>> tenfold.decode(blob, out=out) is out
    True
    >>> tenfold.decode(blob[:-1])
    Traceback (most recent call last):
        ...
    tenfold._errors.DataError: the blob is truncated: it needs 88 bytes and has 87
    """
    if threads < 0:
        raise ArgumentError("threads must not be negative")
    if device is not None or _on_cuda(out):
        if rows is not None:
            raise ArgumentError("rows and device exclude each other; decode the rows, then move them to the device")
        from . import torch

        return torch.decode(
            blob, out=out, device=device, dtype=dtype, threads=threads, max_bytes=max_bytes, layers=layers
        )
    count = layer_count(layers)
    blob = as_blob(blob)
    info = _native.inspect(blob)
    shape, span = info.shape, None
    if rows is not None:
        span = row_range(rows, info.rows)
        shape = (span[1] - span[0], shape[-1] if shape else 1)
    if out is not None:
        if dtype is not None:
            raise ArgumentError("out and dtype exclude each other: the dtype is that of out")
        _native.decode_into(blob, out, span, threads, max_bytes, count)
        return out
    # An untouched array takes no memory, so a blob that lies about its size does no harm before decoding finds out.
    array = allocate(info.dtype, shape)
    _native.decode_into(blob, array, span, threads, max_bytes, count)
    return convert(array, info.dtype, dtype)


def inspect(blob: Any) -> _native.BlobInfo:
    """Reads the header of a blob.

    >>> import numpy as np, tenfold
    >>> info = tenfold.inspect(tenfold.encode(np.zeros((8, 4), np.float16), lossless=True))
    >>> info.dtype, info.shape, info.codec
    ('float16', (8, 4), 'lossless')
    """
    return _native.inspect(as_blob(blob))


def verify(blob: Any, *, threads: int = 0, max_bytes: int | None = None) -> None:
    """Checks every checksum and decodes everything without keeping it; raises :class:`DataError` on the first fault.

    >>> import numpy as np, tenfold
    >>> tenfold.verify(tenfold.encode(np.ones(100)))
    """
    _native.verify(as_blob(blob), threads, max_bytes)


def capabilities(engine: str = "cpu", *, waits: bool = True) -> _native.Capabilities:
    """What an engine can do: ``encodes``, ``decodes``, ``dtypes``, ``goals``, ``does`` and ``undoes`` are lists of names.

    Args:
        engine: "cpu", or "cuda" for tensors on a device.
        waits: False for what a CUDA device does without the host waiting for it: what :class:`tenfold.torch.Decoder` and
            CUDA graphs can have.

    >>> import tenfold
    >>> "layered" in tenfold.capabilities().decodes
    True
    >>> tenfold.capabilities("cuda", waits=False).decodes
    ['lossless', 'lossy']
    """
    return _native.capabilities(engine, waits)


def max_encoded_len(dtype: Any, shape: Any, layers: int = 1) -> int:
    """Returns the largest possible size of a blob for this dtype and shape, whatever the options. Layered blobs need
    ``layers``.

    >>> import tenfold
    >>> tenfold.max_encoded_len("float32", (1000, 1000)) < 4_100_000
    True
    """
    if layers < 1:
        raise ArgumentError(f"layers must be at least 1, not {layers}")
    return _native.max_encoded_len(dtype_name(dtype), list(shape), layers)


class Codec:
    """Options stated once and used for many tensors.

    The arguments are those of :func:`encode`, checked here and not at the first tensor. A codec is immutable, so
    threads may share it. Its worker threads live as long as the process.

    >>> import numpy as np, tenfold
    >>> codec = tenfold.Codec(bits=4, effort="fast")
    >>> codec
    Codec(bits=4, effort='fast')
    >>> blobs = [codec.encode(np.ones((64, 64), np.float32) * i) for i in range(3)]
    >>> float(codec.decode(blobs[2]).mean())
    2.0
    """

    def __init__(
        self,
        *,
        bits: float | None = None,
        ratio: float | None = None,
        mse: float | None = None,
        nmse: float | None = None,
        max_error: float | None = None,
        max_bytes: int | None = None,
        step: float | None = None,
        round_bits: int | None = None,
        lossless: bool = False,
        effort: str = "balanced",
        threads: int = 0,
        lane_values: int = 0,
        importance: Any = None,
        prepare: str | None = None,
        residual: Any = None,
        format: str | None = None,
        curvature: _native.Curvature | None = None,
    ) -> None:
        self._options = encode_options(
            bits=bits,
            ratio=ratio,
            mse=mse,
            nmse=nmse,
            max_error=max_error,
            max_bytes=max_bytes,
            step=step,
            round_bits=round_bits,
            lossless=lossless,
            effort=effort,
            threads=threads,
            lane_values=lane_values,
            importance=importance,
            prepare=prepare,
            residual=residual,
            format=format,
            curvature=curvature,
        )
        self._effort = effort
        self._threads = threads

    def encode(self, tensor: Any, *, dtype: Any = None) -> bytes:
        """Encodes a tensor, as :func:`encode` does."""
        if dtype is None and _on_cuda(tensor):
            from . import torch

            blob: bytes = torch._codec.encode_with(tensor, self._options).cpu().numpy().tobytes()
            return blob
        return _native.encode(as_input(tensor), self._options, None if dtype is None else dtype_name(dtype))

    def encode_into(self, tensor: Any, out: Any, *, dtype: Any = None) -> int:
        """Encodes a tensor into a writable buffer and returns the bytes written, as :func:`encode_into` does."""
        name = None if dtype is None else dtype_name(dtype)
        return _native.encode_into(as_input(tensor), self._options, as_room(out), name)

    def settle(self, tensor: Any, *, dtype: Any = None) -> Codec:
        """Returns a codec that is quicker with tensors like this one, such as the hidden states of the next tokens.

        It keeps a plan: classes of values, what levels cost, tables. Of a tensor that is alike, but for a factor on all values, only
        the step is searched for; one of another dtype or with other columns is planned afresh. Goals are met as ever, at a
        little more error, and a blob follows from its tensor and the codec alone, not from what was encoded before. A plan goes
        with tensors of floats on the CPU and one layer; devices, and goals that bound each value, have no use for it.

        >>> import numpy as np, tenfold
        >>> first, later = np.random.default_rng(0).standard_normal((2, 128, 256), dtype=np.float32)
        >>> codec = tenfold.Codec(bits=3, effort="fast").settle(first)
        >>> 2.9 < len(codec.encode(later)) * 8 / later.size < 3.1
        True
        """
        settled = copy.copy(self)
        settled._options = self._options.settle(as_input(tensor), None if dtype is None else dtype_name(dtype))
        return settled

    def decode(
        self, blob: Any, *, out: Any = None, dtype: Any = None, rows: Any = None, layers: int | None = None
    ) -> Any:
        """Decodes a blob, whatever it was encoded with, on this codec's threads."""
        return decode(blob, out=out, dtype=dtype, rows=rows, threads=self._threads, layers=layers)

    def __repr__(self) -> str:
        return f"Codec({goal_text(self._options)}, effort={self._effort!r})"
