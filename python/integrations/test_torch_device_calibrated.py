"""Weights of linear layers on a device: errors fed back there, as good as on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tenfold
import tenfold.torch
import torch
from tenfold.torch._codec import curvature_unit, encode_calibrated_with
from tenfold.transformers import compress
from test_torch_device import device
from transformers_models import LLAMA, folder, texts

__all__ = ["device"]


def moments(columns: int) -> np.ndarray:
    random = np.random.default_rng(0)
    x = random.standard_normal((1000, columns)) @ random.standard_normal((columns, columns))
    return (x.T @ x / 1000).astype(np.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_as_good_as_the_cpu(device: torch.device, dtype: torch.dtype, effort: str) -> None:
    of = tenfold.curvature(moments(96), np.linspace(1e-4, 1e-3, 192))
    weight = torch.randn(192, 96, generator=torch.Generator().manual_seed(1)).to(dtype)
    options = tenfold._codec.encode_options(bits=3, effort=effort, curvature=of)
    blob, loss = encode_calibrated_with(weight.to(device), options)
    assert blob.device == device
    raw = weight.view(torch.uint16 if dtype == torch.bfloat16 else torch.uint32).numpy()
    host, expected, _, _ = tenfold._native.encode_calibrated(raw, options, str(dtype)[6:])
    # A bit a value more is a quarter of the loss; tables of a device are a little longer.
    at_same = 4.0 ** ((len(blob) - len(host)) * 8 / weight.numel())
    assert loss * at_same < 1.1 * expected
    instead = tenfold.torch.decode(blob, dtype=torch.float32, contiguous=True).cpu().numpy()
    assert abs(of.loss(weight.float().numpy(), instead) / loss - 1) < 1e-2
    assert torch.equal(tenfold.torch.encode(weight.to(device), bits=3, effort=effort, curvature=of), blob)


def test_the_device_factors_what_a_step_is_multiplied_by(device: torch.device) -> None:
    found = curvature_unit(tenfold.curvature(moments(80)), device)
    assert abs(found / tenfold.curvature(moments(80)).unit() - 1) < 1e-6
    wild = np.eye(64, dtype=np.float32) * 1.9 - 0.9
    with pytest.raises(tenfold.ArgumentError, match="positive definite"):
        curvature_unit(tenfold.curvature(wild), device)


@pytest.mark.parametrize("alloc", ["loss", "equal"])
def test_a_model_is_compressed_on_the_device(device: torch.device, tmp_path: Path, alloc: str) -> None:
    source = folder(tmp_path / "model", "llama")
    report = compress(source, tmp_path / "small", texts=texts(16, 60, 1), bits=4, alloc=alloc, device=device, check=True)
    assert len(report.weights) == 7 * LLAMA["num_hidden_layers"]
    assert abs(report.bits - 4) < 0.2
    assert report.perplexity is not None and report.measured is not None
    assert report.measured[0] < 1.5 * report.perplexity[0] and report.measured[1] < 0.4
