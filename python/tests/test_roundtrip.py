"""What goes in comes back, for every dtype, shape and goal."""

import array
import ctypes
import mmap

import ml_dtypes
import numpy as np
import pytest

import tenfold

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
INTEGERS = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
SHAPES = [(), (1,), (0,), (5, 0, 3), (7,), (33, 65), (3, 5, 7, 11), (300, 400)]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def make(rng, name, shape):
    if name in FLOATS:
        return np.asarray(rng.standard_normal(shape)).astype(dtype_of(name))
    if name == "bool":
        return np.asarray(rng.random(shape) < 0.3)
    return np.asarray(rng.integers(0, 100, shape)).astype(name)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FLOATS + INTEGERS)
def test_lossless_is_exact(rng, name, shape):
    x = make(rng, name, shape)
    y = tenfold.decode(tenfold.encode(x, lossless=True))
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert y.tobytes() == x.tobytes()
    assert y.flags.c_contiguous and y.flags.writeable and y.flags.owndata


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("effort", ["fast", "balanced", "best"])
def test_lossy_keeps_most_of_it(rng, name, effort):
    x = make(rng, name, (128, 256))
    y = tenfold.decode(tenfold.encode(x, bits=3, effort=effort))
    a, b = x.astype(np.float64), y.astype(np.float64)
    assert np.mean((a - b) ** 2) < 0.03 * np.var(a)


def test_default_goal(normal):
    x = np.tile(normal, (8, 1))
    assert abs(tenfold.inspect(tenfold.encode(x)).bits_per_value - 2.5) < 0.02 * 2.5


def test_goals(normal):
    def error(blob):
        return np.abs(tenfold.decode(blob).astype(np.float64) - normal)

    assert tenfold.inspect(tenfold.encode(normal, ratio=10)).ratio == pytest.approx(10, rel=0.02)
    assert np.mean(error(tenfold.encode(normal, mse=0.01)) ** 2) <= 0.01
    assert np.mean(error(tenfold.encode(normal, nmse=0.02)) ** 2) <= 0.02 * np.var(normal)
    assert error(tenfold.encode(normal, max_error=0.05)).max() <= 0.05
    assert len(tenfold.encode(normal, max_bytes=9000)) <= 9000
    assert tenfold.inspect(tenfold.encode(normal, step=0.25)).step == pytest.approx(0.25)


def test_blobs_for_older_readers():
    x = np.random.default_rng(3).standard_normal((160, 256), dtype=np.float32)
    newest, older = tenfold.encode(x, bits=2.5), tenfold.encode(x, bits=2.5, format="1.0")
    # The codec, as docs/format.md has it: pairs, levels.
    assert (newest[5], older[5]) == (5, 2)
    assert tenfold.encode(x, bits=2.5, format="1.1") == newest
    assert np.mean((tenfold.decode(newest) - tenfold.decode(older)) ** 2) < 0.2


def test_threads_and_lanes_do_not_change_values(normal):
    blob = tenfold.encode(normal, bits=3, threads=1, lane_values=64)
    assert blob == tenfold.encode(normal, bits=3, threads=3, lane_values=64)
    assert np.array_equal(tenfold.decode(blob, threads=1), tenfold.decode(blob, threads=2))
    assert tenfold.inspect(blob).tiles > tenfold.inspect(tenfold.encode(normal, bits=3)).tiles


def test_special_values_stay():
    x = np.linspace(-1, 1, 5000, dtype=np.float32)
    x[[3, 700, 4999]] = [np.nan, np.inf, -np.inf]
    y = tenfold.decode(tenfold.encode(x, bits=4))
    assert np.isnan(y[3]) and y[700] == np.inf and y[4999] == -np.inf
    assert np.isfinite(np.delete(y, [3, 700, 4999])).all()


def test_raw_views(rng):
    x = make(rng, "bfloat16", (64, 80))
    raw = x.view(np.uint16)
    want = tenfold.encode(x, bits=3)
    assert tenfold.encode(raw, bits=3, dtype="bfloat16") == want
    assert tenfold.encode(raw, bits=3, dtype=ml_dtypes.bfloat16) == want
    assert tenfold.encode(x.view("V2"), bits=3, dtype="bf16") == want
    decoded = tenfold.decode(want, dtype="raw")
    assert decoded.dtype == np.uint16
    assert np.array_equal(decoded, tenfold.decode(want).view(np.uint16))
    out = np.empty((64, 80), np.uint16)
    tenfold.decode(want, out=out)
    assert np.array_equal(out, decoded)


def test_conversion(rng):
    blob = tenfold.encode(make(rng, "bfloat16", (64, 80)), bits=5)
    own = tenfold.decode(blob)
    for wanted in ["float32", np.float64, np.float16]:
        got = tenfold.decode(blob, dtype=wanted)
        assert got.dtype == np.dtype(wanted) and np.array_equal(got, own.astype(wanted))
    assert tenfold.decode(blob, dtype="bfloat16").dtype == own.dtype


def test_rows(rng):
    x = rng.standard_normal((6, 50, 40)).astype(np.float32)
    blob = tenfold.encode(x, bits=4, lane_values=32)
    whole = tenfold.decode(blob).reshape(300, 40)
    for rows in [slice(10, 12), slice(None), slice(-3, None), range(7, 9), (0, 300), (5, 5), 17, -1]:
        got = tenfold.decode(blob, rows=rows)
        index = slice(*rows) if isinstance(rows, tuple) else rows
        want = whole[np.atleast_1d(np.arange(300)[index])]
        assert got.shape == want.shape and np.array_equal(got, want), rows
    out = np.empty((2, 40), np.float32)
    assert tenfold.decode(blob, rows=(3, 5), out=out) is out
    assert np.array_equal(out, whole[3:5])


