#!/usr/bin/env python3
"""Thousands of loads and saves of pages, some of them damaged, and what they leave behind: memory of the device and of the host.

    python python/bench/kv_soak.py --loads 10000 --json results/python/kv-soak.json
    python python/bench/kv_soak.py --device cpu --loads 60 --warm 20 --pages 8 --most 4 --layers 2 --columns 64 --group 2 --strong 16

A load has some pages of a pool, as many as chance says, and puts them into blocks of another one. In turn it goes from bytes, through pages
that are staged on the device or in pinned memory, and layer by layer. Each k-th load has a page with a flipped bit: it must be refused, and the
others not. Each m-th load is followed by a save, whose pages are loaded too. What was loaded is compared with what a first load gave. Memory is noted before the first load, when all is warm, ten times from there on, and at the end. The program fails if anything of this is
not as it should be, or if memory has grown since the warm-up: what torch has handed out may not grow at all, the rest by no more than --slack.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _about import about
from _kv_pools import Pools, add_arguments
from tenfold import ArgumentError, DataError, UnsupportedError
from tenfold.torch import _blocks

MIB = 1 << 20
# Runs of layers of a load that goes layer by layer.
WAVES = 8
# What two loads of a page may differ by, of their squares: a device multiplies pages of a call together, and rounds as they come.
SAME = 1e-4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, pages=128, layers=16)
    parser.add_argument("--loads", type=int, default=10_000)
    parser.add_argument("--warm", type=int, default=500, help="loads before memory counts")
    parser.add_argument("--most", type=int, default=64, help="pages of a load")
    parser.add_argument("--damage-every", type=int, default=7, metavar="K", help="loads; 0: never")
    parser.add_argument("--save-every", type=int, default=13, metavar="M", help="loads; 0: never")
    parser.add_argument("--slack", type=int, default=64, help="MiB that what torch has reserved, what the device has left and the host's memory may grow by")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not 0 < arguments.warm < arguments.loads or not 0 < arguments.most <= arguments.pages:
        parser.error("--warm is below --loads, and --most is at most --pages")
    soak = Soak(arguments)
    report = soak.run()
    for complaint in report["complaints"]:
        print(complaint, file=sys.stderr)
    print("failed" if report["complaints"] else "memory did not grow")
    if arguments.json:
        content = {**about("kv_soak", torch), "arguments": {k: str(v) for k, v in vars(arguments).items()}, **report}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")
    return 1 if report["complaints"] else 0


def host_bytes() -> int:
    """Memory of this process that is not swapped out; where nobody says, the most that it ever had."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Wrong(Exception):
    """A load or a save that did what it must not."""


