"""eval/serdes.py on a small file, and its TurboQuant next to LMCache's kernels."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

EVAL = Path(__file__).parents[2] / "eval"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs are scripts: their folder is where they import from."""
    monkeypatch.syspath_prepend(str(EVAL))
    monkeypatch.setenv("TRITON_INTERPRET", os.environ.get("TRITON_INTERPRET", "1"))


def rows(tokens: int, layers: int, columns: int) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(5)
    mixed = torch.randn(columns, columns, generator=made) / columns**0.5
    named = [(f"layers.{3 * layer + 2}.{kind}", 3.0 if kind == "k" else 1.0) for layer in range(layers) for kind in "kv"]
    return {name: (scale * torch.randn(tokens, columns, generator=made) @ mixed).bfloat16() for name, scale in named}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_a_small_run(
    programs: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import serdes as program

    # One file of bases for all rates, and bisection in steps of half a bit: what takes long.
    fitted = program.Bench.bases
    monkeypatch.setattr(program.Bench, "bases", lambda bench, _: fitted(bench, 8))
    monkeypatch.setattr(program, "NEAR", 0.5)
    save_file(rows(512 + 64, 2, 32), tmp_path / "kv.safetensors")
    args = argparse.Namespace(
        bits=[3.0, 5.0], threads=1, out=tmp_path, fresh=False, file=tmp_path / "kv.safetensors", chunk=32, fit_tokens=512,
        tokens=None, head=16, model_layers=30, repeat=1,
    )  # fmt: skip
    assert program.evaluate(args) == 0
    kept = json.loads((tmp_path / "serdes.json").read_text())
    assert {row["serde"] for row in kept["rows"]} == {"fp8", "asym_k16_v8", "turboquant", "cachegen", *program.OURS}
    assert not any("does not run" in note for note in kept["notes"])
    matched = [row for row in kept["rows"] if "rival" in row]
    assert len(matched) == 2 * 8 and (tmp_path / "serdes.png").exists()
    for row in matched:
        rival = next(other for other in kept["rows"] if other["setting"] == row["setting"].removeprefix("at the error of "))
        assert row["error"] <= rival["error"] and row["rival_bytes"] == rival["bytes"]
    assert "Bytes of tenfold at the error of each" in capsys.readouterr().out
    # A second run measures nothing again.
    assert program.evaluate(args) == 0
    assert json.loads((tmp_path / "serdes.json").read_text())["rows"] == kept["rows"]


@pytest.mark.skipif("triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is compiled already")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("preset", ["turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"])
def test_turboquant_is_what_its_kernels_compute(programs: None, preset: str) -> None:
    from common import serdes

    chunk = torch.stack([torch.stack([rows(4, 2, 32)[f"layers.{n}.{kind}"] for n in (2, 5)]) for kind in "kv"])
    ours, theirs = serdes.turbo(preset, 16)(chunk), serdes.turbo(preset, 16, interpreted=True)(chunk)
    assert ours.nbytes == theirs.nbytes
    # A rounding here and there, from sums in another order.
    assert (ours.decoded != theirs.decoded).float().mean() < 0.02
    for a, b in zip(serdes.errors([ours.decoded], [chunk]), serdes.errors([theirs.decoded], [chunk]), strict=True):
        assert a == pytest.approx(b, rel=0.01)
