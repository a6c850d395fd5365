#!/usr/bin/env python3
"""Tokens a second of a batch that generates while pages of its keys and values are stored, beside those of the same batch alone.

    python python/bench/kv_store.py --bases 8b.basis --json results/python/kv-store.json
    python python/bench/kv_store.py --device cpu --size tiny --batch 2 --context 128 --prompt 128 --seconds 1 --rounds 1    # does it run?

A Llama of the 8 B shape with made-up weights generates at batch 8, each sequence behind 2,048 tokens, raw in blocks of 16 on the device.
A step is a CUDA graph, as in engines; the host gets the tokens of a step while the next one runs. Meanwhile pages of 64 tokens of all
layers are encoded from the blocks, 16 at a time, on a stream of low priority, and their compressed bytes go to the host: the calls of
tenfold's plug-in for vLLM.

    steady  what an engine makes: a page of each sequence whenever 64 tokens are there, and the pages of one prompt a second (--prompts)
    most    as many pages as can be made: there are always more to make

Rounds take turns, without, steady, without, most, since machines are noisy: each round is held against those without storing before and
after it. The ratio is the median of those. GB/s are of keys and values in bf16 that became pages while the clock ran; pages that were
late were still to be made when it stopped. Keys and values are made up as in kv_spill.py; bases are fitted to others of the same kind,
which takes up to a minute of the CPU's time (--bases keeps them).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from _about import about
from _kv_engine import BLOCK, Engine
from _kv_made import SIZES, Made, configuration
from _kv_storing import PAGE, Page, Storing

# Share of its speed that a batch must keep.
BAR = 0.95
MODES = ("steady", "most")
# Batches that always wait to be made, where as many are made as can be.
AHEAD = 4


def main() -> None:
    arguments = parse()
    device = torch.device(arguments.device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(device)
    shape = SIZES[arguments.size]
    shape = replace(shape, layers=arguments.layers or shape.layers)
    config = configuration(shape, max(arguments.context, arguments.prompt))
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        made = Made(shape, device, config, arguments.strong)
        bases = arguments.bases or Path(folder) / "model.basis"
        if not bases.exists():
            made.fit(bases)
        # A stream of a priority of its own, if one is asked for; engines work on the default one.
        with on_stream(arguments, device):
            bench = Bench(arguments, made, config, bases)
            rows = bench.run()
    report(arguments, asdict(shape), bench, rows)
    if not bench.by_device and device.type == "cuda":
        sys.exit("the device made no pages: the host did")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--layers", type=int, help="take only so many layers")
    parser.add_argument("--batch", type=int, default=8, help="sequences")
    parser.add_argument("--context", type=int, default=2048, help="tokens that each sequence attends to")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens of a prompt whose pages are stored")
    parser.add_argument("--prompts", type=float, default=1.0, help="prompts whose pages are stored, a second; 0 for none")
    parser.add_argument("--modes", choices=MODES, nargs="+", default=list(MODES))
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument("--bits", type=float, default=2.0, help="most bits a value of a page, as the plug-in has it")
    goal.add_argument("--step", type=float, help="the quantiser's, in place of a number of bits")
    parser.add_argument("--strong", type=int, help="numbers that make a token's row of a layer; an eighth of its columns unless stated")
    parser.add_argument("--bases", type=Path, help="a file of bases; made if it is not there, and kept")
    parser.add_argument("--no-graph", action="store_true", help="launch each kernel of a step from Python")
    parser.add_argument("--high-priority", action="store_true", help="let the engine work on a stream of high priority")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=4, help="of each mode")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    arguments = parser.parse_args()
    if arguments.context % PAGE or arguments.prompt % PAGE or min(arguments.context, arguments.prompt) < PAGE or arguments.batch < 1:
        parser.error(f"context and prompt are whole pages of {PAGE} tokens, and a batch has a sequence at least")
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("rounds and seconds must be positive")
    return arguments


def on_stream(arguments: argparse.Namespace, device: torch.device) -> Any:
    """The stream that the engine works on."""
    if not arguments.high_priority or device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device, priority=-1))


class Bench:
    """An engine, and what stores its pages."""

    def __init__(self, arguments: argparse.Namespace, made: Made, config: Any, bases: Path) -> None:
        self.arguments = arguments
        since = time.perf_counter()
        sizes = {"batch": arguments.batch, "context": arguments.context, "more": arguments.prompt}
        self.engine = Engine(made, config, **sizes, graph=not arguments.no_graph)
        goal = {"step": arguments.step} if arguments.step is not None else {"bits": arguments.bits}
        self.storing = Storing(self.engine.pools, bases, goal)
        self.by_device = self.storing.by_device
        first = arguments.batch * arguments.context
        self._prompt = [Page(first + at, at) for at in range(0, arguments.prompt, PAGE)]
        print(
            f"an engine with batch {arguments.batch} and {self.engine.batch * arguments.context // BLOCK} blocks, its steps "
            f"{'a graph' if self.engine.graph else 'no graph'}; the {'device' if self.by_device else 'host'} makes pages; ready in "
            f"{time.perf_counter() - since:.0f} s",
            flush=True,
        )

    def run(self) -> list[dict[str, Any]]:
        """All rounds, in turns."""
        # The first time counts for nothing: memory is taken, kernels are loaded.
        for mode in ("without", *self.arguments.modes):
            self._round(mode, min(self.arguments.seconds, 2.0))
        print("\n mode       tokens/s   ms/step   / without   GB/s stored   pages/s    bits   late", flush=True)
        rows = [self._round("without", self.arguments.seconds)]
        self._show(rows[-1])
        for _ in range(self.arguments.rounds):
            for mode in self.arguments.modes:
                rows += [self._round(mode, self.arguments.seconds), self._round("without", self.arguments.seconds)]
                beside = (rows[-3]["tokens_per_s"] + rows[-1]["tokens_per_s"]) / 2
                rows[-2]["over_without"] = rows[-2]["tokens_per_s"] / beside
                self._show(rows[-2])
                self._show(rows[-1])
        self.engine.check()
        self.storing.shutdown()
        return rows

    def _round(self, mode: str, seconds: float) -> dict[str, Any]:
        """Generates for some seconds."""
        engine, storing = self.engine, self.storing
        engine.wait()
        first, since = engine.steps, time.perf_counter()
        # Half a second in, so that each round has as many prompts as it has seconds.
        prompt = since + 0.5 / self.arguments.prompts if self.arguments.prompts else float("inf")
        while time.perf_counter() - since < seconds:
            engine.step()
            if mode == "steady":
                if engine.steps % PAGE == 0:
                    storing.start(self._generated())
                if time.perf_counter() >= prompt:
                    storing.start(self._prompt)
                    prompt += 1 / self.arguments.prompts
            elif mode == "most":
                while storing.pending < AHEAD:
                    storing.start(self._prompt[:16])
        engine.wait()
        took = time.perf_counter() - since
        stored, steps = storing.take(), engine.steps - first
        row: dict[str, Any] = {"mode": mode, "seconds": took, "steps": steps, "ms": 1e3 * took / steps}
        row["tokens_per_s"] = self.arguments.batch * steps / took
        if mode != "without":
            row |= {"pages": stored.pages, "bytes": stored.nbytes, "late": stored.late, "encode_s": stored.seconds}
            row["gbps"] = stored.pages * storing.page_bytes / took / 1e9
            row["bits"] = 16 * stored.nbytes / (stored.pages * storing.page_bytes) if stored.pages else None
        return row

    def _generated(self) -> list[Page]:
        """The pages that the last steps have filled, one of each sequence."""
        position = (self.engine.steps - PAGE) % self.arguments.context
        return [Page(one * self.arguments.context + position, position) for one in range(self.arguments.batch)]

    def _show(self, row: dict[str, Any]) -> None:
        parts = [f" {row['mode']:8} {row['tokens_per_s']:10.1f} {row['ms']:9.3f}"]
        if row["mode"] != "without":
            bits = f"{row['bits']:7.3f}" if row["bits"] is not None else f"{'–':>7}"
            parts.append(f"{row['over_without']:11.4f} {row['gbps']:13.3f} {row['pages'] / row['seconds']:9.1f} {bits} {row['late']:6}")
        print(" ".join(parts), flush=True)


def report(arguments: argparse.Namespace, shape: dict[str, int], bench: Bench, rows: list[dict[str, Any]]) -> None:
    """Prints the medians, holds them against the bar, and keeps everything."""
    import transformers

    checks = []
    for mode in arguments.modes:
        some = [row for row in rows if row["mode"] == mode]
        ratio = statistics.median(row["over_without"] for row in some)
        gbps, stored = statistics.median(row["gbps"] for row in some), sum(row["bytes"] for row in some)
        print(f"{mode}: {ratio:.4f} of the tokens/s without, {gbps:.3f} GB/s stored, {stored / 1e6:.1f} MB in all")
        if mode == "steady":
            what = f"tokens/s at batch {arguments.batch} while pages are stored, over those without"
            checks.append({"what": what, "value": ratio, "bar": BAR, "rule": "at least", "pass": ratio >= BAR})
            print(f"at least {BAR}: {'met' if ratio >= BAR else 'missed'}")
    if arguments.json:
        head = about("kv_store", torch, transformers)
        head |= {"arguments": {name: str(value) for name, value in vars(arguments).items()}, "shape": shape}
        head |= {"graph": bench.engine.graph, "pages_by_device": bench.by_device, "page_bytes": bench.storing.page_bytes}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({**head, "checks": checks, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
