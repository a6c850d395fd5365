"""A world without a device: streams, events and CUDA graphs that only keep clocks, for tests of who waits for whom.

A stream knows, of each stream, how much of it has been done before what comes next on it. All uses of memory are written down with
that knowledge and held against each other. Work that is captured, torch's functions too, is done when the graph is replayed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tenfold
import tenfold.torch
from tenfold.torch import _cuda, _device, _verdicts
from tenfold.torch.kept import _engines, _graph

Clock = dict[str, int]


class Stream:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.clock: Clock = {name: 0}

    def step(self) -> Clock:
        self.clock[self.name] += 1
        return dict(self.clock)

    def learn(self, clock: Clock) -> None:
        for name, time in clock.items():
            self.clock[name] = max(time, self.clock.get(name, 0))

    def wait_event(self, event: Event) -> None:
        assert event.graph is self.world.graph, "an event of a graph is waited for outside of it, or the other way round"
        if self.world.graph is not None:
            self.world.graph.actions.append(("wait", self, event))
        else:
            self.learn(event.clock)

    def wait_stream(self, other: Stream) -> None:
        event = Event(self.world)
        event.record(other)
        self.wait_event(event)


class Event:
    def __init__(self, world: World) -> None:
        self.world = world
        self.clock: Clock = {}
        self.graph: Graph | None = None

    def record(self, stream: Stream) -> None:
        self.graph = self.world.graph
        if self.graph is not None:
            self.graph.actions.append(("record", stream, self))
        else:
            self.clock = dict(stream.clock)


class Graph:
    """What was captured; a replay does it once more, after all that the current stream knows."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.actions: list[tuple[str, Stream, Any]] = []
        self.stream: Stream | None = None
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        assert self.stream is not None
        main = self.world.current
        streams, clocks = {id(self.stream): main}, {}
        for kind, stream, what in self.actions:
            if id(stream) not in streams:
                assert kind == "wait", f"{stream.name} has work in the graph that waits for nothing in it"
                streams[id(stream)] = Stream(self.world, f"{stream.name} {id(self)} {self.replays}")
            own = streams[id(stream)]
            if kind == "wait":
                own.learn(clocks[id(what)])
            elif kind == "record":
                clocks[id(what)] = dict(own.clock)
            else:
                self.world.run(own, *what)
        for own in streams.values():
            assert main.clock.get(own.name, 0) == own.clock[own.name], f"{own.name} is not joined at the end of the graph"


