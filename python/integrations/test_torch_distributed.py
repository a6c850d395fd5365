"""Data-parallel training with compressed gradients: real processes, gloo."""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import tenfold
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tenfold.torch import distributed as td
from torch.nn.parallel import DistributedDataParallel


def _ranks(world: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """What `work(rank, *args)` returns in each of some processes."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (world, folder, work, args), nprocs=world)
        return [torch.load(os.path.join(folder, f"{rank}.pt"), weights_only=False) for rank in range(world)]


def _rank(rank: int, world: int, folder: str, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
    result = work(rank, *args)
    torch.save(result, os.path.join(folder, f"{rank}.pt"))
    dist.barrier()
    dist.destroy_process_group()


def _model() -> DistributedDataParallel:
    torch.manual_seed(1)
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 16)
    )
    # Small buckets: there are several, and they are built anew after the first step.
    return DistributedDataParallel(layers, bucket_cap_mb=0.2)


def _train(rank: int, steps: int, how: dict[str, Any] | None) -> dict[str, Any]:
    model = _model()
    hook = None if how is None else td.register(model, threads=1, **how)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    teacher = torch.nn.Linear(64, 16)
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(steps):
        x = torch.randn(64, 64, generator=generator)
        loss = torch.nn.functional.mse_loss(model(x), teacher(x).detach().tanh())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    return {
        "loss": sum(losses[-10:]) / 10,
        "weights": [p.detach().clone() for p in model.parameters()],
        "sent": None if hook is None else hook.sent / hook.raw,
        "state": None if hook is None else hook.state_dict(),
    }


@pytest.mark.parametrize("exchange", ["gather", "scatter"])
def test_training_goes_on_as_without(exchange: str) -> None:
    plain = _ranks(2, _train, 60, None)
    ours = _ranks(2, _train, 60, {"bits": 2.6, "exchange": exchange})
    assert ours[0]["sent"] < 0.25
    # All ranks have the same weights.
    for a, b in zip(ours[0]["weights"], ours[1]["weights"], strict=True):
        assert torch.equal(a, b)
    assert ours[0]["loss"] < plain[0]["loss"] * 1.1


def test_feedback_helps_at_low_rates() -> None:
    plain, without, with_it = (
        _ranks(2, _train, 60, how)[0]["loss"]
        for how in (None, {"bits": 0.8, "error_feedback": False}, {"bits": 0.8, "error_feedback": True})
    )
    assert with_it < without
    assert with_it < plain * 1.3


def _nan(rank: int) -> list[bool]:
    model = _model()
    td.register(model, bits=2.6, threads=1)
    x = torch.randn(8, 64)
    if rank == 1:
        x[0, 0] = torch.nan
    model(x).sum().backward()
    return [bool(p.grad.isnan().any()) for p in model.parameters() if p.grad is not None]


def test_what_is_no_number_reaches_all_ranks() -> None:
    here, there = _ranks(2, _nan)
    assert here == there and any(here)


def _disagree(rank: int) -> str:
    try:
        td.register(_model(), bits=2.6 + rank)
    except tenfold.ArgumentError as error:
        return str(error)
    return ""


def test_ranks_that_disagree_are_told() -> None:
    assert all("must agree" in said for said in _ranks(2, _disagree))


def _resume(rank: int, state: list[dict[str, Any]]) -> int:
    hook = td.register(_model(), bits=2.6, threads=1)
    hook.load_state_dict(state[rank])
    again = hook.state_dict()
    assert again["residuals"].keys() == state[rank]["residuals"].keys()
    assert all(torch.equal(again["residuals"][n], r) for n, r in state[rank]["residuals"].items())
    with pytest.raises(tenfold.ArgumentError, match="lacks"):
        hook.load_state_dict({"version": 1, "residuals": {"other": torch.zeros(1)}, "owed": {}})
    return len(again["residuals"])


def test_residuals_go_through_a_checkpoint() -> None:
    states = [r["state"] for r in _ranks(2, _train, 3, {"bits": 2.6})]
    assert all(n > 0 for n in _ranks(2, _resume, states))
