"""Deltas of state dicts and of model files: checked as a whole before a byte changes."""

import ml_dtypes
import numpy as np
import pytest

import tenfold
from tenfold import delta


@pytest.fixture
def state(rng):
    return {
        "w": rng.standard_normal((64, 96)).astype(ml_dtypes.bfloat16),
        "b": rng.standard_normal(96).astype(np.float32),
        "ids": rng.integers(0, 1000, (8, 8)),
        "one": np.array(3.5),
        "none": np.zeros((0, 4), np.float16),
    }


def copy_of(state):
    return {name: array.copy() for name, array in state.items()}


def moved(state, *names):
    new = copy_of(state)
    for name in names:
        new[name].flat[::7] = np.asarray(new[name].flat[::7]) + 1
    return new


def same(a, b):
    return list(sorted(a)) == sorted(b) and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and a[name].tobytes() == b[name].tobytes()
        for name in a
    )


def test_roundtrip(state):
    new, kept = moved(state, "w", "ids"), copy_of(state)
    blob = delta.make(state, new)
    info = delta.inspect_model(blob)
    assert (info.base, info.result) == (delta.fingerprint(state), delta.fingerprint(new))
    assert [(one.name, one.how, one.dtype, one.shape) for one in info.changes] == [
        ("ids", "delta", "int64", (8, 8)),
        ("w", "delta", "bfloat16", (64, 96)),
    ]
    assert same(delta.apply(state, blob), new) and same(state, kept)
    count = sum(one.changed for one in info.changes)
    assert delta.apply_(state, blob) == (count, 0)
    assert same(state, new)
    assert delta.apply_(state, blob) == (0, count)


def test_an_application_that_was_interrupted_is_completed(state):
    new = moved(state, "w", "b", "ids")
    blob = delta.make(state, new)
    state["b"][:] = new["b"]
    done = delta.apply_(state, blob)
    assert done.written and done.before
    assert same(state, new)


def test_another_base_stays_as_it_is(state):
    new = moved(state, "w", "ids")
    blob = delta.make(state, new)
    for name in ["w", "ids", "b", "one"]:
        # Of the last two the delta changes neither.
        other = copy_of(state)
        other[name].flat[0] = 77
        kept = copy_of(other)
        for call in (delta.apply_, delta.apply):
            with pytest.raises(tenfold.WrongBaseError):
                call(other, blob)
            assert same(other, kept)
    other = copy_of(state)
    other["b"].flat[0] = 77
    delta.apply_(other, blob, verify="touched")
    assert same(other, new | {"b": other["b"]})


def test_tensors_that_come_and_go(state):
    new = moved(state, "b")
    new["moved"] = new.pop("w")
    new["more"] = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    new["ids"] = new["ids"].astype(np.int32)
    new["b"] = new["b"].reshape(12, 8)
    del new["one"]
    blob = delta.make(state, new)
    info = delta.inspect_model(blob)
    assert info.removed == ("one", "w")
    assert {one.name: one.how for one in info.changes} == {
        "b": "delta", "ids": "stored", "more": "stored", "moved": "copy"
    }  # fmt: skip
    assert same(delta.apply(state, blob), new)
    kept = copy_of(state)
    with pytest.raises(tenfold.ArgumentError, match="removes 2 tensors, the first 'one'; tenfold.delta.apply"):
        delta.apply_(state, blob)
    assert same(state, kept)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda new: new.update(more=np.ones(3)), "'more' whole, which this model does not have"),
        (lambda new: new.update(twin=new["w"].copy()), "makes tensor 'twin' of 'w'"),
        (lambda new: new.update(b=new["b"].astype(np.float64)), "'b' whole, another dtype or shape"),
        (lambda new: new.update(b=new["b"].reshape(12, 8)), r"'b' has shape \(96,\), but the delta is for \(12, 8\)"),
    ],
)
def test_in_place_only_values_change(state, change, text):
    new, kept = copy_of(state), copy_of(state)
    change(new)
    blob = delta.make(state, new)
    with pytest.raises(tenfold.ArgumentError, match=text):
        delta.apply_(state, blob)
    assert same(state, kept) and same(delta.apply(state, blob), new)


def test_a_whole_model_is_a_delta_of_nothing(state):
    whole = delta.make({}, state)
    assert same(delta.apply({}, whole), state)
    with pytest.raises(tenfold.WrongBaseError):
        delta.apply({"x": np.zeros(3)}, whole)
    nothing = delta.make(state, copy_of(state))
    assert delta.inspect_model(nothing).changes == () and delta.apply_(state, nothing) == (0, 0)


def test_tied_arrays_are_changed_once(state):
    state["tied"] = state["w"]
    new = moved(state, "b")
    new["w"].flat[3] = 9
    new["tied"] = new["w"]
    blob = delta.make(state, new)
    delta.apply_(state, blob)
    assert same(state, new) and state["tied"] is state["w"]
    apart = copy_of(new)
    apart["w"].flat[3] = 11
    kept = copy_of(state)
    with pytest.raises(tenfold.ArgumentError, match="'w' and 'tied' share memory"):
        delta.apply_(state, delta.make(state, apart))
    assert same(state, kept)
    half = {"a": state["w"][:40], "b": state["w"][20:]}
    with pytest.raises(tenfold.ArgumentError, match="share memory"):
        delta.apply_(half, delta.make(half, {name: array + 1 for name, array in half.items()}))


