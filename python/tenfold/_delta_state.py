"""Deltas of state dicts: names and tensors, all of numpy or all of torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _native
from ._arrays import as_input, numpy_dtype
from ._codec import stated_goal
from ._errors import ArgumentError, DtypeError, UnsupportedError, WrongBaseError

# A name, an array or tensor that the native module reads, and the true dtype of a raw view.
Named = tuple[str, Any, str | None]


def is_torch(thing: Any) -> bool:
    """Whether this is a torch tensor. Does not import torch: where nobody has, there is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def _check(state: Mapping[str, Any], what: str) -> bool:
    """Refuses what is not a state dict; returns whether its tensors are torch's."""
    kinds = set()
    for name, tensor in state.items():
        if not isinstance(name, str):
            raise DtypeError(f"names of tensors must be strings, not {name!r}")
        if not is_torch(tensor) and not isinstance(tensor, np.ndarray):
            raise DtypeError(f"{what} has {type(tensor).__name__} under {name!r}, and not a numpy array or a torch tensor")
        kinds.add(is_torch(tensor))
    if len(kinds) > 1:
        raise DtypeError(f"{what} has both numpy arrays and torch tensors; pass one kind")
    return True in kinds


def _named(state: Mapping[str, Any], what: str) -> list[Named]:
    if not _check(state, what):
        return [(name, as_input(array), None) for name, array in state.items()]
    from .torch import _delta

    return [(name, *_delta.named(tensor, f"tensor {name!r}")) for name, tensor in state.items()]


def make(base: Mapping[str, Any], new: Mapping[str, Any], options: dict[str, Any]) -> bytes:
    """Makes a delta from two state dicts; the bytes are those of a file."""
    return _native.delta_make_state(_named(base, "base"), _named(new, "new"), options)


def make_options(threads: int, effort: str, exclude: Iterable[str], goal: dict[str, Any]) -> dict[str, Any]:
    """How deltas of models are made, as the native module takes it."""
    if isinstance(exclude, str):
        raise DtypeError("exclude must be a list of patterns")
    stated = {name: value for name, value in goal.items() if value is not None}
    return {
        "threads": threads,
        "goal": stated_goal(**stated) if stated else None,
        "effort": effort,
        "exclude": list(exclude),
    }


def fingerprint(state: Mapping[str, Any]) -> str:
    """The fingerprint of a state dict, as delta files name it."""
    return _native.delta_model_fingerprint(_prints(state, _check(state, "the state dict")))


def _prints(state: Mapping[str, Any], torches: bool) -> dict[str, str]:
    if not torches:
        return {name: _native.delta_fingerprint(as_input(array)) for name, array in state.items()}
    from .torch import _delta

    return dict(zip(state, _delta.fingerprints(list(state.values())), strict=True))


def apply(base: Mapping[str, Any], file: _native.DeltaFile, verify: str, threads: int, device: Any) -> dict[str, Any]:
    """What becomes of a state dict, as a new one with tensors of its own."""
    torches = _check(base, "base")
    if device is not None:
        if base and not torches:
            raise ArgumentError("device is for torch tensors, and the state dict has numpy arrays")
        torches = True
    made = file.patch(_named(base, "base"), None, verify, threads)
    sources = {change.name: change.source for change in changes(file)}
    result: dict[str, Any] = {}
    for name, dtype, shape, data in made:
        if data is not None:
            new = _from_bytes(data, dtype, tuple(shape), torches)
            result[name] = new if device is None else new.to(device)
        else:
            # The base's, under this name or another.
            result[name] = _copy(base[sources.get(name) or name], torches)
    return result


def _copy(tensor: Any, torches: bool) -> Any:
    if not torches:
        return np.array(tensor, order="C")
    from .torch import _delta

    return _delta.copy(tensor)


def _from_bytes(data: bytes, dtype: str, shape: tuple[int, ...], torches: bool) -> Any:
    if torches:
        from .torch import _delta

        return _delta.from_host(data, dtype, shape)
    try:
        return np.frombuffer(bytearray(data), numpy_dtype(dtype)[0]).reshape(shape)
    except TypeError:
        raise UnsupportedError(f"numpy has no dtype {dtype}") from None


class Change:
    """What a delta does to one tensor."""

    def __init__(self, said: tuple[Any, ...]) -> None:
        self.name, self.how, self.source, self.dtype, shape, self.base, self.result, self.changed, self.bytes = said
        self.shape = None if shape is None else tuple(shape)


def changes(file: _native.DeltaFile) -> list[Change]:
    """What a delta does, tensor by tensor."""
    return [Change(said) for said in file.changes()]


