"""Deltas of torch's state dicts: tied parameters, any strides, float8; the same bytes as of files."""

from __future__ import annotations

import pathlib

import pytest
import tenfold
import torch
from conftest import same_bits, values_of
from safetensors.torch import load_file, save_file
from tenfold import delta

State = dict[str, torch.Tensor]


def network() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Embedding(50, 24), torch.nn.Linear(24, 24), torch.nn.Linear(24, 50, bias=False))
    model[2].weight = model[0].weight
    return model.to(torch.bfloat16)


def train(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.where(torch.rand(parameter.shape) < 0.2, 0.01, 0.0).to(parameter.device))


def copies(state: State) -> State:
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[name].detach(), b[name].detach()) for name in a)


def test_a_model_is_updated_in_place() -> None:
    trainer, replica = network(), network()
    replica.load_state_dict(trainer.state_dict())
    old = copies(trainer.state_dict())
    train(trainer)
    blob = delta.make(old, trainer.state_dict())
    versions = [parameter._version for parameter in replica.parameters()]
    addresses = [parameter.data_ptr() for parameter in replica.parameters()]
    delta.apply_(replica.state_dict(), blob)
    assert same(replica.state_dict(), trainer.state_dict())
    assert [parameter.data_ptr() for parameter in replica.parameters()] == addresses
    assert all(new > old for new, old in zip((p._version for p in replica.parameters()), versions, strict=True))
    assert replica[2].weight is replica[0].weight
    # Parameters that require grad will do as well.
    other = network()
    other.load_state_dict(old)
    assert delta.apply_(dict(other.named_parameters(remove_duplicate=False)), blob).written > 0
    assert same(other.state_dict(), trainer.state_dict())


def test_tied_parameters_that_part() -> None:
    model = network()
    new = copies(model.state_dict())
    new["0.weight"][0, 0] += 1
    kept = copies(model.state_dict())
    with pytest.raises(tenfold.ArgumentError, match="'0.weight' and '2.weight' share memory"):
        delta.apply_(model.state_dict(), delta.make(kept, new))
    assert same(model.state_dict(), kept)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16])
def test_small_floats(dtype: torch.dtype) -> None:
    old, new = ({"w": values_of(dtype, 64, 64), "scale": torch.rand(64)} for _ in range(2))
    blob = delta.make(old, new)
    made = delta.apply(old, blob)
    delta.apply_(old, blob)
    assert same(old, new) and same(made, new)


def test_strides() -> None:
    room = torch.randn(40, 60)
    old = {"turned": room.t(), "plain": torch.randn(8)}
    new = {name: tensor + 1 for name, tensor in old.items()}
    blob = delta.make(old, new)
    delta.apply_(old, blob)
    assert same(old, new) and torch.equal(room.t(), new["turned"])
    # One that does not belong is found before the other changes.
    kept = room.clone()
    old["plain"].add_(5)
    with pytest.raises(tenfold.WrongBaseError):
        delta.apply_(old, delta.make(new, {name: tensor * 2 for name, tensor in new.items()}))
    assert torch.equal(room, kept)


def test_the_bytes_are_those_of_files(tmp_path: pathlib.Path) -> None:
    model = network()
    old = copies(model.state_dict())
    train(model)
    new = copies(model.state_dict())
    save_file(old, tmp_path / "old.safetensors")
    save_file(new, tmp_path / "new.safetensors")
    delta.make_file(tmp_path / "old.safetensors", tmp_path / "new.safetensors", tmp_path / "delta.safetensors")
    assert (tmp_path / "delta.safetensors").read_bytes() == delta.make(old, new)
    (tmp_path / "own.safetensors").write_bytes(delta.make(old, model.state_dict()))
    delta.apply_file(tmp_path / "old.safetensors", tmp_path / "own.safetensors", tmp_path / "made.safetensors")
    assert same(load_file(tmp_path / "made.safetensors"), new)
    delta.apply_(old, tmp_path / "delta.safetensors")
    assert same(old, new)


def test_a_new_state_dict() -> None:
    state = {"w": torch.randn(64, 64), "old": torch.randn(8)}
    new = {"w": state["w"].clone(), "new": torch.randn(80, 80).bfloat16()}
    new["w"][0] = 0
    made = delta.apply(state, delta.make(state, new))
    assert same(made, new) and "old" in state
    whole = delta.make({}, new)
    assert same(delta.apply({}, whole, device="cpu"), new)
    assert made["w"].data_ptr() != state["w"].data_ptr()


def test_refusals() -> None:
    state = {"w": torch.randn(8, 8)}
    with pytest.raises(tenfold.DtypeError, match="both numpy arrays and torch tensors"):
        delta.make(state | {"b": torch.zeros(3).numpy()}, state)
    with pytest.raises(tenfold.ArgumentError, match="tensor 'w' is on the meta device"):
        delta.make({"w": torch.empty(8, 8, device="meta")}, state)
    with pytest.raises(tenfold.DtypeError, match="torch.float64, but the delta is for torch.float32"):
        delta.apply_({"w": state["w"].double()}, delta.make(state, {"w": state["w"] + 1}), verify="touched")
    with pytest.raises(tenfold.WrongBaseError, match="'w', which this model does not have"):
        delta.apply_({"v": state["w"]}, delta.make(state, {"w": state["w"] + 1}))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda() -> None:
    trainer = network().cuda()
    replica = copies(network().cuda().state_dict())
    for name, tensor in trainer.state_dict().items():
        replica[name].copy_(tensor)
    old = copies(replica)
    train(trainer)
    delta.apply_(replica, delta.make(old, trainer.state_dict()))
    assert same(replica, trainer.state_dict())
