"""Compressed modules on a device: a CUDA device, or the emulator in its place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from streams import World
from test_torch_device import each, emulate
from torch import nn

import tenfold.torch
from tenfold import DataError
from tenfold.torch import _cuda, _device
from tenfold.torch.kept._compress import kept


def _emulate(patch: pytest.MonkeyPatch) -> None:
    emulate(patch)
    World(patch, real=True)
    patch.setattr(_device, "pin", lambda memory: None)
    patch.setattr(_device, "unpin", lambda address: None)
    patch.setattr(_device, "pinned", lambda *shape: torch.zeros(shape, dtype=torch.int64))
    patch.setattr(_device, "synchronize", lambda device: None)


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch, _emulate)


def made(device: torch.device, **options: Any) -> tuple[nn.Module, nn.Module]:
    """A compressed module, and one with the same values."""
    net = nn.Sequential(nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 64), nn.Linear(64, 96)).to(device).requires_grad_(False)
    tenfold.torch.compress_module(net, bits=4, **options)
    plain = nn.Sequential(nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 64), nn.Linear(64, 96)).to(device).requires_grad_(False)
    for number in (0, 2, 3):
        blob = net.get_parameter(f"{number}.weight") if not options.get("offload") else net.get_buffer(f"{number}.weight")
        plain[number].weight.copy_(tenfold.torch.decode(blob.to(device)))
        plain[number].bias.copy_(net[number].bias)
    return net, plain


@pytest.mark.parametrize("offload", [False, True], ids=["device", "pinned"])
@pytest.mark.parametrize("prefetch", [True, False], ids=["ahead", "in turn"])
def test_the_same_bits(device: torch.device, prefetch: bool, offload: bool) -> None:
    net, plain = made(device, prefetch=prefetch, offload=offload)
    for rows in (1, 3, 3, 2):
        x = torch.randn(rows, 96, device=device)
        assert torch.equal(net(x), plain(x))
    tenfold.torch.check()
    tenfold.torch.decompress_module(net)
    assert torch.equal(net(x), plain(x))
    assert [one.device for one in net.parameters()] == [device] * 6


@pytest.mark.parametrize("offload", [False, True], ids=["device", "pinned"])
def test_damage_is_reported_once_with_the_name(device: torch.device, offload: bool) -> None:
    net, plain = made(device, offload=offload, checksums=True)
    x = torch.randn(3, 96, device=device)
    net(x)
    blob = kept(net).held[1].blob()
    blob.data[-9] ^= 0x40
    net(x)
    with pytest.raises(DataError, match="2.weight"):
        tenfold.torch.check()
    tenfold.torch.check()
    net(x)
    if device.type == "cuda":
        torch.cuda.synchronize()
    with pytest.raises(DataError, match="2.weight"):
        net(x)
    blob.data[-9] ^= 0x40
    for _ in range(3):
        assert torch.equal(net(x), plain(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_one_vector_is_multiplied_by_a_kernel_of_ours(
    device: torch.device, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, plain = made(device)
    tenfold.torch.decompress_module(net)
    net, plain = net.to(dtype), plain.to(dtype)
    tenfold.torch.compress_module(net, lossless=True)
    seen = []
    multiply = _cuda.multiply
    monkeypatch.setattr(_cuda, "multiply", lambda *args: (seen.append(args[0].shape), multiply(*args)))
    for shape in ((96,), (1, 96), (1, 1, 96)):
        x = torch.randn(*shape, device=device, dtype=dtype)
        out = net(x)
        assert out.shape == plain(x).shape
        assert torch.allclose(out.float(), plain(x).float(), rtol=0.02, atol=0.02)
    assert len(seen) == 9
    # What is not for it, torch does as ever.
    for x in (torch.randn(2, 96), torch.randn(0, 96)):
        x = x.to(device, dtype)
        assert torch.equal(net(x), plain(x))
    assert len(seen) == 9
    apart = torch.randn(96, 2, device=device, dtype=dtype).T[:1]
    assert torch.allclose(net(apart).float(), plain(apart).float(), rtol=0.02, atol=0.02)
    assert len(seen) == 9 + 2
    tenfold.torch.decompress_module(net)
    assert torch.equal(net(x), plain(x))
    tenfold.torch.compress_module(net, lossless=True, multiply=False)
    assert torch.equal(net(x), plain(x))
    assert len(seen) == 9 + 2


class PlusRMSNorm(nn.Module):
    """As some models have it, or, with `plus` 0, as most have."""

    def __init__(self, plus: float) -> None:
        super().__init__()
        self.plus, self.variance_epsilon, self.calls = plus, 1e-6, 0
        self.weight = nn.Parameter(torch.rand(96) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.plus + self.weight) * wide.to(x.dtype)


@torch.no_grad()
@pytest.mark.parametrize("plus", [0.0, 1.0])
def test_norms_of_one_vector_take_one_kernel(device: torch.device, plus: float) -> None:
    layer = nn.Sequential(PlusRMSNorm(plus), nn.Linear(96, 96))
    net = nn.Sequential(layer, nn.Sequential(PlusRMSNorm(plus), nn.Linear(96, 96))).to(device, torch.bfloat16)
    plain = copy.deepcopy(net)
    tenfold.torch.compress_module(net, lossless=True)
    norm = net[0][0]
    x = torch.randn(1, 1, 96, device=device, dtype=torch.bfloat16)
    assert torch.allclose(net(x).float(), plain(x).float(), rtol=0.02, atol=0.05)
    before = norm.calls
    assert torch.allclose(net(x).float(), plain(x).float(), rtol=0.02, atol=0.05)
    # One that adds to its weights is left alone.
    assert norm.calls == before + (plus != 0)
    many = torch.randn(3, 96, device=device, dtype=torch.bfloat16)
    assert torch.equal(net(many), plain(many))
    assert norm.calls == before + (plus != 0) + 1
    tenfold.torch.decompress_module(net)
    assert torch.equal(net(x), plain(x)) and "forward" not in norm.__dict__


def test_blobs_that_are_loaded_in_place_are_opened_again(device: torch.device) -> None:
    net, _ = made(device)
    x = torch.randn(3, 96, device=device)
    before = net(x)
    # Steps that are a power of two apart, so that the blobs are as long and only their headers differ.
    plain = nn.Sequential(nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 64), nn.Linear(64, 96)).to(device).requires_grad_(False)
    state = net.state_dict()
    for number in (0, 2, 3):
        name = f"{number}.weight"
        weight = tenfold.torch.decode(state[name])
        plain[number].weight.copy_(2 * weight)
        plain[number].bias.copy_(state[f"{number}.bias"])
        state[name] = tenfold.torch.encode(2 * weight, bits=4)
    same = [name for name, blob in state.items() if blob.dtype == torch.uint8 and blob.shape == net.state_dict()[name].shape]
    assert same
    for name, blob in state.items():
        if blob.dtype == torch.uint8:
            plain.get_parameter(name).copy_(tenfold.torch.decode(blob))
    net.load_state_dict(state)
    assert not torch.equal(net(x), before)
    assert torch.equal(net(x), plain(x))
    tenfold.torch.check()


def test_blobs_in_host_memory_do_not_say_where_the_module_is(device: torch.device) -> None:
    net, _ = made(device, offload=True)
    weights = [held.blob() for held in kept(net).held]
    assert all(weight.device.type == "cpu" for weight in weights)
    net.to(torch.float64)
    assert all(held.blob() is weight for held, weight in zip(kept(net).held, weights, strict=True))
    assert sorted(name for name, _ in net.named_parameters()) == ["0.bias", "2.bias", "3.bias"]
    assert sorted(net.state_dict()) == [f"{number}.{kind}" for number in (0, 2, 3) for kind in ("bias", "weight")]
    tenfold.torch.decompress_module(net)
    assert len(list(net.parameters())) == 6
