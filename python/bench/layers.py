#!/usr/bin/env python3
"""Memory and speed of a model whose layers stay compressed, beside the raw model and decoding without looking ahead.

    python python/bench/layers.py --size 8b --json results/python/layers.json     # a CUDA device, if there is one
    python python/bench/layers.py --size tiny --device cpu                        # does it run?

The model is a Llama of the stated size with made-up weights, N(0, 0.02) in bfloat16: neither speed nor memory depends on what
they say. Embeddings and head are excluded from compression, as they are with most quantisers, unless --all is given. Each way to
hold the model runs in a process of its own:

  raw                bfloat16 weights
  lossy              kept compressed at --bits, the next layer decoded while one computes
  lossless           the same, without loss
  lossless, no look-ahead   each layer decoded right before it is used, as DFloat11 does
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden": 256, "inner": 512, "layers": 4, "heads": 4, "kv_heads": 2, "vocabulary": 1024},
    "1b": {"hidden": 2048, "inner": 8192, "layers": 16, "heads": 32, "kv_heads": 8, "vocabulary": 128256},
    "3b": {"hidden": 3072, "inner": 8192, "layers": 28, "heads": 24, "kv_heads": 8, "vocabulary": 128256},
    "8b": {"hidden": 4096, "inner": 14336, "layers": 32, "heads": 32, "kv_heads": 8, "vocabulary": 128256},
}
EXCLUDED = ("model.embed_tokens.*", "lm_head.*")
# What is measured: the folder, and the settings of TenfoldConfig.
MODES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "raw": ("raw", None),
    "lossy": ("lossy", {"keep_compressed": True, "prefetch": True, "buffers": 2}),
    "lossless": ("lossless", {"keep_compressed": True, "prefetch": True, "buffers": 2}),
    "lossless, no look-ahead": ("lossless", {"keep_compressed": True, "prefetch": False, "buffers": 1}),
    "lossy, no look-ahead": ("lossy", {"keep_compressed": True, "prefetch": False, "buffers": 1}),
}
PROMPT = 16


def make_models(base: Path, size: dict[str, int], bits: float, excluded: Sequence[str], device: str) -> None:
    """Writes the raw model and both compressed ones."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tenfold import _native

    config = LlamaConfig(
        hidden_size=size["hidden"],
        intermediate_size=size["inner"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"],
        vocab_size=size["vocabulary"],
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(config)
    # No token ends the text early, whatever the weights say.
    model.generation_config.eos_token_id = None
    model.save_pretrained(base / "raw", max_shard_size="4GB")
    del model
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    globs = [word for glob in excluded for word in ("--exclude", glob)]
    engine = ["--engine", "cuda"] if device.startswith("cuda") else []
    for name, goal in {"lossy": ["--bits", str(bits)], "lossless": ["--lossless"]}.items():
        command = ["tenfold", "compress", str(base / "raw"), "-o", str(base / name), *goal, *globs, *engine]
        if _native.main(command) != 0:
            sys.exit(f"{' '.join(command)} failed")


def measure(base: Path, mode: str, device: str, tokens: int) -> dict[str, Any]:
    """Loads a model one way and generates; in a process of its own."""
    import torch
    from transformers import AutoModelForCausalLM

    import tenfold.transformers

    folder, settings = MODES[mode]
    path = base / folder
    if settings is not None:
        config = json.loads((path / "config.json").read_text())
        config["quantization_config"].update(settings)
        (path / "config.json").write_text(json.dumps(config))
    on_cuda = device.startswith("cuda")
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to(device)
    load = time.perf_counter() - start
    ids = torch.arange(1, PROMPT + 1, device=device).unsqueeze(0)

    def generate(count: int) -> float:
        if on_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        out = model.generate(ids, min_new_tokens=count, max_new_tokens=count, do_sample=False, pad_token_id=0)
        if on_cuda:
            torch.cuda.synchronize()
        assert out.shape[1] == PROMPT + count
        return time.perf_counter() - start

    peak_loading = torch.cuda.max_memory_allocated() if on_cuda else None
    generate(4)
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    # What comes before the first token is timed alone and taken off.
    first = min(generate(1) for _ in range(3))
    seconds = min(generate(tokens + 1) for _ in range(2)) - first
    if on_cuda:
        tenfold.torch.check(device)
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    layers = getattr(getattr(model, "hf_quantizer", None), "layers", None)
    layer = sum(p.numel() for p in model.model.layers[0].parameters()) * 2
    if layers is not None:
        layer = max(stage.nbytes for stage in layers.stages if not stage.is_table)
    return {
        "mode": mode,
        "load_s": load,
        "stored_bytes": sum(file.stat().st_size for file in path.glob("*.safetensors")),
        "layer_bytes": layer,
        "buffer_bytes": sum(ring.nbytes for ring in layers.rings) if layers is not None else 0,
        "resident_bytes": model.get_memory_footprint(),
        "peak_bytes": peak,
        "peak_loading_bytes": peak_loading,
        "first_token_s": first,
        "tokens_per_s": tokens / seconds,
    }


def allowed(row: dict[str, Any]) -> int:
    """Bytes that a model which stays compressed may take."""
    return int(row["stored_bytes"] + 3 * row["layer_bytes"])


def keep(path: Path, notes: list[str], rows: list[dict[str, Any]], on_cuda: bool) -> None:
    """Writes the report. A CPU's memory is that of the whole process, so no bar applies to it."""
    checks = [
        {
            "what": f"peak memory of {row['mode']}, bytes (compressed size + 3 layers)",
            "value": row["peak_bytes"],
            "bar": allowed(row),
            "rule": "at most",
            "pass": row["peak_bytes"] <= allowed(row),
        }
        for row in rows
        if on_cuda and row["mode"] != "raw"
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    import torch
    import transformers
    from _about import about

    head = about("layers", torch, transformers)
    path.write_text(json.dumps({**head, "notes": notes, "checks": checks, "rows": rows}, indent=2) + "\n")


def show(rows: list[dict[str, Any]], on_cuda: bool) -> None:
    """Prints a table."""
    print(f"{'':26}{'stored GB':>10}{'peak GB':>9}{'allowed':>9}{'tokens/s':>10}")
    for row in rows:
        bar = f"{allowed(row) / 1e9:9.3f}" if on_cuda and row["mode"] != "raw" else f"{'-':>9}"
        sizes = f"{row['stored_bytes'] / 1e9:10.3f}{row['peak_bytes'] / 1e9:9.3f}"
        print(f"{row['mode']:26}{sizes}{bar}{row['tokens_per_s']:10.2f}")


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="1b")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bits", type=float, default=3.5, help="bits a value of the lossy model")
    parser.add_argument("--all", action="store_true", help="compress embeddings and head too")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    parser.add_argument("--work", type=Path, help="folder for the models, kept; a temporary one unless stated")
    parser.add_argument("--only", choices=MODES, action="append", help="measure this; may be repeated")
    parser.add_argument("--measure", choices=MODES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        row = measure(arguments.work, arguments.measure, arguments.device, arguments.tokens)
        print(json.dumps(row))
        return
    excluded = () if arguments.all else EXCLUDED
    on_cuda = arguments.device.startswith("cuda")
    notes = [
        f"Llama, {SIZES[arguments.size]}, made-up weights N(0, 0.02) in bfloat16; batch 1, {PROMPT} tokens of prompt",
        f"lossy at {arguments.bits} bits; excluded from compression: {', '.join(excluded) or 'nothing'}",
        "peak memory is that of generating, weights, buffers, activations and cache included"
        + ("" if on_cuda else "; on a CPU that of the process, files mapped while loading too"),
    ]
    work = arguments.work or Path(tempfile.mkdtemp(prefix="tenfold-layers-"))
    try:
        if not (work / "lossless").exists():
            print(f"making models of size {arguments.size} in {work}", file=sys.stderr)
            make_models(work, SIZES[arguments.size], arguments.bits, excluded, arguments.device)
        rows: list[dict[str, Any]] = []
        for mode in arguments.only or MODES:
            print(f"measuring: {mode}", file=sys.stderr)
            command = [sys.executable, __file__, "--measure", mode, "--work", str(work)]
            command += ["--device", arguments.device, "--tokens", str(arguments.tokens)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            # After each, so that what has been measured stays if the time is up.
            if arguments.json:
                keep(arguments.json, notes, rows, on_cuda)
    finally:
        if arguments.work is None:
            shutil.rmtree(work)
    show(rows, on_cuda)


if __name__ == "__main__":
    main()
