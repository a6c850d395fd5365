"""What ``save_pretrained`` writes: blobs as they are, and the metadata that says what they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers.core_model_loading import revert_weight_conversion

from .. import _native
from .._errors import DtypeError
from ..torch.kept import Held, decode_named
from ._checkpoint import Checkpoint


def state_to_save(
    model: Any, held: Iterable[Held], decoded: Mapping[str, str], checkpoint: Checkpoint
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The state dict with blobs in it, and the metadata for every file.

    Weights that were decoded on loading are written as their original blobs, if they are unchanged; others as plain
    tensors.
    """
    state: dict[str, torch.Tensor] = dict(model.state_dict())
    tags: dict[str, tuple[str, tuple[int, ...]]] = {}
    for one in held:
        tags[one.name] = str(one.stored).removeprefix("torch."), tuple(one.shape)
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
            tags[name] = checkpoint.blobs[key].dtype, checkpoint.blobs[key].shape
    # The files may have names that transformers changes while it loads; save_pretrained changes them back, or does not.
    names = {id(state[name]): name for name in tags}
    reverted = revert_weight_conversion(model, state)
    for name, tensor in reverted.items():
        if id(tensor) in names:
            tags[name] = tags[names[id(tensor)]]
    blobs = [(name, *tag) for name, tag in tags.items()]
    plain = [(name, one) for part in (state, reverted) for name, one in part.items() if name not in tags]
    # save_pretrained is about to put the same into the metadata.
    return state, _native.model_tags(blobs, _checksums(model, plain), {"format": "pt"})


def _checksums(model: Any, plain: Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, int]] | None:
    """Checksums by name. None where ``save_pretrained`` may write something else: adapters alone, parts of a tensor gathered
    from several devices, two tensors that take turns at a name, or a dtype that tenfold does not have."""
    if getattr(model, "_hf_peft_config_loaded", False):
        return None
    sums: dict[str, int] = {}
    known: dict[int, int] = {}
    for name, tensor in plain:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_meta:
            return None
        if id(tensor) not in known:
            try:
                known[id(tensor)] = _native.checksum(tensor.detach().cpu().contiguous())
            except DtypeError:
                return None
        if sums.setdefault(name, known[id(tensor)]) != known[id(tensor)]:
            return None
    return list(sums.items())
