"""Matrices of linear layers, encoded by what a calibration run knows of them."""

from __future__ import annotations

import numpy as np
import pytest

import tenfold


def layer(outputs: int = 192, inputs: int = 96) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, E[x·xᵀ] of inputs that go together, and E[g²]."""
    random = np.random.default_rng(0)
    x = random.standard_normal((2000, inputs)) @ random.standard_normal((inputs, inputs))
    weights = random.standard_normal((outputs, inputs), dtype=np.float32)
    return weights, x.T @ x / len(x), np.exp(random.standard_normal(outputs))


def loss(off: np.ndarray, inputs: np.ndarray, outputs: np.ndarray) -> float:
    return float(0.5 * (outputs * np.einsum("ij,jk,ik->i", off, inputs, off)).sum())


@pytest.mark.parametrize("effort", ["fast", "balanced", "best"])
def test_the_model_loses_less_than_by_importance(effort):
    weights, inputs, outputs = layer()
    blob, predicted = tenfold.encode_calibrated(weights, inputs, outputs, bits=3, effort=effort)
    plain = tenfold.encode(weights, bits=3, effort=effort, importance=np.diag(inputs))
    assert abs(len(blob) / len(plain) - 1) < 0.02
    found = loss(weights.astype(float) - tenfold.decode(blob), inputs, outputs)
    assert predicted == pytest.approx(found, rel=1e-3)
    assert found < 0.7 * loss(weights.astype(float) - tenfold.decode(plain), inputs, outputs)


def test_a_curvature_is_made_once_and_used_anywhere():
    weights, inputs, outputs = layer()
    curvature = tenfold.curvature(inputs, outputs, damping=0.2)
    assert (curvature.cols, curvature.damping) == (96, 0.2) and curvature.unit() > 0
    blob, predicted = tenfold.encode_calibrated(weights, curvature, bits=2.5)
    assert tenfold.encode(weights, bits=2.5, curvature=curvature) == blob
    assert curvature.loss(weights, tenfold.decode(blob)) == pytest.approx(predicted, rel=1e-6)
    assert "transposed" in tenfold.inspect(blob).transforms
    older, _ = tenfold.encode_calibrated(weights, curvature, bits=2.5, format="1.1")
    assert "transposed" not in tenfold.inspect(older).transforms
    blocks = tenfold.curvature([inputs[:40, :40], inputs[40:, 40:]])
    assert len(tenfold.encode_calibrated(weights, blocks, max_bytes=8000)[0]) <= 8000


def test_bad_input_is_refused():
    weights, inputs, outputs = layer()
    for bad, words in [
        (inputs[:, :50], "square"),
        (inputs[0], "square"),
        (np.where(np.eye(96) > 0, np.nan, inputs), "not finite"),
        (inputs + np.triu(np.full((96, 96), 1e6), 1), "not symmetric"),
    ]:
        with pytest.raises(tenfold.ArgumentError, match=words):
            tenfold.curvature(bad)
    with pytest.raises(tenfold.DtypeError):
        tenfold.curvature("inputs")
    with pytest.raises(tenfold.ArgumentError, match="96 inputs"):
        tenfold.encode_calibrated(weights[:, :50].copy(), inputs, bits=3)
    with pytest.raises(tenfold.ArgumentError, match="191 outputs"):
        tenfold.encode_calibrated(weights, inputs, outputs[1:], bits=3)
    with pytest.raises(tenfold.ArgumentError, match="damping"):
        tenfold.encode_calibrated(weights, inputs, damping=-1, bits=3)
    with pytest.raises(tenfold.ArgumentError, match="a curvature goes with"):
        tenfold.encode_calibrated(weights, inputs, max_error=0.1)
