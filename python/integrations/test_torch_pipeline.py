"""Pipelines with compressed boundaries: real processes, gloo, torch's own schedules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import tenfold
import torch
from ranks import Ranks
from tenfold.torch import distributed as td
from tenfold.torch.distributed._boundary import Boundary, LayeredCodec, Rates, packed
from torch.distributed import pipelining

WIDTH, BATCH, MICRO = 64, 256, 2
FINE = {"activation_bits": 12.0, "gradient_bits": 8.0, "residual_bits": 6.0}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks(2)
    yield made
    made.close()


class Part(torch.nn.Module):
    """What a stage computes; it passes on whatever else it gets."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> Any:
        y = x + torch.tanh(self.layer(x))
        return (y, *others) if others else y


def _stages(rank: int, indices: list[int], count: int, how: dict[str, Any] | None) -> list[Any]:
    device = torch.device("cpu")
    if how is None:
        return [pipelining.PipelineStage(Part(i), i, count, device) for i in indices]
    return [td.CompressedStage(Part(i), i, count, device, threads=1, **how) for i in indices]


def _batches(steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
    for _ in range(steps):
        x = torch.randn(BATCH, WIDTH, generator=generator)
        yield x, (x @ target).tanh()


def _schedule(kind: str, rank: int, how: dict[str, Any] | None) -> tuple[Any, list[Any], bool, bool]:
    """A schedule, its stages on this rank, and whether these have the first and the last of all."""
    loss = torch.nn.functional.mse_loss
    if kind in ("GPipe", "1F1B"):
        stages = _stages(rank, [rank], 2, how)
        made = getattr(pipelining, f"Schedule{kind}")(stages[0], MICRO, loss_fn=loss)
    elif kind == "Interleaved1F1B":
        stages = _stages(rank, [rank, rank + 2], 4, how)
        made = pipelining.ScheduleInterleaved1F1B(stages, MICRO, loss_fn=loss)
    else:
        # A V: two neighbours are on one rank, and need no sending.
        stages = _stages(rank, [rank, 3 - rank], 4, how)
        made = pipelining.ScheduleZBVZeroBubble(stages, 2 * MICRO, loss_fn=loss)
    return made, stages, any(s.is_first for s in stages), any(s.is_last for s in stages)


def _train(rank: int, kind: str, steps: int, how: dict[str, Any] | None, judge: bool = False) -> dict[str, Any]:
    schedule, stages, first, last = _schedule(kind, rank, how)
    optimiser = torch.optim.Adam([p for s in stages for p in s.submod.parameters()], lr=3e-3)
    curve, sent = [], []
    for x, y in _batches(steps):
        losses: list[torch.Tensor] = []
        schedule.step(*([x] if first else []), **({"target": y, "losses": losses} if last else {}))
        gradients = [p.grad.clone() for s in stages for p in s.submod.parameters()]
        optimiser.step()
        optimiser.zero_grad()
        if last:
            curve.append(float(torch.stack([loss.detach() for loss in losses]).mean()))
        if how is not None:
            sent.append((sum(s.sent for s in stages), sum(s.raw for s in stages)))
        if judge:
            schedule.eval(*([x] if first else []), **({"target": y, "losses": []} if last else {}))
    return {
        "losses": curve,
        "sent": sent,
        "steps": [s.steps for s in stages] if how is not None else None,
        "gradients": gradients,
    }


@pytest.mark.parametrize("kind", ["GPipe", "1F1B", "Interleaved1F1B", "ZBV"])
def test_training_goes_on_as_without(ranks: Ranks, kind: str) -> None:
    plain = ranks(_train, kind, 25, None)
    ours = ranks(_train, kind, 25, {})
    # The last stage of a V is on the first rank.
    wanted = next(r["losses"] for r in plain if r["losses"])
    got = next(r["losses"] for r in ours if r["losses"])
    assert wanted[-1] < 0.7 * wanted[0]
    assert got[-1] < 1.05 * wanted[-1]
    # Neither is a copy of the other: something was rounded.
    assert got[-1] != wanted[-1]
    for result in ours:
        sent, raw = result["sent"][-1]
        assert raw > 4 * sent or raw == sent == 0
    assert sum(result["sent"][-1][0] for result in ours) > 0


def test_fine_rates_give_the_same_gradients(ranks: Ranks) -> None:
    plain = ranks(_train, "1F1B", 1, None)
    ours = ranks(_train, "1F1B", 1, FINE)
    for one, other in zip(plain, ours, strict=True):
        for wanted, got in zip(one["gradients"], other["gradients"], strict=True):
            assert 0 < (wanted - got).norm() < 1e-3 * wanted.norm()


def test_gradients_need_no_layers(ranks: Ranks) -> None:
    layered = ranks(_train, "GPipe", 3, {})
    plain = ranks(_train, "GPipe", 3, {"residual_bits": None})
    raw = ranks(_train, "GPipe", 3, {"gradient_bits": None})
    # The first rank sends activations only, the second one gradients only.
    assert layered[0]["sent"] == plain[0]["sent"] == raw[0]["sent"]
    assert plain[1]["sent"][-1][0] < 0.6 * layered[1]["sent"][-1][0]
    assert raw[1]["sent"][-1][0] == raw[1]["sent"][-1][1]


def test_residuals_are_rounded_from_a_step_on_and_evaluation_is_no_step(ranks: Ranks) -> None:
    results = ranks(_train, "1F1B", 4, {"round_after": 2}, True)
    sent = [now[0] - before[0] for before, now in zip([(0, 0), *results[1]["sent"]], results[1]["sent"], strict=False)]
    assert sent[0] == sent[1] < sent[2] == sent[3]
    # A rounded residual has a room of 8.1 bits a value, a compressed one of 3.5.
    values = BATCH * WIDTH
    assert sent[2] - sent[1] == pytest.approx(values * (8.125 - 3.5) / 8, rel=0.5)
    assert [r["steps"] for r in results] == [[4], [4]]


def _made(rank: int, how: list[dict[str, Any]]) -> str:
    try:
        _stages(rank, [rank], 2, how[rank])
    except tenfold.ArgumentError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ({}, {"activation_bits": 4.0}, "activation_bits 4.0 there, 3.5 on rank 0"),
        ({"round_after": 5}, {}, "round_after None there, 5 on rank 0"),
        ({"effort": "fast"}, {"effort": "best"}, "effort best there, fast on rank 0"),
    ],
)
def test_ranks_with_other_options_are_refused(ranks: Ranks, first: dict[str, Any], second: dict[str, Any], word: str) -> None:
    for message in ranks(_made, [first, second]):
        assert "differently" in message and word in message


