"""Blobs that stay in host memory, from where a device fetches them without waiting."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .. import _device
from ._held import Held, aligned


class Pinned:
    """Memory that holds blobs; ``module.to`` leaves them there.

    They become buffers of their modules: many libraries take the device of the first parameter for that of the model.
    """

    def __init__(self, held: Sequence[Held]) -> None:
        self._modules: dict[int, tuple[nn.Module, list[str]]] = {}
        for one in held:
            self._modules.setdefault(id(one.module), (one.module, []))[1].append(one.attribute)
        self._arenas: list[torch.Tensor] = []
        self._parameters: list[Held] = []
        # Tied weights share a blob, and must go on doing so.
        moved: dict[int, torch.Tensor] = {}
        for module, attributes in self._modules.values():
            self._move(module, [one for one in held if one.module is module], moved)
            # An instance's attribute comes before the method: this is what .to, .cuda and the like call for each module.
            module._apply = _apart(module, attributes)  # type: ignore[method-assign]

    def _move(self, module: nn.Module, held: Sequence[Held], moved: dict[int, torch.Tensor]) -> None:
        new = {id(one.blob()): one.blob() for one in held if id(one.blob()) not in moved}
        if new:
            arena = _pages(sum(aligned(blob.nbytes) for blob in new.values()))
            _device.pin(arena)
            weakref.finalize(self, _device.unpin, arena.data_ptr())
            self._arenas.append(arena)
            at = 0
            for key, blob in new.items():
                place = arena[at : at + blob.nbytes]
                place.copy_(blob.detach())
                moved[key] = place
                at += aligned(blob.nbytes)
        for one in held:
            blob = moved[id(one.blob())]
            if module._parameters.pop(one.attribute, None) is not None:
                self._parameters.append(one)
            module._buffers[one.attribute] = blob

    def remove(self) -> None:
        """Lets the modules move their blobs again, which become parameters again."""
        for module, _ in self._modules.values():
            module.__dict__.pop("_apply", None)
        again: dict[int, nn.Parameter] = {}
        for one in self._parameters:
            blob = one.module._buffers.pop(one.attribute)
            assert blob is not None  # it was put there
            parameter = again.setdefault(id(blob), nn.Parameter(blob, requires_grad=False))
            one.module._parameters[one.attribute] = parameter
        self._parameters.clear()
        self._modules.clear()


def _pages(length: int) -> torch.Tensor:
    """Host memory in pages of its own, as pinning needs it."""
    return torch.frombuffer(mmap.mmap(-1, length), dtype=torch.uint8)


def _apart(module: nn.Module, attributes: Sequence[str]) -> Callable[..., nn.Module]:
    """A module's ``_apply`` that leaves some of its tensors alone."""

    def apply(*args: Any, **kwargs: Any) -> nn.Module:
        places: list[dict[str, Any]] = [module._parameters, module._buffers]
        kept = [(place, name, place[name]) for place in places for name in attributes if name in place]
        for place, name, _ in kept:
            place[name] = None
        try:
            type(module)._apply(module, *args, **kwargs)  # type: ignore[no-untyped-call]
            return module
        finally:
            for place, name, tensor in kept:
                place[name] = tensor

    return apply
