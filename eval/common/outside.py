"""Coders of others: HQQ, and x265 through a `tenfold` command that was built with video codecs. Either may be missing;
then a line says so and the rest goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tenfold
import torch
from safetensors.numpy import save_file

from common.coders import Coded, Weights
from common.rounding import as_rows, bits_of, half


@dataclass(frozen=True)
class Hqq:
    """Half-quadratic quantisation: round to nearest with zero points that were optimised. No data is needed."""

    group: int = 64

    def __call__(self, weights: Weights, bits: float) -> Coded:
        from hqq.core.quantize import Quantizer

        def one(weight: np.ndarray) -> np.ndarray:
            options = {"nbits": int(bits), "group_size": self.group, "axis": 1, "optimize": True, "bitpack": False}
            rows = torch.from_numpy(as_rows(weight))
            codes, meta = Quantizer.quantize(rows, compute_dtype=torch.float32, device="cpu", **options)
            # Scale and zero point are stored as halves.
            for key in ("scale", "zero"):
                meta[key] = torch.from_numpy(half(meta[key].numpy()))
            return Quantizer.dequantize(codes, meta).numpy().reshape(weight.shape)

        stored = bits_of(weights, self.group, lambda groups: groups * 32, int(bits))
        return Coded({name: one(weight) for name, weight in weights.items()}, stored)


def find_hqq() -> tuple[Hqq | None, str]:
    """HQQ, or why it is left out."""
    try:
        import hqq.core.quantize  # noqa: F401
    except ImportError as error:
        return None, f"HQQ is left out: {error} (pip install hqq, with DISABLE_CUDA=1)"
    return Hqq(), ""


@dataclass(frozen=True)
class X265:
    """Weights as pictures of H.265, intra only. The rate is met tensor by tensor."""

    command: str

    def __call__(self, weights: Weights, bits: float) -> Coded:
        with tempfile.TemporaryDirectory() as folder:
            plain, coded, back = (str(Path(folder) / f"{name}.safetensors") for name in ("plain", "coded", "back"))
            save_file({name: np.ascontiguousarray(weight) for name, weight in weights.items()}, plain)
            options = ["--codec", "h265", "--encoder", "x265", "--bits", str(bits), "--include", "*", "--json"]
            report = json.loads(run([self.command, "compress", plain, "-o", coded, *options]))
            run([self.command, "decompress", coded, "-o", back])
            return Coded(tenfold.load(back), report["compressed"]["bits_per_value"])


def find_x265() -> tuple[X265 | None, str]:
    """x265 through `$TENFOLD_VIDEO` or the `tenfold` of the path, or why it is left out."""
    command = os.environ.get("TENFOLD_VIDEO") or shutil.which("tenfold")
    missing = "x265 is left out: no tenfold command with video codecs; build one (docs/video.md) and name it in TENFOLD_VIDEO"
    if command is None:
        return None, missing
    engines = json.loads(run([command, "engines", "--json"]))
    found = any(one["name"] == "x265" and one["role"] == "encoder" and one["available"] for one in engines)
    return (X265(command), "") if found else (None, missing)


def run(command: list[str]) -> str:
    """Standard output of a command; its complaint becomes the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:2])} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
