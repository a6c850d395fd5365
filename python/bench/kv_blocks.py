#!/usr/bin/env python3
"""How fast pages of a KV cache come out of compressed bytes into the blocks of an engine, and go back, beside a plain copy of the same
keys and values between pinned memory and the device.

    python python/bench/kv_blocks.py --json results/python/kv-blocks.json
    python python/bench/kv_blocks.py --device cpu --pages 4 --layers 2 --columns 64 --group 2      # does it run?

Keys and values are made up: a mixture of as many numbers a token as a group has vectors to serve the rate, and noise. Tokens lie in
blocks of 16 in no order. Rates are of keys and values in bf16, by wall time over several rounds; the device has done all of it when the clock
stops. The prefix is what a request loads: all its pages. "From bytes" the host reads headers and gathers blobs into pinned memory first;
what is staged has that behind it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _about import about
from _kv_pools import Pools, add_arguments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, pages=512, layers=32)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    bench = Bench(arguments)
    rows = bench.run()
    for row in rows:
        print(f"{row['what']:44} {row['ms']:10.2f} ms {row['gbps']:8.1f} GB/s  {row['over']:6.2f} of the copy")
    print(f"{bench.bits:.2f} bits a value, {16 / bench.bits:.1f} times fewer bytes")
    if arguments.json:
        content = {**about("kv_blocks", torch), "arguments": {k: str(v) for k, v in vars(arguments).items()}, "bits": bench.bits, "rows": rows}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


class Bench(Pools):
    """Moves all pages."""

    def timed(self, what: str, call: Callable[[], object], plain: float | None = None) -> dict[str, Any]:
        """Times one way of moving all keys and values."""

        def wait() -> None:
            if self.device.type == "cuda":
                torch.cuda.synchronize()

        call()
        took = []
        for _ in range(self.arguments.rounds):
            wait()
            since = time.perf_counter()
            call()
            wait()
            took.append((time.perf_counter() - since) * 1e3)
        ms = statistics.median(took)
        return {"what": what, "ms": ms, "gbps": self.bytes / ms / 1e6, "over": (plain or ms) / ms, "rounds": took}

    def run(self) -> list[dict[str, Any]]:
        pools = (self.keys, self.values)
        pinned = self.device.type == "cuda"
        host = [torch.empty(pool.shape, dtype=pool.dtype, pin_memory=pinned) for side in pools for pool in side]
        both = [pool for side in pools for pool in side]
        up = self.timed("copy, host to device", lambda: [to.copy_(of, non_blocking=True) for to, of in zip(both, host)])
        # The copy above has left nothing of what was there.
        self.fill()
        down = self.timed("copy, device to host", lambda: [to.copy_(of, non_blocking=True) for to, of in zip(host, both)])
        del host
        made: list[bytes] = []

        def encode() -> None:
            made[:] = self.codec.encode_blocks(self.slots, self.keys, self.values, positions=self.positions, step=self.arguments.step)

        rows = [up, down, self.timed("encode_blocks", encode, down["ms"])]
        self.bits = 8 * sum(map(len, made)) / (self.bytes / 2)
        flat = self.slots.flatten()
        load = self.timed("decode_blocks, from bytes", lambda: self.codec.decode_blocks(made, flat, self.keys, self.values), up["ms"])
        self.codec.decode_blocks(made, flat, self.keys, self.values).check()
        rows.append(load)
        if pinned:
            for where, pinned in (("pinned", True), ("on the device", False)):
                staged = self.codec.stage(made, flat, self.device, pinned=pinned)
                rows.append(self.timed(f"staged.decode, {where}", lambda: staged.decode(self.keys, self.values), up["ms"]))
                staged.decode(self.keys, self.values).check()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                staged.decode(self.keys, self.values)
            rows.append(self.timed("the same in a CUDA graph", graph.replay, up["ms"]))
        return rows


if __name__ == "__main__":
    main()
