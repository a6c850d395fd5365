"""tenfold.ray on local clusters of two nodes."""

import pathlib
import time

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import ray
import ray.cluster_utils
import tenfold
import tenfold.ray
from tenfold.torch import Calibration, calibrate_layers

pytestmark = pytest.mark.filterwarnings("ignore:.*saw fewer than")


def start(tries: int = 3) -> ray.cluster_utils.Cluster:
    """Ray gives a node half a minute to start, which a busy machine may not keep."""
    made = ray.cluster_utils.Cluster()
    try:
        made.add_node(num_cpus=0, num_gpus=0)
        made.workers = [made.add_node(num_cpus=1, num_gpus=0) for _ in range(2)]
        made.wait_for_nodes()
        return made
    except Exception as error:
        made.shutdown()
        if tries == 1 or "time" not in str(error).lower():
            raise
        return start(tries - 1)


@pytest.fixture()
def cluster():
    """Two nodes beside the head, of one core each; the head runs nothing."""
    made = start()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture()
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    random = np.random.default_rng(7)
    tensors = {f"layers.{i}.weight": random.standard_normal((256, 512), dtype=np.float32) for i in range(12)}
    tenfold.save(tensors, tmp_path / "exact.safetensors", lossless=True)
    tenfold.decompress(tmp_path / "exact.safetensors", tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_a_cluster_makes_the_bytes_of_one_machine(cluster, model):
    told = []
    report = tenfold.ray.compress(
        model, model.parent / "many.safetensors", parts=5, bits=3, effort="fast", progress=lambda *n: told.append(n)
    )
    assert report["compressed"]["tensors"] == 12
    assert told[-1] == (5, 5) and [done for done, _ in told] == sorted(done for done, _ in told)
    tenfold.compress(model, model.parent / "one.safetensors", bits=3, effort="fast")
    read = lambda name: (model.parent / name).read_bytes()  # noqa: E731
    assert read("many.safetensors") == read("one.safetensors")


def test_a_node_that_dies_costs_its_parts_only(cluster, model):
    killed = []

    def kill(done: int, _: int) -> None:
        if done == 2 and not killed:
            parts = model.parent / "many.safetensors.parts"
            killed.append({path.name: path.stat().st_mtime_ns for path in parts.glob("part-*.safetensors")})
            cluster.remove_node(cluster.workers[1], allow_graceful=False)

    tenfold.ray.compress(
        model, model.parent / "many.safetensors", parts=8, bits=3, effort="best", retries=5, progress=kill
    )
    assert killed and len(killed[0]) >= 2
    parts = model.parent / "many.safetensors.parts"
    for name, made in killed[0].items():
        assert (parts / name).stat().st_mtime_ns == made, "made before the node died, and not again"
    tenfold.compress(model, model.parent / "one.safetensors", bits=3, effort="best")
    assert (model.parent / "many.safetensors").read_bytes() == (model.parent / "one.safetensors").read_bytes()


def test_errors_are_those_of_the_package(cluster, model):
    with pytest.raises(tenfold.ArgumentError, match="state one goal"):
        tenfold.ray.compress(model, model.parent / "out.safetensors", parts=2)
    with pytest.raises(tenfold.MachineError):
        tenfold.ray.compress(model.parent / "none", model.parent / "out.safetensors", parts=1, retries=0, bits=3)
    with pytest.raises(tenfold.ArgumentError, match="not an option"):
        tenfold.ray.compress(model, model.parent / "out.safetensors", bits=3, part="1/2")
    with pytest.raises(tenfold.MachineError, match="no GPU"):
        tenfold.ray.compress(model, model.parent / "out.safetensors", bits=3, engine="cuda")
    assert not (model.parent / "out.safetensors").exists()


def test_a_second_run_has_little_left_to_do(cluster, model):
    out = model.parent / "many.safetensors"
    tenfold.ray.compress(model, out, parts=3, bits=3, effort="best")
    start = time.time_ns()
    tenfold.ray.compress(model, out, parts=3, bits=3, effort="best", overwrite=True)
    parts = list((model.parent / "many.safetensors.parts").glob("part-*.safetensors"))
    assert len(parts) == 3 and all(path.stat().st_mtime_ns < start for path in parts)


@pytest.fixture()
def llama(tmp_path: pathlib.Path) -> pathlib.Path:
    torch.manual_seed(3)
    sizes = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 320}
    made = LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=64))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.08)
    made.save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def contexts(count: int) -> torch.Tensor:
    return torch.randint(3, 40, (count, 48), generator=torch.Generator().manual_seed(1))


def one_machine(llama: pathlib.Path, count: int) -> Calibration:
    model = LlamaForCausalLM.from_pretrained(llama, dtype=torch.float32)
    return calibrate_layers(model, contexts(count), llama.parent / "one.safetensors")


