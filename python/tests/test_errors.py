"""Bad input gives an exception of the right class that says what to do."""

import sys

import numpy as np
import pytest
from test_roundtrip import Foreign

import tenfold


def refuses(kind, text, call, *args, **options):
    with pytest.raises(kind, match=text) as caught:
        call(*args, **options)
    assert isinstance(caught.value, tenfold.Error)


def test_classes():
    for kind, parent in {
        tenfold.DataError: ValueError,
        tenfold.UnsupportedError: NotImplementedError,
        tenfold.ArgumentError: ValueError,
        tenfold.DtypeError: TypeError,
        tenfold.WrongBaseError: ValueError,
        tenfold.LimitError: ValueError,
        tenfold.MachineError: OSError,
        tenfold.NotFoundError: FileNotFoundError,
    }.items():
        assert issubclass(kind, tenfold.Error) and issubclass(kind, parent)


def test_not_contiguous(normal):
    for x in [normal.T, normal[::2], normal[:, 1:], normal[::-1]]:
        refuses(tenfold.ArgumentError, "np.ascontiguousarray", tenfold.encode, x)
        refuses(tenfold.ArgumentError, "contiguous", tenfold.encode, Foreign(x))
        tenfold.encode(np.ascontiguousarray(x))
    refuses(tenfold.ArgumentError, "np.ascontiguousarray", tenfold.encode, memoryview(b"abcdef")[::2], lossless=True)
    blob = tenfold.encode(normal)
    refuses(tenfold.ArgumentError, "contiguous", tenfold.decode, blob, out=np.empty((256, 128), np.float32).T)
    refuses(tenfold.DtypeError, "contiguous", tenfold.decode, np.frombuffer(blob, np.uint8)[::2])


def test_wrong_dtypes(normal):
    for x in [normal.astype(complex), np.array(["a"]), np.array([None]), np.zeros(3, "M8[s]"), np.zeros(3, "i4,f4")]:
        refuses(tenfold.DtypeError, "does not store", tenfold.encode, x, lossless=True)
    refuses(tenfold.DtypeError, "big-endian.*newbyteorder", tenfold.encode, normal.astype(">f4"))
    refuses(tenfold.DtypeError, "filled", tenfold.encode, np.ma.masked_array(normal))
    refuses(tenfold.ArgumentError, "lossless", tenfold.encode, np.arange(10))
    for x in [None, [1.0, 2.0], {}, "text", object()]:
        refuses(tenfold.DtypeError, "is not a tensor", tenfold.encode, x)
    refuses(tenfold.DtypeError, "4 bytes.*2", tenfold.encode, normal, dtype="bfloat16")
    refuses(tenfold.DtypeError, "does not store", tenfold.encode, normal, dtype="float128x")
    refuses(tenfold.DtypeError, "not a dtype", tenfold.encode, normal, dtype=7.5)


def test_devices(normal):
    refuses(tenfold.UnsupportedError, r"x\.cpu\(\)", tenfold.encode, Foreign(normal, device=(2, 0)))


def test_bad_dlpack(normal):
    class Broken:
        def __init__(self, answer):
            self.answer = answer

        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    refuses(tenfold.DtypeError, "no capsule", tenfold.encode, Broken(3))
    refuses(tenfold.ArgumentError, "cannot be shared: grad.*detach", tenfold.encode, Broken(BufferError("grad")))
    used = normal.__dlpack__()
    np.from_dlpack(Broken(used))
    refuses(tenfold.ArgumentError, "cannot be shared", tenfold.encode, Broken(used))

    class Nowhere(Broken):
        def __dlpack_device__(self):
            raise ValueError("Unknown device type meta")

    refuses(tenfold.ArgumentError, "meta.*on the CPU", tenfold.encode, Nowhere(None))


def test_goals(normal):
    refuses(tenfold.ArgumentError, "one goal at a time: bits, nmse", tenfold.encode, normal, bits=2, nmse=0.1)
    for goal in ["bits", "ratio", "mse", "nmse", "max_error", "step"]:
        for value in [0, -1, float("nan"), float("inf")]:
            refuses(tenfold.ArgumentError, "positive, finite", tenfold.Codec, **{goal: value})
    for value in [-1, 0.5, float("nan"), 1e300]:
        refuses(tenfold.ArgumentError, "whole number", tenfold.Codec, max_bytes=value)
    refuses(tenfold.DtypeError, "must be a number", tenfold.Codec, bits="many")
    refuses(tenfold.ArgumentError, '"fast", "balanced" or "best"', tenfold.Codec, effort="most")
    refuses(tenfold.ArgumentError, "negative", tenfold.Codec, threads=-1)
    refuses(tenfold.ArgumentError, "between 32 and 65536", tenfold.Codec, lane_values=5)
    for version in ("", "1", "1.9", "2.0"):
        refuses(tenfold.ArgumentError, "format must be 1.0 or 1.1 or 1.2", tenfold.Codec, format=version)
    refuses(tenfold.LimitError, "does not fit into 10 bytes", tenfold.encode, normal, max_bytes=10)


