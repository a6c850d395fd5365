"""Deltas of arrays: what changed, applied in place, bit for bit; what a delta does not belong to stays as it is."""

import threading

import ml_dtypes
import numpy as np
import pytest

import tenfold
from tenfold import delta

FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
INTEGERS = [np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64]


def versions(rng, dtype, shape=(96, 128)):
    """Two versions of an array of which a tenth differs."""
    make = lambda: (rng.standard_normal(shape) * 40).astype(dtype) if dtype != np.bool_ else rng.random(shape) < 0.5  # noqa: E731
    base, other = make(), make()
    return base, np.where(rng.random(shape) < 0.1, other, base).astype(dtype)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_roundtrip(rng, dtype):
    base, new = versions(rng, dtype)
    kept = base.copy()
    blob = delta.make(base, new)
    info = delta.inspect(blob)
    assert (info.dtype, info.shape, info.size) == (np.dtype(dtype).name, base.shape, base.size)
    assert (info.base, info.result) == (delta.fingerprint(base), delta.fingerprint(new))
    assert info.nbytes == base.nbytes and info.blob_bytes == len(blob) and info.tiles > 0
    assert same(delta.apply(base, blob), new) and same(base, kept)
    assert delta.apply_(base, blob) == (info.changed, 0)
    assert same(base, new)
    assert delta.apply_(base, blob) == delta.Applied(written=0, before=info.changed)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (1,), (7,), (2, 3, 4, 5)], ids=str)
def test_shapes(rng, shape):
    base, new = np.zeros(shape, np.float32), rng.standard_normal(shape).astype(np.float32)
    assert same(delta.apply(base, delta.make(base, new)), new)


def test_nothing_changed(normal):
    blob = delta.make(normal, normal)
    assert len(blob) < 100 and delta.inspect(blob).changed == 0
    assert delta.apply_(normal, blob) == (0, 0)


def test_raw_bits(rng):
    base, new = versions(rng, ml_dtypes.bfloat16)
    blob = delta.make(base.view(np.uint16), new.view(np.uint16), dtype="bfloat16")
    assert blob == delta.make(base, new)
    assert delta.fingerprint(base.view(np.uint16), dtype="bfloat16") == delta.inspect(blob).base
    raw = base.view(np.uint16).copy()
    delta.apply_(raw, blob)
    assert same(raw.view(ml_dtypes.bfloat16), new)
    flat = np.frombuffer(bytearray(base.tobytes()), np.uint8)
    delta.apply_(flat, blob)
    assert flat.tobytes() == new.tobytes()


def test_another_base_stays_as_it_is(rng):
    base, new = versions(rng, np.float32)
    blob = delta.make(base, new)
    for other in [new * 2, np.zeros_like(base), np.where(np.arange(base.size).reshape(base.shape) == 5, 9, base)]:
        kept = other.copy()
        with pytest.raises(tenfold.WrongBaseError, match="fingerprint.*another base, or another delta") as caught:
            delta.apply_(other, blob)
        assert isinstance(caught.value, tenfold.ArgumentError)
        assert same(other, kept)


def test_deltas_in_another_order(rng):
    first, second = versions(rng, np.float32)
    _, third = versions(rng, np.float32)
    one, two = delta.make(first, second), delta.make(second, third)
    state = first.copy()
    with pytest.raises(tenfold.WrongBaseError):
        delta.apply_(state, two)
    delta.apply_(state, one)
    delta.apply_(state, two)
    assert same(state, third)
    with pytest.raises(tenfold.WrongBaseError):
        delta.apply_(state, one)


def test_values_that_do_not_change_need_not_be_read(rng):
    base, new = versions(rng, np.float32)
    blob = delta.make(base, new)
    unchanged = np.argwhere((base == new).ravel())[0, 0]
    base.ravel()[unchanged] += 1
    with pytest.raises(tenfold.WrongBaseError):
        delta.apply_(base, blob)
    assert delta.apply_(base, blob, verify="touched").written > 0
    assert base.ravel()[unchanged] != new.ravel()[unchanged]


