"""Importance from a calibration run: what is watched, what it is worth, how it gets into a model that loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from transformers import AutoModelForCausalLM
from transformers_models import compress, edit_config, folder, logits, reference

import tenfold.torch
from tenfold.torch import Importance


def test_layers_are_watched_while_the_block_lasts():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    seen = Importance(model)
    first, second = torch.randn(3, 5, 8), torch.randn(7, 8)
    model(torch.full((2, 8), 1e6))
    with seen:
        model(first)
        model(second)
    model(torch.full((2, 8), 1e6))
    rows = torch.cat([first.reshape(-1, 8), second]).double()
    assert np.allclose(seen.vectors()["0.weight"], rows.square().mean(0), rtol=1e-6)
    assert set(seen.vectors()) == {"0.weight", "2.weight"}


def test_mistakes_are_named():
    with pytest.raises(tenfold.ArgumentError, match="no linear layers"):
        Importance(torch.nn.ReLU())
    with pytest.raises(tenfold.ArgumentError, match="nothing has run"):
        Importance(torch.nn.Linear(2, 2)).vectors()


def test_the_output_of_a_layer_is_nearer():
    torch.manual_seed(1)
    layer = torch.nn.Linear(128, 256, bias=False)
    inputs = torch.randn(500, 128) * torch.logspace(-1.5, 1.5, 128)
    with Importance(layer) as seen, torch.no_grad():
        exact = layer(inputs)
    errors = []
    for importance in (None, seen.vectors()["weight"]):
        blob = tenfold.torch.encode(layer.weight.detach(), bits=2.5, importance=importance)
        errors.append(float((inputs @ tenfold.torch.decode(blob).T - exact).square().mean()))
    assert errors[1] < 0.6 * errors[0]


@pytest.mark.parametrize("keep", [False, True])
def test_a_folder_compressed_with_it_loads(tmp_path: Path, keep: bool):
    source = folder(tmp_path / "model", "llama")
    model = AutoModelForCausalLM.from_pretrained(source)
    with Importance(model) as seen:
        before = logits(model)
    seen.save(tmp_path / "channels.safetensors")
    small = compress(source, tmp_path / "small", "--bits", "6", "--importance", str(tmp_path / "channels.safetensors"))
    with tenfold.open(small) as archive:
        blobs = {name: archive.info(name).blob for name in archive}
    weighted = {name for name, blob in blobs.items() if blob and blob.transforms == ["column weights"]}
    assert weighted == set(seen.vectors())
    edit_config(small, {"keep_compressed": keep})
    again = AutoModelForCausalLM.from_pretrained(small)
    assert torch.equal(logits(again), logits(reference(small)))
    assert (logits(again) - before).float().square().mean() < 0.02 * before.float().var()
