"""Models over HTTP into torch tensors, on the CPU and, where there is one, on a device."""

import os

import pytest

import tenfold
import tenfold.torch
import torch


@pytest.fixture()
def model(tmp_path):
    torch.manual_seed(5)
    tensors = {
        "layers.0.weight": torch.randn(128, 512).bfloat16(),
        "layers.1.weight": torch.randn(96, 256),
        "norm": torch.arange(9, dtype=torch.int32),
        "flags": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
    }
    path = tmp_path / "m.safetensors"
    tenfold.save(tensors, path, bits=4)
    return f"file://{os.path.abspath(path)}", path


def expected(path):
    with tenfold.open(path) as archive:
        for name in archive:
            info = archive.info(name)
            out = torch.empty(info.shape, dtype=getattr(torch, info.dtype))
            yield name, archive.read(name, out=out)


def test_a_state_dict_arrives(model, tmp_path):
    url, path = model
    state = tenfold.torch.pull(url, cache=tmp_path / "cache")
    right = dict(expected(path))
    assert state.keys() == right.keys()
    for name, tensor in state.items():
        assert tensor.dtype == right[name].dtype and torch.equal(tensor, right[name]), name
    (half,) = tenfold.torch.pull(url, include=["*.1.*"], dtype=torch.float16, cache=tmp_path / "cache").values()
    assert torch.equal(half, right["layers.1.weight"].half())
    (rows,) = tenfold.torch.pull(url, include=["*.1.*"], rows=(3, 5), cache=tmp_path / "cache").values()
    assert torch.equal(rows, right["layers.1.weight"][3:5])


def test_what_cannot_be_is_said(model, tmp_path):
    url, _ = model
    with pytest.raises(tenfold.UnsupportedError):
        tenfold.torch.pull(url, device="meta", cache=tmp_path / "cache")
    if not torch.cuda.is_available():
        with pytest.raises(tenfold.ArgumentError, match="no CUDA device"):
            tenfold.torch.pull(url, device="cuda", cache=tmp_path / "cache")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_decodes_what_it_gets(model, tmp_path):
    url, path = model
    for rows in (None, (2, 30)):
        names = [] if rows is None else ["layers.*"]
        state = tenfold.torch.pull(url, device="cuda", include=names, rows=rows, cache=tmp_path / "cache")
        for name, right in expected(path):
            if name in state:
                assert state[name].is_cuda
                assert torch.equal(state[name].cpu(), right if rows is None else right[rows[0] : rows[1]]), name
