"""What must be the same of two calls for one CUDA graph to serve both: shapes, numbers, and the addresses of all memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ._held import version_of

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
# How deep objects are looked into: a cache has layers, a layer has tensors.
_DEPTH = 4


@dataclass
class Inputs:
    """The arguments of a call, taken apart: tensors to copy, and objects, such as caches, that are used where they are."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    # Shapes and numbers; of objects the type alone.
    key: Any = None

    def __post_init__(self) -> None:
        arguments = self._describe((self.args, self.kwargs))
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cuda")
        self.key = arguments, modes

    def _describe(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return value.shape, value.stride(), value.dtype, value.device
        if type(value) in (list, tuple):
            return type(value), [self._describe(one) for one in value]
        if type(value) is dict:
            return [(name, self._describe(one)) for name, one in value.items()]
        if isinstance(value, _PLAIN):
            return type(value), value
        self.objects.append(value)
        return type(value)

    def state(self) -> Any:
        """What the objects hold."""
        return [_state(value, _DEPTH) for value in self.objects]

    def rebuild(self, tensors: list[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments with other tensors."""
        found: tuple[tuple[Any, ...], dict[str, Any]] = _replace((self.args, self.kwargs), iter(tensors))
        return found


def _replace(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if type(value) in (list, tuple):
        return type(value)(_replace(one, tensors) for one in value)
    if type(value) is dict:
        return {name: _replace(one, tensors) for name, one in value.items()}
    return value


def _state(value: Any, depth: int) -> Any:
    """What an object holds: numbers by value, tensors by address."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr(), value.shape, value.dtype
    if isinstance(value, _PLAIN):
        return value
    if depth == 0:
        return id(value)
    if isinstance(value, (list, tuple)):
        return [_state(one, depth - 1) for one in value]
    if isinstance(value, dict):
        return [(name, _state(one, depth - 1)) for name, one in value.items()]
    members = getattr(value, "__dict__", None)
    if not isinstance(members, dict):
        return id(value)
    return type(value), [(name, _state(one, depth - 1)) for name, one in members.items()]


class Anchor:
    """An object as it was, to find out quickly whether it still is. Keeps what the object holds, but not longer than it lives."""

    def __init__(self, value: Any) -> None:
        self._places: list[tuple[Any, Any, Any, int | None]] = []
        self._lengths: list[tuple[Any, int]] = []
        try:
            self._object: weakref.ref[Any] | None = weakref.ref(value, self._let_go)
        except TypeError:
            self._object = None
        else:
            self._note(value.__dict__ if hasattr(value, "__dict__") else value, _DEPTH)

    def _let_go(self, _: Any) -> None:
        self._places.clear()
        self._lengths.clear()

    def _note(self, holder: Any, depth: int) -> None:
        if isinstance(holder, dict):
            items: Any = holder.items()
        elif isinstance(holder, (list, tuple)):
            items = enumerate(holder)
        else:
            return
        self._lengths.append((holder, len(holder)))
        for name, one in items:
            is_tensor = isinstance(one, torch.Tensor)
            self._places.append((holder, name, one, one.data_ptr() if is_tensor else None))
            if not is_tensor and not isinstance(one, _PLAIN) and depth > 1:
                self._note(getattr(one, "__dict__", one), depth - 1)

    def holds(self, value: Any) -> bool:
        """Whether it is this object, and nothing in it has been replaced or moved."""
        if self._object is None or self._object() is not value:
            return False
        try:
            return all(len(holder) == length for holder, length in self._lengths) and all(
                holder[name] is one and (address is None or one.data_ptr() == address)
                for holder, name, one, address in self._places
            )
        except (KeyError, IndexError):
            return False


class Structure:
    """The modules, hooks and tensors of a module, to find out whether anything has been replaced or moved."""

    def __init__(self, module: nn.Module) -> None:
        modules = list(module.modules())
        self._modules = [(one, dict(one._modules), _settings(one)) for one in modules]
        self._tensors = [
            (place, name, tensor, tensor.data_ptr(), version_of(tensor))
            for one in modules
            for place in (one._parameters, one._buffers)
            for name, tensor in place.items()
            if tensor is not None
        ]

    def is_unchanged(self) -> bool:
        """Whether a graph that was captured back then still reads the right memory."""
        for module, children, settings in self._modules:
            if module._modules != children or _settings(module) != settings:
                return False
        return all(
            place.get(name) is tensor and tensor.data_ptr() == address and version_of(tensor) == version
            for place, name, tensor, address, version in self._tensors
        )


def _settings(module: nn.Module) -> tuple[bool, int, int]:
    return module.training, len(module._forward_pre_hooks), len(module._forward_hooks)
