"""Decoding the weights of layers around each call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from .._errors import ArgumentError, UnsupportedError
from ._ring import Ring
from ._stages import Held, Stage, stage_of


class Layers:
    """The layers of a model, its embeddings and its head, as far as their weights stay compressed."""

    def __init__(self, model: nn.Module, held: Iterable[Held], buffers: int, prefetch: bool) -> None:
        by_place: dict[tuple[str, bool], list[Held]] = {}
        for one in held:
            place = stage_of(model, one.name)
            assert place is not None  # others are not held
            by_place.setdefault(place, []).append(one)
        stages = {name: Stage(name, tuple(members), is_table) for (name, is_table), members in by_place.items()}
        # Layers may be spread over devices; each device has buffers of its own.
        by_device: dict[torch.device, list[Stage]] = {}
        for name, _ in model.named_modules():
            if name in stages:
                by_device.setdefault(stages[name].held[0].blob().device, []).append(stages[name])
        self.stages = list(stages.values())
        self.rings = []
        self._hooks: list[Any] = []
        for members in by_device.values():
            ring = Ring(members, buffers, prefetch)
            self.rings.append(ring)
            for index, stage in enumerate(members):
                self._hook(model.get_submodule(stage.name), ring, index)

    def _hook(self, layer: nn.Module, ring: Ring, index: int) -> None:
        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if torch.is_grad_enabled():
                _refuse_gradients(module, args, kwargs)
            ring.enter(index)

        def after(*_: Any) -> None:
            ring.leave(index)

        self._hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        # Also if the layer raises: its blobs must be in place for the next call.
        self._hooks.append(layer.register_forward_hook(after, always_call=True))

    def __deepcopy__(self, memo: dict[int, Any]) -> Layers:
        # The hooks of a copy would still put weights into the modules of the original.
        raise UnsupportedError("a model whose weights stay compressed cannot be copied; load it once more")

    def check(self) -> None:
        """Decodes everything once; raises if a blob is bad."""
        for ring in self.rings:
            ring.check()

    def remove(self) -> None:
        """Removes the hooks; the blobs stay."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _refuse_gradients(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Decoded weights are overwritten after their layer has run, so a backward pass would read others."""
    values = (*args, *kwargs.values(), *module.parameters())
    if any(isinstance(value, torch.Tensor) and value.requires_grad for value in values):
        raise ArgumentError(
            "no gradients flow through layers that stay compressed; run under torch.no_grad(), or load the model with "
            "TenfoldConfig(keep_compressed=False)"
        )
