#!/usr/bin/env python3
"""How long calls from Python take with one matrix of a model, and with all matrices of a layer: what launches and waiting cost.

    python python/bench/small.py --json results/python/small.json
    python python/bench/small.py --device cpu --side 512                 # does it run?

Made-up weights (bf16, N(0, 0.02)) at 3 bits. Milliseconds of wall time a call, the median of several rounds of calls one after the
other; the device has done all of them when the clock stops. The bars are an H200's, for a side of 4096.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenfold.torch
import torch
from _about import about

BARS = {"encode, balanced": 0.5, "decode": 0.08}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--side", type=int, default=4096, help="of the square matrix")
    parser.add_argument("--bits", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20, help="calls a round")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    arguments = parser.parse_args()
    rows = [*matrix(arguments), *layer(arguments)]
    for row in rows:
        bar = f"  (bar: {row['bar']})" if "bar" in row else ""
        print(f"{row['what']:28} {row['ms']:9.3f} ms{bar}")
    if arguments.json:
        checks = [{"what": r["what"], "value": r["ms"], "bar": r["bar"], "rule": "at most", "pass": r["ms"] <= r["bar"]}
                  for r in rows if "bar" in r]
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({**about("small", torch), "checks": checks, "rows": rows}, indent=2) + "\n")


def timed(arguments: argparse.Namespace, what: str, call: Callable[[], object]) -> dict[str, Any]:
    """Times one way of doing it."""
    on_cuda = torch.device(arguments.device).type == "cuda"

    def wait() -> None:
        if on_cuda:
            torch.cuda.synchronize()

    for _ in range(3):
        call()
    took = []
    for _ in range(arguments.rounds):
        wait()
        since = time.perf_counter()
        for _ in range(arguments.calls):
            call()
        wait()
        took.append((time.perf_counter() - since) / arguments.calls * 1e3)
    row = {"what": what, "ms": statistics.median(took), "rounds": took}
    if on_cuda and arguments.side == 4096 and what in BARS:
        row["bar"] = BARS[what]
    return row


def weight(arguments: argparse.Namespace, *shape: int) -> torch.Tensor:
    return (torch.randn(*shape, device=arguments.device) * 0.02).bfloat16()


def matrix(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One matrix: every effort, and every way to decode."""
    x = weight(arguments, arguments.side, arguments.side)
    goals = {effort: {"bits": arguments.bits, "effort": effort} for effort in ("fast", "balanced", "best")}
    goals["lossless"] = {"lossless": True}
    rows = [timed(arguments, f"encode, {name}", lambda goal=goal: tenfold.torch.encode(x, **goal)) for name, goal in goals.items()]
    blob, out = tenfold.torch.encode(x, **goals["balanced"]), torch.empty_like(x)
    rows.append(timed(arguments, "decode", lambda: tenfold.torch.decode(blob)))
    rows.append(timed(arguments, "decode, out=", lambda: tenfold.torch.decode(blob, out=out)))
    if x.is_cuda:
        decoder = tenfold.torch.Decoder([blob], [out])
        rows.append(timed(arguments, "Decoder", decoder))
        decoder.check()
        tenfold.torch.check()
    return rows


def layer(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A Llama's layer, one tensor after the other and several at a time."""
    side, inner, kv = arguments.side, arguments.side * 7 // 2, arguments.side // 4
    shapes = [(side, side), (kv, side), (kv, side), (side, side), (inner, side), (inner, side), (side, inner)]
    weights = [weight(arguments, *shape) for shape in shapes]
    goal = {"bits": arguments.bits, "effort": "fast"}
    return [
        timed(arguments, "layer, one by one", lambda: [tenfold.torch.encode(x, **goal) for x in weights]),
        timed(arguments, "layer, encode_many", lambda: tenfold.torch.encode_many(weights, **goal)),
    ]


if __name__ == "__main__":
    main()
