"""Gradients on a CUDA device over NCCL: a group of one rank, since two ranks need two devices."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tenfold.torch import distributed as td
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module", autouse=True)
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = dist.FileStore(str(pathlib.Path(tmp_path_factory.mktemp("nccl")) / "store"), 1)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
    yield
    dist.destroy_process_group()


def _layers() -> torch.nn.Sequential:
    torch.manual_seed(1)
    wide = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU()) for _ in range(4)]
    return torch.nn.Sequential(torch.nn.Linear(64, 512), *wide, torch.nn.Linear(512, 16)).cuda()


def _losses(model: Any, steps: int = 60, scaler: torch.amp.GradScaler | None = None) -> list[float]:
    torch.manual_seed(2)
    teacher = torch.nn.Linear(64, 16).cuda()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    found = []
    for _ in range(steps):
        x = torch.randn(256, 64, device="cuda")
        with torch.autocast("cuda", torch.float16, enabled=scaler is not None):
            loss = torch.nn.functional.mse_loss(model(x), teacher(x).detach().tanh())
        optimiser.zero_grad()
        (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimiser.step()
        else:
            scaler.step(optimiser)
            scaler.update()
        found.append(loss.detach())
    return [float(loss) for loss in found]


def _end(losses: list[float]) -> float:
    return sum(losses[-10:]) / 10


@pytest.mark.parametrize("exchange", ["gather", "scatter"])
@pytest.mark.parametrize("feedback", [False, True])
def test_training_goes_on_as_without(exchange: str, feedback: bool) -> None:
    plain = _losses(DistributedDataParallel(_layers(), bucket_cap_mb=1))
    model = DistributedDataParallel(_layers(), bucket_cap_mb=1)
    hook = td.register(model, bits=2.6, exchange=exchange, error_feedback=feedback)
    ours = _losses(model)
    assert _end(ours) < 1.15 * _end(plain) and _end(plain) < 0.5 * plain[0]
    assert hook.sent < (0.2 if exchange == "scatter" else 0.1) * hook.raw
    assert bool(hook.state_dict()["residuals"]) == feedback


def test_mixed_precision_with_a_scaler() -> None:
    model = DistributedDataParallel(_layers(), bucket_cap_mb=1)
    td.register(model, bits=3.0)
    losses = _losses(model, scaler=torch.amp.GradScaler())
    assert _end(losses) < 0.5 * losses[0]


def test_sharded_models() -> None:
    model = _layers()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    td.register_fsdp(model, bits=3.0)
    losses = _losses(model)
    assert _end(losses) < 0.5 * losses[0]


def test_numbers_that_are_none_come_through() -> None:
    model = DistributedDataParallel(_layers(), bucket_cap_mb=1)
    td.register(model, bits=2.6)
    (model(torch.full((4, 64), torch.inf, device="cuda")).sum() * 1.0).backward()
    assert not all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
