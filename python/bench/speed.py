"""Speed of the package against that of the Rust library, on the same memory and in the same process.

    python python/bench/speed.py --json results/python/speed.json

Rounds alternate between the two, so that what else the machine does falls on both. Ratios are of rates, Python's over the
library's: the median of the rounds, the best rounds of either, and the time of all cores, which a busy machine changes
least. Needs torch, whose tensors it encodes.
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
from typing import NamedTuple

import torch

import tenfold
from tenfold import _native

BAR = 0.95


class Times(NamedTuple):
    """Seconds of one call, by the clock and of all cores together."""

    wall: float
    cpu: float


def ours(work: Callable[[], object]) -> Times:
    """Times a call through Python."""
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    times = Times(time.perf_counter() - start, time.process_time() - cpu)
    del result  # what a user drops later is no part of the work
    return times


def library(work: Callable[[], float]) -> Times:
    """Times a call of the Rust library, which holds the clock itself."""
    cpu = time.process_time()
    wall = work()
    return Times(wall, time.process_time() - cpu)


def compare(
    name: str, values: int, rounds: int, python: Callable[[], object], rust: Callable[[], float]
) -> dict[str, object]:
    """Times both in turn, either first every second round."""
    ours(python), library(rust)
    pairs = []
    for i in range(rounds):
        if i % 2:
            a = ours(python)
            b = library(rust)
        else:
            b = library(rust)
            a = ours(python)
        pairs.append((a, b))
    best = [min(pair[side].wall for pair in pairs) for side in (0, 1)]
    ratios = {
        "median_ratio": statistics.median(b.wall / a.wall for a, b in pairs),
        "best_ratio": best[1] / best[0],
        "cpu_ratio": statistics.median(b.cpu / a.cpu for a, b in pairs),
    }
    shown = "  ".join(f"{ratio:6.1%}" for ratio in ratios.values())
    print(f"{name:<28} {values / best[0] / 1e6:8.1f} {values / best[1] / 1e6:8.1f}   {shown}", flush=True)
    return {
        "name": name,
        **ratios,
        "python": [pair[0]._asdict() for pair in pairs],
        "rust": [pair[1]._asdict() for pair in pairs],
    }


def measure(values: int, rounds: int) -> list[dict[str, object]]:
    torch.manual_seed(0)
    x = (torch.randn(values // 4096, 4096) * 0.02).to(torch.bfloat16)
    out = torch.empty_like(x)
    rows = []
    print(f"{'million values a second':<28} {'Python':>8} {'Rust':>8}   {'median':>6}  {'best':>6}  {'cpu':>6} (bar {BAR:.0%})")
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
        for name, (python, rust) in tests.items():
            rows.append(compare(name, x.numel(), rounds, python, rust))
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
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"tenfold": tenfold.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "dtype": "bfloat16",
        "values": args.values,
        "bar": BAR,
        "load_average": os.getloadavg()[0],
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
