"""Importance of columns: what it does to errors, where it can be given, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tenfold


def matrix(seed: int = 0, shape: tuple[int, int] = (256, 64)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def halves(columns: int = 64) -> np.ndarray:
    """The second half of the columns counts a hundred times as much as the first."""
    return np.where(np.arange(columns) < columns // 2, 1.0, 100.0)


def errors(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Squared errors of the two halves."""
    squares = np.square(before - after)
    half = before.shape[1] // 2
    return float(squares[:, :half].mean()), float(squares[:, half:].mean())


def test_columns_that_count_more_are_off_by_less():
    x = matrix()
    for importance in (halves(), halves().tolist(), halves().astype(np.float32)):
        blob = tenfold.encode(x, bits=3, importance=importance)
        low, high = errors(x, tenfold.decode(blob))
        assert 60 < low / high < 160
        assert abs(len(blob) * 8 / x.size / 3 - 1) < 0.01
    info = tenfold.inspect(blob)
    assert info.transforms == ["column weights"] and "column weights" in repr(info)
    assert tenfold.inspect(tenfold.encode(x, bits=3)).transforms == []


def test_a_codec_keeps_it():
    x, codec = matrix(), tenfold.Codec(bits=3, importance=halves())
    assert codec.encode(x) == tenfold.encode(x, bits=3, importance=halves())
    room = np.empty(tenfold.max_encoded_len("float32", x.shape), np.uint8)
    assert room[: codec.encode_into(x, room)].tobytes() == codec.encode(x)


def test_odd_values_and_rows_come_back():
    x = matrix()
    x[3, 5], x[200, 60] = np.nan, -np.inf
    blob = tenfold.encode(x, bits=4, importance=halves())
    back = tenfold.decode(blob)
    assert np.isnan(back[3, 5]) and back[200, 60] == -np.inf
    assert np.array_equal(np.isfinite(back), np.isfinite(x))
    assert np.array_equal(tenfold.decode(blob, rows=slice(190, 210)), back[190:210], equal_nan=True)
    assert tenfold.inspect(blob).transforms == ["kept elements", "column weights"]


@pytest.mark.parametrize("alloc", ["equal", "step", "ramp=0.2"])
def test_files_take_vectors_or_a_file(tmp_path: Path, alloc: str):
    tensors = {"layers.0.weight": matrix(1), "layers.1.weight": matrix(2)}
    vectors = {"layers.0.weight": halves()}
    tenfold.save({"layers.0.weight": halves()}, tmp_path / "channels.safetensors", lossless=True)
    for name, importance in (("a", vectors), ("b", tmp_path / "channels.safetensors")):
        path = tmp_path / f"{name}.safetensors"
        report = tenfold.save(tensors, path, bits=3, alloc=alloc, importance=importance)
        assert abs(report.bits_per_value / 3 - 1) < 0.02
        back = tenfold.load(path)
        low, high = errors(tensors["layers.0.weight"], back["layers.0.weight"])
        assert low > 30 * high
        low, high = errors(tensors["layers.1.weight"], back["layers.1.weight"])
        assert low < 1.5 * high
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_mistakes_are_named(tmp_path: Path):
    x = matrix()
    cases = [
        (dict(importance=np.ones(63)), tenfold.ArgumentError, "64"),
        (dict(importance=np.ones((64, 1))), tenfold.ArgumentError, "one dimension"),
        (dict(importance=-np.ones(64)), tenfold.ArgumentError, "-1"),
        (dict(importance=np.full(64, np.nan)), tenfold.ArgumentError, "NaN"),
        (dict(importance="many"), tenfold.DtypeError, "numbers"),
        (dict(importance=np.ones(64), lossless=True), tenfold.ArgumentError, "lossless"),
        (dict(importance=np.ones(64), max_error=0.1), tenfold.ArgumentError, "max_error"),
    ]
    for options, error, says in cases:
        with pytest.raises(error, match=says):
            tenfold.encode(x, **options)
    with pytest.raises(tenfold.ArgumentError, match="none of the 1 tensors"):
        tenfold.save({"a": x}, tmp_path / "a.safetensors", importance={"b": np.ones(64)})
    with pytest.raises(tenfold.ArgumentError, match="64 columns"):
        tenfold.save({"a": x}, tmp_path / "a.safetensors", importance={"a": np.ones(60)})
    with pytest.raises(OSError):
        tenfold.save({"a": x}, tmp_path / "a.safetensors", importance=tmp_path / "missing.safetensors")
    assert list(tmp_path.iterdir()) == []
