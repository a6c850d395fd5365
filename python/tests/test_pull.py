"""Models over HTTP, from the server that comes with the package."""

import subprocess
import sys

import numpy as np
import pytest

import tenfold


@pytest.fixture()
def site(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    random = np.random.default_rng(3)
    tensors = {
        "layers.0.weight": random.standard_normal((256, 512), dtype=np.float32),
        "layers.1.weight": random.standard_normal((300, 64)).astype(np.float16),
        "norm": np.arange(7, dtype=np.int64),
        "scalar": np.float64(0.5),
        "empty": np.zeros((0, 3), np.float32),
    }
    tenfold.save(tensors, folder / "m.safetensors", bits=4)
    command = [sys.executable, "-m", "tenfold", "serve", str(folder), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().split()[-1], folder
        server.terminate()


def test_tensors_arrive_as_load_reads_them(site, tmp_path):
    url, folder = site
    told = []
    arrays = tenfold.pull_tensors(
        url + "m.safetensors", cache=tmp_path / "cache", progress=lambda *n: told.append(n)
    )
    expected = tenfold.load(folder / "m.safetensors")
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        assert array.dtype == expected[name].dtype and array.shape == expected[name].shape, name
        assert np.array_equal(array, expected[name]), name
    assert told and told[-1][0] == told[-1][1] > 0
    assert not list((tmp_path / "cache").iterdir())
    some = tenfold.pull_tensors(url, include=["layers.0.*"], rows=(10, 20), dtype="float16", cache=tmp_path / "cache")
    (rows,) = some.values()
    assert rows.dtype == np.float16 and rows.shape == (10, 512)
    assert np.array_equal(rows, expected["layers.0.weight"][10:20].astype(np.float16))


def test_files_arrive_as_they_are_and_decoded(site, tmp_path):
    url, folder = site
    pulled = tenfold.pull(url + "m.safetensors", tmp_path / "same.safetensors")
    assert (tmp_path / "same.safetensors").read_bytes() == (folder / "m.safetensors").read_bytes()
    assert pulled.files == 1 and pulled.unchecked == 0 and pulled.fetched == pulled.nbytes
    tenfold.pull(url + "m.safetensors", tmp_path / "plain.safetensors", decode=True)
    tenfold.decompress(folder / "m.safetensors", tmp_path / "expected.safetensors")
    assert (tmp_path / "plain.safetensors").read_bytes() == (tmp_path / "expected.safetensors").read_bytes()
    with pytest.raises(tenfold.ArgumentError, match="exists"):
        tenfold.pull(url + "m.safetensors", tmp_path / "same.safetensors")
    with pytest.raises(tenfold.MachineError, match="404"):
        tenfold.pull(url + "none.safetensors", tmp_path / "none", retries=0)


def test_what_the_caller_does_wrong_is_said(site, tmp_path):
    url, _ = site
    for options in ({"bit": 3}, {"bits": 3, "ratio": 2}, {"effort": "fast"}, {"stall": 0.0}, {"include": "w"}):
        with pytest.raises(tenfold.ArgumentError):
            tenfold.pull(url, tmp_path / "out", **options)
    with pytest.raises(tenfold.ArgumentError, match="no tensor matches"):
        tenfold.pull_tensors(url, include=["none"], cache=tmp_path / "cache")
    with pytest.raises(tenfold.DtypeError):
        tenfold.pull_tensors(url, dtype="nonsense", cache=tmp_path / "cache")
    with pytest.raises(tenfold.UnsupportedError, match="stores"):
        tenfold.pull("s3://bucket/model", tmp_path / "out")
    assert not (tmp_path / "out").exists()
