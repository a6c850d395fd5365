"""Files of float32 tensors, mapped: a large model's matrices need not lie in memory at the same time."""

from __future__ import annotations

import json
import os

import numpy as np
import torch


def mapped(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """The tensors of a file, which holds only float32."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries = json.loads(file.read(length))
    found = {}
    for name, entry in entries.items():
        if name != "__metadata__":
            if entry["dtype"] != "F32":
                raise ValueError(f"{name} has the dtype {entry['dtype']}")
            first = 8 + length + entry["data_offsets"][0]
            found[name] = torch.from_numpy(np.memmap(path, np.float32, "c", first, tuple(entry["shape"])))
    return found
