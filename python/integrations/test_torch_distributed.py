"""Data-parallel training with compressed gradients: real processes, gloo."""

from __future__ import annotations

import os
import pathlib
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import tenfold
import torch
from ranks import Ranks
from tenfold.torch import distributed as td
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "training.md"


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks(2)
    yield made
    made.close()


def _layers() -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 16)
    )


def _model(**options: Any) -> DistributedDataParallel:
    # Small buckets: there are several, and they are built anew after the first step.
    return DistributedDataParallel(_layers(), bucket_cap_mb=0.2, **options)


def _batches(rank: int, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(2)
    teacher = torch.nn.Linear(64, 16)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        x = torch.randn(64, 64, generator=generator)
        yield x, teacher(x).detach().tanh()


def _train(
    rank: int, steps: int, how: dict[str, Any] | None, accumulate: int = 1, sgd: bool = False
) -> dict[str, Any]:
    model = _model()
    hook = None if how is None else td.register(model, threads=1, **how)
    parameters = model.parameters()
    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9) if sgd else torch.optim.Adam(parameters, lr=3e-3)
    losses = []
    for step, (x, y) in enumerate(_batches(rank, steps * accumulate)):
        last = (step + 1) % accumulate == 0
        with nullcontext() if last else model.no_sync():
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
        losses.append(float(loss))
        if last:
            optimiser.step()
            optimiser.zero_grad()
    return {
        "loss": sum(losses[-10:]) / 10,
        "weights": [p.detach().clone() for p in model.parameters()],
        "sent": None if hook is None else (hook.sent, hook.raw),
        "state": None if hook is None else hook.state_dict(),
    }


@pytest.mark.parametrize("exchange", ["gather", "scatter"])
def test_training_goes_on_as_without(ranks: Ranks, exchange: str) -> None:
    plain = ranks(_train, 60, None)
    ours = ranks(_train, 60, {"bits": 2.6, "exchange": exchange, "error_feedback": True})
    sent, raw = ours[0]["sent"]
    assert sent / raw < 0.25
    # All ranks have the same weights, to the last bit.
    for a, b in zip(ours[0]["weights"], ours[1]["weights"], strict=True):
        assert torch.equal(a, b)
    assert ours[0]["loss"] < plain[0]["loss"] * 1.05


def test_feedback_helps_at_low_rates(ranks: Ranks) -> None:
    plain, without, with_it = (
        ranks(_train, 100, how, 1, True)[0]["loss"]
        for how in (None, {"bits": 0.8, "error_feedback": False}, {"bits": 0.8, "error_feedback": True})
    )
    assert with_it < without
    assert with_it < plain * 1.3


def test_gradients_that_are_accumulated_are_sent_once(ranks: Ranks) -> None:
    plain = ranks(_train, 20, None, 2)
    ours = ranks(_train, 20, {"bits": 2.6}, 2)
    once = ranks(_train, 20, {"bits": 2.6})
    assert ours[0]["sent"] == once[0]["sent"]
    assert ours[0]["loss"] < plain[0]["loss"] * 1.05


