"""save_pretrained keeps what is compressed, and what it writes loads again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from transformers import AutoModelForCausalLM
from transformers_models import compress, edit_config, folder, logits, run

import tenfold


def weights(path: Path) -> int:
    """Bytes of the files of weights."""
    return sum(file.stat().st_size for file in path.glob("*.safetensors"))


@pytest.fixture(scope="module", params=["llama", "tied", "gpt2"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp(request.param)
    return compress(folder(base / "model", request.param), base / "small")


@pytest.mark.parametrize("shard", ["1GB", "40KB"])
@pytest.mark.parametrize("keep", [False, True])
def test_saved_models_are_compressed_and_load_again(small: Path, tmp_path: Path, keep: bool, shard: str) -> None:
    edit_config(small, {"keep_compressed": keep})
    model = AutoModelForCausalLM.from_pretrained(small)
    model.save_pretrained(tmp_path / "saved", max_shard_size=shard)
    assert weights(tmp_path / "saved") < 1.1 * weights(small) + 8192
    config = json.loads((tmp_path / "saved" / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "tenfold"
    assert config["keep_compressed"] is keep
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert torch.equal(logits(again), logits(model))
    # The package reads the folder too, and so does the command.
    with tenfold.open(small) as one, tenfold.open(tmp_path / "saved") as two:
        assert {name for name in one if one.info(name).compressed} == {name for name in two if two.info(name).compressed}
    run("decompress", tmp_path / "saved", "-o", tmp_path / "plain")
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "plain")), logits(model))


def test_weights_that_were_changed_are_saved_as_they_are(small: Path, tmp_path: Path) -> None:
    edit_config(small, {"keep_compressed": False})
    model: Any = AutoModelForCausalLM.from_pretrained(small)
    name, changed = next((name, one) for name, one in model.named_parameters() if ".0." in name and one.ndim == 2)
    with torch.no_grad():
        changed += 1
    model.save_pretrained(tmp_path / "saved")
    with tenfold.open(tmp_path / "saved") as saved:
        stored = {key: saved.info(key).compressed for key in saved}
    assert [key for key in stored if name.endswith(key) and not stored[key]]
    assert sum(stored.values()) > 6
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "saved")), logits(model))


def test_plain_weights_are_saved_after_dequantize(small: Path, tmp_path: Path) -> None:
    edit_config(small, {"keep_compressed": True})
    model = AutoModelForCausalLM.from_pretrained(small)
    model.dequantize()
    model.save_pretrained(tmp_path / "plain")
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "plain")), logits(model))