def test_every_damage_is_found(rng):
    base, new = versions(rng, np.float32, (20, 30))
    blob, kept = delta.make(base, new), base.copy()
    for cut in range(len(blob)):
        with pytest.raises(tenfold.Error):
            delta.apply_(base, blob[:cut])
    for at in range(len(blob)):
        bad = bytearray(blob)
        bad[at] ^= 1 << at % 8
        with pytest.raises(tenfold.Error):
            delta.apply_(base, bad)
    assert same(base, kept)


def test_refusals(normal):
    blob = delta.make(normal, normal + 1)
    for call in (delta.make, lambda a, b: delta.make(b, a)):
        with pytest.raises(tenfold.ArgumentError, match="one dtype and shape"):
            call(normal, normal.astype(np.float64))
        with pytest.raises(tenfold.ArgumentError, match="one dtype and shape"):
            call(normal, normal[:64])
        with pytest.raises(tenfold.DtypeError, match="is not a tensor"):
            call(normal, [1, 2])
    with pytest.raises(tenfold.ArgumentError, match="contiguous"):
        delta.apply_(normal.T, blob)
    with pytest.raises(tenfold.ArgumentError, match="shape"):
        delta.apply_(normal.reshape(-1), blob)
    with pytest.raises(tenfold.DtypeError, match="float64"):
        delta.apply_(normal.astype(np.float64), blob)
    with pytest.raises(tenfold.ArgumentError, match='"whole" or "touched"'):
        delta.apply_(normal, blob, verify="none")
    with pytest.raises(tenfold.LimitError, match="max_bytes"):
        delta.apply_(normal, blob, max_bytes=100)
    with pytest.raises(tenfold.ArgumentError, match="negative"):
        delta.apply_(normal, blob, threads=-1)
    with pytest.raises(tenfold.DtypeError, match="numpy array, a torch tensor or a state dict"):
        delta.apply([1, 2], blob)
    with pytest.raises(tenfold.ArgumentError, match="tenfold.delta.apply"):
        tenfold.decode(blob)
    with pytest.raises(tenfold.Error):
        delta.inspect(tenfold.encode(normal))
    normal.flags.writeable = False
    with pytest.raises(tenfold.ArgumentError, match="read-only"):
        delta.apply_(normal, blob)


def test_memory_is_changed_by_one_delta(normal):
    new = normal + 1
    blob = delta.make(normal, new)
    with pytest.raises(tenfold.ArgumentError, match="share memory"):
        tenfold._native.delta_apply([(blob, normal), (blob, normal)])
    room = np.zeros(normal.nbytes, np.uint8)
    room[: len(blob)] = np.frombuffer(blob, np.uint8)
    with pytest.raises(tenfold.ArgumentError, match="share memory"):
        delta.apply_(room, room[: len(blob)])
    # Two tensors may have the same delta.
    twin = normal.copy()
    tenfold._native.delta_apply([(blob, normal), (blob, twin)])
    assert same(normal, new) and same(twin, new)


def test_all_are_checked_before_one_changes(normal):
    new = normal + 1
    blob, bad = delta.make(normal, new), normal * 3
    kept, kept_bad = normal.copy(), bad.copy()
    with pytest.raises(tenfold.WrongBaseError, match="tensor \"b\""):
        tenfold._native.delta_apply([(blob, normal), (blob, bad)], ["a", "b"])
    assert same(normal, kept) and same(bad, kept_bad)


def test_threads_work_at_once(rng):
    base, new = versions(rng, np.float32, (512, 512))
    blob, copies = delta.make(base, new), [base.copy() for _ in range(4)]
    workers = [threading.Thread(target=delta.apply_, args=(copy, blob)) for copy in copies]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(same(copy, new) for copy in copies)
