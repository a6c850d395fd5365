"""Layers where tensors lie on a device: made and added up there, to the same bits as on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import tenfold
import tenfold.torch
import torch
from conftest import FLOATS, same_bits, values_of
from tenfold.torch.distributed._boundary import LayeredCodec, packed
from test_torch_device import decoded_on_host, device, on, on_host

__all__ = ["device"]
SEVERAL = ({"residual": {"bits": 3}}, {"residual": {"round_bits": 6}}, {"residual": [{"bits": 2}, {"bits": 3}]})


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layers_of_the_cpu_decode_to_the_same_bits(device: torch.device, dtype: torch.dtype) -> None:
    x = values_of(dtype, 64, 96)
    x.view(-1)[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf]).to(dtype)
    for how in SEVERAL:
        blob = on_host(x, bits=3, **how)
        assert same_bits(tenfold.torch.decode(on(device, blob)), decoded_on_host(blob, x).to(device))
    first = tenfold.torch.decode(on(device, blob), layers=1)
    assert same_bits(first.cpu(), tenfold.torch.decode(blob, layers=1))
    assert tenfold.torch.decode(on(device, blob), dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != torch.float64], ids=str)
@pytest.mark.parametrize("how", SEVERAL, ids=["bits", "rounded", "three"])
def test_layers_are_made_on_the_device(device: torch.device, dtype: torch.dtype, how: dict[str, Any]) -> None:
    x = values_of(dtype, 64, 96).to(device)
    blob = tenfold.torch.encode(x, bits=3, effort="fast", **how)
    assert blob.device == device
    info = tenfold.inspect(blob.cpu().numpy())
    asked = how["residual"]
    assert len(info.layers) == 1 + (len(asked) if isinstance(asked, list) else 1) and info.dtype == str(dtype)[6:]
    read = tenfold.torch.decode(blob)
    assert same_bits(read.cpu(), decoded_on_host(blob.cpu().numpy().tobytes(), x))
    off = (read.float() - x.float()).square().mean()
    coarse = (tenfold.torch.decode(blob, layers=1).float() - x.float()).square().mean()
    assert off < 0.1 * coarse


def test_what_is_not_finite_stays(device: torch.device) -> None:
    x = torch.randn(64, 96)
    x[3, 4], x[5, 6] = torch.nan, -torch.inf
    blob = tenfold.torch.encode(x.to(device), bits=3, residual={"bits": 3})
    read = tenfold.torch.decode(blob).cpu()
    assert blob.device == device and bool(read[3, 4].isnan()) and float(read[5, 6]) == -torch.inf
    assert int(read.isfinite().sum()) == x.numel() - 2


def test_rounding_to_the_nearest_on_the_device(device: torch.device) -> None:
    x = torch.randn(64, 96).to(device)
    blob = tenfold.torch.encode(x, round_bits=8)
    off = (tenfold.torch.decode(blob) - x).abs().max()
    assert float(off) <= float(x.abs().max()) / 254 * 1.0001
    assert float((tenfold.torch.decode(tenfold.torch.encode(torch.zeros_like(x), round_bits=8))).abs().max()) == 0


def test_damaged_layers_are_refused(device: torch.device) -> None:
    blob = tenfold.encode(torch.randn(64, 96).numpy(), bits=3, residual={"bits": 3})
    info = tenfold.inspect(blob)
    cut = on(device, blob)[: info.header_bytes + 8]
    with pytest.raises(tenfold.DataError):
        tenfold.torch.decode(cut)
    raw = bytearray(blob)
    raw[info.header_bytes + 20] ^= 1
    with pytest.raises(tenfold.DataError):
        tenfold.torch.decode(on(device, bytes(raw)))
        tenfold.torch.check()


def test_slots_with_layers_of_the_device(device: torch.device) -> None:
    x = torch.randn(128, 96).to(device) * 1e-3
    for residual_bits in (3.5, None):
        codec = LayeredCodec(3.5, residual_bits, "fast", 1)
        for scale in (1.0, 1.01, 0.5):
            slot = packed(codec, x * scale, "cut")
            assert slot.device == device
            read = codec.read(slot, torch.empty_like(x))
            off = (read - x * scale).square().mean() / x.square().mean()
            assert float(off) < 2e-4
        with pytest.raises(tenfold.ArgumentError):
            codec.read(slot, torch.empty(96, 128, device=device))
