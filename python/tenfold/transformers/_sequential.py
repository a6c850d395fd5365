"""Compresses a model layer after layer: each is calibrated on what the compressed layers before it give.

Hidden states of both models, as it was and compressed, go through the layers side by side. In a layer the weights are encoded in the order in which
they run, those with the same input together; after each group the layer runs again up to the next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..torch._layerwise import Passage
from ..torch._stack import Stack
from ..torch._summary import damping_for, linear_layers
from ._correction import Drift, correct

# Share of a product's size by which a residual stream may miss it: of models in bfloat16, whose sums are rounded.
NEAR = 0.03


class _Reached(Exception):
    """A layer has run up to where it was to run."""


@dataclass
class Group:
    """Weights with the same input, in the order in which they run."""

    names: list[str]
    streams: dict[str, str] = field(default_factory=dict)
    """Of weights whose products are added to the residual stream: the module that gets the stream before that; "" is the layer."""


@dataclass
class Target:
    """What is to be encoded in the place of a weight."""

    name: str
    weight: torch.Tensor
    inputs: torch.Tensor
    damping: float
    share: float
    """Of the correction."""


Encode = Callable[[Target], torch.Tensor]


@dataclass
class Sequential:
    """Hidden states of both models before a layer, and the text."""

    stack: Stack
    passages: Sequence[Passage]
    held: int
    """How many of the passages, the last ones, are held back."""
    was: list[torch.Tensor]
    now: list[torch.Tensor]

    def advance(
        self, index: int, outputs: Mapping[str, torch.Tensor], counts: Mapping[str, list[torch.Tensor]], encode: Encode
    ) -> None:
        """Encodes the weights of a layer and moves all hidden states behind it. `encode` gets a target and returns the values that
        its blob decodes to. `outputs` and `counts` have E[g²] by weight and what each token counts by group."""
        stack = self.stack
        with torch.no_grad(), stack.layer(index) as layer:
            linears = linear_layers(layer, stack.names[index])
            groups, kept = self._run_before(index, layer, linears)
            for number, group in enumerate(groups):
                drifts = self._drifts(index, layer, linears, group, kept.pop(number), counts.get(group.names[0]))
                if drifts is None:
                    continue
                for name in group.names:
                    weight = linears[name].weight
                    target = self._target(name, weight, outputs.get(name), drifts)
                    weight.data = encode(target).to(weight)
            self._run(index, layer, self.now)

    def follow(self, index: int, instead: Mapping[str, torch.Tensor]) -> None:
        """Puts weights into a layer, and moves all hidden states behind it."""
        with torch.no_grad(), self.stack.layer(index) as layer:
            self._run(index, layer, self.was)
            linears = linear_layers(layer, self.stack.names[index])
            for name, values in instead.items():
                linears[name].weight.data = values.to(linears[name].weight)
            self._run(index, layer, self.now)

    def _run(self, index: int, layer: nn.Module, hidden: list[torch.Tensor]) -> None:
        for at, passage in enumerate(self.passages):
            hidden[at] = self.stack.run(layer, hidden[at].to(self.stack.device), self.stack.calls(passage.ids)[index]).cpu()

    def _run_before(
        self, index: int, layer: nn.Module, linears: Mapping[str, nn.Linear]
    ) -> tuple[list[Group], dict[int, list[_Before]]]:
        """Runs the layer as it was; returns its groups, and what each got."""
        groups: list[Group] = []
        kept: dict[int, list[_Before]] = {}
        for at, passage in enumerate(self.passages):
            trace = _Trace(layer, linears)
            with trace.watching():
                out = self.stack.run(layer, self.was[at].to(self.stack.device), self.stack.calls(passage.ids)[index])
            trace.inputs[""] = self.was[at].to(out)
            for names in trace.groups:
                known = next((group for group in groups if group.names[0] == names[0]), None)
                if known is None:
                    known = Group(names, {name: found for name in names if (found := trace.stream(name, out)) is not None})
                    groups.append(known)
                streams = {name: trace.inputs[where] for name, where in known.streams.items()}
                kept.setdefault(groups.index(known), []).append(_Before(at, trace.given[names[0]], streams))
            self.was[at] = out.cpu()
        return groups, kept

    def _drifts(
        self,
        index: int,
        layer: nn.Module,
        linears: Mapping[str, nn.Linear],
        group: Group,
        before: list[_Before],
        counts: list[torch.Tensor] | None,
    ) -> tuple[Drift, Drift] | None:
        """Runs the compressed layer up to a group, and sums what it gets: tokens to learn from, and those held back."""
        leader = linears[group.names[0]]
        empty = [Drift.empty(leader.in_features, self.stack.device) for _ in range(2)]
        for one in before:
            at, passage = one.passage, self.passages[one.passage]
            now = self._run_up_to(index, layer, leader, group, at)
            if now is None:
                continue
            given, streams = now
            rows = given.reshape(-1, given.shape[-1])
            # Experts may get other tokens than before; what they get now still says how inputs go together.
            same = one.given.shape == given.shape
            weights = torch.full((len(rows),), passage.share, device=rows.device)
            if same and counts is not None and at < len(counts) and len(counts[at]) == len(rows):
                weights = counts[at].to(rows.device)
            was = one.given.to(rows.device).reshape(rows.shape) if same else None
            pairs = {}
            for name, stream in streams.items() if same else ():
                pairs[name] = one.streams[name].to(rows.device).flatten(0, -2), stream.flatten(0, -2)
            drift = empty[int(at >= len(self.passages) - self.held)]
            drift.add(was, rows, pairs, weights)
        return (empty[0], empty[1]) if empty[0].mass else None

    def _run_up_to(
        self, index: int, layer: nn.Module, leader: nn.Linear, group: Group, at: int
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]] | None:
        hidden = self.now[at].to(self.stack.device)
        found: list[torch.Tensor] = []
        streams: dict[str, torch.Tensor] = {"": hidden}

        def reach(_: nn.Module, args: tuple[Any, ...]) -> None:
            found.append(args[0])
            raise _Reached

        handles = [leader.register_forward_pre_hook(reach)]
        for where in set(group.streams.values()) - {""}:

            def see(_: nn.Module, args: tuple[Any, ...], where: str = where) -> None:
                streams[where] = args[0]

            handles.append(layer.get_submodule(where).register_forward_pre_hook(see))
        try:
            self.stack.run(layer, hidden, self.stack.calls(self.passages[at].ids)[index])
        except _Reached:
            pass
        finally:
            for handle in handles:
                handle.remove()
        if not found or not found[0].numel():
            return None
        return found[0], {name: streams[where] for name, where in group.streams.items()}

    def _target(
        self, name: str, weight: torch.Tensor, outputs: torch.Tensor | None, drifts: tuple[Drift, Drift]
    ) -> Target:
        seen, held = drifts
        damping = damping_for(weight.shape[1], seen.effective)
        rows = None if outputs is None else outputs.to(weight.device)
        wanted, share = correct(name, weight.data.float(), rows, seen, held, damping)
        return Target(name, wanted, seen.mean().float(), damping, share)


@dataclass
class _Before:
    """What a group got in the model as it was."""

    passage: int
    given: torch.Tensor
    streams: dict[str, torch.Tensor]


class _Trace:
    """One pass of a layer: what its linear layers and norms got, and gave."""

    def __init__(self, layer: nn.Module, linears: Mapping[str, nn.Linear]) -> None:
        self._layer = layer
        self._linears = linears
        self.groups: list[list[str]] = []
        self.given: dict[str, torch.Tensor] = {}
        self.gave: dict[str, torch.Tensor] = {}
        # Of modules without linear layers inside, such as norms, by their names in the layer.
        self.inputs: dict[str, torch.Tensor] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        handles = []
        for name, module in self._linears.items():
            handles.append(module.register_forward_hook(self._see(name)))
        for name, module in self._layer.named_modules():
            if name and not any(isinstance(part, nn.Linear) for part in module.modules()):

                def keep(_: nn.Module, args: tuple[Any, ...], name: str = name) -> None:
                    if args and isinstance(args[0], torch.Tensor) and name not in self.inputs:
                        self.inputs[name] = args[0]

                handles.append(module.register_forward_pre_hook(keep))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _see(self, name: str) -> Any:
        def see(_: nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> None:
            if name in self.given or not args[0].numel():
                return
            same = next((names for names in self.groups if self.given[names[0]] is args[0]), None)
            self.given[name], self.gave[name] = args[0], out
            if same is None:
                self.groups.append([name])
            else:
                same.append(name)

        return see

    def stream(self, name: str, out: torch.Tensor) -> str | None:
        """The module whose input is the residual stream that the product of a weight is added to, if the pass shows that: another one
        gets, or the layer gives, the sum."""
        product = self.gave[name]
        before = {where: one for where, one in self.inputs.items() if one.shape == product.shape}
        sums = [*before.values(), out]
        allowed = NEAR * float(product.float().norm())
        for where, stream in before.items():
            for total in sums:
                if total is not stream and total.shape == product.shape and float((total - stream - product).float().norm()) <= allowed:
                    return where
        return None
