#!/usr/bin/env python3
"""How much of the CUDA engine's rate arrives in torch: `tenfold.torch.decode` into a preallocated tensor, a `Decoder`, and
`decode_many`, beside the engine itself, which decodes the same blobs from Rust with nothing of Python in between.

Made-up weights (bf16, N(0, 0.02)) at 2.5 bits. Calls rotate over more memory than a cache holds. Times are the device's own, over
a run of calls that are queued one after the other; the median of several rounds, in which the ways take turns.

    python python/bench/torch_cuda.py --json results/python/torch-cuda.json
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

import numpy as np
import tenfold
import tenfold.torch
import torch
from _about import about
from tenfold import _native
from tenfold.torch import _cuda, _device

MI = 1 << 20
# Memory over which calls rotate.
ROTATE = 512 * MI
BAR = 0.9


class Case:
    """Blobs of one size, and outputs for them."""

    def __init__(self, values: int, bits: float, effort: str, device: torch.device) -> None:
        self.values = values
        rotation = max(2, -(-ROTATE // (2 * values)))
        x = (torch.randn(values, device=device, dtype=torch.bfloat16) * 0.02).view(-1, 4096)
        blob = tenfold.torch.encode(x, bits=bits, effort=effort, lane_values=_native.cuda_lane_values(values))
        self.bits = blob.numel() * 8 / values
        self.blobs = [blob.clone() for _ in range(rotation)]
        self.outs = [torch.empty_like(x) for _ in range(rotation)]
        info = _cuda.inspect(blob)
        pairs = list(zip(self.blobs, self.outs, strict=True))
        self.requests = [_cuda.requests([b], [o], [info], _cuda.Limits()) for b, o in pairs]
        self.decoders = [tenfold.torch.Decoder([b], [o]) for b, o in pairs]
        self.workspace = torch.empty(self.requests[0].workspace_len, dtype=torch.uint8, device=device)
        self.status = torch.zeros(2, dtype=torch.int64, device=device)

    def check(self) -> None:
        """All outputs are what the CPU decodes."""
        tenfold.torch.check()
        raw = tenfold.decode(self.blobs[0].cpu().numpy(), dtype="raw")
        expected = torch.from_numpy(raw.view(np.int16)).view(torch.bfloat16).to(self.outs[0].device)
        for out in self.outs:
            if not torch.equal(out.view(torch.int16), expected.view(torch.int16)):
                sys.exit("what the device decoded is not what the CPU decodes")
            out.zero_()

    def engine(self, calls: int) -> float:
        """Milliseconds a call, from Rust."""
        requests = [self.requests[i % len(self.requests)] for i in range(calls)]
        device = self.outs[0].device
        memory = (self.workspace.data_ptr(), self.workspace.nbytes)
        stream = _device.stream(device).cuda_stream
        took = _device.native(device).time_decode(requests, self.status.data_ptr(), memory, stream)
        return took / calls

    def ways(self) -> dict[str, Callable[[int], object]]:
        return {
            "decode": lambda i: tenfold.torch.decode(self.blobs[i], out=self.outs[i]),
            "Decoder": lambda i: self.decoders[i](),
        }


def timed(call: Callable[[int], object], calls: int, rotation: int) -> tuple[float, float]:
    """Milliseconds a call on the device, and microseconds that the host takes to queue one."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    since = time.perf_counter()
    for i in range(calls):
        call(i % rotation)
    queued = time.perf_counter() - since
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls, queued / calls * 1e6


def measure(case: Case, rounds: int) -> dict[str, Any]:
    calls = max(20, min(400, (32 << 30) // (2 * case.values)))
    rotation = len(case.blobs)
    times: dict[str, list[float]] = {"engine": []}
    host: dict[str, list[float]] = {}
    ways = case.ways()
    for name, way in ways.items():
        timed(way, 2 * rotation, rotation)
        case.check()
        times[name], host[name] = [], []
    case.engine(2 * rotation)
    for _ in range(rounds):
        times["engine"].append(case.engine(calls))
        for name, way in ways.items():
            took, queued = timed(way, calls, rotation)
            times[name].append(took)
            host[name].append(queued)
    tenfold.torch.check()
    rate = {name: 2 * case.values / statistics.median(t) / 1e6 for name, t in times.items()}
    return {
        "values": case.values,
        "bits": case.bits,
        "calls": calls,
        "rotation": rotation,
        "gb_per_s": rate,
        "of_engine": {name: rate[name] / rate["engine"] for name in ways},
        "host_us_per_call": {name: statistics.median(t) for name, t in host.items()},
        "milliseconds": times,
    }


def many(device: torch.device, bits: float, effort: str, rounds: int) -> dict[str, Any]:
    """A layer's tensors: one call for all of them against one call each."""
    shapes = [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (14336, 4096), (14336, 4096), (4096, 14336)]
    layer = [torch.randn(s, device=device, dtype=torch.bfloat16) * 0.02 for s in shapes]
    blobs = [tenfold.torch.encode(x, bits=bits, effort=effort) for x in layer]
    outs = [[torch.empty_like(x) for x in layer] for _ in range(2)]
    size = sum(x.nbytes for x in layer)
    decoders = [tenfold.torch.Decoder(blobs, o) for o in outs]
    ways: dict[str, Callable[[int], object]] = {
        "decode_many": lambda i: tenfold.torch.decode_many(blobs, outs[i]),
        "Decoder": lambda i: decoders[i](),
        "one by one": lambda i: [tenfold.torch.decode(b, out=o) for b, o in zip(blobs, outs[i], strict=True)],
    }
    rate = {}
    for name, way in ways.items():
        timed(way, 4, 2)
        rate[name] = size / statistics.median([timed(way, 40, 2)[0] for _ in range(rounds)]) / 1e6
    tenfold.torch.check()
    return {"shapes": shapes, "gb_per_s": rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, action="append", help="values of a tensor in Mi; 512, 64 and 16 unless stated")
    parser.add_argument("--bits", type=float, default=2.5)
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here")
    device = torch.device("cuda", torch.cuda.current_device())
    results = []
    for size in args.size or [512, 64, 16]:
        print(f"{size} Mi values: encoding", flush=True)
        case = Case(size * MI, args.bits, args.effort, device)
        result = measure(case, args.rounds)
        results.append(result)
        rate, share = result["gb_per_s"], result["of_engine"]
        for name in share:
            verdict = "" if name != "decode" else ("ok" if share[name] >= BAR else "MISSED")
            print(
                f"{size:4} Mi  {name:8} {rate[name]:7.0f} GB/s of bf16, engine {rate['engine']:7.0f}: {share[name]:6.1%} "
                f"(bar {BAR:.0%}) {verdict}; {result['host_us_per_call'][name]:.1f} us a call on the host",
                flush=True,
            )
        del case
        torch.cuda.empty_cache()
    layer = many(device, args.bits, args.effort, args.rounds)
    print("a layer of seven tensors:", ", ".join(f"{n} {r:.0f} GB/s" for n, r in layer["gb_per_s"].items()))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        report = {**about("torch_cuda", torch), "bits": args.bits, "effort": args.effort, "decode": results, "layer": layer}
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
