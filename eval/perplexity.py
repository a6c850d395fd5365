#!/usr/bin/env python3
"""Perplexity of language models whose block weights went through a coder.

`python eval/perplexity.py smollm2` or `stories15M`; tables, a plot and raw JSON go to results/eval/. A run that was
interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from common import causal, importance, options, outside, plot, report
from common.causal import Causal
from common.coders import Coded, Coder, Ramp, Tenfold, Weights, nmse
from common.measured import Measured
from common.rounding import NormalFloat, RoundToNearest

RATES = (2.0, 2.25, 2.5, 2.75, 2.9, 3.0, 3.4, 4.0, 4.5)
Job = tuple[str, float, Coder]


def main() -> int:
    parser = options.parser(__doc__, RATES)
    parser.add_argument("model", choices=["smollm2", "stories15M"])
    parser.add_argument("--video-bits", type=float, nargs="+", default=(2.5, 3.0, 3.5), metavar="N", help="rates of x265")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only coders whose name has one of these words")
    parser.add_argument("--text", type=Path, help="text to judge on (default: the start of WikiText-2's test set)")
    parser.add_argument("--effort", default="best", choices=["fast", "balanced", "best"])
    args = options.parsed(parser)
    subject = causal.smollm2(args.text) if args.model == "smollm2" else causal.stories()
    return evaluate(subject, args)


def evaluate(subject: Causal, args: argparse.Namespace) -> int:
    """Measures every coder at every rate, then writes tables and a plot."""
    about = f"{subject.source}; effort {args.effort}"
    kept = report.Report(args.out / f"perplexity-{subject.name}.json", about, fresh=args.fresh)
    weights = subject.block_weights()
    todo, missing = jobs(subject, kept, args)
    kept.notes += missing
    print(f"{about}; {sum(w.size for w in weights.values()):,} block weights", *missing, sep="\n")
    kept.measure({"coder": "uncompressed", "asked": 32}, lambda: {"bits": 32.0} | judged(subject, weights, weights))
    with tqdm(todo, unit="point") as bar:
        for name, bits, coder in bar:
            bar.set_description(f"{name}, {bits:g} bits")
            kept.measure({"coder": name, "asked": bits}, lambda: point(subject, weights, coder, bits))
    subject.put(weights)
    kept.write()
    show(kept, subject.name, args.out)
    return 0


def jobs(subject: Causal, kept: report.Report, args: argparse.Namespace) -> tuple[list[Job], list[str]]:
    """Coders and rates, and a line for each coder that is not to be had."""

    def loss(candidate: Weights) -> float:
        subject.put(candidate)
        with causal.rough_products():
            return subject.perplexity(subject.chosen[: max(1, 1024 // subject.chosen.shape[1])])

    found = importance.collect(subject.model, subject.chosen)
    rates, layers = tuple(args.bits), subject.model.config.num_hidden_layers

    def plain(alloc: str, effort: str = args.effort) -> Coder:
        return Tenfold(alloc, effort, args.threads)

    def weighted(alloc: str, effort: str = args.effort) -> Coder:
        return Tenfold(alloc, effort, args.threads, found)

    def same_slope(weights: Weights, bits: float) -> Coded:
        ramp = kept.measured(coder="tenfold ramp", asked=bits)
        if ramp is None:
            raise RuntimeError(f"the slope comes from tenfold ramp, which was not measured at {bits:g} bits")
        return weighted(ramp["settings"]["alloc"])(weights, bits)

    families: list[tuple[str, Coder, tuple[float, ...]]] = [
        ("tenfold equal", plain("equal"), rates),
        ("tenfold ramp", Ramp(loss, layers, plain, args.effort, tell=tqdm.write), rates),
        ("tenfold recipe", Measured(loss, args.effort, args.threads, tell=tqdm.write), rates),
        ("tenfold equal + importance", weighted("equal"), rates),
        ("tenfold ramp + importance", same_slope, rates),
        ("tenfold step + importance", weighted("step"), rates),
    ]
    families += [(f"RTN, groups of {group}", RoundToNearest(group), (2.0, 3.0, 4.0)) for group in (32, 64, 128)]
    families += [
        ("Hadamard + RTN, groups of 64", RoundToNearest(64, hadamard=True), (2.0, 3.0, 4.0)),
        ("NF4", NormalFloat(), (4.0,)),
        ("tenfold step", plain("step"), rates),
    ]
    missing = []
    for name, (coder, why), rates in (
        ("HQQ, groups of 64", outside.find_hqq(), (2.0, 3.0, 4.0)),
        ("x265", outside.find_x265(), tuple(args.video_bits)),
    ):
        if coder is None:
            missing.append(why)
        else:
            families.append((name, coder, rates))
    wanted = [f for f in families if not args.only or any(word in f[0] for word in args.only)]
    return [(name, bits, coder) for name, coder, rates in wanted for bits in rates], missing


def point(subject: Causal, weights: Weights, coder: Coder, bits: float) -> report.Row:
    """One coder at one rate."""
    start = time.monotonic()
    coded = coder(weights, bits)
    seconds = time.monotonic() - start
    row = {"bits": coded.bits} | judged(subject, weights, coded.weights)
    return row | {"settings": coded.settings, "coding_seconds": round(seconds, 2)}


def judged(subject: Causal, before: Weights, after: Weights) -> report.Row:
    """Perplexity and error of weights."""
    subject.put(after)
    return {"perplexity": subject.perplexity(subject.judged), "nmse": nmse(before, after)}


def show(kept: report.Report, name: str, out: Path) -> None:
    """Table and plot of all that was measured."""
    rows = sorted(kept.rows, key=lambda row: (row["coder"] != "uncompressed", row["asked"]))
    raw = next(row["perplexity"] for row in rows if row["coder"] == "uncompressed")
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["coder"] != "uncompressed":
            lines.setdefault(row["coder"], []).append((row["bits"], row["perplexity"]))
    text = report.table(("coder", "bits → perplexity"), list(cells(lines)))
    notes = "".join(f"- {note}\n" for note in [kept.about, f"uncompressed: {raw:.3f}", *kept.notes])
    page = f"# Perplexity, {name}\n\n{notes}\n{text}"
    (out / f"perplexity-{name}.md").write_text(page, encoding="utf-8")
    print(page)
    label = "perplexity (logarithmic)"
    title = f"{name}: perplexity with compressed block weights"
    plot.curves(out / f"perplexity-{name}.png", title, label, lines, log=True, level=(raw, "uncompressed"), top=raw * 30)


def cells(lines: dict[str, list[tuple[float, float]]]) -> Iterator[tuple[str, str]]:
    """Rows of the table."""
    for coder, points in sorted(lines.items(), key=lambda line: (not line[0].startswith("tenfold"), line[0])):
        yield coder, " · ".join(f"{bits:.2f} → {report.number(value)}" for bits, value in sorted(points))


if __name__ == "__main__":
    sys.exit(main())