def assert_alike(path: pathlib.Path, one: Calibration) -> None:
    found = Calibration.open(path)
    assert list(found) == list(one)
    for name in one:
        assert found.layers[name].tokens == one.layers[name].tokens
        inputs = one.inputs(name)
        assert np.allclose(found.inputs(name), inputs, rtol=1e-4, atol=1e-5 * np.abs(inputs).max())
        assert np.allclose(found.outputs(name), one.outputs(name), rtol=1e-4)


def test_a_calibration_is_that_of_one_machine_and_compresses_on_the_cluster(cluster, llama, monkeypatch):
    path, told = llama.parent / "c.safetensors", []
    report = tenfold.ray.calibrate(llama, path, texts=contexts(6), progress=lambda *n: told.append(n))
    assert told[-1] == (4, 4) and report["parts"] == 4, "two for each of two nodes"
    assert report["weights"] == 22 and report["tokens"] == 6 * 48
    assert_alike(path, one_machine(llama, 6))
    assert not path.with_name("c.safetensors.parts").exists()

    # A path that only this process would understand.
    monkeypatch.chdir(llama.parent)
    weights = llama / "model.safetensors"
    options = {"bits": 3, "effort": "fast", "calibration": "c.safetensors"}
    report = tenfold.ray.compress(weights, llama.parent / "many.safetensors", parts=3, **options)
    assert sum(row.get("loss") is not None for row in report["tensors"]) == 22
    from tenfold import _native

    command = ["tenfold", "compress", weights, "-o", "single.safetensors", "--quiet"]
    arguments = [f"--{name}={value}" for name, value in options.items()]
    assert _native.main([str(one) for one in (*command, *arguments)]) == 0
    assert (llama.parent / "many.safetensors").read_bytes() == (llama.parent / "single.safetensors").read_bytes()


def test_a_node_that_dies_costs_a_calibration_its_parts_only(cluster, llama):
    path, made = llama.parent / "c.safetensors", {}

    def kill(done: int, _: int) -> None:
        if done == 2 and not made:
            parts = path.with_name("c.safetensors.parts").glob("part-*/done.json")
            made.update({part: part.stat().st_mtime_ns for part in parts})
            cluster.remove_node(cluster.workers[1], allow_graceful=False)
        elif made:
            assert {part: part.stat().st_mtime_ns for part in made} == made, "made before the node died, and not again"

    tenfold.ray.calibrate(llama, path, texts=contexts(12), parts=6, retries=5, progress=kill)
    assert len(made) >= 2
    assert_alike(path, one_machine(llama, 12))


class Stop(Exception):
    """Someone pressed a key."""


def test_a_calibration_that_was_stopped_goes_on(cluster, llama):
    path = llama.parent / "c.safetensors"

    def stop(done: int, _: int) -> None:
        if done == 2:
            raise Stop

    with pytest.raises(Stop):
        tenfold.ray.calibrate(llama, path, texts=contexts(8), parts=5, progress=stop)
    before = {part: part.stat().st_mtime_ns for part in path.with_name("c.safetensors.parts").glob("part-*/done.json")}
    assert len(before) >= 2 and not path.exists()
    with pytest.raises(tenfold.ArgumentError, match="other text or other options"):
        tenfold.ray.calibrate(llama, path, texts=contexts(7))

    def check(*_: int) -> None:
        assert {part: part.stat().st_mtime_ns for part in before} == before

    # As many parts as before, though nobody says so.
    assert tenfold.ray.calibrate(llama, path, texts=contexts(8), progress=check)["parts"] == 5
    assert_alike(path, one_machine(llama, 8))

    with pytest.raises(Stop):
        tenfold.ray.calibrate(llama, path, texts=contexts(8), parts=4, progress=stop)
    assert tenfold.ray.calibrate(llama, path, texts=contexts(2), parts=1, fresh=True)["parts"] == 1
    assert_alike(path, one_machine(llama, 2))


def test_errors_of_calibrations_are_those_of_the_package(cluster, llama):
    with pytest.raises(tenfold.ArgumentError, match="no config.json"):
        tenfold.ray.calibrate(llama.parent / "none", llama.parent / "c.safetensors", texts=contexts(2), parts=1)
    with pytest.raises(tenfold.ArgumentError, match="positive"):
        tenfold.ray.calibrate(llama, llama.parent / "c.safetensors", texts=contexts(2), parts=0)
    with pytest.raises(tenfold.MachineError, match="no GPU"):
        tenfold.ray.calibrate(llama, llama.parent / "c.safetensors", texts=contexts(2), engine="cuda")
