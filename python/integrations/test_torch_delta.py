"""Deltas of torch tensors: any strides, parameters, subclasses; nothing changes where one does not belong."""

from __future__ import annotations

import pytest
import tenfold
import torch
from conftest import FLOATS, INTEGERS, same_bits, values_of
from tenfold import delta


def versions(dtype: torch.dtype, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    base = values_of(dtype, *shape)
    return base, torch.where(torch.rand(shape) < 0.1, values_of(dtype, *shape).view(dtype), base)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_roundtrip(dtype: torch.dtype) -> None:
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    base, other = values_of(dtype, 64, 96), values_of(dtype, 64, 96)
    new = torch.where(torch.rand(64, 96) < 0.1, other.view(bits), base.view(bits)).view(dtype)
    kept, blob = base.clone(), delta.make(base, new)
    assert same_bits(delta.apply(base, blob), new) and same_bits(base, kept)
    assert delta.apply_(base, blob).written == delta.inspect(blob).changed
    assert same_bits(base, new)
    assert (delta.fingerprint(kept), delta.fingerprint(new)) == (delta.inspect(blob).base, delta.inspect(blob).result)


def test_the_same_bytes_as_of_arrays() -> None:
    base, new = versions(torch.float32, 40, 50)
    assert delta.make(base, new) == delta.make(base.numpy(), new.numpy())
    array = base.numpy().copy()
    delta.apply_(array, delta.make(base, new))
    assert (array == new.numpy()).all()


@pytest.mark.parametrize("how", ["transposed", "rows", "columns", "whole"])
def test_any_strides(how: str) -> None:
    def view(tensor: torch.Tensor) -> torch.Tensor:
        return {"transposed": tensor.t(), "rows": tensor[::2], "columns": tensor[:, 3:40], "whole": tensor}[how]

    room, new = versions(torch.bfloat16, 64, 96)
    outside = room.clone()
    blob = delta.make(view(room), view(new))
    assert blob == delta.make(view(room).contiguous(), view(new).contiguous())
    delta.apply_(view(room), blob)
    assert same_bits(view(room), view(new))
    view(room).zero_()
    view(outside).zero_()
    assert same_bits(room, outside)


def test_parameters_are_changed_in_place_and_autograd_knows() -> None:
    layer = torch.nn.Linear(32, 32)
    old = layer.weight.detach().clone()
    new = old + 1
    loss = (layer.weight * layer.weight).sum()
    version = layer.weight._version
    delta.apply_(layer.weight, delta.make(layer.weight, new))
    assert torch.equal(layer.weight, new) and layer.weight.requires_grad and layer.weight._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_another_base_stays_as_it_is() -> None:
    base, new = versions(torch.bfloat16, 64, 96)
    blob = delta.make(base, new)
    for other in (base.t().contiguous().t() * 2, base * 2):
        kept, version = other.clone(), other._version
        with pytest.raises(tenfold.WrongBaseError):
            delta.apply_(other, blob)
        assert same_bits(other, kept) and other._version == version


def test_refusals() -> None:
    base, new = versions(torch.float32, 64, 96)
    blob = delta.make(base, new)
    with pytest.raises(tenfold.DtypeError, match="one dtype, not from torch.float32 and torch.float64"):
        delta.make(base, new.double())
    with pytest.raises(tenfold.DtypeError, match=r"new must be a torch.Tensor, not ndarray"):
        delta.make(base, new.numpy())
    with pytest.raises(tenfold.DtypeError, match=r"torch.float64, but the delta is for torch.float32"):
        delta.apply_(base.double(), blob)
    with pytest.raises(tenfold.ArgumentError, match=r"shape \(6144,\), but the delta is for \(64, 96\)"):
        delta.apply_(base.reshape(-1), blob)
    with pytest.raises(tenfold.ArgumentError, match="expanded"):
        delta.apply_(torch.zeros(1, 96).expand(64, 96), blob)
    with pytest.raises(tenfold.ArgumentError, match="meta"):
        delta.apply_(base.to("meta"), blob)
    with pytest.raises(tenfold.DtypeError, match="sparse"):
        delta.make(base.to_sparse(), new.to_sparse())
    with pytest.raises(tenfold.DtypeError, match="view_as_real"):
        delta.make(base.to(torch.complex64), new.to(torch.complex64))


def test_tensors_of_inference_mode() -> None:
    with torch.inference_mode():
        base, new = versions(torch.float32, 64, 96)
        blob = delta.make(base, new)
        delta.apply_(base, blob)
        assert torch.equal(base, new)
    base = delta.apply(base, delta.make(base, base))
    with torch.inference_mode():
        other = torch.zeros(64, 96)
    with pytest.raises(tenfold.ArgumentError, match="torch.inference_mode"):
        delta.apply_(other, blob)