def apply_(
    state: Mapping[str, Any], file: _native.DeltaFile, verify: str, threads: int, max_bytes: int | None
) -> list[tuple[str, int, int]]:
    """Applies a delta in place; returns names, values written and values that were new already. Everything is checked before a byte changes."""
    torches = _check(state, "the state dict")
    changed = changes(file)
    _check_in_place(state, file, changed)
    # 1. Tensors that the delta leaves as they are must be those that it was made with.
    if verify == "whole":
        rest = {name: tensor for name, tensor in state.items() if name not in {change.name for change in changed}}
        prints = _prints(rest, torches) | {change.name: change.result for change in changed}
        if _native.delta_model_fingerprint(prints) != file.result():
            raise WrongBaseError(
                f"the delta belongs to a model with the fingerprint {file.base()}, and this one is another: tensors differ that "
                "the delta does not change, or it has others; another delta comes first, or the model must be sent whole"
            )
    # 2. Names of one memory are one tensor.
    once = _distinct(state, changed, torches)
    # 3. Differences are added up aside.
    sums = [change.name for change in once if change.how == "difference"]
    part = _named({name: state[name] for name in sums}, "the state dict")
    made = file.patch(part, sums, "touched", threads) if sums else []
    # 4. Deltas are checked, all of them, and written.
    deltas = [change.name for change in once if change.how == "delta"]
    pairs = [(file.blob(name), state[name]) for name in deltas]
    infos = [file.info(name) for name in deltas]
    done = dict(zip(deltas, _apply_pairs(pairs, infos, deltas, verify, threads, max_bytes, torches), strict=True))
    # 5. So are sums.
    for name, dtype, shape, data in made:
        size = math.prod(shape)
        done[name] = (0, size) if data is None else (size, 0)
        if data is not None:
            _write(state[name], _from_bytes(data, dtype, tuple(shape), torches), torches)
    return [(name, *counts) for name, counts in done.items()]


def _apply_pairs(
    pairs: Sequence[tuple[bytes, Any]],
    infos: Sequence[_native.DeltaInfo],
    names: Sequence[str],
    verify: str,
    threads: int,
    max_bytes: int | None,
    torches: bool,
) -> list[tuple[int, int]]:
    if not torches:
        return _native.delta_apply(pairs, names, verify, threads, max_bytes)
    from .torch import _delta

    return _delta.apply_(pairs, names, verify, threads, max_bytes, infos)


def _write(target: Any, new: Any, torches: bool) -> None:
    if not torches:
        target[...] = new
        return
    from .torch import _delta

    _delta.write(target, new)


def _check_in_place(state: Mapping[str, Any], file: _native.DeltaFile, changed: list[Change]) -> None:
    """Refuses a delta that changes which tensors there are: in place only values can change."""
    instead = "tenfold.delta.apply returns a new state dict"
    if file.removed():
        raise ArgumentError(f"the delta removes {len(file.removed())} tensors, the first {file.removed()[0]!r}; {instead}")
    for change in changed:
        name = change.name
        if change.how == "stored":
            what = "another dtype or shape" if name in state else "which this model does not have"
            raise ArgumentError(f"the delta stores tensor {name!r} whole, {what}; {instead}")
        if change.source not in (None, name):
            raise ArgumentError(f"the delta makes tensor {name!r} of {change.source!r}; {instead}")
        if name not in state:
            raise WrongBaseError(f"the delta changes tensor {name!r}, which this model does not have")
        if tuple(state[name].shape) != change.shape:
            shape = tuple(state[name].shape)
            raise ArgumentError(f"tensor {name!r} has shape {shape}, but the delta is for {change.shape}; {instead}")


def _distinct(state: Mapping[str, Any], changed: list[Change], torches: bool) -> list[Change]:
    """Changes of tied tensors once. The delta must change all names of one memory in the same way."""
    by_name = {change.name: change for change in changed}
    seen: dict[tuple[Any, ...], tuple[str, str | None]] = {}
    once = []
    for name, tensor in state.items():
        change = by_name.get(name)
        result = None if change is None else change.result
        first, known = seen.setdefault(_memory(tensor, torches), (name, result))
        if known != result:
            raise ArgumentError(
                f"tensors {first!r} and {name!r} share memory, and the delta makes two of them; give each its own, such as with clone()"
            )
        if first == name and change is not None:
            once.append(change)
    return once


def _memory(tensor: Any, torches: bool) -> tuple[Any, ...]:
    """What two names of one tensor have in common. Empty tensors have no memory to share."""
    if not torches:
        address, size = tensor.__array_interface__["data"][0], tensor.size
        return (address, tensor.shape, tensor.strides, str(tensor.dtype)) if size else (id(tensor),)
    from .torch import _delta

    return _delta.memory(tensor)
