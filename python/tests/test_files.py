"""Model files: written, read lazily, the same as the command's."""

import json
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tenfold


def command(*args):
    call = [sys.executable, "-m", "tenfold", *map(str, args)]
    return subprocess.run(call, capture_output=True, text=True, timeout=120)


@pytest.fixture
def state(rng):
    return {
        "layers.0.weight": rng.standard_normal((96, 128), dtype=np.float32),
        "layers.1.weight": rng.standard_normal((96, 128)).astype(ml_dtypes.bfloat16),
        "layers.1.bias": rng.standard_normal(96).astype(np.float16),
        "ids": np.arange(10),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.float32(2.5).reshape(()),
    }


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_save_and_load(state, tmp_path):
    path = tmp_path / "model.safetensors"
    report = tenfold.save(state, path, lossless=True, metadata={"made": "by a test"})
    assert (report.tensors, report.compressed) == (6, 2)
    assert report.ratio > 1 and "6 tensors" in repr(report)
    back = tenfold.load(path)
    assert list(back) == list(state)
    assert all(same(back[name], state[name]) for name in state)
    with tenfold.open(path) as model:
        assert model.metadata == {"made": "by a test"}


def test_model(state, tmp_path):
    path = tmp_path / "model.safetensors"
    tenfold.save(state, path, bits=4)
    model = tenfold.open(path)
    assert set(model) == set(state) and len(model) == 6 and model.compressed
    assert "ids" in model and "other" not in model and 3 not in model
    assert dict(model.items()).keys() == state.keys()
    with pytest.raises(KeyError):
        model["other"]
    info = model.info("layers.1.weight")
    assert (info.dtype, info.shape, info.compressed, info.nbytes) == ("bfloat16", (96, 128), True, 24576)
    assert info.blob.bits_per_value == pytest.approx(4, rel=0.02) and info.stored_bytes == info.blob.blob_bytes
    assert model.info("ids").blob is None
    for name in ["layers.0.weight", "layers.1.weight"]:
        whole = model[name]
        assert same(model.read(name, rows=slice(5, 9)), whole[5:9])
        assert same(model.read(name, rows=-1), whole[-1:])
        out = np.empty_like(whole)
        assert model.read(name, out=out) is out and same(out, whole)
        model.read(name, rows=(1, 3), out=out[4:6])
        assert same(out[4:6], whole[1:3])
        with pytest.raises(tenfold.ArgumentError, match="shape"):
            model.read(name, out=out[1:])
        with pytest.raises(tenfold.DtypeError, match="int8"):
            model.read(name, out=np.empty(whole.shape, np.int8))
    assert same(model.read("ids", rows=0), state["ids"].reshape(1, 10))
    out = np.empty(10, np.int64)
    assert same(model.read("ids", out=out), state["ids"])
    with pytest.raises(tenfold.ArgumentError, match="1 rows"):
        model.read("ids", rows=1)
    with pytest.raises(tenfold.ArgumentError, match="exclude"):
        model.read("ids", out=out, dtype="int32")
    assert model.read("layers.1.weight", dtype="float32").dtype == np.float32
    model.verify()
    assert "6 tensors, compressed" in repr(model)
    kept = model["ids"]
    model.close()
    assert same(kept, state["ids"])
    with pytest.raises(tenfold.ArgumentError, match="closed"):
        model["ids"]


def test_choices(state, tmp_path):
    path = tmp_path / "model.safetensors"
    tenfold.save(state, path, lossless=True, include=["ids"], exclude=["*.1.*"])
    with tenfold.open(path) as model:
        assert {name for name in model if model.info(name).compressed} == {"layers.0.weight", "ids"}
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[default]\nbits = 5\n[[tensor]]\nmatch = "*.1.weight"\nskip = true\n')
    tenfold.save(state, path, recipe=recipe)
    with tenfold.open(path) as model:
        assert model.info("layers.0.weight").blob.bits_per_value == pytest.approx(5, rel=0.02)
        assert not model.info("layers.1.weight").compressed
    report = tenfold.save(state, path, bits=3, alloc="step")
    assert report.bits_per_value == pytest.approx(3, rel=0.03)
    with pytest.raises(tenfold.ArgumentError, match="already exists"):
        tenfold.save(state, path, overwrite=False)


