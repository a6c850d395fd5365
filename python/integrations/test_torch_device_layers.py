"""Layers where tensors lie on a device: made and added up there, to the same bits as on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import tenfold
import tenfold.torch
import torch
from conftest import FLOATS, same_bits, values_of
from tenfold.torch import _layers
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


def test_what_is_not_finite_goes_by_the_cpu(device: torch.device) -> None:
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


def test_a_layer_of_another_tensor_is_refused(device: torch.device) -> None:
    blob = tenfold.encode(torch.randn(64, 96).numpy(), bits=3, residual={"bits": 3})
    info = tenfold.inspect(blob)
    other = tenfold.encode(torch.randn(96, 64).numpy(), bits=3)
    for layers in ([other, blob[-info.layers[1] :]], [blob[info.header_bytes :][: info.layers[0]], other]):
        with pytest.raises(tenfold.DataError, match="shape of a layer"):
            tenfold._native.layers_header("float32", [64, 96], layers)
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


def test_sums_of_specials_keep_their_bits() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        size = torch.empty(0, dtype=dtype).element_size()
        bits = torch.arange(1 << 8 * size, dtype=torch.int32).to({1: torch.uint8, 2: torch.int16}[size])
        x = bits.view(dtype)
        blob = on_host(x, lossless=True)
        assert same_bits(decoded_on_host(blob, x), x)
        # What the CPU makes of working values with everything in their mantissas.
        finite = x.float().isfinite()
        assert same_bits(_layers.rounded(x.float(), dtype)[finite], x[finite])
    wide = torch.tensor([0x7F80_0001, 0x7FC0_0000, 0x7F80_0000], dtype=torch.int32).view(torch.float32)
    raw = _layers.rounded(torch.cat([wide, -wide]), torch.float16).view(torch.int16).tolist()
    assert [v & 0xFFFF for v in raw] == [0x7E00, 0x7E00, 0x7C00, 0xFE00, 0xFE00, 0xFC00]