class Deferred(TorchDispatchMode):
    """While capturing, torch's functions are done once for the shapes of their results, and again, for the values, in a replay."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        if func._schema.is_mutable:
            self.world.do(lambda: func(*args, **kwargs), [], [])
            return kwargs.get("out", args[0])
        out = func(*args, **kwargs)
        is_view = any(one.alias_info is not None for one in func._schema.returns)
        if not is_view and self.world.graph is not None:
            outs = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
            self.world.do(lambda: _refill(outs, func(*args, **kwargs)), [], [])
        return out


def _refill(outs: list[torch.Tensor], again: Any) -> None:
    for out, new in zip(outs, [one for one in tree_leaves(again) if isinstance(one, torch.Tensor)], strict=True):
        out.copy_(new)


class World:
    """The streams, and all uses of memory in the order of the host: from, to, stream, its clock, whether written.

    Args:
        patch: to undo it all.
        real: whether blobs are decoded by the package itself, which does so at once; no graphs then.
    """

    def __init__(self, patch: pytest.MonkeyPatch, real: bool = False) -> None:
        self.main = self.current = Stream(self, "main")
        self.graph: Graph | None = None
        self.uses: list[tuple[int, int, str, Clock, bool]] = []
        self.alive: list[Any] = []
        self.graphs: list[Graph] = []
        self._names = 0
        world = self
        _graph._stream_to_capture.cache_clear()

        class Decoder:
            def __init__(
                self,
                blobs: Sequence[torch.Tensor],
                outs: Sequence[torch.Tensor],
                *,
                checksums: str,
                multiprocessors: int | None,
                transposed_views: bool,
            ) -> None:
                assert world.graph is None, "a decoder cannot be made while capturing"
                self.blobs, self.outs, self.stream = list(blobs), list(outs), world.current
                self.verdicts = torch.zeros(len(blobs), 2, dtype=torch.int64)

            def __call__(self) -> None:
                if world.graph is None and world.current is not self.stream:
                    world.current.wait_stream(self.stream)
                    self.stream = world.current
                world.do(self.decode, self.blobs, self.outs)

            def decode(self) -> None:
                for blob, out in zip(self.blobs, self.outs, strict=True):
                    raw = tenfold.decode(blob.numpy().tobytes(), dtype="raw")
                    out.view(torch.uint8).copy_(torch.from_numpy(raw.view("uint8")).view(out.view(torch.uint8).shape))

            def check(self) -> None:
                pass

        class Watch:
            def __init__(self, device: torch.device) -> None:
                self.collected = 0

            def collect(self, verdicts: Iterable[torch.Tensor]) -> None:
                world.do(self.count, list(verdicts), [])

            def count(self) -> None:
                self.collected += 1

            def has_fault(self) -> bool:
                return False

            def check(self) -> None:
                pass

        @contextmanager
        def on(stream: Stream) -> Any:
            before, world.current = world.current, stream
            yield
            world.current = before

        @contextmanager
        def capture(graph: Graph, stream: Stream, **_: Any) -> Any:
            before, world.current, world.graph = world.current, stream, graph
            graph.stream = stream
            try:
                with Deferred(world):
                    yield
            finally:
                world.current, world.graph = before, None

        # What this world decodes is nobody's business later.
        patch.setattr(_verdicts, "_watched", weakref.WeakSet())
        patch.setattr(_device, "multiprocessors", lambda device: 4)
        patch.setattr(torch.cuda, "Stream", lambda device, priority=0: world.stream())
        patch.setattr(torch.cuda, "Event", lambda: Event(world))
        patch.setattr(torch.cuda, "stream", on)
        patch.setattr(torch.cuda, "current_stream", lambda device: world.current)
        patch.setattr(torch.cuda, "CUDAGraph", lambda: world.new_graph())
        patch.setattr(torch.cuda, "graph", capture)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: world.graph is not None)
        if real:
            return
        def multiply(matrix: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
            world.do(lambda: out.copy_(torch.nn.functional.linear(vector, matrix, bias)), [matrix, vector], [out])

        patch.setattr(_cuda, "multiply", multiply)
        patch.setattr(_device, "is_ours", lambda device: True)
        patch.setattr(tenfold.torch, "Decoder", Decoder)
        patch.setattr(_engines, "Watch", Watch)
        patch.setattr(_engines, "copy", lambda target, source: world.do(lambda: target.copy_(source), [source], [target]))

    def stream(self) -> Stream:
        self._names += 1
        return Stream(self, f"stream {self._names}")

    def new_graph(self) -> Graph:
        self.graphs.append(Graph(self))
        return self.graphs[-1]

    def do(self, work: Callable[[], object], reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> None:
        """Does work on the current stream, or captures it."""
        # Memory that is freed and taken again would look like the same memory.
        self.alive += [*reads, *writes]
        if self.graph is not None:
            self.graph.actions.append(("do", self.current, (work, reads, writes)))
        else:
            self.run(self.current, work, reads, writes)

    def run(self, stream: Stream, work: Callable[[], object], reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> None:
        clock = stream.step()
        for tensors, write in ((reads, False), (writes, True)):
            for one in tensors:
                self.uses.append((one.data_ptr(), one.data_ptr() + one.nbytes, stream.name, clock, write))
        work()

    def conflicts(self) -> list[tuple[Any, Any]]:
        """Pairs of uses of the same memory of which the later does not wait for the earlier."""
        found = []
        for at, (start, end, stream, clock, write) in enumerate(self.uses):
            for later in self.uses[at + 1 :]:
                shared = start < later[1] and later[0] < end and (write or later[4])
                if shared and later[3].get(stream, 0) < clock[stream]:
                    found.append(((start, end, stream), later[:3]))
        return found
