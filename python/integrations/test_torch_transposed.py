"""Transposed blobs, as calibrated weights have them, on a device: a CUDA device, or the emulator in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenfold
import tenfold.torch
import torch
from conftest import same_bits, values_of
from tenfold.torch.kept._compress import keep, kept
from tenfold.torch.kept._held import Held, Stage
from test_torch_device import _stated, decoded_on_host, each, emulate, on, on_host
from test_torch_kept_device import _emulate as emulate_kept
from torch import nn

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch, emulate)


@pytest.fixture(params=["emulator", "cuda"])
def keeping(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch, emulate_kept)


def calibrated(x: torch.Tensor) -> bytes:
    """A matrix coded for inputs of different sizes that go together, and outputs that matter differently."""
    columns, rows = x.shape[-1], x.numel() // x.shape[-1]
    inputs = np.random.default_rng(5).normal(size=(4 * columns, columns)) * 2.0 ** (np.arange(columns) % 5)
    inputs[:, 1:] += 0.8 * inputs[:, :-1]
    second = (inputs.T @ inputs / len(inputs)).astype(np.float32)
    outputs = 2.0 ** (np.arange(rows) % 9 - 4.0)
    blob = on_host(x, bits=3, curvature=tenfold.curvature(second, outputs))
    assert tenfold.inspect(blob).transforms == ["transposed", "row weights", "column weights"]
    return blob


def is_view(tensor: torch.Tensor) -> bool:
    return not tensor.is_contiguous() and tensor.movedim(-1, 0).is_contiguous()


@pytest.mark.parametrize("shape", [(160, 96), (137, 129), (3, 50, 40)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_tenfold_allocates_is_a_view(device: torch.device, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = values_of(dtype, *shape)
    blob = calibrated(x)
    assert tenfold.inspect(blob).transposed
    expected = decoded_on_host(blob, x).to(device)
    for found in (tenfold.torch.decode(on(device, blob)), tenfold.torch.decode(blob, device=_stated(device))):
        assert found.shape == x.shape and found.device == device and is_view(found)
        assert same_bits(found, expected)
    for found in (
        tenfold.torch.decode(on(device, blob), contiguous=True),
        tenfold.torch.decode(blob, device=_stated(device), contiguous=True),
        # Whose header nobody has read.
        tenfold.torch.decode(on(device, blob), shape=shape, dtype=dtype),
    ):
        assert found.is_contiguous() and same_bits(found, expected)
    wide = tenfold.torch.decode(on(device, blob), dtype=torch.float64)
    assert is_view(wide) and torch.equal(wide, expected.double())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_are_written_as_they_lie(device: torch.device, dtype: torch.dtype) -> None:
    x = values_of(dtype, 160, 96)
    blob = calibrated(x)
    expected = decoded_on_host(blob, x).to(device)
    held = on(device, blob)
    plain = torch.zeros_like(expected)
    turned = torch.zeros(96, 160, dtype=dtype, device=device).t()
    for out in (plain, turned):
        for source in (held, blob):
            out.zero_()
            assert tenfold.torch.decode(source, out=out) is out
            assert same_bits(out, expected)
    others = on_host(x, bits=4, importance=range(1, 97))
    straight = torch.empty_like(expected)
    for outs in ([plain, straight], [turned, straight]):
        outs[0].zero_()
        tenfold.torch.decode_many([held, on(device, others)], outs)
        tenfold.torch.check()
        assert same_bits(outs[0], expected) and same_bits(straight, decoded_on_host(others, x).to(device))
        outs[0].zero_()
        tenfold.torch.decode_many([blob, others], outs)
        assert same_bits(outs[0], expected)
    assert plain.is_contiguous() and is_view(turned)


def test_a_view_is_for_a_transposed_blob(device: torch.device) -> None:
    x = values_of(torch.bfloat16, 160, 96)
    blob = on_host(x, bits=4)
    turned = torch.zeros(96, 160, dtype=torch.bfloat16, device=device).t()
    tenfold.torch.decode(on(device, blob), out=turned)
    with pytest.raises(tenfold.ArgumentError, match="transposed"):
        tenfold.torch.check()
    with pytest.raises(tenfold.ArgumentError, match="transposed"):
        tenfold.torch.decode(blob, out=turned)
    with pytest.raises(tenfold.ArgumentError, match="not contiguous"):
        tenfold.torch.decode(on(device, blob), out=torch.zeros(160, 192, dtype=torch.bfloat16, device=device)[:, ::2])


def test_elements_that_are_kept_take_a_pass_of_their_own(device: torch.device) -> None:
    golden = Path(__file__).parents[2] / "conformance" / "v1" / "transposed_f32.tnf"
    blob = golden.read_bytes()
    info = tenfold.inspect(blob)
    assert info.transforms == ["kept elements", "transposed"]
    expected = decoded_on_host(blob, torch.empty(0)).to(device)
    for source in (on(device, blob), blob):
        assert same_bits(tenfold.torch.decode(source, device=_stated(device)), expected)
    with pytest.raises(tenfold.UnsupportedError, match="kept elements and is transposed"):
        tenfold.torch.Decoder([on(device, blob)], [torch.empty_like(expected)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_decoder_hands_on_views(device: torch.device, dtype: torch.dtype) -> None:
    x, y = values_of(dtype, 160, 96), values_of(dtype, 40, 40)
    blobs = [on(device, calibrated(x)), on(device, on_host(y, lossless=True))]
    expected = tenfold.torch.decode(blobs[0].clone(), contiguous=True)
    for views in (False, True):
        memory = [torch.zeros(160, 96, dtype=dtype, device=device), torch.zeros(40, 40, dtype=dtype, device=device)]
        decoder = tenfold.torch.Decoder(blobs, memory, transposed_views=views)
        for _ in range(3):
            memory[0].zero_()
            outs = decoder()
            decoder.check()
            assert same_bits(outs[0], expected) and same_bits(outs[1], y.to(device))
            assert [is_view(out) for out in outs] == [views, False]
            assert outs[0].data_ptr() == memory[0].data_ptr() and decoder.outs[1] is memory[1]
    # A view of the caller's own.
    turned = torch.zeros(96, 160, dtype=dtype, device=device).t()
    tenfold.torch.Decoder(blobs[:1], [turned])()
    tenfold.torch.check()
    assert same_bits(turned, expected)
    with pytest.raises(tenfold.ArgumentError, match="an output is"):
        tenfold.torch.Decoder(blobs[:1], [torch.zeros(96, 160, dtype=dtype, device=device)], transposed_views=True)


def test_damage_is_reported(device: torch.device) -> None:
    x = values_of(torch.bfloat16, 160, 96)
    blob = calibrated(x)
    for at, match in ((-3, "checksum"), (40, "checksum")):
        bad = bytearray(blob)
        bad[at] ^= 1
        with pytest.raises(tenfold.DataError, match=match):
            tenfold.torch.decode(bytes(bad), device=_stated(device))
        out = torch.zeros(160, 96, dtype=torch.bfloat16, device=device)
        tenfold.torch.decode(on(device, bytes(bad)), out=out)
        with pytest.raises(tenfold.DataError, match=match):
            tenfold.torch.check()
    held = on(device, blob)
    decoder = tenfold.torch.Decoder([held], [out], transposed_views=True)
    held[-3] ^= 1
    decoder()
    with pytest.raises(tenfold.DataError, match="checksum"):
        decoder.check()


@pytest.mark.parametrize("offload", [False, True], ids=["device", "pinned"])
def test_a_module_keeps_calibrated_weights(keeping: torch.device, offload: bool) -> None:
    names = ("0", "1", "2")
    net = nn.Sequential(nn.Linear(96, 160), nn.Linear(160, 64), nn.Linear(64, 96)).requires_grad_(False)
    plain = nn.Sequential(nn.Linear(96, 160), nn.Linear(160, 64), nn.Linear(64, 96)).requires_grad_(False)
    stages = []
    for name in names:
        layer, other = net.get_submodule(name), plain.get_submodule(name)
        weight = layer.weight.detach().clone()
        # The middle one as any other.
        blob = on_host(weight, bits=4) if name == "1" else calibrated(weight)
        other.weight.copy_(decoded_on_host(blob, weight))
        other.bias.copy_(layer.bias)
        layer._parameters["weight"] = nn.Parameter(on(keeping, blob), requires_grad=False)
        held = Held(layer, "weight", f"{name}.weight", tuple(weight.shape), weight.dtype, weight.dtype)
        stages.append(Stage(name, (held,)))
    net, plain = net.to(keeping), plain.to(keeping)
    keep(net, stages, offload=offload)
    seen: list[bool] = []
    for name in names:
        net.get_submodule(name).register_forward_pre_hook(lambda layer, _: seen.append(is_view(layer.weight)))
    for rows in (1, 3, 3, 2):
        x = torch.randn(rows, 96, device=keeping)
        torch.testing.assert_close(net(x), plain(x))
    tenfold.torch.check()
    assert seen == [True, False, True] * 4
    damaged = kept(net).held[2].blob()
    damaged.data[-9] ^= 0x40
    # Another blob in its place is opened again, as one that was written to.
    net(x)
    with pytest.raises(tenfold.DataError, match="2.weight"):
        tenfold.torch.check()
    damaged.data[-9] ^= 0x40
    tenfold.torch.decompress_module(net)
    for name in names:
        weight = net.get_submodule(name).weight
        assert weight.is_contiguous() and torch.equal(weight, plain.get_submodule(name).weight)

