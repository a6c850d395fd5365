"""What an optimizer changes, collected behind its steps: replicas have the same bits after each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import tenfold
import torch
from conftest import same_bits
from tenfold import delta
from tenfold.torch import DeltaTracker


def network(dtype: torch.dtype = torch.bfloat16) -> torch.nn.Module:
    layers = [torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 32)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(32, 64, bias=False))
    model[-1].weight = model[0].weight
    return model.to(dtype)


def copy_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A replica in which tied tensors are tied."""
    copies: dict[int, torch.Tensor] = {}
    return {name: copies.setdefault(x.data_ptr(), x.clone()) for name, x in model.state_dict().items()}


def step(model: torch.nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
    model(torch.randint(0, 64, (4, 8))).float().square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
    model.zero_grad()


def follow(replica: dict[str, torch.Tensor], deltas: list[bytes], model: torch.nn.Module) -> None:
    for blob in deltas:
        delta.apply_(replica, blob)
    state = model.state_dict()
    assert state.keys() == replica.keys() and all(same_bits(x, replica[name]) for name, x in state.items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_replicas_follow(dtype: torch.dtype, kind: Any) -> None:
    model = network(dtype)
    optimizer = kind(model.parameters(), lr=1e-2)
    replica = copy_of(model)
    with DeltaTracker(model, optimizer) as tracker:
        assert tracker.collect() == [] and tracker.kept_bytes == 0
        for steps in (1, 1, 3):
            for _ in range(steps):
                step(model, [optimizer])
            deltas = tracker.collect()
            # One covers all steps.
            assert len(deltas) == 1
            follow(replica, deltas, model)
            assert tracker.version == delta.fingerprint(replica)
        nbytes = sum(x.nbytes for x in model.parameters())
        assert 0 < tracker.kept_bytes < nbytes
        assert tracker.collect() == []
    step(model, [optimizer])
    assert tracker.kept_bytes == 0


def test_the_file_is_that_of_two_state_dicts() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    before, tracker = copy_of(model), DeltaTracker(model, optimizer)
    step(model, [optimizer])
    [blob] = tracker.collect()
    assert blob == delta.make(before, model.state_dict())


def test_only_what_gets_gradients_is_kept() -> None:
    model = network()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model[1].weight.requires_grad_(True)
    optimizer = torch.optim.SGD([model[1].weight], lr=0.1)
    replica, tracker = copy_of(model), DeltaTracker(model, optimizer)
    step(model, [optimizer])
    assert tracker.kept_bytes < model[1].weight.nbytes
    kept = tracker.kept_bytes
    # What joins later is as it was until then.
    model[3].weight.requires_grad_(True)
    optimizer.add_param_group({"params": [model[3].weight]})
    step(model, [optimizer])
    assert tracker.kept_bytes > kept
    deltas = tracker.collect()
    assert {change.name for change in delta.inspect_model(deltas[0]).changes} == {"1.weight", "3.weight"}
    follow(replica, deltas, model)


def test_buffers_and_closures() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    replica, tracker = copy_of(model), DeltaTracker(model, optimizer)
    x = torch.randn(16, 8)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    follow(replica, tracker.collect(), model)
    model(x + 1)
    deltas = tracker.collect()
    assert {change.name for change in delta.inspect_model(deltas[0]).changes} <= {
        "1.running_mean", "1.running_var", "1.num_batches_tracked"
    }  # fmt: skip
    follow(replica, deltas, model)


def test_masters_keep_no_version() -> None:
    model = network()
    tensors = dict(model.named_parameters())
    masters = {name: x.detach().float().requires_grad_() for name, x in tensors.items()}
    optimizer = torch.optim.AdamW(masters.values(), lr=1e-3)
    replica, tracker = copy_of(model), DeltaTracker(model, optimizer, masters=masters)
    twin = {name: x.detach().clone() for name, x in masters.items()}
    for number in range(4):
        model(torch.randint(0, 64, (4, 8))).float().square().mean().backward()
        for name, x in tensors.items():
            masters[name].grad = x.grad.float()
        optimizer.step()
        model.zero_grad()
        # The tracker has cast the masters.
        assert all(same_bits(x.detach(), masters[name].detach().bfloat16()) for name, x in tensors.items())
        assert tracker.kept_bytes == 0
        if number == 1:
            # Each step has a delta of its own.
            deltas = tracker.collect()
            assert len(deltas) == 2
            follow(replica, deltas, model)
    assert not torch.equal(twin["1.weight"], masters["1.weight"])
    follow(replica, tracker.collect(), model)


def test_replicas_in_bf16_of_a_model_in_float32() -> None:
    model = network(torch.float32)
    half = network()
    half.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    replica, tracker = copy_of(half), DeltaTracker(half, optimizer, masters=dict(model.named_parameters()))
    for _ in range(3):
        step(model, [optimizer])
        follow(replica, tracker.collect(), half)
    assert all(same_bits(replica[name], x.bfloat16()) for name, x in model.state_dict().items())


def test_several_optimizers() -> None:
    model = network()
    parameters = list(model.parameters())
    optimizers = [torch.optim.SGD([x], lr=0.1) for x in parameters]
    replica, tracker = copy_of(model), DeltaTracker(model, optimizers)
    step(model, optimizers)
    follow(replica, tracker.collect(), model)


def test_a_delta_that_was_lost_is_noticed() -> None:
    model = network()
    optimizers = [torch.optim.SGD([model[1].weight], lr=0.1), torch.optim.SGD([model[3].weight], lr=0.1)]
    replica, tracker = copy_of(model), DeltaTracker(model, optimizers)
    step(model, optimizers[:1])
    lost = tracker.collect()
    # It changes another tensor.
    model.zero_grad()
    step(model, optimizers[1:])
    kept = {name: x.clone() for name, x in replica.items()}
    [late] = tracker.collect()
    with pytest.raises(tenfold.WrongBaseError, match="another delta comes first"):
        delta.apply_(replica, late)
    assert all(same_bits(x, kept[name]) for name, x in replica.items())
    follow(replica, [*lost, late], model)


def test_changes_that_no_optimizer_made() -> None:
    model = network()
    optimizer = torch.optim.SGD([model[1].weight], lr=0.1)
    replica, tracker = copy_of(model), DeltaTracker(model, optimizer)
    step(model, [optimizer])
    # What is kept is compared, whoever changed it.
    follow(replica, tracker.collect(), model)
    with torch.no_grad():
        model[1].weight.mul_(2)
    follow(replica, tracker.collect(), model)
    # What is not is gone.
    with torch.no_grad():
        model[3].weight.mul_(2)
    with pytest.raises(tenfold.ArgumentError, match="'3.weight' was changed by something else"):
        tracker.collect()
    tracker = DeltaTracker(model, optimizer)
    model[3].weight = torch.nn.Parameter(torch.zeros_like(model[3].weight))
    with pytest.raises(tenfold.ArgumentError, match="another tensor '3.weight'"):
        tracker.collect()


def test_a_model_that_moves() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replica, tracker = copy_of(model), DeltaTracker(model, optimizer)
    for parameter in model.parameters():
        # What model.to(device) does.
        parameter.data = parameter.data.clone()
    step(model, [optimizer])
    follow(replica, tracker.collect(), model)


def test_refusals() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(tenfold.DtypeError, match="torch.nn.Module"):
        DeltaTracker(model.state_dict(), optimizer)  # type: ignore[arg-type]
    with pytest.raises(tenfold.ArgumentError, match="no tensor of the model"):
        DeltaTracker(model, optimizer, masters={"x": torch.zeros(3)})
    with pytest.raises(tenfold.ArgumentError, match="float tensor of shape"):
        DeltaTracker(model, optimizer, masters={"1.weight": torch.zeros(3)})
    with pytest.raises(tenfold.ArgumentError, match="the tensor itself"):
        DeltaTracker(model, optimizer, masters={"1.weight": model[1].weight})