class Soak:
    """Pools to load from and to load into, and pages of the first."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.chance = arguments, random.Random(arguments.seed)
        self.pools = pools = Pools(arguments)
        self.codec, self.cuda = pools.codec, pools.device.type == "cuda"
        self.slots = pools.slots.tolist()
        self.pages = self.save(range(arguments.pages))
        self.first, self.into = ([[torch.zeros_like(pool) for pool in side] for side in (pools.keys, pools.values)] for _ in range(2))
        self.codec.decode_blocks(self.pages, pools.slots.flatten(), *self.first).check()
        self.counts = dict.fromkeys(("loads", "pages_loaded", "pages_refused", "saves", "pages_saved", "compared"), 0)
        self.ways: list[Callable[..., Any]] = [self.from_bytes]
        if self.cuda:
            self.ways += [self.staged, self.pinned, self.by_layer]

    # Ways to load pages to slots; each returns what says how they are.

    def from_bytes(self, pages: Sequence[bytes], slots: Sequence[Sequence[int]]) -> Any:
        return self.codec.decode_blocks(pages, [slot for row in slots for slot in row], *self.into)

    def staged(self, pages: Sequence[bytes], slots: Sequence[Sequence[int]]) -> Any:
        return self.codec.stage(pages, [slot for row in slots for slot in row], self.pools.device).decode(*self.into)

    def pinned(self, pages: Sequence[bytes], slots: Sequence[Sequence[int]]) -> Any:
        staged = self.codec.stage(pages, [slot for row in slots for slot in row], self.pools.device, pinned=True)
        staged.fetch()
        return staged.decode(*self.into)

    def by_layer(self, pages: Sequence[bytes], slots: Sequence[Sequence[int]]) -> Any:
        loading = _blocks.decode_in_order(self.codec, pages, slots, *self.into, WAVES)
        for layer in range(self.arguments.layers):
            loading.wait_for(layer)
        return loading

    def save(self, which: Sequence[int]) -> list[bytes]:
        positions = [self.pools.positions[number] for number in which]
        table = self.pools.slots[list(which)]
        return self.codec.encode_blocks(table, self.pools.keys, self.pools.values, positions=positions, step=self.arguments.step)

    def run(self) -> dict[str, Any]:
        samples = [self.sample(0)]
        if self.cuda:
            self.stretch()
        warm, loads = self.arguments.warm, self.arguments.loads
        noted = {warm, loads, *(warm + (loads - warm) * part // 10 for part in range(1, 10))}
        complaints: list[str] = []
        since = time.perf_counter()
        try:
            for number in range(1, loads + 1):
                self.load(number)
                if number in noted:
                    samples.append(self.sample(number))
        except Wrong as error:
            complaints.append(f"load {number}: {error}")
        else:
            complaints += self.grown(samples[1], samples[-1])
        seconds = time.perf_counter() - since
        print(f"{self.counts['loads']} loads of {self.counts['pages_loaded']} pages in {seconds:.0f} s, {self.counts['pages_refused']} pages refused, "
              f"{self.counts['pages_saved']} saved")
        return {"seconds": seconds, **self.counts, "samples": samples, "complaints": complaints}

    def stretch(self) -> None:
        """Loads and saves as much as there may be at a time, in all ways, so that memory for it is there when it counts."""
        every = range(self.arguments.most)
        for way in self.ways:
            way(self.pages[: len(every)], [self.slots[number] for number in every]).check()
        self.save(every)

    def load(self, number: int) -> None:
        arguments = self.arguments
        count = self.chance.randint(1, arguments.most)
        which = self.chance.sample(range(arguments.pages), count)
        where = self.chance.sample(range(arguments.pages), count)
        pages = [self.pages[page] for page in which]
        bad = self.chance.randrange(count) if arguments.damage_every and number % arguments.damage_every == 0 else None
        if bad is not None:
            pages[bad] = self.flipped(pages[bad])
        way = self.chance.choice(self.ways)
        errors = self.outcome(way, pages, [self.slots[row] for row in where])
        self.counts["loads"] += 1
        if errors is None:
            if bad is None:
                raise Wrong(f"whole pages were refused ({way.__name__})")
            self.counts["pages_refused"] += 1
        else:
            refused = [page for page, error in enumerate(errors) if error is not None]
            if refused != ([] if bad is None else [bad]):
                raise Wrong(f"pages {refused} of {count} were refused, {bad} is damaged ({way.__name__})")
            self.counts["pages_refused"] += len(refused)
            self.counts["pages_loaded"] += count - len(refused)
            self.compare([pair for page, pair in enumerate(zip(which, where)) if page != bad])
        if arguments.save_every and number % arguments.save_every == 0:
            self.from_bytes(self.save(which), [self.slots[row] for row in where]).check()
            self.compare(list(zip(which, where)))
            self.counts["saves"] += 1
            self.counts["pages_saved"] += count

    def outcome(self, way: Callable[..., Any], pages: Sequence[bytes], slots: Sequence[Sequence[int]]) -> list[Exception | None] | None:
        """What is wrong with each page; None if the call was refused before anything was decoded."""
        try:
            errors: list[Exception | None] = way(pages, slots).errors()
        except (DataError, ArgumentError, UnsupportedError):
            return None
        if any(error is not None and not isinstance(error, DataError) for error in errors):
            raise Wrong(f"a page failed otherwise than by its data: {errors}")
        return errors

    def flipped(self, page: bytes) -> bytes:
        bent = bytearray(page)
        bent[self.chance.randrange(len(bent))] ^= 1 << self.chance.randrange(8)
        return bytes(bent)

    def compare(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Whether pages are where they should be, in one layer."""
        if not pairs:
            return
        side, layer = self.chance.randrange(2), self.chance.randrange(self.arguments.layers)
        page, row = (torch.tensor([self.slots[pair[of]] for pair in pairs], device=self.pools.device).flatten() for of in range(2))
        want, have = self.first[side][layer].flatten(0, 1)[page].float(), self.into[side][layer].flatten(0, 1)[row].float()
        off = float((have - want).square().sum() / want.square().sum())
        if not off < SAME:
            raise Wrong(f"pages came out otherwise than the first time, by {off:.2g} of their squares")
        self.counts["compared"] += len(pairs)

    def sample(self, number: int) -> dict[str, int]:
        """Memory, when nothing is under way."""
        gc.collect()
        found = {"loads": number, "host": host_bytes()}
        if self.cuda:
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            found |= {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(), "used": total - free, "free": free}
        print(f"after {number:6} loads: " + ", ".join(f"{name} {value / MIB:.1f} MiB" for name, value in found.items() if name != "loads"), flush=True)
        return found

    def grown(self, warm: dict[str, int], end: dict[str, int]) -> list[str]:
        """What has grown."""
        slack = {"host": self.arguments.slack, "allocated": 0, "reserved": self.arguments.slack, "used": self.arguments.slack}
        return [
            f"{name} grew by {(end[name] - warm[name]) / MIB:.1f} MiB, {most} may be"
            for name, most in slack.items()
            if name in end and end[name] - warm[name] > most * MIB
        ]


if __name__ == "__main__":
    sys.exit(main())
