"""On a CUDA device streams share the buffers. Their events must keep every use of a buffer apart from the next, in graphs too.

No device is needed: the streams, events and graphs are those of ``streams.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from streams import World

import tenfold.torch
from tenfold.torch import _device
from tenfold.torch.kept import Held, Stage, _engines
from tenfold.torch.kept._compress import kept
from tenfold.torch.kept._ring import Ring


def stages(sizes: Sequence[int], tables: Sequence[int], from_host: bool = False) -> tuple[list[Stage], list[torch.Tensor]]:
    out, weights = [], []
    for number, size in enumerate(sizes):
        module = torch.nn.Linear(size, size, bias=False)
        weight = torch.randn(size, size)
        blob = tenfold.torch.encode(weight, lossless=True)
        module._parameters["weight"] = torch.nn.Parameter(blob, requires_grad=False)
        held = Held(module, "weight", f"{number}.weight", (size, size), torch.float32, torch.float32)
        out.append(Stage(str(number), (held,), number in tables, from_host and number not in tables))
        weights.append(weight)
    return out, weights


@pytest.mark.parametrize("from_host", [False, True], ids=["device", "pinned"])
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("buffers", [2, 3])
@pytest.mark.parametrize("tables", [(), (0, 5)])
def test_streams_never_meet_in_a_buffer(
    monkeypatch: pytest.MonkeyPatch, tables: Sequence[int], buffers: int, prefetch: bool, from_host: bool
) -> None:
    made, weights = stages([40, 16, 24, 16, 24, 40], tables, from_host)
    world = World(monkeypatch)
    ring = Ring(made, buffers, prefetch)
    # In order, with a stage left out, one run twice, and in order again.
    for index in [*range(6), *range(6), 0, 1, 3, 4, 4, 5, *range(6), *range(6)]:
        ring.enter(index)
        held = made[index].held[0]
        weight = held.module.weight
        assert torch.equal(weight, weights[index])
        world.do(lambda: None, [weight], [])
        ring.leave(index)
        assert held.module.weight.dtype == torch.uint8
    assert len({use[2] for use in world.uses}) == 1 + prefetch + from_host
    assert world.conflicts() == []


def test_the_check_finds_a_missing_event(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = stages([16, 16, 16], ())
    world = World(monkeypatch)
    monkeypatch.setattr(_engines.CudaEngine, "release", lambda self, slot: None)
    ring = Ring(made, 2, True)
    for index in [0, 1, 2] * 3:
        ring.enter(index)
        world.do(lambda: None, [made[index].held[0].module.weight], [])
        ring.leave(index)
    assert world.conflicts()


class Layer(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size) / size**0.5, requires_grad=False)

    def forward(self, x: torch.Tensor, world: Any) -> torch.Tensor:
        out, weight = torch.empty_like(x), self.weight
        world.now.do(lambda: out.copy_(torch.tanh(x @ weight.T)), [x, weight], [out])
        return out


class Now:
    """Knows who does the work at the time; an object among the arguments, as a cache is."""

    # Of the class: what an object holds decides whether two calls are alike.
    now: Any = None


class Direct:
    def do(self, work: Any, *_: Any) -> None:
        work()


class Net(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(64) for _ in range(layers))

    def forward(self, x: torch.Tensor, world: Any, skip: int | None = None) -> dict[str, Any]:
        for number, layer in enumerate(self.layers):
            if number != skip:
                x = layer(x, world)
        return {"x": x, "world": world}


@pytest.mark.parametrize("offload", [False, True], ids=["device", "pinned"])
@pytest.mark.parametrize("prefetch", [True, False], ids=["ahead", "in turn"])
@pytest.mark.parametrize("buffers", [2, 3])
@pytest.mark.parametrize("layers", [1, 2, 3, 4, 6])
def test_graphs_compute_the_same_and_never_meet_in_a_buffer(
    monkeypatch: pytest.MonkeyPatch, layers: int, buffers: int, prefetch: bool, offload: bool
) -> None:
    net, now = Net(layers).eval(), Now()
    monkeypatch.setattr(Now, "now", Direct())
    calls: list[tuple[int, int | None]] = [(2, None)] * 5 + [(3, None), (2, None), (2, None), (3, 0), (2, None)]
    # Other shapes and another order of layers come in between, once and more often.
    calls += [(3, None)] * 4 + [(2, 0)] * 4 + [(2, None)] * 4
    # A part may be in training mode, with nothing to train.
    net.layers[-1].train()
    inputs = [torch.randn(rows, 64) for rows, _ in calls]
    expected = [net(x, now, skip)["x"] for x, (_, skip) in zip(inputs, calls, strict=True)]
    monkeypatch.setattr(_device, "pin", lambda memory: None)
    monkeypatch.setattr(_device, "unpin", lambda address: None)
    tenfold.torch.compress_module(
        net, lossless=True, graph=True, offload=offload, buffers=buffers, prefetch=prefetch
    )
    world = World(monkeypatch)
    monkeypatch.setattr(Now, "now", world)
    outs = [net(x, now, skip) for x, (_, skip) in zip(inputs, calls, strict=True)]
    for number, (found, right) in enumerate(zip(outs, expected, strict=True)):
        assert torch.equal(found["x"], right), number
        assert found["world"] is now
    captured = kept(net).captured
    assert captured == 4
    assert sum(graph.replays for graph in world.graphs) > captured
    # Where the buffers come out as they were, a replay begins with what the last one decoded; else it is captured once more.
    if prefetch and layers > buffers:
        again = len(world.graphs) - captured
        assert again <= 1 if layers % buffers == 0 else again >= 3
    assert world.conflicts() == []
    (ring,) = kept(net).rings
    engine: Any = ring._engine
    assert engine.watch.collected == len(calls)
