#!/usr/bin/env python3
"""How long `tenfold.transformers.compress` takes on a Llama of made-up weights: calibration, then encoding layer after layer.

    python python/bench/calibrate.py --size 8b --folder /dev/shm --json results/python/calibrate-8b.json
    python python/bench/calibrate.py --size tiny --device cpu                                  # does it run?

Weights and tokens are made up: time and memory do not depend on what they say. The folder needs room for the model and four bytes for
each value of the matrices E[x·xᵀ], 33 GB for an 8 B model. Making and saving the model does not count.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from _about import about
from kept_compressed import SIZES, build
from tenfold.transformers import compress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--layers", type=int, metavar="N", help="only so many layers")
    parser.add_argument("--contexts", type=int, default=32, metavar="N", help="contexts of 1,024 tokens to calibrate on")
    parser.add_argument("--bits", type=float, default=2.5)
    parser.add_argument("--effort", default="balanced", choices=["fast", "balanced", "best"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", type=Path, help="where the model and the work in progress lie (default: the system's temporary folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the report goes")
    args = parser.parse_args()
    size = SIZES[args.size] | ({"layers": args.layers} if args.layers else {})
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        report = about("calibrate", torch, transformers) | {"size": size} | measure(Path(folder), size, args)
    print(json.dumps(report["seconds"], indent=1), report["compressed"], sep="\n")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report, indent=1) + "\n")


def measure(folder: Path, size: dict[str, int], args: argparse.Namespace) -> dict[str, Any]:
    """Makes a model, compresses it, and says what took how long."""
    device = torch.device(args.device)
    model = build(size, device, None)[0].cpu()
    model.save_pretrained(folder / "model")
    del model
    tokens = torch.randint(size["vocabulary"], (args.contexts, 1024), generator=torch.Generator().manual_seed(1))
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = time.monotonic()
    ends: dict[int, float] = {}

    def tell(done: int, total: int) -> None:
        ends[done] = time.monotonic() - start
        if done % 8 == 0:
            print(f"{done} of {total} passes over layers, {ends[done]:.0f} s", flush=True)

    made = compress(folder / "model", folder / "small", texts=tokens, bits=args.bits, effort=args.effort, device=device, progress=tell)
    whole = time.monotonic() - start
    layers = size["layers"]
    seconds = {"loading and forwards": ends[layers], "backwards": ends[2 * layers] - ends[layers]}
    seconds |= {"encoding": ends[3 * layers] - ends[2 * layers], "writing": whole - ends[3 * layers], "all": whole}
    memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    about_all = {"bits": made.bits, "values": made.values, "tokens": made.tokens, "weights": len(made.weights)}
    return {"seconds": {name: round(one, 1) for name, one in seconds.items()}, "compressed": about_all, "device_memory": memory}


if __name__ == "__main__":
    main()
