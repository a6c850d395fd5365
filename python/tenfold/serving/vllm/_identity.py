"""What the stored bytes of an engine belong to: the model, the state it is in, and how pages are made."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ..._errors import ArgumentError, MachineError
from .._identity import Identity
from .._pages import KvPages
from ._options import Options
from ._shape import Shape

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
# Of a file of weights: so many pieces, spread over it, of so many bytes.
_PIECES, _PIECE = 16, 4096
# Of a configuration: where it lies and who wrote it.
_ASIDE = frozenset({"_name_or_path", "transformers_version"})


def identity_of(vllm_config: Any, shape: Shape, options: Options, pages: KvPages, rank: int) -> Identity:
    """What pages of one tensor-parallel rank belong to."""
    model = vllm_config.model_config
    # Overrides of vLLM's, as of rotary positions, are in it.
    config = {name: value for name, value in model.hf_config.to_dict().items() if name not in _ASIDE}
    heads = f"{shape.heads}x{shape.head}" + (f"+{shape.latent}" if shape.latent else "")
    layout = (
        f"vllm layers={len(shape.layers)} heads={heads} block={shape.block} page={shape.page} "
        f"rank={rank}/{shape.ranks} {pages.describe()} exact={options.exact} quantization={model.quantization} "
        f"hash={vllm_config.cache_config.prefix_caching_hash_algo} "
        f"config={_short(json.dumps(config, sort_keys=True, default=str).encode())}"
    )
    return Identity(options.model or model.model, revision_of(model, options), shape.dtype, pages.basis, layout)


def revision_of(model: Any, options: Options) -> str:
    """Which state of the model an engine runs.

    That is what ``revision`` says, in the connector's settings or else in vLLM's; the commit that the hub's copy is of;
    or, for a folder, a fingerprint of its weights: names, sizes, and pieces of each file.
    """
    stated = options.revision or model.revision or getattr(model.hf_config, "_commit_hash", None)
    if stated:
        return str(stated)
    if not os.path.exists(model.model):
        raise ArgumentError(
            f"which revision of {model.model} this is nobody says; keys of another one would be taken for its own: "
            "state revision in kv_connector_extra_config"
        )
    return _fingerprint(Path(model.model))


def _fingerprint(model: Path) -> str:
    try:
        files = [model] if model.is_file() else sorted(path for path in model.iterdir() if path.suffix in _WEIGHTS)
        if not files:
            raise ArgumentError(f"{model} has no files of weights to tell its state from: state revision")
        return _short(*(part for path in files for part in (path.name.encode(), *_pieces(path))))
    except OSError as error:
        raise MachineError(error.errno, error.strerror, os.fspath(error.filename or model)) from None


def _pieces(path: Path) -> list[bytes]:
    """The size of a file and some of its bytes: training moves all weights, so any of them do."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        found = [size.to_bytes(8, "little")]
        for index in range(_PIECES):
            file.seek(max(size - _PIECE, 0) * index // (_PIECES - 1))
            found.append(file.read(_PIECE))
    return found


def _short(*parts: bytes) -> str:
    hashed = hashlib.blake2b(digest_size=8)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.hexdigest()
