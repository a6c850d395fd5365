"""What changed between two versions of a tensor or of a model, bit by bit.

A training step leaves most bf16 weights as they are. A delta holds the places and new values of the others; whoever has the old
version brings it up to date in place, bit for bit:

>>> import numpy as np, tenfold
>>> base = np.random.default_rng(0).standard_normal((512, 512), dtype=np.float32)
>>> new = base.copy()
>>> new[::16] *= 1.001
>>> blob = tenfold.delta.make(base, new)
>>> len(blob) < new.nbytes / 20
True
>>> tenfold.delta.apply_(base, blob)
Applied(written=16384, before=0)
>>> np.array_equal(base, new)
True

State dicts work the same way; their deltas are the files that ``tenfold delta`` reads and writes. A delta knows its base by a
fingerprint and refuses any other before a byte changes (:class:`tenfold.WrongBaseError`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from . import _delta_state, _native
from ._arrays import as_blob, as_input, dtype_name
from ._delta_state import is_torch
from ._errors import ArgumentError, DtypeError
from ._native import DeltaInfo
from ._progress import bar

__all__ = [
    "Applied",
    "Change",
    "DeltaInfo",
    "ModelDeltaInfo",
    "apply",
    "apply_",
    "apply_file",
    "fingerprint",
    "inspect",
    "inspect_model",
    "make",
    "make_file",
]

Path = str | os.PathLike[str]


class Applied(NamedTuple):
    """What an application did."""

    written: int
    """Values that were written."""
    before: int
    """Values that were new already: all of them if the delta had been applied before, some if that was interrupted."""


class Change(NamedTuple):
    """What the delta of a model does to one tensor."""

    name: str
    """Its name."""
    how: str
    """How it comes to be: "delta", what changed; "difference", added with loss; "stored" whole; "copy" of another tensor of the base."""
    dtype: str | None
    """Its dtype; None for a copy."""
    shape: tuple[int, ...] | None
    """Its shape; None for a copy."""
    changed: int | None
    """Values that change; None where only the whole is known."""
    nbytes: int
    """Bytes in the delta."""


class ModelDeltaInfo(NamedTuple):
    """What the delta of a model says of itself."""

    base: str
    """Fingerprint of the model that it belongs to."""
    result: str
    """Fingerprint of what that becomes."""
    changes: tuple[Change, ...]
    """The tensors that change."""
    removed: tuple[str, ...]
    """Names of tensors that the result does not have."""


def _name(dtype: Any) -> str | None:
    return None if dtype is None else dtype_name(dtype)


def _check_threads(threads: int) -> None:
    if threads < 0:
        raise ArgumentError("threads must not be negative")


def _open(delta: Any) -> _native.DeltaFile:
    """The delta of a model, from its file or its bytes."""
    if isinstance(delta, str | os.PathLike):
        return _native.DeltaFile.open(os.fspath(delta))
    return _native.DeltaFile.parse(as_blob(delta))


def make(
    base: Any,
    new: Any,
    *,
    dtype: Any = None,
    threads: int = 0,
    effort: str = "balanced",
    exclude: Iterable[str] = (),
    **goal: Any,
) -> bytes:
    """Makes a delta from two versions of a tensor, which have the same dtype and shape, or of a state dict.

    State dicts may differ in names, dtypes and shapes: what is new is stored whole. The bytes are those of a file of
    ``tenfold delta make``. Tensors of torch on a device are copied to the host for this; :class:`tenfold.torch.DeltaTracker` does
    without.

    Args:
        base: the old version: a contiguous array, a torch tensor, or a mapping from names to either.
        new: the new version.
        dtype: true element type of raw views, such as ``"bfloat16"`` for arrays of uint16; for single tensors.
        threads: worker threads; 0 uses all cores.
        effort: how hard to search for a goal, as in :func:`tenfold.encode`.
        exclude: patterns of names that are exact whatever the goal.
        goal: of state dicts, a goal as in :func:`tenfold.encode`, such as ``bits=2``, for the differences of large float tensors,
            which then come back with loss. Every bit comes back without one.

    >>> import numpy as np, tenfold
    >>> blob = tenfold.delta.make(np.array([1, 2, 3]), np.array([1, 7, 3]))
    >>> tenfold.delta.apply(np.array([1, 2, 3]), blob)
    array([1, 7, 3])
    >>> state = {"w": np.zeros((2, 2)), "b": np.zeros(2)}
    >>> delta = tenfold.delta.make(state, {"w": np.eye(2), "b": np.zeros(2)})
    >>> tenfold.delta.apply_(state, delta)
    Applied(written=2, before=0)
    """
    _check_threads(threads)
    if isinstance(base, Mapping) or isinstance(new, Mapping):
        if not isinstance(base, Mapping) or not isinstance(new, Mapping):
            raise DtypeError("a delta is made from two tensors or from two state dicts, not from one of each")
        if dtype is not None:
            raise ArgumentError("dtype is for single tensors; state dicts have tensors of their true dtypes")
        return _delta_state.make(base, new, _delta_state.make_options(threads, effort, exclude, goal))
    if goal or exclude:
        raise ArgumentError("goals and exclude are for state dicts; the delta of a tensor is exact")
    if is_torch(base) or is_torch(new):
        from .torch import _delta

        return _delta.make(base, new, threads)
    return _native.delta_make(as_input(base), as_input(new), _name(dtype), threads)


def apply(
    base: Any,
    delta: Any,
    *,
    verify: str = "whole",
    threads: int = 0,
    max_bytes: int | None = None,
    device: Any = None,
) -> Any:
    """Returns the new version of a tensor or of a state dict, which stays as it is.

    Arguments are those of :func:`apply_`. A new state dict may have other tensors than the old one. What the delta changes or adds
    is made on the CPU and moved to ``device``, a torch device, where that is given; with it a state dict that was empty gets torch
    tensors.

    >>> import numpy as np, tenfold
    >>> whole = tenfold.delta.make({}, {"w": np.ones(3)})
    >>> tenfold.delta.apply({}, whole)
    {'w': array([1., 1., 1.])}
    """
    _check_threads(threads)
    if isinstance(base, Mapping):
        return _delta_state.apply(base, _open(delta), verify, threads, device)
    if device is not None:
        raise ArgumentError("device is for state dicts; a single tensor stays where it is")
    new: Any
    if is_torch(base):
        from .torch import _delta

        new = _delta.copy(base)
    elif isinstance(base, np.ndarray):
        new = np.array(as_input(base), order="C")
    else:
        raise DtypeError(f"a delta is applied to a numpy array, a torch tensor or a state dict, not to {type(base).__name__}")
    apply_(new, delta, verify=verify, threads=threads, max_bytes=max_bytes)
    return new


def apply_(target: Any, delta: Any, *, verify: str = "whole", threads: int = 0, max_bytes: int | None = None) -> Applied:
    """Applies a delta in place. What it does not belong to stays as it is, to the last byte.

    All tensors of a state dict are checked before one changes. Where all or some of it is new already, since the delta was
    applied before or that was interrupted, only the rest is written. A delta that adds, removes, renames or reshapes tensors is
    refused: :func:`apply` returns a new state dict.

    Args:
        target: a writable, contiguous array of the delta's dtype (or unsigned integers in place of bfloat16 and float8) and
            shape; a torch tensor, which may have any strides and lie on a CUDA device; or a state dict. Names of a state dict that
            share memory, as tied weights do, are changed once.
        delta: bytes, or any contiguous buffer. The delta of a state dict may also be a path.
        verify: "whole" compares fingerprints of every byte; a CUDA device hashes its own tensors. "touched" compares only the values
            that change, old and new, for callers who know by other means that the base is the right one; tensors on a CUDA device are
            then checked one by one, each before it changes.
        threads: worker threads; 0 uses all cores.
        max_bytes: refuse a delta with a tensor that is larger; 64 GiB by default.

    >>> import numpy as np, tenfold
    >>> weights = np.zeros(100, np.float32)
    >>> blob = tenfold.delta.make(weights, np.eye(1, 100, dtype=np.float32)[0])
    >>> tenfold.delta.apply_(weights, blob)
    Applied(written=1, before=0)
    >>> tenfold.delta.apply_(weights, blob)
    Applied(written=0, before=1)
    >>> weights[5] = 3
    >>> tenfold.delta.apply_(weights, blob)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tenfold._errors.WrongBaseError: the delta belongs to a tensor with the fingerprint ...
    """
    _check_threads(threads)
    if isinstance(target, Mapping):
        done = _delta_state.apply_(target, _open(delta), verify, threads, max_bytes)
        return Applied(sum(written for _, written, _ in done), sum(before for _, _, before in done))
    if is_torch(target):
        from .torch import _delta

        return Applied(*_delta.apply_([(delta, target)], None, verify, threads, max_bytes)[0])
    return Applied(*_native.delta_apply([(as_blob(delta), target)], None, verify, threads, max_bytes)[0])


def inspect(blob: Any) -> DeltaInfo:
    """Reads what the delta of a tensor says of itself; nothing is applied.

    >>> import numpy as np, tenfold
    >>> info = tenfold.delta.inspect(tenfold.delta.make(np.zeros((4, 8)), np.eye(4, 8)))
    >>> info.dtype, info.shape, info.changed, info.size
    ('float64', (4, 8), 4, 32)
    """
    return _native.delta_inspect(as_blob(blob))


def inspect_model(delta: Any) -> ModelDeltaInfo:
    """Reads what the delta of a state dict or of a model file says of itself: bytes, or a path.

    >>> import numpy as np, tenfold
    >>> info = tenfold.delta.inspect_model(tenfold.delta.make({"w": np.zeros((4, 8))}, {"w": np.eye(4, 8)}))
    >>> [(change.name, change.how, change.changed) for change in info.changes]
    [('w', 'delta', 4)]
    """
    file = _open(delta)
    changes = tuple(
        Change(one.name, one.how, one.dtype, one.shape, one.changed, one.bytes) for one in _delta_state.changes(file)
    )
    return ModelDeltaInfo(file.base(), file.result(), changes, tuple(file.removed()))


def fingerprint(tensor: Any, *, dtype: Any = None) -> str:
    """The fingerprint of a tensor, of its dtype, its shape and every byte; or that of a state dict. It has 32 hexadecimal digits.

    >>> import numpy as np, tenfold
    >>> x = np.arange(10)
    >>> blob = tenfold.delta.make(x, x + 1)
    >>> tenfold.delta.fingerprint(x) == tenfold.delta.inspect(blob).base
    True
    """
    if isinstance(tensor, Mapping):
        return _delta_state.fingerprint(tensor)
    if is_torch(tensor):
        from .torch import _delta

        return _delta.fingerprint(tensor)
    return _native.delta_fingerprint(as_input(tensor), _name(dtype))


def make_file(
    base: Path,
    new: Path,
    output: Path,
    *,
    threads: int = 0,
    effort: str = "balanced",
    exclude: Iterable[str] = (),
    overwrite: bool = False,
    progress: bool | Callable[[int, int], object] = False,
    **goal: Any,
) -> None:
    """Makes a delta from two model files or folders, as ``tenfold delta make`` does. The output appears when it is complete.

    ``effort``, ``exclude`` and a goal are those of :func:`make`.

    >>> import numpy as np, tenfold
    >>> for name, value in {"old": 1.0, "new": 2.0}.items():
    ...     _ = tenfold.save({"w": np.full((4, 4), value)}, f"{name}.safetensors", lossless=True)
    >>> tenfold.delta.make_file("old.safetensors", "new.safetensors", "delta.safetensors")
    >>> tenfold.delta.apply_file("old.safetensors", "delta.safetensors", "again.safetensors")
    >>> float(tenfold.load("again.safetensors")["w"][0, 0])
    2.0
    """
    _check_threads(threads)
    options = _delta_state.make_options(threads, effort, exclude, goal)
    with bar(progress, "delta make") as tell:
        _native.delta_make_file(os.fspath(base), os.fspath(new), os.fspath(output), options, overwrite, tell)


def apply_file(
    base: Path,
    deltas: Path | Iterable[Path],
    output: Path,
    *,
    verify: str = "whole",
    threads: int = 0,
    overwrite: bool = False,
    progress: bool | Callable[[int, int], object] = False,
) -> None:
    """Applies a delta, or several in a row, to a model file or folder and writes the result, as ``tenfold delta apply`` does."""
    _check_threads(threads)
    each = [deltas] if isinstance(deltas, str | os.PathLike) else list(deltas)
    paths = [os.fspath(path) for path in each]
    with bar(progress, "delta apply") as tell:
        _native.delta_apply_file(os.fspath(base), paths, os.fspath(output), verify, threads, overwrite, tell)
