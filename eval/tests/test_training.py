"""Training with compressed gradients, on a model so small that it takes seconds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch

import training
from common.training.exchanges import Exchange, OneBit, PowerSgd, Rounded, Tenfold, Uncompressed, buckets

DATA = Path(__file__).parent.parent / "data"


def gradients(workers: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    shapes = {"a": (96, 64), "b": (64,), "c": (64, 256)}
    return [{n: torch.randn(s, generator=generator) for n, s in shapes.items()} for _ in range(workers)]


@pytest.mark.parametrize(
    ("exchange", "rate", "near"),
    [
        (Uncompressed(), 32, 1e-6),
        (Tenfold(2, 2.6, feedback=True, threads=1), 2.6, 0.3),
        (Tenfold(2, 8, feedback=False, threads=1), 8, 0.02),
        (Rounded(2, 4, feedback=False), 4.25, 0.2),
        (Rounded(2, 2, feedback=True), 2.25, 0.8),
        (PowerSgd(2, 4), 4, 1.0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exchange) else "",
)
def test_averages_are_near_and_volumes_are_true(exchange: Exchange, rate: float, near: float) -> None:
    workers = gradients(2)
    plain = Uncompressed().average(workers)
    average = exchange.average(workers)
    for name, wanted in plain.items():
        assert average[name].shape == wanted.shape
        assert (average[name] - wanted).norm() <= near * wanted.norm()
    assert exchange.rate == pytest.approx(rate, rel=0.15)


@pytest.mark.parametrize("make", [lambda: Tenfold(2, 0.8, feedback=True, threads=1), lambda: Rounded(2, 2, feedback=True), lambda: PowerSgd(2, 8)])
def test_with_feedback_nothing_is_lost_in_the_long_run(make) -> None:
    exchange, workers = make(), gradients(2)
    plain = Uncompressed().average(workers)
    total = {name: torch.zeros_like(wanted) for name, wanted in plain.items()}
    for _ in range(30):
        for name, average in exchange.average(workers).items():
            total[name] += average / 30
    for name, wanted in plain.items():
        assert (total[name] - wanted).norm() < 0.25 * wanted.norm()


def test_signs_come_after_the_warm_up() -> None:
    exchange, workers = OneBit(2, 2, 0.9), gradients(2)
    for step in range(4):
        average = exchange.average(workers)
        assert exchange.compressing == (step >= 2)
    assert len(average["a"].abs().unique()) == 1
    assert exchange.rate == pytest.approx(16.5, rel=0.01)


def test_buckets_start_at_the_last_layer() -> None:
    big = {name: torch.empty(4 << 20, device="meta") for name in "abc"}
    assert buckets(big) == [["c", "b"], ["a"]]


def test_a_run(tmp_path, capsys) -> None:
    args = argparse.Namespace(
        text=[DATA / "wikitext2_test_start.txt", DATA / "wikitext2_valid_start.txt"], shape="tiny", workers=2, batch=4, steps=40,
        rate=1e-3, warmup=0.05, bucket=25, seed=1, device="cpu", effort="fast", only=["uncompressed", "2.6", "1.4", "RTN 2", "1-bit"], bits=(2.6, 1.4),
        threads=1, out=tmp_path, fresh=False,
    )  # fmt: skip
    torch.set_num_threads(1)
    assert training.evaluate(args) == 0
    kept = json.loads((tmp_path / "training-tiny.json").read_text())
    rows = {row["scheme"]: row for row in kept["rows"]}
    assert len(rows) == 10
    plain = rows["uncompressed"]
    assert plain["training"][0] > 5 and plain["training"][-1] < 4
    for name, row in rows.items():
        assert row["training"][0] == plain["training"][0] and row["training"][-1] < 4.5, name
    for name in ("tenfold 2.6 bits", "tenfold 2.6 bits, feedback"):
        assert rows[name]["training"][-1] < 1.03 * plain["training"][-1]
    assert rows["tenfold 2.6 bits"]["bits"] == pytest.approx(2.6, abs=0.01)
    assert (tmp_path / "training-tiny.png").stat().st_size > 10_000
    assert "within 2 % of uncompressed" in (tmp_path / "training-tiny.md").read_text()
    # A second call has nothing left to do.
    before = (tmp_path / "training-tiny.md").read_text()
    assert training.evaluate(args) == 0
    assert (tmp_path / "training-tiny.md").read_text() == before
