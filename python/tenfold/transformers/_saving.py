"""What ``save_pretrained`` writes: blobs as they are, and the metadata that says what they were."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers.core_model_loading import revert_weight_conversion

from .. import _native
from ._checkpoint import Checkpoint
from ._placing import decode_named
from ._stages import Held

# Names of dtypes in safetensors' headers.
_STORED = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


def state_to_save(
    model: Any, held: Iterable[Held], decoded: Mapping[str, str], checkpoint: Checkpoint
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The state dict with blobs in it, and the metadata for every file.

    Weights that were decoded while the model loaded are written as the blobs that they came from, if they still are what
    those decode to; others as they are now.
    """
    state: dict[str, torch.Tensor] = dict(model.state_dict())
    tags: dict[str, dict[str, Any]] = {}
    for one in held:
        tags[one.name] = _tag(str(one.stored).removeprefix("torch."), one.shape)
    again: dict[int, torch.Tensor | None] = {}
    for name, key in decoded.items():
        current = state.get(name)
        if current is None:
            continue
        # Tied weights must stay one tensor, or they would be written twice.
        if current.data_ptr() not in again:
            blob = checkpoint.read(key)
            origin = decode_named(key, blob, current.dtype)
            same = origin.shape == current.shape and torch.equal(origin, current.detach().cpu())
            again[current.data_ptr()] = blob if same else None
        found = again[current.data_ptr()]
        if found is not None:
            state[name] = found
            tags[name] = _tag(checkpoint.blobs[key].dtype, checkpoint.blobs[key].shape)
    # The files may have names that transformers changes while it loads; save_pretrained changes them back, or does not.
    names = {id(state[name]): name for name in tags}
    for name, tensor in revert_weight_conversion(model, {name: state[name] for name in tags}).items():
        tags[name] = tags[names[id(tensor)]]
    metadata = {
        "tenfold.format": str(_native.MODEL_FORMAT),
        "tenfold.scope": "model",
        "tenfold.tensors": json.dumps(tags),
    }
    return state, metadata


def _tag(dtype: str, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"dtype": _STORED[dtype], "shape": list(shape)}
