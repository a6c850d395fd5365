"""DLPack capsules that numpy cannot make: bfloat16, float8, offsets, strides, a version to come."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

import tenfold

BFLOAT, FLOAT8_E4M3FN, FLOAT8_E5M2 = 4, 10, 12


class DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DlTensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DlTensor),
    ]


class Handmade:
    """An object whose capsule is made field by field. It must outlive the capsule."""

    def __init__(self, array, code, bits, *, shape=None, strides=None, offset=0, version=None, lanes=1, device=1, flags=0):
        shape = array.shape if shape is None else shape
        self.array = array
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = DlTensor(
            array.ctypes.data, device, 0, len(shape), code, bits, lanes, self.shape, self.strides, offset
        )
        if version is None:
            self.managed, self.name = Managed(tensor, None, None), b"dltensor"
        else:
            self.managed, self.name = Versioned(version, 0, None, None, flags, tensor), b"dltensor_versioned"

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, max_version=None):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.managed), self.name, None)


@pytest.mark.parametrize("version", [None, 1])
@pytest.mark.parametrize(
    "name, code, bits", [("bfloat16", BFLOAT, 16), ("float8_e4m3fn", FLOAT8_E4M3FN, 8), ("float8_e5m2", FLOAT8_E5M2, 8)]
)
def test_small_floats(rng, name, code, bits, version):
    x = rng.standard_normal((32, 48)).astype(getattr(ml_dtypes, name))
    blob = tenfold.encode(Handmade(x, code, bits, version=version), bits=3)
    assert blob == tenfold.encode(x, bits=3)
    assert tenfold.inspect(blob).dtype == name


def test_offsets_and_strides():
    x = np.arange(40, dtype=np.float32)
    want = tenfold.encode(x[8:32].reshape(4, 6), lossless=True)
    assert tenfold.encode(Handmade(x, 2, 32, shape=(4, 6), offset=32), lossless=True) == want
    assert tenfold.encode(Handmade(x, 2, 32, shape=(4, 6), strides=(6, 1), offset=32), lossless=True) == want
    # The stride of a dimension of one means nothing.
    assert tenfold.decode(tenfold.encode(Handmade(x, 2, 32, shape=(1, 6), strides=(99, 1)), lossless=True)).shape == (1, 6)
    for strides in [(7, 1), (1, 4), (0, 1), (-6, 1)]:
        with pytest.raises(tenfold.ArgumentError, match="not contiguous"):
            tenfold.encode(Handmade(x, 2, 32, shape=(4, 6), strides=strides), lossless=True)


def test_what_is_refused():
    x = np.zeros(8, np.float32)
    for options in [{"shape": (-1,)}, {"shape": (1 << 62, 1 << 62)}, {"shape": (1,) * 65}]:
        with pytest.raises(tenfold.ArgumentError):
            tenfold.encode(Handmade(x, 2, 32, **options))
    for code, bits, lanes in [(5, 64, 1), (2, 32, 4), (3, 64, 1), (17, 4, 1)]:
        with pytest.raises(tenfold.DtypeError, match="does not store"):
            tenfold.encode(Handmade(x, code, bits, lanes=lanes))
    with pytest.raises(tenfold.UnsupportedError, match="version 2"):
        tenfold.encode(Handmade(x, 2, 32, version=2))
    with pytest.raises(tenfold.UnsupportedError, match="CPU"):
        tenfold.encode(Handmade(x, 2, 32, device=2))


def test_output():
    x = np.linspace(-2, 2, 600, dtype=np.float32).reshape(20, 30).astype(ml_dtypes.bfloat16)
    blob = tenfold.encode(x, lossless=True)
    room = np.zeros_like(x)
    out = Handmade(room, BFLOAT, 16, version=1)
    assert tenfold.decode(blob, out=out) is out
    assert room.tobytes() == x.tobytes()
    tenfold.decode(blob, rows=(3, 5), out=Handmade(room, BFLOAT, 16, shape=(2, 30), version=1))
    assert room[:2].tobytes() == x[3:5].tobytes()
    with pytest.raises(tenfold.ArgumentError, match="read-only"):
        tenfold.decode(blob, out=Handmade(room, BFLOAT, 16, version=1, flags=1))
    with pytest.raises(tenfold.UnsupportedError, match="numpy array over"):
        tenfold.decode(blob, out=Handmade(room, BFLOAT, 16))
    with pytest.raises(tenfold.DtypeError, match="float16.*bfloat16"):
        tenfold.decode(blob, out=Handmade(room, 2, 16, version=1))
    with pytest.raises(tenfold.ArgumentError, match=r"\(30, 20\).*\(20, 30\)"):
        tenfold.decode(blob, out=Handmade(room, BFLOAT, 16, shape=(30, 20), version=1))


def test_no_memory():
    x = Handmade(np.zeros(8, np.float32), 2, 32, offset=16)
    x.managed.tensor.data = None
    with pytest.raises(tenfold.ArgumentError, match="no memory"):
        tenfold.encode(x)
