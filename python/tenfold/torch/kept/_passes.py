"""Calls of a whole module: what devices said of its blobs, and CUDA graphs of calls that are repeated."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ._graph import Recording
from ._held import Uncopied
from ._ring import Ring
from ._signature import Inputs

# Says of the arguments of a call whether it may become a graph.
Wanted = Callable[[tuple[Any, ...], dict[str, Any]], bool]


class Passes(Uncopied):
    """Stands before a module's ``forward``.

    Each call first raises what earlier calls found wrong, without waiting for what is not known yet. A call that is like the
    one before it (the same shapes and numbers, caches at the same addresses) is captured as a CUDA graph, and
    further calls replay the graph.
    """

    def __init__(self, module: nn.Module, rings: Sequence[Ring], wanted: Wanted | None) -> None:
        self._module, self._rings = module, rings
        self._wanted = wanted if len(rings) == 1 else None
        self._seen: Any = None
        self._recording: Recording | None = None
        self._uncompiled: Callable[..., Any] | None = None
        self.captured = 0
        self._own = module.__dict__.get("forward")
        self._forward = module.forward
        # People and libraries look at the signature of forward.
        functools.update_wrapper(self, self._forward)
        module.forward = self

    def remove(self) -> None:
        """Takes itself away."""
        self._recording = None
        if self._own is None:
            self._module.__dict__.pop("forward", None)
        else:
            self._module.forward = self._own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Compilers leave it alone: transformers compiles by itself where it finds a static cache. They are imported only
        # where someone else does, because that takes seconds.
        if self._uncompiled is None and "torch._dynamo" in sys.modules:
            self._uncompiled = torch.compiler.disable(self._pass)  # type: ignore[no-untyped-call]
        return (self._uncompiled or self._pass)(*args, **kwargs)

    def _pass(self, *args: Any, **kwargs: Any) -> Any:
        for ring in self._rings:
            ring.report(wait=False)
        inputs = self._candidate(args, kwargs)
        if inputs is None:
            return self._run(args, kwargs)
        ring = self._rings[0]
        if self._recording is None or not self._recording.fits(inputs):
            asked = inputs.key, inputs.state()
            if self._seen != asked:
                self._seen = asked
                # So that a graph finds everything prepared for the buffers as it will use them.
                ring.forget()
                return self._run(args, kwargs)
            # Its memory goes before that of the new one is taken. If the new one does not fit either, two calls must be alike
            # again before the next.
            self._recording = self._seen = None
            self._recording = Recording(self._module, ring, self._forward, inputs)
            self.captured += 1
        return self._recording.replay(inputs)

    def _candidate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs | None:
        """The arguments of a call, if it may become a graph."""
        if self._wanted is None or self._module.training or self._rings[0].device is None:
            return None
        if torch.cuda.is_current_stream_capturing() or not self._wanted(args, kwargs):
            return None
        return Inputs(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = self._forward(*args, **kwargs)
        for ring in self._rings:
            ring.collect()
        return out
