#!/usr/bin/env python3
"""The loops in which a KV cache spills: decoding behind a long context that stays compressed, and reloading a prefix from elsewhere.

    python python/bench/kv_spill.py --json results/python/kv-spill.json --plot results/python/kv-spill.svg
    python python/bench/kv_spill.py --part decode --contexts 32768 --caches raw offloaded tenfold-offloaded
    python python/bench/kv_spill.py --part prefix --contexts 32768 --sources pinned link --links 10 100
    python python/bench/kv_spill.py --device cpu --size tiny --contexts 512 --tokens 3            # does it run?

decode: a Llama of the 8 B shape with made-up weights decodes at batch 1, eager, with sdpa. The cache holds made-up keys and values; the
last step sees as many tokens as the context has. A row gives the median step after a few to warm up, by the device's clock, and the mean,
which includes what a cache does only once in a page of 64 tokens. The loop itself waits for nothing. The speed stands beside that of
raw and of offloaded. Peak memory is torch's, from the first step on, with the weights. The error is that of the first step's logits beside
the raw cache's.

prefix: the time from bytes elsewhere until all layers' keys and values are in blocks of 16 on the device, and checked: from pinned memory,
from a file out of the page cache, and over a link of so many Gb/s. Chunks are moved while others arrive and are decoded. Rates are of keys
and values in bf16. What is realised is the speed-up over raw bytes from the same source, as a share of the compression ratio.

Keys and values are a mixture of few numbers a token with decaying scales, and noise; keys are turned by the rotary embedding after that.
Bases are fitted to others of the same kind. What was measured so far is kept in the JSON after each row.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from _about import about
from _kv_caches import KINDS
from _kv_decode import WARM, Decoding
from _kv_made import SIZES, Made, configuration
from _kv_prefix import PAGE, Reloading

DECODE = " context  cache               tokens/s  ms/token      mean   / raw  / offl.  cache GB   bits  peak GB    error"
PREFIX = " context  source         form             ms     GB/s   / raw  ratio  realised     nmse"


def main() -> None:
    arguments = parse()
    device = torch.device(arguments.device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(device)
    shape = SIZES[arguments.size]
    shape = replace(shape, layers=arguments.layers or shape.layers)
    config = configuration(shape, max(arguments.contexts))
    report = Report(arguments, asdict(shape))
    with tempfile.TemporaryDirectory() as folder:
        made = Made(shape, device, config, arguments.strong)
        bases = arguments.bases or Path(folder) / "model.basis"
        if not bases.exists():
            made.fit(bases)
        # One after the other, so that the model's memory is free again for the second.
        if arguments.part in ("decode", "both"):
            decoding = Decoding(arguments, made, config, bases)
            print(f"\n{DECODE}", flush=True)
            for row in decoding.rows():
                report.add(row)
            decoding.model = None
            decoding.free()
        if arguments.part in ("prefix", "both"):
            print(f"\n{PREFIX}", flush=True)
            for row in Reloading(arguments, made, bases).rows():
                report.add(row)
    if arguments.plot:
        plot(report.rows, arguments.plot)
    if any("failed" in row for row in report.rows):
        sys.exit("some rows failed")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("decode", "prefix", "both"), default="both")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--layers", type=int, help="take only so many layers")
    parser.add_argument("--contexts", type=int, nargs="+", default=[8192, 32768, 131072], help="tokens")
    parser.add_argument("--strong", type=int, help="numbers that make a token's row of a layer; an eighth of its columns unless stated")
    parser.add_argument("--step", type=float, default=0.25, help="the quantiser's")
    parser.add_argument("--bases", type=Path, help="a file of bases; made if it is not there, and kept")
    parser.add_argument("--row-seconds", type=float, default=20, help="take fewer steps or rounds if a row would take longer")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    parser.add_argument("--plot", type=Path, help="where to draw tokens/s over the context; needs matplotlib")
    decode = parser.add_argument_group("decode")
    kinds = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    decode.add_argument("--caches", choices=KINDS, nargs="+", default=list(KINDS), metavar="CACHE", help=f"all unless stated; {kinds}")
    decode.add_argument("--tokens", type=int, default=64, help="steps that count")
    prefix = parser.add_argument_group("prefix")
    prefix.add_argument("--sources", choices=("pinned", "disk", "link"), nargs="+", default=["pinned", "disk", "link"])
    prefix.add_argument("--links", type=float, nargs="+", default=[10, 100], help="Gb/s")
    prefix.add_argument("--chunk", type=int, default=32, help="pages of a chunk")
    prefix.add_argument("--rounds", type=int, default=3)
    prefix.add_argument("--folder", type=Path, help="where files are written; the system's temporary folder unless stated")
    prefix.add_argument("--disk-gb", type=float, default=20, help="largest file to write, GB")
    arguments = parser.parse_args()
    if arguments.tokens < 1 or arguments.rounds < 1 or arguments.chunk < 1:
        parser.error("tokens, rounds and pages of a chunk must be positive")
    least = max(PAGE, arguments.tokens + WARM + 1)
    if min(arguments.contexts) < least:
        parser.error(f"a context must have {least} tokens or more")
    return arguments


class Report:
    """What was measured: printed and kept row by row."""

    def __init__(self, arguments: argparse.Namespace, shape: dict[str, int]) -> None:
        import transformers

        self.rows: list[dict[str, Any]] = []
        self._path: Path | None = arguments.json
        self._head = about("kv_spill", torch, transformers)
        self._head |= {"arguments": {name: str(value) for name, value in vars(arguments).items()}, "shape": shape}
        self._head["caches"] = {kind: KINDS[kind] for kind in arguments.caches}

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        # Of earlier rows too: what they are held against may have come just now.
        for each in self.rows:
            if each["part"] == "decode":
                each |= {f"over_{other}": self._over(each, other) for other in ("raw", "offloaded")}
        print((show_decode if row["part"] == "decode" else show_prefix)(row), flush=True)
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({**self._head, "rows": self.rows}, indent=2) + "\n")

    def _over(self, row: dict[str, Any], other: str) -> float | None:
        """Tokens a second over those of another cache with the same context."""
        for found in self.rows:
            if found.get("cache") == other and found["context"] == row["context"] and "ms" in found and "ms" in row:
                return float(found["ms"] / row["ms"])
        return None


def show_decode(row: dict[str, Any]) -> str:
    start = f"{row['context']:8}  {row['cache']:18}"
    if "ms" not in row:
        return f"{start} {why(row)}"
    parts = [
        f"{row['tokens_per_s']:9.2f}",
        f"{row['ms']:9.2f}",
        number(row.get("mean_ms"), "9.2f"),
        number(row["over_raw"], "7.2f"),
        number(row["over_offloaded"], "8.2f"),
        f"{row['cache_bytes'] / 1e9:9.3f}",
        f"{row['bits']:6.2f}",
        number(row["peak_bytes"] / 1e9 if "peak_bytes" in row else None, "8.2f"),
        number(row["logit_error"], "8.4f"),
    ]
    return " ".join([start, *parts, row.get("note", "")]).rstrip()


def show_prefix(row: dict[str, Any]) -> str:
    start = f"{row['context']:8}  {row.get('source', ''):14} {row.get('form', ''):8}"
    if "ms" not in row:
        return f"{start} {why(row)}"
    parts = [
        f"{row['ms']:10.1f}",
        f"{row['gbps']:8.2f}",
        number(row.get("over_raw"), "7.2f"),
        f"{row['ratio']:6.2f}",
        number(row.get("realised"), "9.2f"),
        f"{row['nmse']:8.1e}",
    ]
    return " ".join([start, *parts, row.get("note", "")]).rstrip()


def why(row: dict[str, Any]) -> str:
    """Why a row has no figures."""
    if "skipped" in row:
        return f"skipped: {row['skipped']}"
    return "out of memory" if "out_of_memory" in row else f"failed: {row['failed']}"


def number(value: float | None, form: str) -> str:
    """A figure, or a dash as wide."""
    return format(value, form) if value is not None else f"{'–':>{int(form.split('.')[0])}}"


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws tokens a second over the context, a line for each kind of cache."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["part"] == "decode" and "ms" in row:
            lines.setdefault(row["cache"], []).append((row["context"], row["tokens_per_s"]))
    if not lines:
        print("nothing was decoded, so nothing is drawn")
        return
    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    for kind, points in lines.items():
        where, speed = zip(*sorted(points))
        axes.plot(where, speed, marker="o", linestyle="--" if kind.endswith("offloaded") else "-", label=kind)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    contexts = sorted({context for points in lines.values() for context, _ in points})
    axes.set_xticks(contexts, [f"{context // 1024}k" if context % 1024 == 0 else str(context) for context in contexts])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("tokens of context")
    axes.set_ylabel("tokens/s")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
