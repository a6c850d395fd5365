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
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _about import about
from safetensors.torch import save_file
from tenfold import _native
from tenfold.kv import PageCodec

BLOCK = 16
# Of the rotary positions.
BASE = 500000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pages", type=int, default=512, help="of 64 tokens; 512 are a prefix of 32k")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--columns", type=int, default=1024, help="of keys in a layer, in heads of 128 or fewer")
    parser.add_argument("--group", type=int, default=1, help="layers that share a basis")
    parser.add_argument("--strong", type=int, default=512, help="numbers that make a token's row of a group")
    parser.add_argument("--step", type=float, default=0.09)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to keep the figures")
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


class Bench:
    """Pools with tokens in them, a codec for these, and their pages."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.device = arguments, torch.device(arguments.device)
        self.head = min(128, arguments.columns)
        generator = torch.Generator(self.device).manual_seed(0)
        width = arguments.group * arguments.columns
        decay = 4 * torch.exp2(-6 * torch.arange(arguments.strong, device=self.device) / arguments.strong)
        mix = torch.randn(arguments.strong, width, generator=generator, device=self.device) * decay[:, None] / arguments.strong**0.5
        self.generator, self.mix = generator, mix
        self.codec = self.fitted()
        tokens = 64 * arguments.pages
        blocks = tokens // BLOCK + 8
        shape = (blocks, BLOCK, arguments.columns // self.head, self.head)
        self.keys, self.values = ([torch.empty(shape, dtype=torch.bfloat16, device=self.device) for _ in range(arguments.layers)]
                                  for _ in range(2))
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(1))[: tokens // BLOCK]
        self.slots = (order[:, None] * BLOCK + torch.arange(BLOCK)).view(arguments.pages, 64)
        self.fill()
        self.positions = [64 * page for page in range(arguments.pages)]
        self.bytes = 2 * tokens * arguments.layers * arguments.columns * 2

    def fill(self) -> None:
        """Puts tokens into all blocks, and turns keys as a model does."""
        position = torch.zeros(len(self.keys[0]) * BLOCK, dtype=torch.float64, device=self.device)
        position[self.slots.flatten().to(self.device)] = torch.arange(self.slots.numel(), dtype=torch.float64, device=self.device)
        speed = BASE ** (-torch.arange(0, self.head, 2, dtype=torch.float64, device=self.device) / self.head)
        angle = (position[:, None] * speed).view(-1, BLOCK, 1, self.head // 2)
        cos, sin = angle.cos().float(), angle.sin().float()
        for side in (self.keys, self.values):
            for first in range(0, len(side), self.arguments.group):
                # By parts: rows of a long context take much memory as f32.
                for at in range(0, len(side[0]), 256):
                    rows = self.rows(BLOCK * min(256, len(side[0]) - at)).bfloat16()
                    for number, layer in enumerate(rows.split(self.arguments.columns, dim=1)):
                        tokens = layer.reshape(-1, *side[0].shape[1:])
                        if side is self.keys:
                            one, two = tokens.float().chunk(2, dim=-1)
                            c, s = cos[at : at + 256], sin[at : at + 256]
                            tokens = torch.cat([one * c - two * s, one * s + two * c], dim=-1).bfloat16()
                        side[first + number][at : at + 256] = tokens

    def rows(self, tokens: int) -> torch.Tensor:
        few = torch.randn(tokens, len(self.mix), generator=self.generator, device=self.device)
        noise = 0.02 * torch.randn(tokens, self.mix.shape[1], generator=self.generator, device=self.device)
        return few @ self.mix + noise

    def fitted(self) -> PageCodec:
        """A codec with bases from rows of the same kind."""
        arguments = self.arguments
        with tempfile.TemporaryDirectory() as folder:
            captured, path = Path(folder) / "captured.safetensors", Path(folder) / "model.basis"
            rows = self.rows(4 * self.mix.shape[1]).bfloat16().cpu().split(arguments.columns, dim=1)
            named = {}
            for layer in range(arguments.layers):
                for kind in ("k_before_rope", "v"):
                    named[f"layers.{layer}.{kind}"] = rows[layer % arguments.group].clone()
            save_file(named, captured)
            how = ["--group", arguments.group, "--rope", f"base={BASE:.0f},head={self.head},pairing=halves", "--head-dim", self.head]
            command = ["basis", "fit", captured, "--out", path, "--parts", 0, "--bits", 2.5, "--quiet", *how]
            if _native.main(["tenfold", *map(str, command)]) != 0:
                raise SystemExit("the bases were not made")
            return PageCodec(path, effort="fast")

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
        return rows


if __name__ == "__main__":
    main()
