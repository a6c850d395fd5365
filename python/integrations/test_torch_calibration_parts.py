"""A calibration in parts: what one run finds, but for rounding, and bytes that depend on the parts alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from transformers_models import llama, texts

import tenfold
from tenfold.torch import Calibration, add_parts, calibrate_layers, calibrate_part
from tenfold.torch import _layerwise as layerwise
from tenfold.torch import _parts as in_parts

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*saw fewer than"),
    pytest.mark.filterwarnings("ignore:.*experts saw too few tokens"),
]


def make(model: Any, contexts: Any, path: Path, of: int, **options: Any) -> Calibration:
    """All parts, the last one first."""
    for part in range(of, 0, -1):
        calibrate_part(model, contexts, path, part, of, **options)
    return add_parts(path, of)


def assert_alike(found: Calibration, whole: Calibration) -> None:
    assert list(found) == list(whole) and found.notes == whole.notes
    for name in whole:
        one, other = found.layers[name], whole.layers[name]
        assert (one.matrix, one.rows, one.cols, one.tokens) == (other.matrix, other.rows, other.cols, other.tokens)
        assert one.damping == pytest.approx(other.damping, abs=2e-4) and one.norm == pytest.approx(other.norm)
        inputs = whole.inputs(name)
        assert np.allclose(found.inputs(name), inputs, rtol=1e-4, atol=1e-5 * np.abs(inputs).max())
        outputs = whole.outputs(name)
        if outputs is None:
            assert found.outputs(name) is None
        else:
            assert np.allclose(found.outputs(name), outputs, rtol=1e-4)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("of", [1, 3])
def test_parts_add_up_to_the_whole(tmp_path: Path, weighted: bool, of: int):
    model, ids = llama(tmp_path), texts(7, 40, 1)
    contexts = [(ids[0], 1.0), (ids[1:3], 2.0), *ids[3:]]
    whole = calibrate_layers(model, contexts, tmp_path / "whole.safetensors", seed=5, weighted=weighted)
    found = make(model, contexts, tmp_path / "parts.safetensors", of, seed=5, weighted=weighted)
    assert_alike(found, whole)
    assert not list(tmp_path.glob("*.parts"))
    found.check(model.state_dict())


def test_layers_that_are_not_in_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(2)
    config = GPTNeoXConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=64)
    model, contexts = GPTNeoXForCausalLM(config).eval(), texts(5, 20, 4)
    monkeypatch.setattr(layerwise, "find_layers", lambda _: None)
    monkeypatch.setattr(in_parts, "find_layers", lambda _: None)
    whole = calibrate_layers(model, contexts, tmp_path / "whole.safetensors")
    assert_alike(make(model, contexts, tmp_path / "parts.safetensors", 2), whole)


class Experts(torch.nn.Module):
    """Two experts, of which each sees the contexts that begin with its number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.table = torch.nn.Embedding(16, 8)
        self.experts = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.Linear(24, 8)) for _ in range(2))
        self.head = torch.nn.Linear(8, 16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.experts[int(ids[0, 0]) % 2](self.table(ids)))
        return out


def test_experts_that_a_part_has_not_seen(tmp_path: Path):
    # The first part, and so the first context of all, has tokens for one of them only.
    contexts = torch.randint(16, (6, 30), generator=torch.Generator().manual_seed(3))
    contexts[:, 0] = torch.tensor([0, 0, 1, 1, 0, 1])
    model = Experts()
    whole = calibrate_layers(model, contexts, tmp_path / "whole.safetensors")
    assert_alike(make(model, contexts, tmp_path / "parts.safetensors", 3), whole)


def test_the_bytes_depend_on_the_parts_alone(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(5, 30, 1)
    (tmp_path / "one").mkdir()
    path = tmp_path / "one" / "c.safetensors"
    for part in (2, 1, 3):
        calibrate_part(model, contexts, path, part, 3)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    threads = torch.get_num_threads()
    add_parts(path, 3)
    torch.set_num_threads(1)
    add_parts(tmp_path / "two" / "c.safetensors", 3)
    torch.set_num_threads(threads)
    assert path.read_bytes() == (tmp_path / "two" / "c.safetensors").read_bytes()


class Stop(Exception):
    """Someone pressed a key."""


def test_interrupted_parts_go_on_and_finished_ones_stay(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(4, 30, 1)
    whole = calibrate_layers(model, contexts, tmp_path / "whole.safetensors")
    path, told = tmp_path / "c.safetensors", []

    def tell(done: int, _: int) -> None:
        told.append(done)
        raise Stop

    calibrate_part(model, contexts, path, 1, 2)
    while True:
        try:
            calibrate_part(model, contexts, path, 2, 2, progress=tell)
            break
        except Stop:
            with pytest.raises(tenfold.NotFoundError, match="part-00002-of-00002"):
                add_parts(path, 2)
    assert told == [1, 2, 3, 4, 5, 6]
    calibrate_part(model, contexts, path, 1, 2, progress=tell)
    assert len(told) == 6
    assert_alike(add_parts(path, 2), whole)


def test_more_parts_than_contexts(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(2, 30, 1)
    whole = calibrate_layers(model, contexts, tmp_path / "whole.safetensors")
    assert_alike(make(model, contexts, tmp_path / "parts.safetensors", 4), whole)


def test_parts_of_another_run_are_refused(tmp_path: Path):
    model, contexts = llama(tmp_path), texts(3, 30, 1)
    path = tmp_path / "c.safetensors"
    calibrate_part(model, contexts, path, 1, 2)
    for other, of, seed in ((contexts, 2, 1), (texts(3, 30, 2), 2, 0), (contexts, 3, 0)):
        with pytest.raises(tenfold.ArgumentError, match="other text or other options"):
            calibrate_part(model, other, path, 2, of, seed=seed)
    with pytest.raises(tenfold.ArgumentError, match="part 3 of 2"):
        calibrate_part(model, contexts, path, 3, 2)
    with pytest.raises(tenfold.ArgumentError, match="something else"):
        calibrate_layers(model, contexts, path)
    damaged = tmp_path / "c.safetensors.parts" / "part-00001-of-00002" / "done.json"
    damaged.write_text("{}")
    with pytest.raises(tenfold.DataError, match="damaged"):
        add_parts(path, 2)
    (tmp_path / "d.safetensors.parts").mkdir()
    (tmp_path / "d.safetensors.parts" / "mine").touch()
    with pytest.raises(tenfold.ArgumentError, match="something else"):
        calibrate_part(model, contexts, tmp_path / "d.safetensors", 1, 2)
    assert not path.exists()
