#!/usr/bin/env python3
"""Weights with and without a calibration, judged as the field does: perplexity and divergence from the uncompressed model over a whole
text, and multiple-choice tasks, beside GPTQ, AWQ, HQQ, llama.cpp's types with an importance matrix, and video codecs, calibrated on the same text.

`python eval/weights.py --text wikitext2_test.txt --fit-text wikitext2_valid.txt --tasks FOLDER`. Tables and raw JSON go to results/eval/. A run
that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from common import causal, importance, options, outside, report, tasks
from common.calibrated import Calibrated
from common.causal import DATA, Causal
from common.coders import Coder, Tenfold, Weights
from common.gptq import Peer
from common.side_by_side import compare, copied
from common.zoo import smollm2_gguf

RATES = (2.0, 2.5, 3.0)
GGUF_TYPES = ("IQ2_S", "Q2_K", "IQ3_S", "Q3_K_M", "Q4_K_M")


def main() -> int:
    parser = options.parser(__doc__, RATES)
    parser.add_argument("--text", type=Path, help="text to judge on, all of it (default: the start of WikiText-2's test set)")
    parser.add_argument("--fit-text", type=Path, help="text to calibrate on (default: the start of its validation set)")
    parser.add_argument("--fit-contexts", type=int, default=None, metavar="N", help="contexts to calibrate on, spread over that text")
    parser.add_argument("--mixture", type=float, default=0.1, metavar="N", help="how much of the package's texts counts beside that text, in a row of its own")
    parser.add_argument("--contexts", type=int, default=None, metavar="N", help="judge on so many contexts only")
    parser.add_argument("--tasks", type=Path, metavar="FOLDER", help="folder of multiple-choice sets, a .jsonl each")
    parser.add_argument("--items", type=int, default=None, metavar="N", help="so many items of each set only")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only coders whose name has one of these words")
    parser.add_argument("--whole", type=float, nargs="+", default=(2.0, 3.0, 4.0), metavar="N", help="rates of GPTQ, AWQ and HQQ")
    parser.add_argument("--types", nargs="+", default=GGUF_TYPES, metavar="NAME", help="types of llama.cpp")
    parser.add_argument("--effort", default="balanced", choices=["fast", "balanced", "best"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where models are judged")
    args = options.parsed(parser)
    fit = {"fit_text": args.fit_text, "fit_contexts": args.fit_contexts}
    model, tokenizer = causal.load_smollm2()
    count = args.contexts or (2 if args.text is None else whole_contexts(tokenizer, args.text))
    subject = causal.smollm2(args.text, count, **fit)
    return evaluate(subject, tokenizer, args)


def whole_contexts(tokenizer: PreTrainedTokenizerBase, text: Path, length: int = 1024) -> int:
    """How many contexts a text has."""
    return len(tokenizer(text.read_text(encoding="utf-8")).input_ids) // length


def evaluate(subject: Causal, tokenizer: PreTrainedTokenizerBase | None, args: argparse.Namespace) -> int:
    """Measures every coder at every rate, then writes tables."""
    learnt = f"calibrated on {subject.chosen.numel():,} tokens; judged on {subject.judged.numel():,}"
    about = f"{subject.source}; {learnt}; effort {args.effort}" + (f"; {args.items} items a set" if args.items else "")
    kept = report.Report(args.out / f"weights-{subject.name}.json", about, fresh=args.fresh)
    weights = subject.block_weights()
    todo, missing = coders(subject, tokenizer, args)
    kept.notes += missing
    print(about, *missing, sep="\n")
    judge = Judge(subject, tokenizer, args)
    raw = kept.measure({"coder": "uncompressed", "asked": 32}, lambda: {"bits": 32.0} | judge.measure(weights))
    with tqdm(todo, unit="point") as bar:
        for name, bits, coder in bar:
            bar.set_description(f"{name}, {bits:g} bits")
            kept.measure({"coder": name, "asked": bits}, lambda: point(subject, judge, weights, coder, bits))
    subject.put(weights)
    kept.write()
    show(kept, raw, subject.name, args.out)
    return 0


def coders(
    subject: Causal, tokenizer: PreTrainedTokenizerBase | None, args: argparse.Namespace
) -> tuple[list[tuple[str, float, Coder]], list[str]]:
    """Coders and rates, and a line for each that is not to be had."""
    found = importance.collect(subject.model, subject.chosen) if _is_wanted("tenfold importance", args) else {}

    def calibrated(sequential: bool, mixture: float = 0.0) -> Coder:
        how = {"effort": args.effort, "tell": tqdm.write, "mixture": mixture, "tokenizer": tokenizer}
        return Calibrated(subject.model, subject.chosen, sequential, **how)

    rates, whole = tuple(args.bits), tuple(args.whole)
    missing = []
    families: list[tuple[str, Coder, tuple[float, ...]]] = [
        ("tenfold calibrated, sequential", calibrated(True), rates),
        (f"tenfold calibrated, sequential, {args.mixture:g} of the mixture", calibrated(True, args.mixture), rates if tokenizer else ()),
        ("tenfold calibrated", calibrated(False), rates),
        ("tenfold importance", Tenfold("equal", args.effort, args.threads, found), rates),
        ("tenfold plain", Tenfold("equal", args.effort, args.threads), rates),
        ("GPTQ, groups of 128", Peer(subject.model, list(subject.chosen), "gptq", device=args.device), whole),
        ("AWQ, groups of 128", Peer(subject.model, list(subject.chosen), "awq", device=args.device), whole),
    ]
    hqq, why = outside.find_hqq()
    if hqq is not None:
        families.append(("HQQ, groups of 64", hqq, whole))
    missing.append(why)
    for encoder in outside.STANDARDS:
        video, why = outside.find_video(encoder) if _is_wanted(encoder, args) else (None, "")
        missing.append(why)
        if video is not None:
            families.append((encoder, video, rates))
    programs, why = outside.find_llama_cpp()
    if subject.name == "smollm2":
        missing.append(why)
        if programs is not None:
            text = args.fit_text or DATA / "wikitext2_valid_start.txt"
            for kind in args.types:
                families.append((f"llama.cpp {kind}, imatrix", outside.Gguf(programs, smollm2_gguf(), text, kind), (0.0,)))
    wanted = [one for one in families if _is_wanted(one[0], args)]
    return [(name, bits, coder) for name, coder, each in wanted for bits in each], [line for line in missing if line]


def _is_wanted(name: str, args: argparse.Namespace) -> bool:
    return not args.only or any(word in name for word in args.only)


def point(subject: Causal, judge: Judge, weights: Weights, coder: Coder, bits: float) -> report.Row:
    """One coder at one rate."""
    subject.put(weights)
    start = time.monotonic()
    coded = coder(weights, bits)
    seconds = time.monotonic() - start
    return {"bits": coded.bits} | judge.measure(coded.weights) | {"settings": coded.settings, "coding_seconds": round(seconds, 2)}


class Judge:
    """Two models side by side: the uncompressed one, and one that weights are put into."""

    def __init__(self, subject: Causal, tokenizer: PreTrainedTokenizerBase | None, args: argparse.Namespace) -> None:
        self._subject, self._tokenizer, self._args = subject, tokenizer, args
        self._raw = copied(subject.model, args.device)
        self._sets = {}
        if args.tasks is not None and tokenizer is not None:
            self._sets = {name: tasks.read(args.tasks, name, args.items) for name in tasks.NAMES}

    def measure(self, weights: Weights) -> report.Row:
        """Perplexity, divergence from the uncompressed model, and answers."""
        self._subject.put(weights)
        model = copied(self._subject.model, self._args.device)
        row: report.Row = {**compare(self._raw, model, self._subject.judged, self._args.device)}
        # The first two alone as well: what earlier figures are about.
        row["start"] = compare(self._raw, model, self._subject.judged[:2], self._args.device)
        if self._tokenizer is not None and self._sets:
            found = {name: tasks.score(tasks.of_model(model), self._tokenizer, items, self._args.device) for name, items in self._sets.items()}
            row["tasks"] = {name: one.row() for name, one in found.items()}
        return row


def show(kept: report.Report, raw: report.Row, name: str, out: Path) -> None:
    """Tables of all that was measured."""
    rows = sorted(kept.rows, key=lambda row: (row["coder"] != "uncompressed", row["coder"], row["bits"]))
    header = ["coder", "bits", "perplexity", "divergence, nats a token", "of the first two contexts"]
    sets = list(raw.get("tasks", {}))
    text = report.table(header, [[*_start(row), *_measured(row)] for row in rows])
    if sets:
        header = ["coder", "bits", *sets, "mean", "mean against uncompressed"]
        for measure in ("acc", "acc_norm"):
            text += f"\n{measure}, in percent; differences on the same items, ± standard error\n\n"
            text += report.table(header, [[*_start(row), *_answers(row, raw, sets, measure)] for row in rows if "tasks" in row])
    notes = "".join(f"- {note}\n" for note in [kept.about, *kept.notes])
    page = f"# Weights, {name}\n\n{notes}\n{text}"
    (out / f"weights-{name}.md").write_text(page, encoding="utf-8")
    print(page)


def _start(row: report.Row) -> list[str]:
    return [row["coder"], f"{row['bits']:.2f}"]


def _measured(row: report.Row) -> Iterator[str]:
    yield from (report.number(row["perplexity"]), f"{row['divergence']:.4f}")
    first = row.get("start")
    yield f"{report.number(first['perplexity'])}, {first['divergence']:.4f}" if first else "–"


def _answers(row: report.Row, raw: report.Row, sets: list[str], measure: str) -> Iterator[str]:
    means, changes, errors = [], [], []
    for name in sets:
        here, there = (tasks.answers(one["tasks"][name][measure]) for one in (row, raw))
        means.append(100 * sum(here) / len(here))
        change, error = tasks.paired(there, here)
        changes.append(100 * change)
        errors.append(100 * error)
        yield f"{means[-1]:.1f}"
    yield f"{sum(means) / len(means):.1f}"
    # Sets are independent, so variances add up.
    spread = math.sqrt(sum(error * error for error in errors)) / len(errors)
    yield f"{sum(changes) / len(changes):+.1f} ± {spread:.1f}"


if __name__ == "__main__":
    sys.exit(main())