def test_output(normal):
    blob = tenfold.encode(normal, bits=3)
    refuses(tenfold.ArgumentError, r"shape \(3,\)", tenfold.decode, blob, out=np.empty(3, np.float32))
    refuses(tenfold.DtypeError, "float64.*float32", tenfold.decode, blob, out=np.empty(normal.shape))
    refuses(tenfold.DtypeError, "numpy array", tenfold.decode, blob, out=bytearray(131072))
    refuses(tenfold.ArgumentError, "contiguous", tenfold.decode, blob, out=np.empty((128, 512), np.float32)[:, ::2])
    fixed = np.empty_like(normal)
    fixed.flags.writeable = False
    refuses(tenfold.ArgumentError, "read-only", tenfold.decode, blob, out=fixed)
    refuses(tenfold.ArgumentError, "exclude each other", tenfold.decode, blob, out=np.empty_like(normal), dtype="f4")
    both = np.zeros(131072, np.uint8)
    both[: len(blob)] = np.frombuffer(blob, np.uint8)
    refuses(tenfold.ArgumentError, "share memory", tenfold.decode, both[: len(blob)], out=both.view("f4").reshape(128, 256))


def test_room(normal):
    codec = tenfold.Codec(bits=3)
    need = len(codec.encode(normal))
    refuses(tenfold.ArgumentError, f"has 100 bytes but needs {need}", codec.encode_into, normal, bytearray(100))
    refuses(tenfold.ArgumentError, "read-only", codec.encode_into, normal, bytes(need))
    refuses(tenfold.DtypeError, "a blob must be bytes", codec.encode_into, normal, np.empty(need))
    refuses(tenfold.DtypeError, "writable buffer", codec.encode_into, normal, "text")
    refuses(tenfold.ArgumentError, "share memory", codec.encode_into, normal, normal.view(np.uint8).reshape(-1))


def test_rows(normal):
    blob = tenfold.encode(normal, bits=3)
    for rows in [(0, 129), 128, -129, range(-1, 3)]:
        refuses(tenfold.ArgumentError, "128 rows", tenfold.decode, blob, rows=rows)
    refuses(tenfold.ArgumentError, "step of 2", tenfold.decode, blob, rows=slice(0, 10, 2))
    refuses(tenfold.DtypeError, "must be a slice", tenfold.decode, blob, rows="all")


def test_limits(normal):
    blob = tenfold.encode(normal, bits=3)
    refuses(tenfold.LimitError, "raise max_bytes", tenfold.decode, blob, max_bytes=1000)


def test_blobs():
    for blob in [b"", b"TENF", b"\0" * 100, bytearray(), bytearray(b"nonsense" * 9)]:
        refuses(tenfold.DataError, None, tenfold.decode, blob)
        refuses(tenfold.DataError, None, tenfold.inspect, blob)
    for blob in [None, 7, "text", [1, 2]]:
        refuses(tenfold.DtypeError, "a blob must be bytes", tenfold.decode, blob)


@pytest.mark.parametrize("options", [{"bits": 3}, {"lossless": True}])
def test_every_damage_is_found(rng, options):
    x = rng.standard_normal((20, 30)).astype(np.float32)
    blob = tenfold.encode(x, **options)
    for cut in range(len(blob)):
        refuses(tenfold.Error, None, tenfold.decode, blob[:cut])
    for at in range(len(blob)):
        bad = bytearray(blob)
        bad[at] ^= 1 << at % 8
        refuses(tenfold.Error, None, tenfold.decode, bad)
    refuses(tenfold.DataError, None, tenfold.decode, blob + b"x")


def test_without_ml_dtypes(monkeypatch):
    import ml_dtypes

    blob = tenfold.encode(np.ones((8, 8), ml_dtypes.bfloat16), lossless=True)
    small = tenfold.encode(np.ones((8, 8), ml_dtypes.float8_e5m2), lossless=True)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.warns(tenfold.RawDtypeWarning, match="uint16.*ml_dtypes"):
        assert tenfold.decode(blob).dtype == np.uint16
    assert tenfold.decode(blob, dtype="raw").dtype == np.uint16
    assert (tenfold.decode(blob, dtype="float32") == 1).all()
    refuses(tenfold.UnsupportedError, "ml_dtypes", tenfold.decode, small, dtype="float32")
    refuses(tenfold.UnsupportedError, "ml_dtypes", tenfold.decode, blob, dtype="float8_e5m2")
