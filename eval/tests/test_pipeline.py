"""Pipeline-parallel training with compressed boundaries, on a model so small that it takes seconds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pipeline
import pytest
import torch

from common.training.gpt import SHAPES, gpt
from common.training.stages import Compressed, Cut, Rounded, staged

DATA = Path(__file__).parent.parent / "data"


def test_a_model_is_cut_into_stages_of_about_the_same_size() -> None:
    model = staged(gpt(SHAPES["small"], 1), Compressed("fast", 1))
    cuts = [index for index, part in enumerate(model) if isinstance(part, Cut)]
    assert len(model) == 6 + 3
    assert cuts == [1, 4, 6]


def test_gradients_cross_the_other_way() -> None:
    link = Compressed("fast", 1, activation_bits=8.0, gradient_bits=6.0, residual_bits=6.0)
    cut = Cut(link, 0)
    x = torch.randn(2, 64, 64, requires_grad=True)
    weight = torch.randn(2, 64, 64)
    y = cut(x)
    (y * weight).sum().backward()
    assert x.grad is not None
    for wanted, got in ((x, y), (weight, x.grad)):
        assert 0 < (wanted - got).norm() < 0.02 * wanted.norm()
    assert link.rates() == {"activation_bits": pytest.approx(8, abs=0.1), "gradient_bits": pytest.approx(12, abs=0.1)}
    # Judged without.
    assert cut.eval()(x) is x


def test_rounding_has_as_many_levels_as_it_says() -> None:
    link = Rounded("fast", 1, bits=4)
    values = torch.randn(4096)
    assert len(link.gradients(values, 0).unique()) <= 15
    assert torch.equal(link.gradients(torch.zeros(4096), 0), torch.zeros(4096))


def test_a_run(tmp_path: Path) -> None:
    args = argparse.Namespace(
        text=[DATA / "wikitext2_test_start.txt", DATA / "wikitext2_valid_start.txt"], shape="tiny", workers=2, batch=4, steps=20,
        rate=1e-3, warmup=0.05, bucket=25, seed=1, device="cpu", effort="fast", only=["uncompressed", "gradients as", "RTN 8"], bits=(3.5,),
        threads=1, out=tmp_path, fresh=False,
    )  # fmt: skip
    torch.set_num_threads(1)
    assert pipeline.evaluate(args) == 0
    rows = {row["scheme"]: row for row in json.loads((tmp_path / "pipeline-tiny.json").read_text())["rows"]}
    assert len(rows) == 4
    plain = rows["uncompressed"]
    assert plain["training"][0] > 5 > 4.85 > plain["training"][-1]
    for name, row in rows.items():
        assert row["loss"] < 1.02 * plain["loss"], name
    assert rows["activations 3.5, gradients as they are"]["gradient_bits"] == 32
    both = rows["activations 3.5, gradients 3.5 + 3.5, then + RTN 8"]
    # Four steps of twenty at 7 bits a value, the others in slots of 11.6.
    assert both["activation_bits"] == pytest.approx(3.5, abs=0.05) and 10 < both["gradient_bits"] < 12.2
    assert (tmp_path / "pipeline-tiny.png").stat().st_size > 10_000
