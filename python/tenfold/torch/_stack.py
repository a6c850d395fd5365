"""A decoder model taken apart: what comes before its layers, the layers one by one, what comes behind them.

Only one layer's weights need to be where the work is done. A model is asked for the parts between by running it with layers that do
nothing, so that embeddings, masks, positions and heads are the model's own, whatever they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .._errors import ArgumentError, UnsupportedError


@dataclass(frozen=True)
class Call:
    """What a layer is called with besides the hidden states."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def find_layers(model: Any) -> nn.ModuleList | None:
    """The decoder layers of a model of transformers, if it is one that has only these."""
    config = getattr(model, "config", None)
    if config is None or getattr(config, "is_encoder_decoder", False) or not hasattr(model, "get_decoder"):
        return None
    decoder = model.get_decoder()
    for name in ("layers", "h", "blocks"):
        found = getattr(decoder, name, None)
        if isinstance(found, nn.ModuleList) and len(found):
            return found
    return None


class Stack:
    """A model whose layers are run one at a time, on a device of the caller's choice."""

    def __init__(self, model: nn.Module, device: torch.device | str | None = None) -> None:
        layers = find_layers(model)
        if layers is None:
            raise UnsupportedError(f"{type(model).__name__} is not a decoder model of transformers with a list of layers")
        for name, parameter in model.named_parameters():
            if parameter.is_meta:
                raise ArgumentError(f"{name} lies on no device; load the model without device_map, and state device= instead")
        self.model = model
        self.layers = layers
        place = next(layers.parameters()).device
        self.device = torch.device(device) if device is not None else place
        names = {id(module): name for name, module in model.named_modules()}
        self.names = [names[id(layer)] for layer in layers]
        inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
        self._outside = [one for one in model.parameters() if id(one) not in inside]
        inside |= {id(buffer) for layer in layers for buffer in layer.buffers()}
        self._outside_buffers = [one for one in model.buffers() if id(one) not in inside]
        # Whether layers return a tuple, known once one has run.
        self._tuples: bool | None = None
        self._calls: dict[tuple[int, ...], list[Call]] = {}

    @contextlib.contextmanager
    def layer(self, index: int) -> Iterator[nn.Module]:
        """One layer, whose weights lie on the device while this is open."""
        layer = self.layers[index]
        with _placed([*layer.parameters(), *layer.buffers()], self.device):
            yield layer

    def outside(self) -> contextlib.AbstractContextManager[None]:
        """While open, all that is not a layer lies on the device."""
        return _placed([*self._outside, *self._outside_buffers], self.device)

    def run(self, layer: nn.Module, hidden: torch.Tensor, call: Call) -> torch.Tensor:
        """Hidden states behind a layer."""
        out = layer(hidden, *_to(call.args, self.device), **_to(call.kwargs, self.device))
        found = out[0] if isinstance(out, tuple) else out
        if not isinstance(found, torch.Tensor) or found.shape != hidden.shape:
            raise UnsupportedError(f"{type(layer).__name__} does not return hidden states of the shape that it gets")
        return found

    def calls(self, ids: torch.Tensor) -> list[Call]:
        """What each layer is called with for a context (batch × tokens): the same for all of this shape."""
        if tuple(ids.shape) not in self._calls:
            self.begin(ids)
        return self._calls[tuple(ids.shape)]

    def begin(self, ids: torch.Tensor) -> torch.Tensor:
        """Hidden states before the first layer."""
        first: list[torch.Tensor] = []
        calls: list[Call] = []

        def stub(index: int) -> Callable[..., Any]:
            def forward(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                if not first:
                    first.append(hidden_states.detach())
                calls.append(Call(args, kwargs))
                return self._result(index, hidden_states, args, kwargs)

            return forward

        with torch.no_grad(), self._around(stub):
            self.model(ids.to(self.device), use_cache=False)
        if len(calls) != len(self.layers):
            raise UnsupportedError(f"{len(calls)} of {len(self.layers)} layers ran in a pass; each must run once")
        self._calls.setdefault(tuple(ids.shape), calls)
        return first[0]

    def end(self, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Logits from the hidden states behind the last layer, which may have gradients."""
        self.calls(ids)

        def stub(index: int) -> Callable[..., Any]:
            def forward(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                return self._result(index, hidden if index == len(self.layers) - 1 else hidden_states, args, kwargs)

            return forward

        with self._around(stub):
            found: torch.Tensor = self.model(ids.to(self.device), use_cache=False).logits
        return found

    def _result(self, index: int, hidden: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a layer would return if it did nothing. The first one has to run once to say what kind of thing that is."""
        if self._tuples is None:
            layer = self.layers[index]
            with torch.no_grad(), self.layer(index):
                self._tuples = isinstance(type(layer).forward(layer, hidden, *args, **kwargs), tuple)
        return (hidden,) if self._tuples else hidden

    @contextlib.contextmanager
    def _around(self, stub: Callable[[int], Callable[..., Any]]) -> Iterator[None]:
        """While open, layers do what the stub says, and all that is not a layer lies on the device."""
        before = [layer.__dict__.get("forward") for layer in self.layers]
        with self.outside():
            try:
                for index, layer in enumerate(self.layers):
                    layer.forward = stub(index)
                yield
            finally:
                for layer, forward in zip(self.layers, before):
                    # The class has its own; what was put over it goes.
                    layer.__dict__.pop("forward")
                    if forward is not None:
                        layer.forward = forward


@contextlib.contextmanager
def _placed(tensors: list[torch.Tensor], device: torch.device) -> Iterator[None]:
    """While open, tensors lie on a device. What they held is put back, not copied back."""
    moved = [(tensor, tensor.data) for tensor in tensors if tensor.device != device]
    try:
        for tensor, data in moved:
            tensor.data = data.to(device)
        yield
    finally:
        for tensor, data in moved:
            tensor.data = data


def _to(value: Any, device: torch.device) -> Any:
    """Tensors inside tuples, lists and dicts on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(_to(one, device) for one in value)
    if isinstance(value, dict):
        return {key: _to(one, device) for key, one in value.items()}
    return value
