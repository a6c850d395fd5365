"""Reads the arrays of a CTranslate2 model file (version 6), and makes a Whisper encoder of transformers from them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from common.coders import Weights

DTYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2"}


def read(path: Path, prefix: str = "") -> dict[str, np.ndarray]:
    """Arrays whose name starts with `prefix`."""
    data = path.read_bytes()
    at = 0

    def take(form: str) -> tuple[int, ...]:
        nonlocal at
        values = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return values

    def text() -> str:
        nonlocal at
        (length,) = take("<H")
        at += length
        return data[at - length : at].rstrip(b"\0").decode()

    (version,) = take("<I")
    if version != 6:
        raise ValueError(f"{path} is of version {version}; 6 is read here")
    text()
    _, count = take("<II")
    arrays = {}
    for _ in range(count):
        name = text()
        (rank,) = take("<B")
        shape = take(f"<{rank}I")
        (dtype, size) = take("<BI")
        if name.startswith(prefix):
            arrays[name] = np.frombuffer(data, DTYPES[dtype], size // np.dtype(DTYPES[dtype]).itemsize, at).reshape(shape)
        at += size
    return arrays


def whisper_encoder(arrays: Weights) -> WhisperEncoder:
    """The encoder of whisper-base in f32; keys, values and queries lie in one matrix in the file."""
    layers = sum(name.endswith("self_attention/linear_0/weight") for name in arrays)
    width = arrays["encoder/conv1/weight"].shape[0]
    config = WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        encoder_attention_heads=int(arrays["encoder/num_heads"]),
        encoder_ffn_dim=arrays["encoder/layer_0/ffn/linear_0/weight"].shape[0],
        num_mel_bins=arrays["encoder/conv1/weight"].shape[1],
    )
    model = WhisperEncoder(config).eval()
    put(model, arrays)
    return model


def put(model: WhisperEncoder, arrays: Weights) -> None:
    """Puts all arrays into an encoder."""
    state: dict[str, np.ndarray] = {}

    def both(theirs: str, ours: str, part: slice = slice(None)) -> None:
        for kind in ("weight", "bias"):
            state[f"{theirs}.{kind}"] = arrays[f"encoder/{ours}/{kind}"][part]

    def norm(theirs: str, ours: str) -> None:
        state[f"{theirs}.weight"], state[f"{theirs}.bias"] = arrays[f"encoder/{ours}/gamma"], arrays[f"encoder/{ours}/beta"]

    both("conv1", "conv1")
    both("conv2", "conv2")
    norm("layer_norm", "layer_norm")
    state["embed_positions.weight"] = arrays["encoder/position_encodings/encodings"]
    width = state["conv1.weight"].shape[0]
    for layer in range(len(model.layers)):
        theirs, ours = f"layers.{layer}", f"layer_{layer}"
        for place, name in enumerate("qkv"):
            part = slice(place * width, (place + 1) * width)
            both(f"{theirs}.self_attn.{name}_proj", f"{ours}/self_attention/linear_0", part)
        # Keys have no bias in Whisper; the file holds zeros there.
        del state[f"{theirs}.self_attn.k_proj.bias"]
        both(f"{theirs}.self_attn.out_proj", f"{ours}/self_attention/linear_1")
        norm(f"{theirs}.self_attn_layer_norm", f"{ours}/self_attention/layer_norm")
        both(f"{theirs}.fc1", f"{ours}/ffn/linear_0")
        both(f"{theirs}.fc2", f"{ours}/ffn/linear_1")
        norm(f"{theirs}.final_layer_norm", f"{ours}/ffn/layer_norm")
    model.load_state_dict({name: torch.from_numpy(np.float32(value)) for name, value in state.items()})
