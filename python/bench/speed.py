"""Speed of the package against that of the Rust library, on the same memory and in the same process.

    python python/bench/speed.py --json results/python/speed.json

Rounds alternate between the two, so that what else the machine does falls on both. A figure is the median of the rounds'
ratios: rate through Python over rate of the library. Needs torch, whose tensors it encodes.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

import tenfold
from tenfold import _native

BAR = 0.95


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    result = work()
    end = time.perf_counter()
    del result  # what a user drops later is no part of the work
    return end - start


def compare(name: str, values: int, rounds: int, ours: Callable[[], float], library: Callable[[], float]) -> dict[str, object]:
    """Times both in turn, either first every second round."""
    ours(), library()
    pairs = []
    for i in range(rounds):
        first, second = (ours, library) if i % 2 else (library, ours)
        a, b = first(), second()
        pairs.append((a, b) if i % 2 else (b, a))
    ratio = statistics.median(rust / python for python, rust in pairs)
    python, rust = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{name:<24} {values / python / 1e6:8.1f} {values / rust / 1e6:8.1f}   {ratio:6.1%}")
    return {
        "name": name,
        "python_mvalues_per_s": values / python / 1e6,
        "rust_mvalues_per_s": values / rust / 1e6,
        "ratio": ratio,
        "python_s": [pair[0] for pair in pairs],
        "rust_s": [pair[1] for pair in pairs],
    }


def measure(values: int, rounds: int) -> list[dict[str, object]]:
    torch.manual_seed(0)
    x = (torch.randn(values // 4096, 4096) * 0.02).to(torch.bfloat16)
    out = torch.empty_like(x)
    rows = []
    print(f"{'million values a second':<24} {'Python':>8} {'Rust':>8}   ratio (bar {BAR:.0%})")
    goals: list[tuple[str, dict[str, object]]] = [
        ("bits=2.5", {"bits": 2.5}),
        ("bits=2.5, fast", {"bits": 2.5, "effort": "fast"}),
        ("lossless", {"lossless": True}),
    ]
    for text, goal in goals:
        codec = tenfold.Codec(**goal)  # type: ignore[arg-type]
        blob = codec.encode(x)
        room = bytearray(len(blob))
        tests = {
            f"encode {text}": (lambda: codec.encode(x), lambda: _native.time_encode(x, codec._options)),
            f"encode_into {text}": (lambda: codec.encode_into(x, room), lambda: _native.time_encode(x, codec._options)),
            f"decode {text}": (lambda: codec.decode(blob, dtype="raw"), lambda: _native.time_decode(blob)),
            f"decode out= {text}": (lambda: codec.decode(blob, out=out), lambda: _native.time_decode(blob, out)),
        }
        for name, (ours, library) in tests.items():
            rows.append(compare(name, x.numel(), rounds, lambda ours=ours: seconds(ours), library))  # type: ignore[misc]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=64 << 20, help="values of the tensor (default: 64 Mi)")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of measurements (default: 7)")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the raw measurements")
    args = parser.parse_args()
    rows = measure(args.values, args.rounds)
    if args.json is None:
        return
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    report = {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit,
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"tenfold": tenfold.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "dtype": "bfloat16",
        "values": args.values,
        "bar": BAR,
        "rows": rows,
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(report, indent=1) + "\n")


def cpu_name() -> str:
    """The processor, as Linux names it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
