"""Decoding the weights of layers around each call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..._errors import ArgumentError, UnsupportedError
from ._engines import Checksums
from ._held import Held, Stage, Uncopied
from ._instead import Instead
from ._norms import norms
from ._passes import Passes, Wanted
from ._pinned import Pinned
from ._products import products
from ._ring import Ring


class Layers(Uncopied):
    """The parts of a module whose weights stay compressed.

    Args:
        model: the module.
        stages: which weights are decoded together, and around the calls of which part.
        buffers: decoded stages in memory at a time.
        prefetch: whether to decode ahead.
        pinned: whether the blobs stay in host memory, whatever device the module runs on.
        wanted: which calls of the module may become CUDA graphs; none if this is None.
        checksums: whether a device checks those of tiles: in every pass, in none, or once.
        multiply: whether linear layers that work on one token multiply by a kernel of ours, and not torch's, and norms take one kernel.
    """

    def __init__(
        self,
        model: nn.Module,
        stages: Iterable[Stage],
        *,
        buffers: int = 2,
        prefetch: bool = True,
        pinned: bool = False,
        wanted: Wanted | None = None,
        multiply: bool = True,
        checksums: Checksums = "once",
    ) -> None:
        if pinned:
            # Tables are large, so fetching them for each pass would take long; they stay with the rest of the model.
            stages = [replace(stage, from_host=not stage.is_table) for stage in stages]
        by_name = {stage.name: stage for stage in stages}
        self.stages = list(by_name.values())
        fetched = [held for stage in self.stages if stage.from_host for held in stage.held]
        self._pinned = Pinned(fetched) if pinned else None
        # Layers may be spread over devices; each device has buffers of its own.
        by_device: dict[torch.device | None, list[Stage]] = {}
        for name, _ in model.named_modules():
            if name in by_name:
                # Blobs in host memory say nothing of the device; such a model is on one.
                device = None if pinned else by_name[name].held[0].blob().device
                by_device.setdefault(device, []).append(by_name[name])
        self.rings: list[Ring] = []
        self._hooks: list[Any] = []
        for members in by_device.values():
            ring = Ring(members, buffers, prefetch, checksums)
            self.rings.append(ring)
            for index, stage in enumerate(members):
                self._hook(model.get_submodule(stage.name), ring, index)
        self._instead: list[Instead] = [*products(self.held), *norms(model)] if multiply else []
        self._passes = Passes(model, self.rings, wanted)

    @property
    def held(self) -> list[Held]:
        """All weights that stay compressed."""
        return [held for stage in self.stages for held in stage.held]

    @property
    def captured(self) -> int:
        """How many CUDA graphs have been captured."""
        return self._passes.captured

    def _hook(self, layer: nn.Module, ring: Ring, index: int) -> None:
        entered: list[bool] = []

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            entered.append(False)
            if torch.is_grad_enabled():
                _refuse_gradients(module, args, kwargs)
            ring.enter(index, _device_of(args, kwargs) if self._pinned is not None else None)
            entered[-1] = True

        def after(*_: Any) -> None:
            # A call that was refused must not end the one that it came across.
            if entered.pop():
                ring.leave(index)

        self._hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        # Also if the layer raises: its blobs must be in place for the next call.
        self._hooks.append(layer.register_forward_hook(after, always_call=True))

    def check(self, device: torch.device | None = None) -> None:
        """Decodes everything once; raises if a blob is bad."""
        for ring in self.rings:
            ring.check(device)

    def make_room(self, held: Held, length: int) -> None:
        """Replaces a blob by one of another length, to be written."""
        if self._pinned is not None:
            raise UnsupportedError(f"{held.name} lies in pinned memory; compress the module without offload to load other blobs")
        old = held.blob()
        room = torch.empty(length, dtype=torch.uint8, device=old.device)
        new = nn.Parameter(room, requires_grad=False) if isinstance(old, nn.Parameter) else room
        for one in self.held:
            if one.blob() is old:
                one.put(new)
        for ring in self.rings:
            ring.reset()

    def remove(self) -> None:
        """Removes the hooks; the blobs stay."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for one in self._instead:
            one.remove()
        self._passes.remove()
        if self._pinned is not None:
            self._pinned.remove()


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """Where a layer runs: where its first input is."""
    return next((value.device for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)), None)


def _refuse_gradients(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Decoded weights are overwritten after their layer has run, so a backward pass would read others."""
    values = (*args, *kwargs.values(), *module.parameters())
    if any(isinstance(value, torch.Tensor) and value.requires_grad for value in values):
        raise ArgumentError(
            "no gradients flow through layers that stay compressed; run under torch.no_grad(), or decode the weights: with "
            "TenfoldConfig(keep_compressed=False) or tenfold.torch.decompress_module"
        )
