"""Compressed modules on a CUDA device: graphs and pinned blobs give the same bits, and damaged blobs come to light."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import tenfold.torch
from tenfold import DataError, UnsupportedError
from tenfold.torch.kept._compress import kept

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class Block(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.up = torch.nn.Linear(size, 2 * size)
        self.down = torch.nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Net(torch.nn.Module):
    def __init__(self, layers: int, size: int = 256) -> None:
        super().__init__()
        self.head = torch.nn.Linear(size, size)
        self.blocks = torch.nn.ModuleList(Block(size) for _ in range(layers))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"out": self.head(x) * scale, "x": x}


def nets(layers: int, **options: Any) -> tuple[Net, Net]:
    """A compressed net, and one with the same values that is not."""
    torch.manual_seed(layers)
    net = Net(layers).to("cuda", torch.bfloat16).eval().requires_grad_(False)
    tenfold.torch.compress_module(net, bits=4, effort="fast", **options)
    plain = Net(layers).to("cuda", torch.bfloat16).eval().requires_grad_(False)
    for one in kept(net).held:
        plain.get_parameter(one.name).copy_(tenfold.torch.decode(one.blob().detach().cuda()))
    for name, parameter in plain.named_parameters():
        if parameter.ndim == 1:
            parameter.copy_(net.get_parameter(name))
    return net, plain


def inputs(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 256, device="cuda", dtype=torch.bfloat16)


@pytest.mark.parametrize("offload", [False, True], ids=["device", "pinned"])
@pytest.mark.parametrize("prefetch", [True, False], ids=["ahead", "in turn"])
@pytest.mark.parametrize("layers", [1, 2, 3, 4, 7])
def test_graphs_give_the_same_bits(layers: int, prefetch: bool, offload: bool) -> None:
    net, plain = nets(layers, graph=True, offload=offload, prefetch=prefetch)
    outs = []
    # Of other shapes in between, and other numbers: these run as they are.
    for rows, scale in [(3, 1.0)] * 5 + [(5, 1.0), (3, 2.0), (3, 1.0), (3, 1.0), (5, 1.0), (5, 1.0), (5, 1.0), (3, 1.0)] + [(3, 1.0)] * 3:
        x = inputs(rows)
        outs.append((net(x, scale=scale), plain(x, scale=scale)))
    for found, expected in outs:
        assert torch.equal(found["out"], expected["out"]) and torch.equal(found["x"], expected["x"])
    assert kept(net).captured == 3
    tenfold.torch.check()


def test_without_graph_nothing_is_captured() -> None:
    net, plain = nets(4)
    for _ in range(4):
        x = inputs()
        assert torch.equal(net(x)["out"], plain(x)["out"])
    assert kept(net).captured == 0


def test_a_graph_sees_changes_of_the_module() -> None:
    net, plain = nets(3, graph=True)
    x = inputs()
    for _ in range(4):
        net(x)
    for one in (net, plain):
        one.head.bias = torch.nn.Parameter(torch.ones_like(one.head.bias), requires_grad=False)
    assert torch.equal(net(x)["out"], plain(x)["out"])
    seen = []
    hook = net.blocks[1].register_forward_hook(lambda *_: seen.append(1))
    net(x)
    assert seen
    hook.remove()
    for _ in range(3):
        net.cpu(), net.cuda()
        assert torch.equal(net(x)["out"], plain(x)["out"])
    # In place: the graph reads the same memory.
    for one in (net, plain):
        one.head.bias.mul_(3)
    for _ in range(3):
        assert torch.equal(net(x)["out"], plain(x)["out"])


def test_inference_mode_comes_and_goes() -> None:
    net, plain = nets(4, graph=True)
    for _ in range(3):
        with torch.inference_mode():
            for _ in range(3):
                x = inputs()
                assert torch.equal(net(x)["out"], plain(x)["out"])
        x = inputs()
        assert torch.equal(net(x)["out"], plain(x)["out"])


@pytest.mark.parametrize("offload", [False, True], ids=["device", "pinned"])
@pytest.mark.parametrize("graph", [False, True], ids=["plain", "graph"])
def test_a_damaged_blob_is_reported(graph: bool, offload: bool) -> None:
    net, _ = nets(4, graph=graph, offload=offload, checksums=True)
    x = inputs()
    for _ in range(4):
        net(x)
    tenfold.torch.check()
    bad = next(one.blob().data for one in kept(net).held if one.name == "blocks.2.up.weight")
    bad[-9] ^= 0x40
    net(x)
    with pytest.raises(DataError, match="blocks.2.up.weight"):
        tenfold.torch.check()
    net(x)
    torch.cuda.synchronize()
    # The next call looks without waiting.
    with pytest.raises(DataError, match="blocks.2.up.weight"):
        net(x)
    bad[-9] ^= 0x40
    net(x)
    net(x)
    tenfold.torch.check()


def test_a_call_that_waits_cannot_be_captured() -> None:
    class Waits(Net):
        def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
            return super().forward(x, float(x.abs().max()) * scale)

    net = Waits(3).to("cuda", torch.bfloat16).eval().requires_grad_(False)
    tenfold.torch.compress_module(net, bits=4, graph=True)
    x = inputs()
    net(x)
    net(x)
    # torch warns of hooks that it runs for the layers that did not end.
    with warnings.catch_warnings(action="ignore"), pytest.raises(UnsupportedError, match="graph=False"):
        net(x)
    # All goes on as before.
    stream = torch.cuda.current_stream()
    assert stream == torch.cuda.default_stream()
    torch.randn(3, device="cuda")
    tenfold.torch.decompress_module(net)
    tenfold.torch.compress_module(net, bits=4)
    for _ in range(3):
        net(inputs())
    tenfold.torch.check()


def test_a_graph_is_captured_once() -> None:
    net, plain = nets(4, graph=True)
    # Some parts may be in training mode without anything to train.
    for one in (net, plain):
        one.blocks[1].train()
    for _ in range(8):
        x = inputs()
        assert torch.equal(net(x)["out"], plain(x)["out"])
    assert kept(net).captured == 1


def test_pinned_blobs_stay_on_the_host_and_memory_is_two_layers() -> None:
    torch.cuda.synchronize()
    net = Net(16, 1024).to("cuda", torch.bfloat16).eval().requires_grad_(False)
    base = torch.cuda.memory_allocated() - sum(one.nbytes for one in net.parameters())
    tenfold.torch.compress_module(net, bits=4, effort="fast", offload=True, exclude=["head.*"])
    net.cuda()
    blobs = [one.blob() for one in kept(net).held]
    assert all(blob.device.type == "cpu" and blob.is_pinned() for blob in blobs)
    (ring,) = kept(net).rings
    torch.cuda.reset_peak_memory_stats()
    x = torch.randn(2, 1024, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        net(x)
    layer = ring.nbytes // 2
    rest = sum(one.nbytes for one in net.parameters() if one.is_floating_point())
    assert torch.cuda.max_memory_allocated() - base <= rest + 3 * layer + (9 << 20)
