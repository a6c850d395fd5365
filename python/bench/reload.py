#!/usr/bin/env python3
"""Milliseconds to bring pages of a cache out of files into blocks: on stages, and by what else there is.

    python python/bench/reload.py --json results/python/reload.json
    python python/bench/reload.py --pages 8 --layers 2 --rounds 1          # does it run?

Pages of made-up keys and values, as wide as those of an 8 B model, lie in a FileStore, as the plug-ins for vLLM and SGLang keep them. They
are read, checked and decoded into blocks in the host's memory, by as many threads in each way:

    in turn    all records are read, then all pages are decoded, as with "load": "layers" before
    by thread  each thread reads a page and then decodes it, as with "load": "whole" before
    stages     what the plug-ins do: pages are read while others are decoded, a window of them at a time
    layers     the same, layer by layer over all pages; also the time until the first of eight runs of layers is in all blocks

Before each round the system is asked to forget the files. Rounds take turns, since machines are noisy: a ratio is the median over rounds
of one way's time over that of `stages` in the same round. Every way must leave the same bits in the blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from logging import getLogger
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from _about import about
from tenfold.serving import FileStore, Identity, KvPages
from tenfold.serving._reloads import Reloads, Trace
from tenfold.serving._stats import Counts

BLOCK = 16
# Runs of layers, as in the plug-in for vLLM.
WAVES = 8
GOALS: dict[str, dict[str, Any]] = {"4 bits": {"bits": 4.0}, "lossless": {"lossless": True}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="of a page")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--columns", type=int, default=1024, help="of a layer's keys, and of its values")
    parser.add_argument("--threads", type=int, default=0, help="that read, and that decode; one a core unless stated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the files lie; a temporary one unless stated")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    arguments = parser.parse_args()
    arguments.threads = arguments.threads or os.cpu_count() or 1
    # A thread of each way decodes a page; torch's own would be beside those.
    torch.set_num_threads(1)
    found = []
    for goal, how in GOALS.items():
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            found.append({"goal": goal, **Bench(arguments, how, Path(folder)).run()})
        show(found[-1])
    if arguments.json:
        shape = {name: getattr(arguments, name) for name in ("pages", "tokens", "layers", "columns", "threads", "rounds")}
        report = about("reload", torch) | {"load": os.getloadavg()[0], **shape, "goals": found}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def show(found: dict[str, Any]) -> None:
    print(f"{found['goal']}: {found['raw_bytes'] / 1e6:.0f} MB in {found['bytes'] / 1e6:.0f} MB of files; reading and decoding overlap by "
          f"{found['overlap']:.0%} of what is possible")  # fmt: skip
    for way, seconds in found["seconds"].items():
        beside = f"{found['over_stages'][way]:5.2f} x stages" if way in found["over_stages"] else ""
        print(f"    {way:12} {1e3 * seconds:8.1f} ms  {beside}")


class Bench:
    """Pages in files, and blocks for them."""

    def __init__(self, arguments: argparse.Namespace, how: dict[str, Any], folder: Path) -> None:
        self._arguments = arguments
        self._pages = KvPages(arguments.layers, threads=1, **how)
        self._store = FileStore(folder, Identity("bench", "1", "bfloat16", layout=self._pages.describe()))
        self._keys = [f"page {number}" for number in range(arguments.pages)]
        generator = torch.Generator().manual_seed(1)
        scales = torch.exp(torch.randn(2 * arguments.layers, 1, arguments.columns, generator=generator))
        for number, key in enumerate(self._keys):
            rows = torch.randn(2 * arguments.layers, arguments.tokens, arguments.columns, generator=generator)
            layers = list((rows * scales).bfloat16())
            page = self._pages.encode(layers[: arguments.layers], layers[arguments.layers :], number * arguments.tokens)
            self._store.put(key, page)
        blocks = arguments.pages * arguments.tokens // BLOCK
        self._blocks = torch.zeros(arguments.layers, blocks, 2, BLOCK, arguments.columns, dtype=torch.bfloat16)

    def run(self) -> dict[str, Any]:
        """Seconds of each way, medians over rounds."""
        ways: dict[str, Callable[[], float | None]] = {
            "in turn": self._in_turn, "by thread": self._by_thread, "stages": self._on_stages, "layers": self._by_layer
        }  # fmt: skip
        self._counts, first, rounds = Counts(), [], []
        expected = None
        # The first round counts for nothing: memory is taken.
        for number in range(self._arguments.rounds + 1):
            taken = {}
            for way, work in ways.items():
                self._forget()
                self._blocks.zero_()
                began = time.perf_counter()
                at = work()
                taken[way] = time.perf_counter() - began
                if at is not None:
                    first.append(at - began)
                expected = self._blocks.clone() if expected is None else expected
                assert torch.equal(self._blocks, expected), way
            if number == 0:
                self._counts, first = Counts(), []
            else:
                rounds.append(taken)
        totals = self._counts.totals()
        seconds = {way: statistics.median(taken[way] for taken in rounds) for way in ways}
        seconds["first layers"] = statistics.median(first)
        ratios = {way: statistics.median(taken[way] / taken["stages"] for taken in rounds) for way in ways if way != "stages"}
        ratios["first layers"] = statistics.median(at / taken["stages"] for at, taken in zip(first, rounds, strict=True))
        stored = sum(path.stat().st_size for path, _, _ in self._store._records())
        return {
            "raw_bytes": self._blocks.nbytes, "bytes": stored, "seconds": seconds, "over_stages": ratios, "rounds": rounds,
            "read_seconds": totals["read_seconds"] / len(rounds), "decode_seconds": totals["decode_seconds"] / len(rounds),
            "overlap": totals["load_overlap"],
        }  # fmt: skip

    def _forget(self) -> None:
        for path, _, _ in self._store._records():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _read(self, key: str) -> memoryview:
        payload = self._store.get(key)
        assert payload is not None, key
        return payload

    def _decode(self, number: int, payload: memoryview, run: range | None = None) -> None:
        """Decodes layers of a page, all of them unless stated, and copies them into its blocks, as the plug-ins do."""
        size, columns = self._arguments.tokens, self._arguments.columns
        layers = range(self._arguments.layers) if run is None else run
        keys, values = ([torch.empty(size, columns, dtype=torch.bfloat16) for _ in layers] for _ in range(2))
        if run is None:
            self._pages.decode(payload, keys, values)
        else:
            self._pages.decode_run(payload, run, keys, values)
        first = number * size // BLOCK
        for layer, key, value in zip(layers, keys, values, strict=True):
            blocks = self._blocks[layer, first : first + size // BLOCK]
            blocks[:, 0].copy_(key.view(-1, BLOCK, columns))
            blocks[:, 1].copy_(value.view(-1, BLOCK, columns))

    def _in_turn(self) -> None:
        with ThreadPoolExecutor(self._arguments.threads) as threads:
            payloads = list(threads.map(self._read, self._keys))
            list(threads.map(self._decode, range(len(payloads)), payloads))

    def _by_thread(self) -> None:
        with ThreadPoolExecutor(self._arguments.threads) as threads:
            list(threads.map(lambda number: self._decode(number, self._read(self._keys[number])), range(len(self._keys))))

    def _reloads(self) -> Reloads:
        return Reloads(ThreadPoolExecutor(1), self._arguments.threads, Trace(None, "", getLogger("reload")))

    def _on_stages(self) -> None:
        reloads, counts = self._reloads(), self._counts

        def begin(number: int) -> Any:
            def read() -> tuple[memoryview, int]:
                with counts.reading():
                    payload = self._read(self._keys[number])
                return payload, len(payload)

            def decode(payload: memoryview) -> tuple[None, int]:
                with counts.restoring():
                    self._decode(number, payload)
                return None, 0

            return reloads.submit(read, decode)

        for future in [begin(number) for number in range(len(self._keys))]:
            future.result()
        reloads.shutdown()

    def _by_layer(self) -> float:
        """When the first run of layers was in all blocks."""
        reloads, runs = self._reloads(), self._pages.runs(WAVES)
        payloads: dict[int, memoryview] = {}
        locks = [Lock() for _ in self._keys]

        def begin(number: int, run: range) -> Any:
            def read() -> tuple[memoryview, int]:
                with locks[number]:
                    if number not in payloads:
                        payloads[number] = self._read(self._keys[number])
                return payloads[number], 0

            def decode(payload: memoryview) -> tuple[None, int]:
                self._decode(number, payload, run)
                return None, 0

            return reloads.submit(read, decode)

        futures = [[begin(number, run) for number in range(len(self._keys))] for run in runs]
        wait(futures[0])
        at = time.perf_counter()
        for future in [one for some in futures for one in some]:
            future.result()
        reloads.shutdown()
        return at


if __name__ == "__main__":
    main()
