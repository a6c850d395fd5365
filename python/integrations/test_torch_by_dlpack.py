"""CPU tensors of torch through the functions of numpy users: in place, both ways."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import tenfold

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.fixture
def x():
    return torch.randn(64, 96, generator=torch.Generator().manual_seed(0))


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("dtype", DTYPES + INTEGERS, ids=name_of)
def test_roundtrip(x, dtype):
    x = (x * 4).to(dtype)
    blob = tenfold.encode(x, lossless=True)
    assert tenfold.inspect(blob).dtype == name_of(dtype)
    out = torch.zeros_like(x)
    assert tenfold.decode(blob, out=out) is out
    assert torch.equal(out.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (7,), (2, 3, 4, 5)], ids=str)
def test_shapes(shape):
    x = torch.randn(shape, dtype=torch.float32).to(torch.bfloat16)
    out = torch.empty_like(x)
    tenfold.decode(tenfold.encode(x, lossless=True), out=out)
    assert out.shape == x.shape and torch.equal(out, x)


def test_views_into_larger_memory(x):
    part = x[8:24]
    assert tenfold.encode(part, bits=3) == tenfold.encode(part.clone(), bits=3)
    room = torch.zeros(66, 96)
    tenfold.decode(tenfold.encode(x, lossless=True), out=room[1:65])
    assert torch.equal(room[1:65], x) and not room[0].any() and not room[65].any()


def test_state_dicts(x, tmp_path):
    layer = torch.nn.Linear(96, 64).to(torch.bfloat16)
    path = tmp_path / "layer.safetensors"
    tenfold.save(layer.state_dict(), path, lossless=True)
    with tenfold.open(path) as model:
        for name, tensor in layer.state_dict().items():
            out = torch.empty_like(tensor)
            model.read(name, out=out)
            assert torch.equal(out, tensor)
        rows = torch.empty(2, 96, dtype=torch.bfloat16)
        model.read("weight", rows=(5, 7), out=rows)
        assert torch.equal(rows, layer.weight[5:7])


@pytest.mark.parametrize(
    "bad, text",
    [
        (lambda x: x.t(), "contiguous"),
        (lambda x: x[:, ::2], "contiguous"),
        (lambda x: x.expand(2, 64, 96), "contiguous"),
        (lambda x: x.requires_grad_(), "detach"),
        (lambda x: x.to("meta"), "CPU"),
        (lambda x: x.to_sparse(), "to_dense"),
        (lambda x: x.to(torch.complex64), "does not store"),
    ],
)
def test_what_is_refused(x, bad, text, tmp_path):
    blob = tenfold.encode(x, lossless=True)
    x = bad(x)
    with pytest.raises((tenfold.ArgumentError, tenfold.UnsupportedError), match=text):
        tenfold.encode(x)
    with pytest.raises((tenfold.ArgumentError, tenfold.UnsupportedError), match=text):
        tenfold.save({"x": x}, tmp_path / "x.safetensors")
    with pytest.raises((tenfold.ArgumentError, tenfold.UnsupportedError)):
        tenfold.decode(blob, out=x)


def test_wrong_outputs(x):
    blob = tenfold.encode(x, lossless=True)
    with pytest.raises(tenfold.DtypeError, match="bfloat16.*float32"):
        tenfold.decode(blob, out=x.to(torch.bfloat16))
    with pytest.raises(tenfold.ArgumentError, match="shape"):
        tenfold.decode(blob, out=torch.empty(96, 64))


def test_large_tensors_are_not_copied():
    # A process of its own: the peak of this one is past.
    code = """
import resource, torch, tenfold
x = torch.ones(64, 1 << 21, dtype=torch.bfloat16)
out = torch.ones_like(x)
blob = tenfold.encode(x[:1, :4096], lossless=True)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
blob = tenfold.encode(x, lossless=True, threads=1)
tenfold.decode(blob, out=out, threads=1)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    # The tensor has 256 MiB; its blob is tiny.
    assert float(done.stdout) < 100


def test_numpy_views_of_the_same_memory(x):
    assert tenfold.encode(x, bits=3) == tenfold.encode(x.numpy(), bits=3)
    assert np.array_equal(tenfold.decode(tenfold.encode(x, bits=3)), tenfold.decode(tenfold.encode(x.numpy(), bits=3)))