def test_parity_with_the_command(state, tmp_path):
    exact, plain, ours, theirs = (tmp_path / f"{name}.safetensors" for name in ["exact", "plain", "ours", "theirs"])
    tenfold.save(state, exact, lossless=True)
    done = command("decompress", exact, "-o", plain)
    assert done.returncode == 0, done.stderr
    tenfold.save(state, ours, bits=3)
    done = command("compress", plain, "-o", theirs, "--bits", "3")
    assert done.returncode == 0, done.stderr
    a, b = tenfold.load(ours), tenfold.load(theirs)
    assert all(same(a[name], b[name]) for name in state)
    done = command("inspect", ours, "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)["tensors"]}
    assert rows["layers.0.weight"]["codec"] == "lossy" and rows["ids"]["codec"] == "none"
    assert command("verify", ours).returncode == 0


def test_command():
    done = command("--version")
    assert done.returncode == 0 and done.stdout.strip() == f"tenfold {tenfold.__version__}"
    assert "compress" in command("--help").stdout
    done = command("inspect", "no-such-file")
    assert done.returncode == 6 and "no-such-file" in done.stderr
    assert command("inspect").returncode == 2
    script = os.path.join(os.path.dirname(sys.executable), "tenfold")
    if os.path.exists(script):
        assert subprocess.run([script, "--version"], capture_output=True, timeout=60).returncode == 0


def test_npy(normal, tmp_path):
    path = tmp_path / "one.npy"
    np.save(path, normal)
    with tenfold.open(str(path)) as model:
        assert list(model) == ["one"] and same(model["one"], normal) and not model.compressed


def test_progress(state, tmp_path, capsys):
    seen = []
    path = tmp_path / "model.safetensors"
    tenfold.save(state, path, bits=3, progress=lambda done, total: seen.append((done, total)))
    size = sum(x.nbytes for x in state.values())
    assert seen[-1] == (size, size) and seen == sorted(seen)
    seen.clear()
    tenfold.load(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (size, size) and len(seen) == 6
    seen.clear()
    tenfold.open(path).verify(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (size, size) and len(seen) == 6
    pytest.importorskip("tqdm")
    tenfold.save(state, path, bits=3, progress=True)
    assert "save" in capsys.readouterr().err

    def fails(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tenfold.save(state, path, bits=3, progress=fails)


def test_bad_files(state, tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError) as caught:
        tenfold.open(path)
    assert isinstance(caught.value, tenfold.MachineError)
    assert caught.value.filename == str(path) and caught.value.errno == 2
    with pytest.raises(tenfold.Error):
        tenfold.save(state, tmp_path / "no" / "folder.safetensors")
    tenfold.save(state, path, bits=3)
    whole = path.read_bytes()
    for cut in [0, 7, 8, 100, 1000, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:cut])
        with pytest.raises(tenfold.DataError):
            tenfold.open(path)
    found = 0
    for at in range(0, len(whole), 37):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            tenfold.load(path)
        except tenfold.Error:
            found += 1
    assert found > len(whole) // 37 // 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(tenfold.DataError, match="no safetensors file"):
        tenfold.open(tmp_path / "empty")


def folder_of(state, tmp_path):
    """A model folder of two shards, as the Hub has them."""
    folder = tmp_path / "folder"
    folder.mkdir()
    files = {name: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, name in enumerate(state)}
    for file in set(files.values()):
        whole = tmp_path / "whole.safetensors"
        tenfold.save({name: state[name] for name in state if files[name] == file}, whole, lossless=True)
        tenfold.decompress(whole, folder / file)
        whole.unlink()
    size = sum(x.nbytes for x in state.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text("{}")
    return folder


def test_folders(state, tmp_path):
    folder, small, plain = folder_of(state, tmp_path), tmp_path / "small", tmp_path / "plain"
    seen = []
    report = tenfold.compress(folder, small, lossless=True, progress=lambda *step: seen.append(step))
    assert (report.tensors, report.compressed) == (6, 2) and seen[-1][0] == seen[-1][1]
    assert sorted(os.listdir(small)) == sorted(os.listdir(folder))
    assert all(same(x, state[name]) for name, x in tenfold.load(small).items())
    tenfold.decompress(small, plain, threads=1)
    assert all(same(x, state[name]) for name, x in tenfold.load(plain).items())
    for call in [tenfold.compress, tenfold.decompress]:
        with pytest.raises(tenfold.ArgumentError, match="already exists"):
            call(folder if call is tenfold.compress else small, plain)
    with pytest.raises(tenfold.ArgumentError, match="already compressed"):
        tenfold.compress(small, tmp_path / "again", bits=3)
    with pytest.raises(tenfold.DataError, match="not compressed"):
        tenfold.decompress(plain, tmp_path / "again")


def test_half_written_folders(state, tmp_path):
    folder = folder_of(state, tmp_path)
    shard = folder / "model-00002-of-00002.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-5])
    with pytest.raises(tenfold.DataError, match="model-00002-of-00002"):
        tenfold.open(folder)
    shard.unlink()
    with pytest.raises(tenfold.NotFoundError) as caught:
        tenfold.open(folder)
    assert caught.value.filename == str(shard)
    with pytest.raises(tenfold.NotFoundError):
        tenfold.compress(folder, tmp_path / "small", bits=3)
    shard.write_bytes(whole)
    index = folder / "model.safetensors.index.json"
    text = index.read_text()
    index.write_text(text[: len(text) // 2])
    with pytest.raises(tenfold.DataError, match="index is not valid"):
        tenfold.open(folder)
    assert not (tmp_path / "small").exists()


def test_newer_formats(state, tmp_path):
    blob = bytearray(tenfold.encode(state["layers.0.weight"], bits=3))
    blob[4] = tenfold.FORMAT_VERSION + 1
    for call in [tenfold.decode, tenfold.inspect, tenfold.verify]:
        with pytest.raises(tenfold.UnsupportedError, match="use a newer tenfold"):
            call(blob)
    path = tmp_path / "model.safetensors"
    tenfold.save(state, path, bits=3)
    whole = path.read_bytes()
    newer = whole.replace(b'"tenfold.format":"1"', b'"tenfold.format":"9"')
    assert newer != whole
    path.write_bytes(newer)
    with pytest.raises(tenfold.UnsupportedError):
        tenfold.open(path)


def test_effort_beside_a_recipe(state, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[default]\nbits = 3\n")
    states = {}
    for effort in ["fast", "best"]:
        path = tmp_path / f"{effort}.safetensors"
        tenfold.save(state, path, recipe=recipe, effort=effort)
        with tenfold.open(path) as model:
            states[effort] = model.info("layers.0.weight").blob.states
    assert states == {"fast": 1, "best": 256}


def test_bad_state(state, normal, tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(tenfold.ArgumentError, match='"w".*ascontiguousarray'):
        tenfold.save({"w": normal.T}, path)
    with pytest.raises(tenfold.DtypeError, match='"w".*not a tensor'):
        tenfold.save({"w": [1, 2]}, path)
    with pytest.raises(tenfold.DtypeError, match="mapping"):
        tenfold.save([normal], path)
    with pytest.raises(tenfold.DtypeError, match="strings"):
        tenfold.save({1: normal}, path)
    with pytest.raises(tenfold.DtypeError, match="metadata"):
        tenfold.save(state, path, metadata={"a": 1})
    with pytest.raises(tenfold.DtypeError, match="lists"):
        tenfold.save(state, path, include="*")
    with pytest.raises(tenfold.ArgumentError, match="single tensors"):
        tenfold.save(state, path, lane_values=64)
    with pytest.raises(tenfold.ArgumentError, match="one of equal"):
        tenfold.save(state, path, alloc="other")
    assert not path.exists()
