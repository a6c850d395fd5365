"""A call of a module as a CUDA graph: decoding of the next layer beside the work of this one, and no Python in between."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from ..._errors import ArgumentError, Error, UnsupportedError
from ._ring import Ring
from ._signature import Anchor, Inputs, Structure


class Recording:
    """A captured call.

    Args:
        module: whose call it is.
        ring: of the module; a call like this one has just run from empty buffers.
        call: the function to capture.
        inputs: the arguments; their tensors are copied before each replay.
    """

    def __init__(self, module: nn.Module, ring: Ring, call: Callable[..., Any], inputs: Inputs) -> None:
        for tensor in inputs.tensors:
            if tensor.device != ring.device:
                raise ArgumentError(
                    f"a tensor among the arguments is on {tensor.device}, the module runs on {ring.device}; a CUDA graph needs "
                    "all of them there: move it with .to(…), or pass a number"
                )
        self._key, self._state = inputs.key, inputs.state()
        self._anchors = [Anchor(one) for one in inputs.objects]
        self._structure = Structure(module)
        self._ring = ring
        with torch.inference_mode(False):
            self._tensors = [tensor.detach().clone() for tensor in inputs.tensors]
        final = ring.latest
        # What one replay decodes ahead at its end, the next begins with; unless the buffers come out differently.
        self._carried = ring.carry()
        out = self._capture(call, inputs, None)
        if self._carried is None or not ring.carries(self._carried):
            self._carried = None
            ring.forget()
            out = self._capture(call, inputs, final)
        leaves, self._out = _pytree.tree_flatten(out, is_leaf=lambda one: any(one is known for known in inputs.objects))
        # Objects of the caller's are given back as they come, and not kept.
        self._leaves = [next((Argument(at) for at, one in enumerate(inputs.objects) if one is leaf), leaf) for leaf in leaves]

    def _capture(self, call: Callable[..., Any], inputs: Inputs, final: int | None) -> Any:
        args, kwargs = inputs.rebuild(self._tensors)
        self._graph = torch.cuda.CUDAGraph()
        device = self._ring.device
        assert device is not None  # only devices have graphs
        stream = _stream_to_capture(device)
        try:
            # A capture that fails leaves its stream as the current one.
            with torch.cuda.stream(torch.cuda.current_stream(device)):
                with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                    with self._ring.recorded(final):
                        out = call(*args, **kwargs)
                    self._ring.collect()
        except BaseException as error:
            self._ring.forget()
            _recover(device, stream)
            if isinstance(error, Error) or not isinstance(error, RuntimeError):
                raise
            cause = error.__context__ or error
            raise UnsupportedError(
                f"the call cannot be captured as a CUDA graph ({cause}); pass graph=False, where the weights were compressed or "
                "in TenfoldConfig"
            ) from error
        return out

    def fits(self, inputs: Inputs) -> bool:
        """Whether a replay does what a call with these arguments would do."""
        if self._key != inputs.key or not self._structure.is_unchanged():
            return False
        if not all(anchor.holds(one) for anchor, one in zip(self._anchors, inputs.objects, strict=True)):
            # Other objects may hold the same: a new cache where the last one was.
            if self._state != inputs.state():
                return False
            self._anchors = [Anchor(one) for one in inputs.objects]
        return True

    def replay(self, inputs: Inputs) -> Any:
        """Runs the call with other values in the tensors."""
        for own, given in zip(self._tensors, inputs.tensors, strict=True):
            own.copy_(given)
        self._ring.before_graph(self._carried)
        self._graph.replay()
        self._ring.after_graph(self._carried)
        leaves = [_fresh(leaf, inputs) for leaf in self._leaves]
        return _pytree.tree_unflatten(leaves, self._out)


def _recover(device: torch.device, stream: torch.cuda.Stream) -> None:
    """After a capture that failed, torch's random numbers believe that it goes on; one that succeeds tells them otherwise."""
    with torch.cuda.stream(torch.cuda.current_stream(device)), suppress(RuntimeError):
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream, capture_error_mode="thread_local"):
            torch.zeros(1, device=device)


@functools.cache
def _stream_to_capture(device: torch.device) -> torch.cuda.Stream:
    """One for all graphs of a device: libraries keep memory for each stream that they have seen.

    Work of the layers comes before decoding ahead, where the device has to choose.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


class Argument:
    """Stands for an object among the arguments."""

    def __init__(self, number: int) -> None:
        self.number = number


def _fresh(leaf: Any, inputs: Inputs) -> Any:
    if isinstance(leaf, Argument):
        return inputs.objects[leaf.number]
    # The next replay writes to the same memory.
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