def test_buffers(normal):
    want = tenfold.encode(normal.reshape(-1), bits=3)
    values = array.array("f", normal.reshape(-1).tolist())
    assert tenfold.encode(values, bits=3) == want
    assert tenfold.encode(memoryview(values), bits=3) == want
    assert tenfold.encode((ctypes.c_float * len(values))(*values), bits=3) == want
    assert np.array_equal(tenfold.decode(tenfold.encode(b"bytes are integers", lossless=True)), list(b"bytes are integers"))

    plain = tenfold.decode(want)
    page = mmap.mmap(-1, len(want))
    page.write(want)
    for blob in [bytearray(want), memoryview(want), np.frombuffer(want, np.uint8), page]:
        assert np.array_equal(tenfold.decode(blob), plain)
        assert tenfold.inspect(blob).blob_bytes == len(want)


class Foreign:
    """A tensor of another library, as far as DLPack goes."""

    def __init__(self, values, device=(1, 0), old=False):
        self.values, self.device, self.old = values, device, old

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if self.old and options:
            raise TypeError("unexpected keyword")
        return self.values.__dlpack__(**options)


@pytest.mark.parametrize("old", [False, True])
def test_dlpack(normal, old):
    assert tenfold.encode(Foreign(normal, old=old), bits=3) == tenfold.encode(normal, bits=3)
    for name in ["float64", "float16", *INTEGERS]:
        x = np.arange(24).reshape(2, 3, 4).astype(name)
        y = tenfold.decode(tenfold.encode(Foreign(x, old=old), lossless=True))
        assert y.dtype == x.dtype and np.array_equal(x, y)
    assert tenfold.decode(tenfold.encode(Foreign(np.zeros((0, 4)), old=old), lossless=True)).shape == (0, 4)
    assert tenfold.decode(tenfold.encode(Foreign(np.array(3, np.float32), old=old), lossless=True)) == 3


def test_codec(normal):
    codec = tenfold.Codec(nmse=0.01, effort="fast", threads=1)
    assert codec.encode(normal) == tenfold.encode(normal, nmse=0.01, effort="fast")
    blob = codec.encode(normal)
    assert np.array_equal(codec.decode(blob, rows=2), tenfold.decode(blob)[2:3])
    assert repr(codec) == "Codec(nmse=0.01, effort='fast')"
    assert repr(tenfold.Codec(lossless=True)) == "Codec(lossless=True, effort='balanced')"


def test_a_settled_codec_is_like_its_own(normal):
    """Goals are met, and bytes follow from the tensor and the codec, whatever was encoded before."""
    first, later = normal[:64], normal[64:] * np.float32(1.1)
    codec = tenfold.Codec(bits=3, effort="fast")
    settled = codec.settle(first)
    assert repr(settled) == repr(codec)
    blob = settled.encode(later)
    assert 2.95 < len(blob) * 8 / later.size < 3.05
    settled.encode(first)
    assert settled.encode(later) == blob
    error = [float(np.mean((later - tenfold.decode(b)) ** 2)) for b in (codec.encode(later), blob)]
    assert error[1] < error[0] * 1.1
    # Other columns are planned afresh.
    other = later.reshape(128, 128)
    assert settled.encode(other) == codec.encode(other)


def test_what_has_no_plan_is_refused(normal):
    with pytest.raises(tenfold.ArgumentError, match="need no plan"):
        tenfold.Codec(bits=3).settle(np.arange(64))
    with pytest.raises(tenfold.ArgumentError, match="one layer"):
        tenfold.Codec(bits=3, residual={"bits": 3}).settle(normal)


def test_encode_into(normal):
    codec = tenfold.Codec(bits=3)
    blob = codec.encode(normal)
    worst = tenfold.max_encoded_len(normal.dtype, normal.shape)
    page = mmap.mmap(-1, worst)
    for room in [bytearray(worst), np.zeros(worst, np.uint8), memoryview(bytearray(worst))[8:], page]:
        written = codec.encode_into(normal, room)
        assert bytes(memoryview(room)[:written]) == blob
    exact = bytearray(len(blob))
    assert codec.encode_into(normal.view(np.uint32), exact, dtype="float32") == len(blob) and exact == blob


def test_inspect(normal):
    info = tenfold.inspect(tenfold.encode(normal, bits=3))
    assert (info.dtype, info.shape, info.size, info.nbytes, info.rows) == ("float32", (128, 256), 32768, 131072, 128)
    assert (info.codec, info.states, info.version) == ("lossy", 8, tenfold.FORMAT_VERSION)
    assert info.ratio == pytest.approx(32 / info.bits_per_value)
    assert "float32 (128, 256), lossy" in repr(info) and "8 states" in repr(info)
    assert tenfold.inspect(tenfold.encode(normal, lossless=True)).step is None


def test_worst_case_size(rng):
    noise = rng.integers(0, 1 << 32, 10000, dtype=np.uint32).view(np.float32)
    assert len(tenfold.encode(noise, lossless=True)) <= tenfold.max_encoded_len(noise.dtype, noise.shape)
