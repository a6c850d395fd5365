#!/usr/bin/env python3
"""Everything compressed at once: weights, the hidden states that a pipeline of four stages hands on, and the KV cache.

`python eval/always_on.py --text wikitext2_test.txt --fit-text wikitext2_valid.txt --fit-contexts 40 --tasks FOLDER`; tables and raw JSON go to
results/eval/. Weights are calibrated and bases are fitted on text that is never judged; bases see the model with its weights compressed. In
tasks every token of a question goes through pages and cuts, with the steps that the text has, but for the first, which is exact.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

import kv
from common import causal, options, report, tasks
from common.cache import Cache, Change, Passes
from common.calibrated import Calibrated
from common.causal import Causal
from common.coders import Coder
from common.judge import Judge
from common.kvcoders import CodedCaches
from common.rounding import RoundToNearest

Code = Callable[[Sequence[Cache]], CodedCaches]
PARTS = {"weights": (), "weights, hidden states": ("hidden",), "weights, cache": ("cache",), "all": ("hidden", "cache")}
ROUNDED = {"weights": 3.0, "hidden": 4.0, "cache": 4.0}
"""Bits of the peer, round to nearest in groups of 64, before scales and minima."""


def main() -> int:
    parser = options.parser(__doc__)
    parser.add_argument("--weights", type=float, default=2.9, metavar="N", help="bits of weights")
    parser.add_argument("--hidden", type=float, default=3.5, metavar="N", help="bits of hidden states at cuts")
    parser.add_argument("--cache", type=float, default=1.0, metavar="N", help="bits of keys and values")
    parser.add_argument("--text", type=Path, help="text to judge on (default: the start of WikiText-2's test set)")
    parser.add_argument("--contexts", type=int, default=2, metavar="N", help="contexts of 1024 tokens to judge on")
    parser.add_argument("--fit-text", type=Path, help="text to calibrate and to fit bases on (default: the start of its validation set)")
    parser.add_argument("--fit-contexts", type=int, default=2, metavar="N", help="contexts of it; 40 are good")
    parser.add_argument("--tasks", type=Path, metavar="FOLDER", help="folder of multiple-choice sets, a .jsonl each")
    parser.add_argument("--items", type=int, default=200, metavar="N", help="so many items of each set")
    parser.add_argument("--cuts", type=int, nargs="+", default=(8, 15, 22), metavar="N", help="layers behind which to cut")
    parser.add_argument("--basis-bytes", type=int, metavar="N", help="most bytes of all bases (default: 2 %% of the model in bf16)")
    parser.add_argument("--effort", default="balanced", choices=["fast", "balanced", "best"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where the model runs")
    args = options.parsed(parser)
    subject = causal.smollm2(args.text, args.contexts, fit_text=args.fit_text, fit_contexts=args.fit_contexts)
    return evaluate(subject, causal.load_smollm2()[1], args)


def evaluate(subject: Causal, tokenizer: PreTrainedTokenizerBase | None, args: argparse.Namespace) -> int:
    """Measures what each part costs alone and together, then writes a table."""
    about = (
        f"{subject.source}; judged on {subject.judged.numel():,} tokens, fitted on {subject.chosen.numel():,}; "
        f"cuts behind layers {', '.join(map(str, args.cuts))}; effort {args.effort}" + (f"; {args.items} items a set" if args.tasks else "")
    )
    kept = report.Report(args.out / f"always-on-{subject.name}.json", about, fresh=args.fresh)
    sets = {name: tasks.read(args.tasks, name, args.items) for name in tasks.NAMES} if args.tasks and tokenizer is not None else {}
    weights = subject.block_weights()
    subject.model.to(args.device)
    passes = Passes(subject.model)
    raw = Judge(passes, subject.judged)
    exact = raw.exact

    def answers(predict: tasks.Predict) -> report.Row:
        found = {name: tasks.score(predict, tokenizer, items, args.device) for name, items in sets.items()}
        return {"tasks": {name: one.row() for name, one in found.items()}} if found else {}

    kept.measure({"coder": "uncompressed", "part": "none"}, lambda: raw([None] * len(subject.judged)) | answers(tasks.of_model(subject.model)))

    def point(part: str, coded: Parts) -> report.Row:
        start = time.monotonic()
        model = coded.through(PARTS[part])
        caches = model.caches(subject.judged) or [None] * len(subject.judged)
        row = Judge(passes, subject.judged, exact)(caches, model.cuts) | {"bits": coded.bits(PARTS[part])}
        return row | (answers(model) if sets else {}) | {"seconds": round(time.monotonic() - start, 1)}

    makers = {
        "tenfold": Calibrated(subject.model, subject.chosen, effort=args.effort, tell=tqdm.write),
        "RTN, groups of 64": RoundToNearest(64),
    }
    with tqdm(total=len(makers) * len(PARTS), unit="point") as bar:
        for name, coder in makers.items():
            subject.model.cpu()
            subject.put(weights)
            coded = Parts(name, subject, args, coder)
            for part in PARTS:
                bar.set_description(f"{name}: {part}")
                kept.measure({"coder": name, "part": part}, lambda part=part, coded=coded: point(part, coded))  # type: ignore[misc]
                bar.update()
    subject.put(weights)
    kept.write()
    show(kept, subject.name, args.out)
    return 0


class Parts:
    """A coder of weights, put into the model at once, and coders of hidden states and caches that know the model as it is then."""

    def __init__(self, name: str, subject: Causal, args: argparse.Namespace, coder: Coder) -> None:
        ours = name == "tenfold"
        bits = {"weights": args.weights, "hidden": args.hidden, "cache": args.cache} if ours else ROUNDED
        coded = coder(subject.block_weights(), bits["weights"])
        subject.put(coded.weights)
        subject.model.to(args.device)
        # Bases are of this model, neither of the uncompressed one nor of one that another run made.
        made = hashlib.sha256()
        for weight in coded.weights.values():
            made.update(np.ascontiguousarray(weight))
        named = replace(subject, name=f"{subject.name}-{made.hexdigest()[:16]}")
        settings = {"cut_bits": (args.hidden,), "basis_bits": max(args.cache, 0.7), "bases": None, "group": 10, "page": 64}
        self._bench = kv.Bench(named, argparse.Namespace(**{**vars(args), **settings}))
        self._name, self._bits, self._taken = name, bits, {"weights": coded.bits}

    def through(self, parts: tuple[str, ...]) -> Through:
        """The model with these parts coded."""
        bench, cuts, code = self._bench, None, None
        if "hidden" in parts:
            made = bench.cut_coder(self._name)(bench.hidden, bench.args.cuts, self._bits["hidden"])
            cuts, self._cuts = made.changes, made
        if "cache" in parts:
            sample = [bench.passes.cache(context, cuts) for context in bench.subject.judged[:1]]
            code = self._cache_coder(sample)
        return Through(bench.passes, code, cuts)

    def _cache_coder(self, sample: list[Cache]) -> Code:
        bits, coder = self._bits["cache"], self._bench.cache_coder(self._name)
        self._taken["cache"] = coder(sample, bits).bits
        if self._name != "tenfold":
            return lambda caches: coder(caches, bits)
        # One step for all, found on the sample.
        pages = self._bench.pages
        step = pages.step(sample[0], bits)
        return lambda caches: pages.at(caches, step=step)

    def bits(self, parts: tuple[str, ...]) -> Mapping[str, float]:
        """Bits a value that parts took."""
        if "hidden" in parts:
            self._taken["hidden"] = self._cuts.bits
        return {name: self._taken[name] for name in ("weights", *parts)}


@dataclass(frozen=True)
class Through:
    """A model whose caches and hidden states go through coders."""

    passes: Passes
    code: Code | None
    cuts: Mapping[int, Change] | None

    def caches(self, texts: Sequence[torch.Tensor]) -> list[Cache] | None:
        """What attention works with in place of its own keys and values."""
        return None if self.code is None else self.code(self.passes.caches(texts, self.cuts)).caches

    def __call__(self, texts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self.passes.predictions(texts, self.caches(texts), self.cuts)


def show(kept: report.Report, name: str, out: Path) -> None:
    """A table of all that was measured."""
    raw, *rest = kept.rows
    sets = list(raw.get("tasks", {}))
    header = ["coder", "compressed", "bits", "perplexity", "over uncompressed", "divergence, nats a token"]
    header += ["mean acc, %", "against uncompressed"] if sets else []
    lines = []
    for row in (raw, *rest):
        bits = " / ".join(f"{one:.2f}" for one in row.get("bits", {}).values()) or "–"
        line = [row["coder"], row["part"], bits, report.number(row["perplexity"])]
        line += [f"{row['perplexity'] / raw['perplexity']:.3f}", f"{row['divergence']:.4f}"]
        lines.append(line + (_accuracy(row, raw, sets) if sets else []))
    page = f"# Weights, hidden states and cache compressed together, {name}\n\n- {kept.about}\n\n{report.table(header, lines)}"
    (out / f"always-on-{name}.md").write_text(page, encoding="utf-8")
    print(page)


def _accuracy(row: report.Row, raw: report.Row, sets: list[str]) -> list[str]:
    means, changes, squares = [], [], 0.0
    for name in sets:
        here, there = (tasks.answers(one["tasks"][name]["acc"]) for one in (row, raw))
        means.append(100 * sum(here) / len(here))
        change, error = tasks.paired(there, here)
        changes.append(100 * change)
        squares += (100 * error) ** 2
    return [f"{sum(means) / len(means):.1f}", f"{sum(changes) / len(changes):+.1f} ± {squares**0.5 / len(sets):.1f}"]


if __name__ == "__main__":
    sys.exit(main())