def _two_ways(rank: int) -> str:
    _stages(rank, [rank], 4, {})
    try:
        _stages(rank, [rank + 2], 4, {"effort": "best"})
    except tenfold.ArgumentError as error:
        return str(error)
    return ""


def test_stages_of_a_rank_agree_too(ranks: Ranks) -> None:
    assert all("stage 0 of the same rank" in message or "stage 1 of the same rank" in message for message in ranks(_two_ways))


@pytest.mark.parametrize(
    "wrong",
    [
        {"activation_bits": 0},
        {"gradient_bits": -1.0},
        {"residual_bits": 99.0},
        {"effort": "mighty"},
        {"round_after": -1},
        {"residual_bits": None, "round_after": 3},
    ],
)
def test_options_that_cannot_work_are_refused(ranks: Ranks, wrong: dict[str, Any]) -> None:
    # Before ranks talk to each other: one alone must not wait.
    assert all(ranks(_made, [wrong, wrong]))


def _not_finite(rank: int, which: str) -> Any:
    schedule, stages, first, last = _schedule("GPipe", rank, {})
    x, y = next(_batches(1))
    if which == "one":
        x[3, 5] = torch.inf
    elif which == "all":
        x[:] = torch.nan
    else:
        y[0, 0] = torch.nan
    losses: list[torch.Tensor] = []
    schedule.step(*([x] if first else []), **({"target": y, "losses": losses} if last else {}))
    gradient = next(iter(stages[0].submod.parameters())).grad
    return [bool(loss.isfinite()) for loss in losses], bool(gradient.isfinite().all())


@pytest.mark.parametrize("which", ["one", "all", "target"])
def test_what_is_not_finite_comes_through(ranks: Ranks, which: str) -> None:
    (_, first), (losses, last) = ranks(_not_finite, which)
    # The value is in the first micro-batch, unless it is everywhere.
    assert losses == [False, which != "all"]
    assert not first and not last


