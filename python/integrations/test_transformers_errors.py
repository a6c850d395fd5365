"""Folders that are broken, and calls that cannot work, end in exceptions that say what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from transformers import AutoModelForCausalLM, LlamaForCausalLM
from transformers_models import compress, edit_config, folder

from tenfold import ArgumentError, DataError, UnsupportedError
from tenfold.transformers import TenfoldConfig


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("made")
    compress(folder(base / "model", "sharded"), base / "small")
    return base


@pytest.fixture(params=[False, True], ids=["decoded", "kept"])
def small(made: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = Path(shutil.copytree(made / "small", tmp_path / "small"))
    edit_config(path, {"keep_compressed": request.param})
    return path


def shards(path: Path) -> list[Path]:
    return sorted(path.glob("*.safetensors"))


def load(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(path)


def test_a_newer_format(small: Path) -> None:
    edit_config(small, {"format": 2})
    with pytest.raises(UnsupportedError, match="format 2, this tenfold reads 1; install a newer"):
        load(small)


def test_an_unknown_setting(small: Path) -> None:
    edit_config(small, {"rotation": "hadamard"})
    with pytest.raises(UnsupportedError, match="rotation.*install a newer"):
        load(small)


@pytest.mark.parametrize("setting", [{"format": "x"}, {"format": True}, {"buffers": 0}, {"buffers": 1}, {"prefetch": 3}])
def test_settings_that_make_no_sense(setting: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, DataError)):
        TenfoldConfig.from_dict({"quant_method": "tenfold", "keep_compressed": True, **setting})


def test_a_missing_shard(small: Path) -> None:
    shards(small)[1].unlink()
    with pytest.raises(OSError, match=r"model-00002-of-0000\d.safetensors"):
        load(small)


def test_a_missing_index(small: Path) -> None:
    (small / "model.safetensors.index.json").unlink()
    with pytest.raises(OSError, match="model.safetensors"):
        load(small)


def test_a_shard_cut_short(small: Path) -> None:
    data = shards(small)[0].read_bytes()
    shards(small)[0].write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="model-00001"):
        load(small)


def test_a_shard_of_the_uncompressed_model(small: Path, made: Path) -> None:
    shutil.copy(shards(made / "model")[0], shards(small)[0])
    with pytest.raises(DataError, match="not compressed, though config.json says so.*tenfold compress"):
        load(small)


@pytest.mark.parametrize("layer", [True, False])
def test_a_corrupt_blob(small: Path, layer: bool) -> None:
    for shard in shards(small):
        data = bytearray(shard.read_bytes())
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        tags = json.loads(header["__metadata__"]["tenfold.tensors"])
        for name in tags:
            if name.startswith("model.layers.1.mlp") == layer:
                at = 8 + length + header[name]["data_offsets"][1] - 9
                data[at] ^= 0x40
        shard.write_bytes(data)
    with pytest.raises(DataError, match="tensor '.*fetch the model again"):
        load(small)


def test_weights_of_another_model(small: Path) -> None:
    config = json.loads((small / "config.json").read_text())
    config["intermediate_size"] = 256
    (small / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="not of the same model"):
        load(small)


def test_a_folder_that_is_not_compressed(made: Path) -> None:
    with pytest.raises(ArgumentError, match="tenfold compress"):
        AutoModelForCausalLM.from_pretrained(made / "model", quantization_config=TenfoldConfig())


def test_a_state_dict(made: Path) -> None:
    config = AutoModelForCausalLM.from_pretrained(made / "model").config
    config.quantization_config = {"quant_method": "tenfold", "format": 1}
    with pytest.raises(ArgumentError, match="from its folder"):
        LlamaForCausalLM.from_pretrained(None, config=config, state_dict={})
