"""Layers: a tensor and its residuals in one blob, and rounding to the nearest as a goal."""

import numpy as np
import pytest

import tenfold


@pytest.fixture
def gradient():
    return np.random.default_rng(3).standard_normal((64, 128)).astype(np.float32) * 0.01


def mse(x, y):
    return float(np.mean((x.astype(np.float64) - y.astype(np.float64)) ** 2))


def test_a_residual_halves_no_bits_but_the_error(gradient):
    plain = tenfold.encode(gradient, bits=3.5)
    blob = tenfold.encode(gradient, bits=3.5, residual={"bits": 3.5})
    info = tenfold.inspect(blob)
    assert (info.codec, info.dtype, info.shape, info.tiles) == ("layered", "float32", (64, 128), 2)
    assert sum(info.layers) + info.header_bytes == len(blob) == info.blob_bytes
    assert 6.8 < info.bits_per_value < 7.3
    assert "2 layers" in repr(info)
    fine, coarse = tenfold.decode(blob), tenfold.decode(blob, layers=1)
    assert np.array_equal(coarse, tenfold.decode(plain))
    assert mse(gradient, fine) < mse(gradient, coarse) / 50
    assert np.array_equal(tenfold.decode(blob, layers=7), fine)
    tenfold.verify(blob)


def test_rounding_keeps_to_half_a_space(gradient):
    for bits in (2, 4, 8, 12, 16):
        blob = tenfold.encode(gradient, round_bits=bits)
        bound = np.abs(gradient).max().astype(np.float64) / (2**bits - 2)
        off = np.abs(gradient.astype(np.float64) - tenfold.decode(blob)).max()
        assert off <= bound
    assert np.array_equal(tenfold.decode(tenfold.encode(np.zeros((40, 40)), round_bits=8)), np.zeros((40, 40)))


def test_a_residual_may_round(gradient):
    blob = tenfold.encode(gradient, bits=3.5, residual={"round_bits": 8})
    left = gradient - tenfold.decode(blob, layers=1)
    bound = np.abs(left).max().astype(np.float64) / 254
    assert np.abs(gradient - tenfold.decode(blob)).max() <= bound * 1.001


def test_several_layers_and_codecs(gradient):
    goals = [{"bits": 2}, {"mse": 1e-9}, {"max_error": 1e-6}]
    codec = tenfold.Codec(bits=2, residual=goals, effort="fast")
    blob = codec.encode(gradient)
    assert len(tenfold.inspect(blob).layers) == 4
    errors = [mse(gradient, codec.decode(blob, layers=n)) for n in (1, 2, 3, 4)]
    assert all(later < sooner for sooner, later in zip(errors, errors[1:], strict=False))
    assert errors[2] <= 1.01e-9
    room = bytearray(tenfold.max_encoded_len(gradient.dtype, gradient.shape, layers=4))
    assert codec.encode_into(gradient, room) == len(blob)
    assert bytes(room[: len(blob)]) == blob


def test_rows_out_and_dtypes(gradient):
    halves = gradient.astype(np.float16)
    halves[3, 5], halves[9, 0] = np.nan, -np.inf
    blob = tenfold.encode(halves, bits=3, residual={"bits": 3})
    whole = tenfold.decode(blob)
    assert whole.dtype == np.float16
    assert np.isnan(whole[3, 5]) and whole[9, 0] == -np.inf and np.isfinite(whole).sum() == whole.size - 2
    assert np.array_equal(tenfold.decode(blob, rows=slice(8, 20)), whole[8:20], equal_nan=True)
    one = tenfold.decode(blob, rows=slice(8, 20), layers=1)
    assert np.array_equal(one, tenfold.decode(blob, layers=1)[8:20], equal_nan=True)
    out = np.empty_like(halves)
    assert tenfold.decode(blob, out=out) is out and np.array_equal(out, whole, equal_nan=True)
    for shape in ((), (0, 4), (3,)):
        x = np.ones(shape, np.float64)
        assert np.array_equal(tenfold.decode(tenfold.encode(x, bits=3, residual={"bits": 3})), x)


def test_models_have_layers_too(tmp_path, gradient):
    path = tmp_path / "m.safetensors"
    tenfold.save({"w": gradient, "i": np.arange(8)}, path, bits=3, residual={"bits": 3})
    with tenfold.open(path) as model:
        assert model.info("w").blob.codec == "layered"
        assert mse(gradient, model["w"]) < 1e-6
        model.verify()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lossless": True, "residual": {"bits": 3}}, tenfold.ArgumentError),
        ({"residual": {"lossless": True}}, tenfold.ArgumentError),
        ({"residual": {}}, tenfold.ArgumentError),
        ({"residual": {"bits": None}}, tenfold.ArgumentError),
        ({"residual": {"effort": "fast"}}, tenfold.ArgumentError),
        ({"residual": {"bits": 3, "mse": 1}}, tenfold.ArgumentError),
        ({"residual": {"bits": -1}}, tenfold.ArgumentError),
        ({"residual": {"bits": "many"}}, tenfold.DtypeError),
        ({"residual": 3.5}, tenfold.DtypeError),
        ({"residual": "bits"}, tenfold.DtypeError),
        ({"residual": [3.5]}, tenfold.DtypeError),
        ({"residual": [{"bits": 2}] * 8}, tenfold.ArgumentError),
        ({"round_bits": 1}, tenfold.ArgumentError),
        ({"round_bits": 17}, tenfold.ArgumentError),
        ({"round_bits": 4.5}, tenfold.ArgumentError),
        ({"round_bits": 8, "bits": 3}, tenfold.ArgumentError),
        ({"round_bits": 8, "importance": np.ones(128)}, tenfold.ArgumentError),
        ({"round_bits": 8, "prepare": "means"}, tenfold.ArgumentError),
    ],
)
def test_what_cannot_be_asked_for(gradient, options, error):
    with pytest.raises(error):
        tenfold.encode(gradient, **options)


def test_other_refusals(gradient):
    with pytest.raises(tenfold.ArgumentError):
        tenfold.encode(np.arange(5000), bits=3, residual={"bits": 3})
    blob = tenfold.encode(gradient, bits=3, residual={"bits": 3})
    for layers in (0, -1):
        with pytest.raises(tenfold.ArgumentError):
            tenfold.decode(blob, layers=layers)
    for layers in (0, 9):
        with pytest.raises(tenfold.ArgumentError):
            tenfold.max_encoded_len("float32", (4, 4), layers=layers)
    for cut in range(0, len(blob), 97):
        with pytest.raises(tenfold.DataError):
            tenfold.decode(blob[:cut])
    with pytest.raises(tenfold.LimitError):
        tenfold.decode(blob, max_bytes=100)
