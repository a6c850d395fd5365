#!/usr/bin/env python3
"""What `tenfold.delta.apply_` takes in a loop that brings the weights of a model on a CUDA device up to date, beside copies of the new weights.

Made-up weights: one f32 matrix of 1024 × 4096 of which a tenth changes, and layers of an 8 B Llama in bf16 of which a hundredth changes. The
delta is in the host's memory. A round applies the delta of A to B and then that of B to A; times are the host's until the device is done.

    python python/bench/deltas.py --json results/python/deltas.json
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import tenfold
import torch
from _about import about

# A layer of an 8 B Llama.
LAYER = [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (14336, 4096), (14336, 4096), (4096, 14336)]
Versions = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


def versions(shapes: list[tuple[int, int]], dtype: torch.dtype, share: float, device: torch.device) -> Versions:
    """Two versions of a state dict: a share of the values moves by a hundredth of the deviation, all others keep their bits."""
    old, new = {}, {}
    for at, shape in enumerate(shapes):
        weights = torch.randn(shape, device=device) * 0.02
        moved = weights + torch.randn(shape, device=device) * 0.0002
        there = torch.rand(shape, device=device) < share
        name = f"{at}.weight"
        old[name] = weights.to(dtype)
        # A bf16 that is moved by less than its spacing would stay: it takes the next number.
        bits = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        stepped = (old[name].view(bits) + 1).view(dtype)
        other = torch.where(moved.to(dtype) == old[name], stepped, moved.to(dtype))
        new[name] = torch.where(there, other, old[name])
    return old, new


def timed(ways: list[Callable[[], object]], rounds: int) -> list[float]:
    """Milliseconds a call; calls alternate, as there and back."""
    times = []
    for at in range(rounds * len(ways)):
        torch.cuda.synchronize()
        since = time.perf_counter()
        ways[at % len(ways)]()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - since) * 1e3)
    return times[len(ways) :]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name].view(torch.uint8), b[name].view(torch.uint8)) for name in a)


def measure(name: str, pair: Versions, rounds: int) -> dict[str, Any]:
    old, new = pair
    size = sum(one.nbytes for one in old.values())
    host = tuple({name: one.cpu() for name, one in side.items()} for side in pair)
    since = time.perf_counter()
    there, back = tenfold.delta.make(host[0], host[1]), tenfold.delta.make(host[1], host[0])
    made = (time.perf_counter() - since) / 2
    pinned = tuple({name: one.pin_memory() for name, one in side.items()} for side in host)
    target = {name: one.clone() for name, one in old.items()}

    def copy(source: dict[str, torch.Tensor]) -> Callable[[], None]:
        def call() -> None:
            for name, one in target.items():
                one.copy_(source[name], non_blocking=True)

        return call

    def apply(verify: str) -> list[Callable[[], object]]:
        return [lambda: tenfold.delta.apply_(target, there, verify=verify), lambda: tenfold.delta.apply_(target, back, verify=verify)]

    ways = {
        'apply_(verify="touched")': apply("touched"),
        'apply_(verify="whole")': apply("whole"),
        "copies from pinned memory": [copy(pinned[1]), copy(pinned[0])],
        "copies from plain memory": [copy(host[1]), copy(host[0])],
    }
    rows = {}
    for way, calls in ways.items():
        calls[0]()
        if not same(target, new):
            sys.exit(f"{name}, {way}: the tensors are not the new ones")
        calls[1]()
        if not same(target, old):
            sys.exit(f"{name}, {way}: the tensors are not the old ones again")
        times = timed(calls, rounds)
        rows[way] = {"ms": statistics.median(times), "times_ms": times}
        print(f"{name:40} {way:28} {rows[way]['ms']:8.3f} ms", flush=True)
    print(f"{name:40} {len(there):,} of {size:,} bytes cross the link", flush=True)
    return {"case": name, "tensors": len(old), "tensor_bytes": size, "delta_bytes": len(there), "make_s": made, "ways": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2, help="layers of the 8 B Llama")
    parser.add_argument("--share", type=float, default=0.01, help="of the layers' weights that change")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here")
    device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(1)
    results = [
        measure("f32, 1024 x 4096, a tenth changed", versions([(1024, 4096)], torch.float32, 0.1, device), args.rounds),
        measure(
            f"{args.layers} layers of 8 B, bf16, {args.share:.0%} changed",
            versions(LAYER * args.layers, torch.bfloat16, args.share, device),
            args.rounds,
        ),
    ]
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({**about("deltas", torch), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
