"""Checkpoints some steps apart: what is written, and that versions differ as training makes them."""

from __future__ import annotations

import argparse

import pytest
import tenfold
import torch
from safetensors.torch import load_file

import checkpoints


@pytest.mark.parametrize("later", [None, 1e-5])
def test_versions_of_a_model(tmp_path, later):
    torch.set_num_threads(1)
    text = tmp_path / "text"
    text.write_bytes(bytes(i * i % 251 for i in range(5000)))
    args = {"text": [text], "shape": "tiny", "base": 3, "apart": (1, 4), "batch": 2, "rate": 1e-3, "later_rate": later}
    paths = checkpoints.make(argparse.Namespace(**args, seed=1, device="cpu", out=tmp_path / "out"))
    assert [path.name for path in paths] == ["base.safetensors", "step-1.safetensors", "step-4.safetensors"]
    base, one, four = (load_file(path) for path in paths)
    shares = [sum(int((base[name] != new[name]).sum()) for name in base) / sum(t.numel() for t in base.values()) for new in (one, four)]
    assert 0 < shares[0] < shares[1] <= 1 and all(t.dtype == torch.bfloat16 for t in base.values())
    if later is not None:
        assert shares[0] < 0.2
    again = tenfold.delta.apply(base, tenfold.delta.make(base, four))
    assert all(torch.equal(again[name], four[name]) for name in four)
