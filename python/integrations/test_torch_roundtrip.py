"""Tensors of the CPU come back: every dtype, into new tensors and into the caller's."""

from __future__ import annotations

import numpy as np
import pytest
import tenfold
import tenfold.torch
import torch
from conftest import FLOATS, INTEGERS, same_bits, values_of


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_lossless(dtype: torch.dtype) -> None:
    x = values_of(dtype, 33, 65)
    blob = tenfold.torch.encode(x, lossless=True)
    assert blob.dtype == torch.uint8 and blob.device == x.device
    assert same_bits(tenfold.torch.decode(blob), x)
    out = torch.empty_like(x)
    assert tenfold.torch.decode(blob, out=out) is out
    assert same_bits(out, x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_same_as_without_torch(dtype: torch.dtype) -> None:
    x = values_of(dtype, 128, 128)
    blob = tenfold.torch.encode(x, bits=3)
    assert bytes(blob.numpy()) == tenfold.encode(x, bits=3)
    raw = tenfold.decode(blob.numpy(), dtype="raw")
    assert np.array_equal(tenfold.torch.decode(blob).view(torch.uint8).numpy(), raw.view(np.uint8))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3, 4, 5)], ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    for goal in ({"lossless": True}, {"bits": 2.5}):
        y = tenfold.torch.decode(tenfold.torch.encode(x, **goal))
        assert y.shape == x.shape and y.dtype == x.dtype
    assert same_bits(y, x)  # so few values are always stored exactly


def test_every_kind_of_blob() -> None:
    x = torch.randn(64, 64)
    blob = tenfold.encode(x, lossless=True)
    as_array = np.frombuffer(blob, np.uint8)
    for one in (blob, bytearray(blob), memoryview(blob), as_array, torch.tensor(as_array), torch.tensor(as_array)[None]):
        assert same_bits(tenfold.torch.decode(one), x)
    assert same_bits(tenfold.decode(blob, device="cpu"), x)


def test_memory_is_written_in_place() -> None:
    x = torch.randn(64, 64, dtype=torch.bfloat16)
    everything = torch.zeros(66, 64, dtype=torch.bfloat16)
    tenfold.torch.decode(tenfold.torch.encode(x, lossless=True), out=everything[1:65])
    assert same_bits(everything[1:65], x)
    assert not everything[0].any() and not everything[65].any()


def test_conversion() -> None:
    x = torch.randn(64, 64, dtype=torch.bfloat16)
    blob = tenfold.torch.encode(x, lossless=True)
    assert same_bits(tenfold.torch.decode(blob, dtype=torch.float32), x.float())
    assert same_bits(tenfold.torch.decode(blob, dtype="float64"), x.double())
    out = torch.empty(64, 64, dtype=torch.float16)
    assert tenfold.torch.decode(blob, out=out) is out
    assert same_bits(out, x.half())


def test_shape_and_dtype_that_are_known() -> None:
    x = torch.randn(16, 16)
    blob = tenfold.torch.encode(x, lossless=True)
    assert same_bits(tenfold.torch.decode(blob, shape=(16, 16), dtype=torch.float32), x)
    with pytest.raises(tenfold.ArgumentError, match="shape"):
        tenfold.torch.decode(blob, shape=(16, 17), dtype=torch.float32)


def test_many() -> None:
    layer = [torch.randn(64, 64, dtype=torch.bfloat16), torch.randn(64), torch.arange(5)]
    blobs = [tenfold.torch.encode(x, lossless=True) for x in layer]
    outs = [torch.empty_like(x) for x in layer]
    tenfold.torch.decode_many([blobs[0], bytes(blobs[1].numpy()), blobs[2].numpy()], outs)
    assert all(same_bits(x, y) for x, y in zip(layer, outs, strict=True))
    tenfold.torch.decode_many([], [])


def test_codec() -> None:
    codec = tenfold.torch.Codec(nmse=1e-3, effort="fast", threads=1)
    x = torch.randn(128, 128)
    y = codec.decode(codec.encode(x))
    assert 0 < float(((x - y) ** 2).mean() / x.var()) <= 1e-3
    out = torch.empty_like(x)
    codec.decode_many([codec.encode(x)], [out])
    assert same_bits(out, y)
    assert repr(codec) == "Codec(nmse=0.001, effort='fast')"


def test_autograd_sees_that_out_has_changed() -> None:
    x = torch.randn(8, requires_grad=True)
    held = torch.ones(8)
    y = (x * held).sum()
    tenfold.torch.decode(tenfold.torch.encode(torch.zeros(8), lossless=True), out=held)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_inference_tensors() -> None:
    with torch.inference_mode():
        x = torch.randn(16, 16)
        assert same_bits(tenfold.torch.decode(tenfold.torch.encode(x, lossless=True), out=torch.empty_like(x)), x)


def test_default_devices_change_nothing() -> None:
    x = torch.randn(16, 16)
    with torch.device("meta"):
        blob = tenfold.torch.encode(x, lossless=True)
        assert same_bits(tenfold.torch.decode(blob), x)
        assert same_bits(tenfold.torch.decode(bytes(blob.numpy())), x)
