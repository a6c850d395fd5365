"""On a CUDA device two streams share the buffers. Their events must keep every use of a buffer apart from the next.

No device is needed: streams and events are replaced by ones that only keep clocks (what each stream knows to be done), and all uses
of memory are written down and held against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import tenfold.torch
from tenfold.transformers import _engines, _ring
from tenfold.transformers._ring import Ring
from tenfold.transformers._stages import Held, Stage


class Stream:
    """Knows, of each stream, how much of it has been done before what comes next here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: dict[str, int] = {name: 0}

    def step(self) -> dict[str, int]:
        self.clock[self.name] += 1
        return dict(self.clock)

    def learn(self, clock: dict[str, int]) -> None:
        for name, time in clock.items():
            self.clock[name] = max(time, self.clock.get(name, 0))

    def wait_event(self, event: Event) -> None:
        self.learn(event.clock)

    def wait_stream(self, other: Stream) -> None:
        self.learn(other.clock)


class Event:
    def __init__(self) -> None:
        self.clock: dict[str, int] = {}

    def record(self, stream: Stream) -> None:
        self.clock = dict(stream.clock)


class World:
    """The streams, and all uses of memory in the order of the host: from, to, stream, its clock, whether written."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.main = self.current = Stream("main")
        self.uses: list[tuple[int, int, str, dict[str, int], bool]] = []
        world = self

        class Decoder:
            def __init__(self, blobs: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> None:
                self.blobs, self.outs, self.stream = blobs, outs, world.current

            def __call__(self) -> None:
                if world.current is not self.stream:
                    world.current.wait_stream(self.stream)
                    self.stream = world.current
                world.use(self.outs, write=True)
                tenfold.torch.decode_many(self.blobs, self.outs)

        @contextmanager
        def on(stream: Stream) -> Any:
            before, world.current = world.current, stream
            yield
            world.current = before

        patch.setattr(torch.cuda, "Stream", lambda device: Stream("side"))
        patch.setattr(torch.cuda, "Event", Event)
        patch.setattr(torch.cuda, "stream", on)
        patch.setattr(torch.cuda, "current_stream", lambda device: world.current)
        patch.setattr(tenfold.torch, "Decoder", Decoder)
        patch.setattr(_ring, "CpuEngine", _engines.CudaEngine)

    def use(self, tensors: Sequence[torch.Tensor], write: bool) -> None:
        clock = self.current.step()
        for one in tensors:
            self.uses.append((one.data_ptr(), one.data_ptr() + one.nbytes, self.current.name, clock, write))

    def conflicts(self) -> list[tuple[Any, Any]]:
        """Pairs of uses of the same memory of which the later does not wait for the earlier."""
        found = []
        for at, (start, end, stream, clock, write) in enumerate(self.uses):
            for later in self.uses[at + 1 :]:
                shared = start < later[1] and later[0] < end and (write or later[4])
                if shared and later[3].get(stream, 0) < clock[stream]:
                    found.append(((start, end, stream), later[:3]))
        return found


def stages(sizes: Sequence[int], tables: Sequence[int]) -> tuple[list[Stage], list[torch.Tensor]]:
    out, weights = [], []
    for number, size in enumerate(sizes):
        module = torch.nn.Linear(size, size, bias=False)
        weight = torch.randn(size, size)
        blob = tenfold.torch.encode(weight, lossless=True)
        module._parameters["weight"] = torch.nn.Parameter(blob, requires_grad=False)
        held = Held(module, "weight", f"{number}.weight", (size, size), torch.float32, torch.float32)
        out.append(Stage(str(number), (held,), number in tables))
        weights.append(weight)
    return out, weights


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("buffers", [2, 3])
@pytest.mark.parametrize("tables", [(), (0, 5)])
def test_streams_never_meet_in_a_buffer(
    monkeypatch: pytest.MonkeyPatch, tables: Sequence[int], buffers: int, prefetch: bool
) -> None:
    world = World(monkeypatch)
    made, weights = stages([40, 16, 24, 16, 24, 40], tables)
    ring = Ring(made, buffers, prefetch)
    # In order, with a stage left out, one run twice, and in order again.
    for index in [*range(6), *range(6), 0, 1, 3, 4, 4, 5, *range(6), *range(6)]:
        ring.enter(index)
        held = made[index].held[0]
        weight = held.module.weight
        assert torch.equal(weight, weights[index])
        world.use([weight], write=False)
        ring.leave(index)
        assert held.module.weight.dtype == torch.uint8
    assert len({use[2] for use in world.uses}) == (2 if prefetch else 1)
    assert world.conflicts() == []


def test_the_check_finds_a_missing_event(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    monkeypatch.setattr(_engines.CudaEngine, "release", lambda self, slot: None)
    made, _ = stages([16, 16, 16], ())
    ring = Ring(made, 2, True)
    for index in [0, 1, 2] * 3:
        ring.enter(index)
        world.use([made[index].held[0].module.weight], write=False)
        ring.leave(index)
    assert world.conflicts()