def test_files(state, tmp_path):
    new = moved(state, "w", "b")
    for name, version in {"old": state, "new": new}.items():
        tenfold.save(version, tmp_path / f"{name}.safetensors", lossless=True)
    path = tmp_path / "delta.safetensors"
    told = []
    delta.make_file(
        tmp_path / "old.safetensors", tmp_path / "new.safetensors", path, progress=lambda *now: told.append(now)
    )
    assert told and told[-1][0] == told[-1][1]
    # The bytes of a state dict's delta are a file.
    assert path.read_bytes() == delta.make(state, new)
    assert delta.inspect_model(path) == delta.inspect_model(path.read_bytes())
    delta.apply_file(tmp_path / "old.safetensors", path, tmp_path / "made.safetensors")
    assert same(tenfold.load(tmp_path / "made.safetensors"), new)
    with pytest.raises(tenfold.ArgumentError, match="exists"):
        delta.apply_file(tmp_path / "old.safetensors", path, tmp_path / "made.safetensors")
    delta.apply_file(tmp_path / "old.safetensors", [path], tmp_path / "made.safetensors", overwrite=True)
    with pytest.raises(tenfold.WrongBaseError, match="follow|out of order|belongs"):
        delta.apply_file(tmp_path / "old.safetensors", [path, path], tmp_path / "twice.safetensors")
    delta.apply_(state, path)
    assert same(state, new)
    with pytest.raises(tenfold.NotFoundError):
        delta.apply_(state, tmp_path / "absent")
    with pytest.raises(tenfold.DataError, match="is a delta"):
        tenfold.open(path)


def test_differences_with_loss(rng):
    old = {"w": rng.standard_normal((128, 128)).astype(np.float32), "b": rng.standard_normal(8).astype(np.float32)}
    new = {"w": old["w"] + 0.01 * rng.standard_normal((128, 128)).astype(np.float32), "b": old["b"] + 1}
    blob = delta.make(old, new, bits=3)
    assert delta.make(old, new, bits=3, exclude=["*"]) == delta.make(old, new)
    info = delta.inspect_model(blob)
    assert {one.name: one.how for one in info.changes} == {"b": "delta", "w": "difference"}
    made = delta.apply(old, blob)
    assert delta.fingerprint(made) == info.result and np.abs(made["w"] - new["w"]).max() < 0.02
    delta.apply_(old, blob)
    assert same(old, made)
    delta.apply_(old, blob)
    assert same(old, made)


def test_every_damage_is_found(rng):
    old = {"w": rng.standard_normal((6, 8)).astype(np.float32), "b": np.zeros(3)}
    new = {"w": old["w"] * 2, "b": old["b"] + 1}
    blob, kept = delta.make(old, new), copy_of(old)
    for cut in range(len(blob)):
        with pytest.raises(tenfold.Error):
            delta.apply_(old, blob[:cut])
    for at in range(len(blob)):
        bad = bytearray(blob)
        bad[at] ^= 1 << at % 8
        try:
            delta.apply_(old, bad)
        except tenfold.Error:
            assert same(old, kept), at
        else:
            # White space and the like: what it says is the same.
            assert same(old, new), at
            old = copy_of(kept)


def test_refusals(state):
    with pytest.raises(tenfold.DtypeError, match="not from one of each"):
        delta.make(state, state["w"])
    with pytest.raises(tenfold.DtypeError, match="names of tensors must be strings"):
        delta.make({1: state["w"]}, state)
    with pytest.raises(tenfold.DtypeError, match="list under 'w'"):
        delta.make({"w": [1, 2]}, state)
    with pytest.raises(tenfold.ArgumentError, match="dtype is for single tensors"):
        delta.make(state, state, dtype="bfloat16")
    with pytest.raises(tenfold.ArgumentError, match="\"w\".*contiguous"):
        delta.make({"w": state["w"].T}, {"w": state["w"].T})
    with pytest.raises(tenfold.ArgumentError, match="one goal at a time"):
        delta.make(state, state, bits=3, nmse=0.1)
    with pytest.raises(tenfold.ArgumentError, match="the delta of a tensor is exact"):
        delta.make(state["w"], state["w"], bits=3)
    with pytest.raises(tenfold.DataError):
        delta.apply_(state, b"")
    with pytest.raises(tenfold.Error):
        delta.apply_(state, delta.make(state["w"], state["w"]))
    with pytest.raises(tenfold.ArgumentError, match="numpy arrays"):
        delta.apply(state, delta.make(state, state), device="cpu")


def test_deltas_of_tensors_make_one_of_a_model(state):
    new = moved(state, "w", "b")
    prints = {name: delta.fingerprint(array) for name, array in state.items()}
    blobs = [(name, delta.make(state[name], new[name])) for name in state]
    made, result = tenfold._native.delta_collect(prints, blobs)
    assert made == delta.make(state, new) and result == delta.fingerprint(new)
    with pytest.raises(tenfold.ArgumentError, match='no tensor "x"'):
        tenfold._native.delta_collect(prints, [("x", blobs[0][1])])
    with pytest.raises(tenfold.WrongBaseError, match='tensor "b"'):
        tenfold._native.delta_collect(prints, [("b", blobs[0][1])])
    with pytest.raises(tenfold.DataError):
        tenfold._native.delta_collect(prints, [("b", b"nonsense")])
    with pytest.raises(tenfold.ArgumentError, match="no fingerprint"):
        tenfold._native.delta_collect(prints | {"b": "0"}, blobs)
