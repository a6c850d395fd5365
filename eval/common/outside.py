"""Coders of others: HQQ, video codecs through a `tenfold` command that was built with them, llama.cpp's quantiser. Any may be missing; then
a line says so and the rest goes on."""

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
from transformers import AutoModelForCausalLM

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
class Video:
    """Weights as pictures, intra only. The rate is met tensor by tensor."""

    command: str
    encoder: str = "x265"

    def __call__(self, weights: Weights, bits: float) -> Coded:
        with tempfile.TemporaryDirectory() as folder:
            plain, coded, back = (str(Path(folder) / f"{name}.safetensors") for name in ("plain", "coded", "back"))
            save_file({name: np.ascontiguousarray(weight) for name, weight in weights.items()}, plain)
            options = ["--codec", STANDARDS[self.encoder], "--encoder", self.encoder, "--bits", str(bits), "--include", "*", "--json"]
            report = json.loads(run([self.command, "compress", plain, "-o", coded, *options]))
            run([self.command, "decompress", coded, "-o", back])
            return Coded(tenfold.load(back), report["compressed"]["bits_per_value"])


STANDARDS = {"x264": "h264", "x265": "h265", "svt-av1": "av1"}
"""Software encoders that take part, and what `--codec` calls their standards."""


def find_video(encoder: str) -> tuple[Video | None, str]:
    """An encoder through `$TENFOLD_VIDEO` or the `tenfold` of the path, or why it is left out."""
    command = os.environ.get("TENFOLD_VIDEO") or shutil.which("tenfold")
    missing = f"{encoder} is left out: no tenfold command with video codecs; build one (docs/video.md) and name it in TENFOLD_VIDEO"
    if command is None:
        return None, missing
    engines = json.loads(run([command, "engines", "--json"]))
    found = any(one["name"] == encoder and one["role"] == "encoder" and one["available"] for one in engines)
    return (Video(command, encoder), "") if found else (None, missing)


def find_x265() -> tuple[Video | None, str]:
    """x265, or why it is left out."""
    return find_video("x265")


@dataclass(frozen=True)
class Gguf:
    """llama.cpp's own quantiser with its importance matrix, on the model's GGUF file. A rate is a type's name: matrices whose rows are not
    multiples of 256 get what llama.cpp falls back to, so bits are counted in the file that it writes."""

    folder: Path
    model: Path
    text: Path
    kind: str
    chunks: int = 32

    def __call__(self, weights: Weights, bits: float) -> Coded:
        import gguf

        with tempfile.TemporaryDirectory() as name:
            made, matrix = Path(name) / "small.gguf", self.model.parent / f"imatrix-{self.text.stem}-{self.chunks}.gguf"
            if not matrix.exists():
                options = ["--chunks", str(self.chunks), "-c", "1024", "-o", str(matrix), "--no-ppl"]
                run([str(self.folder / "llama-imatrix"), "-m", str(self.model), "-f", str(self.text), *options])
            options = ["--allow-requantize", "--imatrix", str(matrix)]
            run([str(self.folder / "llama-quantize"), *options, str(self.model), str(made), self.kind])
            blocks = [one for one in gguf.GGUFReader(made).tensors if one.name.startswith("blk.") and len(one.shape) == 2]
            stored = 8 * sum(int(one.n_bytes) for one in blocks) / sum(int(one.n_elements) for one in blocks)
            kinds = sorted({one.tensor_type.name for one in blocks})
            model = AutoModelForCausalLM.from_pretrained(name, gguf_file=made.name, dtype=torch.float32)
        state = model.state_dict()
        return Coded({name: state[name].numpy() for name in weights}, stored, {"types": kinds, "chunks": self.chunks})


def find_llama_cpp() -> tuple[Path | None, str]:
    """The folder of llama.cpp's programs, or why its types are left out."""
    folder = Path(os.environ.get("TENFOLD_LLAMA_CPP") or Path(shutil.which("llama-quantize") or "nowhere").parent)
    if (folder / "llama-quantize").exists() and (folder / "llama-imatrix").exists():
        return folder, ""
    return None, "llama.cpp is left out: name the folder of llama-quantize and llama-imatrix in TENFOLD_LLAMA_CPP"


def run(command: list[str]) -> str:
    """Standard output of a command; its complaint becomes the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:2])} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