def _in_bf16(rank: int) -> tuple[float, float, torch.dtype]:
    model = DistributedDataParallel(_layers().to(torch.bfloat16), bucket_cap_mb=0.2, gradient_as_bucket_view=True)
    hook = td.register(model, bits=2.6, error_feedback=True, threads=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for x, y in _batches(rank, 30):
        loss = torch.nn.functional.mse_loss(model(x.bfloat16()), y.bfloat16())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    return losses[0], losses[-1], next(iter(hook.state_dict()["residuals"].values())).dtype


def test_gradients_in_bf16_have_residuals_in_f32(ranks: Ranks) -> None:
    for first, last, dtype in ranks(_in_bf16):
        assert last < 0.8 * first
        assert dtype == torch.float32


def test_parameters_without_a_gradient_do_no_harm(ranks: Ranks) -> None:
    assert all(all(flags) for flags in ranks(_all_used))


def _all_used(rank: int) -> list[bool]:
    model = DistributedDataParallel(_Sometimes(), bucket_cap_mb=0.2, find_unused_parameters=True)
    td.register(model, bits=2.6, threads=1)
    for x, _ in _batches(rank, 3):
        model(x, rank == 0).sum().backward()
    return [p.grad is not None for p in model.parameters()]


class _Sometimes(torch.nn.Module):
    """One of its layers is not always used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = torch.nn.Linear(64, 512), torch.nn.Linear(512, 512)

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        x = self.first(x)
        return self.second(x) if both else x


def _nan(rank: int) -> list[tuple[bool, bool]]:
    model = _model()
    hook = td.register(model, bits=2.6, error_feedback=True, threads=1)
    x = torch.randn(8, 64)
    if rank == 1:
        x[0, 0] = torch.nan
    model(x).sum().backward()
    assert all(r.isfinite().all() for r in hook.state_dict()["residuals"].values())
    found = [bool(p.grad.isnan().any()) for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    after = [bool(p.grad.isnan().any()) for p in model.parameters() if p.grad is not None]
    return list(zip(found, after, strict=True))


def test_what_is_no_number_reaches_all_ranks_once(ranks: Ranks) -> None:
    here, there = ranks(_nan)
    assert here == there
    assert any(nan for nan, _ in here)
    assert not any(later for _, later in here)


def _disagree(rank: int) -> str:
    try:
        td.register(_model(), bits=2.6 + rank)
    except tenfold.ArgumentError as error:
        return str(error)
    return ""


def _other_version(rank: int) -> str:
    from tenfold.torch.distributed import _agree

    before = _agree.__version__
    _agree.__version__ = f"0.0.{rank}"
    try:
        td.register(_model())
    except tenfold.ArgumentError as error:
        return str(error)
    finally:
        _agree.__version__ = before
    return ""


def test_ranks_that_disagree_are_told(ranks: Ranks) -> None:
    assert all("bits 3.6 there, 2.6 on rank 0" in said for said in ranks(_disagree))
    assert all("tenfold 0.0.1 there, 0.0.0 on rank 0" in said for said in ranks(_other_version))


def _resume(rank: int, state: list[dict[str, Any]]) -> int:
    hook = td.register(_model(), bits=2.6, error_feedback=True, threads=1)
    hook.load_state_dict(state[rank])
    again = hook.state_dict()
    assert again["residuals"].keys() == state[rank]["residuals"].keys()
    assert all(torch.equal(again["residuals"][n], r) for n, r in state[rank]["residuals"].items())
    hook.rescale(2.0)
    assert all(torch.equal(hook.state_dict()["residuals"][n], 2 * r) for n, r in state[rank]["residuals"].items())
    with pytest.raises(tenfold.ArgumentError, match="lacks"):
        hook.load_state_dict({"version": 1, "residuals": {"other": torch.zeros(1)}, "owed": {}})
    return len(again["residuals"])


def test_residuals_go_through_a_checkpoint(ranks: Ranks) -> None:
    states = [r["state"] for r in ranks(_train, 3, {"bits": 2.6, "error_feedback": True})]
    assert all(n > 0 for n in ranks(_resume, states))


def _sharded(rank: int, how: dict[str, Any] | None) -> dict[str, Any]:
    model = _layers()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    made = {} if how is None else td.register_fsdp(model, threads=1, **how)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for x, y in _batches(rank, 60):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss.detach()))
    states = {name: one.state_dict() for name, one in made.items()}
    for name, one in made.items():
        one.load_state_dict(states[name])
    return {
        "loss": sum(losses[-10:]) / 10,
        "sent": sum(m.sent for m in made.values()),
        "raw": sum(m.raw for m in made.values()),
    }


def test_sharded_gradients_are_compressed_too(ranks: Ranks) -> None:
    plain = ranks(_sharded, None)
    for feedback in (False, True):
        ours = ranks(_sharded, {"bits": 2.6, "error_feedback": feedback})
        assert ours[0]["sent"] < 0.1 * ours[0]["raw"]
        assert ours[0]["loss"] < plain[0]["loss"] * 1.05


def _die(rank: int) -> float:
    model = _model()
    td.register(model, threads=1)
    if rank == 1:
        os._exit(1)
    start = time.monotonic()
    try:
        model(torch.randn(8, 64)).sum().backward()
    except RuntimeError:
        return time.monotonic() - start
    raise AssertionError("backward ended well without the other rank")


def test_a_rank_that_dies_does_not_hang_the_others() -> None:
    ranks = Ranks(2, seconds=20)
    try:
        waited, gone = ranks.each(_die)
        assert isinstance(gone, EOFError)
        assert isinstance(waited, float) and waited < 40
    finally:
        ranks.close()


def test_the_page() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
