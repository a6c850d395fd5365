"""Pages of a key-value cache and hidden states, with bases and without."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tenfold.kv
from tenfold import _native

LAYERS, HEADS, DIM = 4, 2, 16
ROPE = {"head": DIM, "base": 10000.0}


def captured(tokens: int, seed: int) -> dict[str, np.ndarray]:
    """Rows whose columns have means and move together, across layers too."""
    rng = np.random.default_rng(7)
    mix = rng.standard_normal((LAYERS * 3, 6, HEADS * DIM))
    means = 3 * rng.standard_normal((LAYERS * 3, HEADS * DIM))
    common = np.random.default_rng(seed).standard_normal((tokens, 6))
    noise = np.random.default_rng(seed + 1).standard_normal((LAYERS * 3, tokens, HEADS * DIM))
    rows = (common @ mix + means[:, None] + 0.1 * noise).astype(np.float32)
    names = [f"layers.{layer}.{kind}" for layer in range(LAYERS) for kind in ("k_before_rope", "v", "hidden")]
    return dict(zip(names, rows))


def turned(keys: np.ndarray, first: int) -> np.ndarray:
    """Keys as the attention has them: halves of each head turned to their positions."""
    heads = keys.reshape(len(keys), HEADS, DIM).astype(np.float64)
    half = DIM // 2
    angles = (first + np.arange(len(keys)))[:, None] * 10000.0 ** (-2 * np.arange(half) / DIM)
    a, b = heads[..., :half], heads[..., half:]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(np.float32)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("bases")
    tenfold.save(captured(600, 1), folder / "rows.safetensors", lossless=True, include=["*"])
    out = folder / "model.basis"
    rope = f"base=10000,head={DIM}"
    fit = ["tenfold", "basis", "fit", str(folder / "rows.safetensors"), "--out", str(out)]
    assert _native.main([*fit, "--rope", rope, "--group", "2"]) == 0
    return out


def page_of(tokens: int = 64, first: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rows = captured(tokens, 100 + first)
    keys = [turned(rows[f"layers.{layer}.k_before_rope"], first) for layer in range(LAYERS)]
    return keys, [rows[f"layers.{layer}.v"] for layer in range(LAYERS)]


def nmse(was: np.ndarray, back: np.ndarray) -> float:
    was = was.reshape(back.shape)
    return float(np.mean((was - back) ** 2) / np.var(was))


def test_bases_make_pages_smaller(bases: pathlib.Path) -> None:
    opened = tenfold.kv.Bases.open(bases)
    assert opened.layers == LAYERS and opened.groups == [(0, 2), (2, 2)] and opened.head_dim == DIM
    assert opened.nbytes == bases.stat().st_size and opened.model is None
    keys, values = page_of(first=300)
    for cap in (1500, 4000):
        errors = []
        for codec in (tenfold.kv.PageCodec(opened), tenfold.kv.PageCodec(layers=LAYERS, group=2, rope=ROPE)):
            page = codec.encode(keys, values, position=300, max_bytes=cap)
            assert len(page) <= cap
            back = [codec.decode_layer(page, layer) for layer in range(LAYERS)]
            errors.append(sum(nmse(k, b[0]) + nmse(v, b[1]) for k, v, b in zip(keys, values, back)))
        assert errors[0] < errors[1] / 3


def test_many_pages_and_parts(bases: pathlib.Path) -> None:
    codec = tenfold.kv.PageCodec(bases, exact=(1, 2), effort="fast")
    pages = [(*page_of(32, 32 * i), 32 * i) for i in range(8)]
    made = codec.encode_many(pages, bits=7)
    info = codec.inspect(made[3])
    assert (info.tokens, info.layers, info.exact, info.nbytes) == (32, LAYERS, (1, 2), len(made[3]))
    outs = [(np.empty((32, HEADS, DIM), np.float32), np.empty((32, HEADS, DIM), np.float32)) for _ in made]
    codec.decode_layers(made, 1, outs)
    for (keys, values, _), (k, v) in zip(pages, outs):
        assert nmse(keys[1], k) < 0.05 and nmse(values[1].reshape(v.shape), v) < 0.05
        assert (k[0] == keys[1][0]).all() and (k[-2:] == keys[1][-2:]).all()
    part = codec.part(1)
    assert part.layers == 2 and codec.groups == [(0, 2), (2, 2)]
    keys, values, first = pages[2]
    listed = part.encode(keys[2:], values[2:], positions=range(first, first + 32), step=0.05)
    assert nmse(keys[3], part.decode_layer(listed, 1)[0].reshape(keys[3].shape)) < 0.01
    lossless = part.encode(keys[2:], values[2:], position=first, lossless=True)
    assert (part.decode_layer(lossless, 0)[1] == values[2]).all()


def test_hidden_states_with_outliers(bases: pathlib.Path) -> None:
    states = captured(256, 50)["layers.2.hidden"].reshape(4, 64, HEADS * DIM)
    states[1, 3, 5] = 750 * states.std()
    states[2, 0, 0] = np.nan
    codec = tenfold.kv.HiddenCodec(bases, 2)
    blob = codec.encode(states, bits=3.5)
    assert len(blob) * 8 < 3.6 * states.size
    back = codec.decode(blob)
    assert np.isnan(back[2, 0, 0]) and abs(back[1, 3, 5] / states[1, 3, 5] - 1) < 0.01
    fine = np.isfinite(states) & (np.abs(states) < 100)
    assert np.mean((back - states)[fine] ** 2) / np.var(states[fine]) < 0.01
    out = np.empty_like(states)
    assert codec.decode(blob, out=out) is out and np.array_equal(out, back, equal_nan=True)


def test_bad_input(bases: pathlib.Path, tmp_path: pathlib.Path) -> None:
    keys, values = page_of(16)
    codec = tenfold.kv.PageCodec(bases)
    page = codec.encode(keys, values, position=0, bits=4)
    other = tenfold.kv.PageCodec(layers=LAYERS)
    damaged = tmp_path / "damaged.basis"
    damaged.write_bytes(bases.read_bytes()[:-100])
    empty = [np.empty((0, HEADS * DIM), np.float32)] * LAYERS
    for error, text, work in [
        (tenfold.ArgumentError, "rotary positions", lambda: codec.encode(keys, values, bits=4)),
        (tenfold.ArgumentError, "negative", lambda: codec.encode(keys, values, position=-1)),
        (tenfold.ArgumentError, "3 positions", lambda: codec.encode(keys, values, positions=[1, 2, 3])),
        (tenfold.ArgumentError, "layers", lambda: codec.encode(keys[:2], values[:2], position=0)),
        (tenfold.ArgumentError, "goal", lambda: codec.encode(keys, values, position=0, nmse=0.1)),
        (tenfold.ArgumentError, "at least one token", lambda: codec.encode(empty, empty, position=0)),
        (tenfold.ArgumentError, "layer 9", lambda: codec.decode_layer(page, 9)),
        (tenfold.ArgumentError, "basis", lambda: other.decode_layer(page, 0)),
        (tenfold.ArgumentError, "either bases or", lambda: tenfold.kv.PageCodec()),
        (tenfold.ArgumentError, "head and base", lambda: tenfold.kv.PageCodec(layers=1, rope={"head": 8})),
        (tenfold.ArgumentError, "group 2", lambda: codec.part(2)),
        (tenfold.ArgumentError, "hidden", lambda: tenfold.kv.HiddenCodec(bases, 77)),
        (tenfold.LimitError, "does not fit", lambda: codec.encode(keys, values, position=0, max_bytes=50)),
        (tenfold.DataError, "truncated", lambda: codec.decode_layer(page[:-4], 3)),
        (tenfold.UnsupportedError, "version", lambda: codec.inspect(b"TNFPnonsense")),
        (tenfold.DataError, "damaged", lambda: tenfold.kv.Bases.open(damaged)),
        (tenfold.NotFoundError, "none.basis", lambda: tenfold.kv.Bases.open(tmp_path / "none.basis")),
    ]:
        with pytest.raises(error, match=text):
            work()
    with pytest.raises(tenfold.Error):
        codec.decode_layer(page, 0, keys=np.empty((16, 5), np.float32))


def test_steps_by_name() -> None:
    rng = np.random.default_rng(0)
    x = (5 * rng.standard_normal(64) + rng.standard_normal((512, 64))).astype(np.float32)
    plain, means, auto = (tenfold.encode(x, nmse=1e-3, prepare=p) for p in ("none", "means", "auto"))
    assert len(means) < 0.85 * len(plain) and len(auto) <= 1.01 * len(means)
    assert np.mean((tenfold.decode(auto) - x) ** 2) / np.var(x) <= 1.01e-3
    for bad in ("meens", "rope", "dct:12"):
        with pytest.raises(tenfold.ArgumentError):
            tenfold.encode(x, prepare=bad)
    with pytest.raises(tenfold.ArgumentError, match="importance"):
        tenfold.encode(x, prepare="means", importance=np.ones(64))