def _others(rank: int) -> Any:
    """Stages that pass numbers of tokens and a short tensor along with activations."""
    device = torch.device("cpu")
    stage = td.CompressedStage(Part(rank), rank, 2, device, threads=1)
    schedule = pipelining.ScheduleGPipe(stage, 1)
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(3))
    tokens, short = torch.arange(BATCH * WIDTH).view(BATCH, WIDTH), torch.linspace(0, 1, 3 * BATCH).view(BATCH, 3)
    out = schedule.step(*([x, tokens, short] if rank == 0 else []))
    return None if rank == 0 else [torch.equal(out[1], tokens), torch.equal(out[2], short), stage.sent]


def test_integers_and_short_tensors_are_sent_as_they_are(ranks: Ranks) -> None:
    tokens, short, sent = ranks(_others)[1]
    assert tokens and short and sent == 0


def _dies(rank: int) -> float:
    schedule, _, first, last = _schedule("1F1B", rank, {})
    x, y = next(_batches(1))
    if rank == 1:
        os._exit(1)
    schedule.step(x)
    return 0.0


def test_a_rank_that_dies_is_an_error_of_the_others() -> None:
    made = Ranks(2, seconds=20)
    try:
        results = made.each(_dies)
        assert isinstance(results[0], RuntimeError) and isinstance(results[1], EOFError)
    finally:
        made.close()


def test_a_state_keeps_the_steps(ranks: Ranks) -> None:
    assert all(ranks(_kept))


def _kept(rank: int) -> bool:
    stage = _stages(rank, [rank], 2, {})[0]
    stage.load_state_dict({"version": 1, "steps": 7})
    with pytest.raises(tenfold.ArgumentError):
        stage.load_state_dict({"version": 2})
    return stage.state_dict() == {"version": 1, "steps": 7}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("residual_bits", [3.5, None])
def test_layers_take_their_room_and_leave_little(dtype: torch.dtype, residual_bits: float | None) -> None:
    generator = torch.Generator().manual_seed(1)
    values = (torch.randn(2, 64, 96, generator=generator) * torch.logspace(-2, 0, 96)).to(dtype)
    codec = LayeredCodec(3.5, residual_bits, "fast", 1)
    slot = packed(codec, values, "")
    assert slot.numel() == codec.room(values.numel())
    if residual_bits is not None:
        assert slot.numel() <= 7 * values.numel() / 8 + 16
    back = codec.read(slot, torch.empty_like(values))
    assert back.dtype == dtype
    error = (back.double() - values.double()).square().mean() / values.double().square().mean()
    # What the dtype itself rounds, and seven bits a value.
    assert error < max(4 * 4**-7, 2 * torch.finfo(dtype).eps ** 2)


def test_zeros_and_numbers_without_an_end_cross_too() -> None:
    boundary = Boundary(Rates(3.5, 3.5, 3.5, 0), "fast", 1)
    for values in (torch.zeros(64, 64), torch.full((64, 64), torch.nan), torch.full((64, 64), -torch.inf)):
        for codec in (boundary.activations(values), boundary.gradients(values, 0)):
            assert codec is not None
            back = codec.read(packed(codec, values, ""), torch.empty_like(values))
            assert torch.equal(back, values) or bool(back.isnan().all() and not values.isfinite().any())


def test_a_slot_with_another_length_is_refused() -> None:
    codec = LayeredCodec(3.5, 3.5, "fast", 1)
    slot = packed(codec, torch.randn(64, 64), "")
    slot[:8].view(torch.int64).fill_(slot.numel())
    with pytest.raises(tenfold.DataError):
        codec.read(slot, torch.empty(64, 64))


def test_a_slot_of_another_tensor_is_refused() -> None:
    codec = LayeredCodec(3.5, 3.5, "fast", 1)
    slot = packed(codec, torch.randn(64, 128), "")
    with pytest.raises(tenfold.Error):
        codec.read(slot, torch.empty(128, 64))
    slot[40:60] ^= 255
    with pytest.raises(tenfold.DataError):
        codec.read(slot, torch.empty(64, 128))
