#!/usr/bin/env python3
"""What the text of a calibration does to weights: calibrated on prose, on code, on both, on either beside a tenth of the package's mixture, and
on random tokens; judged on prose and on code that the calibration has not seen, beside importance from the same text.

`python eval/weights_text.py`; tables and raw JSON go to results/eval/. A run that was interrupted goes on where it was. The package has a few
dozen contexts of a kind; `--more prose=FILE python=FILE` adds those of texts of yours.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from common import causal, domains, importance, options, report, tasks
from common.calibrated import Calibrated
from common.causal import Causal
from common.coders import Coded, Coder, Tenfold, Weights
from common.side_by_side import compare, copied

RATES = (2.0, 2.5)
JUDGED = ("prose", "python", "c")
MIXTURES: Mapping[str, tuple[str, ...]] = {
    "prose": ("prose",),
    "code": ("python",),
    "prose and code": ("prose", "python"),
    "prose, code, C, French and chat": ("prose", "python", "c", "french", "chat"),
    "random tokens": ("random",),
}
"""Kinds of text that calibrations have."""
BESIDE = ("prose", "code", "random tokens")
"""Those that are also measured with the package's mixture beside them."""
ADDED = 0.1
"""How much of such a calibration the mixture is."""


def main() -> int:
    parser = options.parser(__doc__, RATES)
    parser.add_argument("--fit-contexts", type=int, default=24, metavar="N", help="contexts of each kind to calibrate on")
    parser.add_argument("--more", nargs="+", default=(), metavar="KIND=FILE", help="text of a kind to calibrate on, behind what the package has of it")
    parser.add_argument("--judged-contexts", type=int, default=8, metavar="N", help="contexts of each kind to judge on")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only calibrations whose name has one of these words")
    parser.add_argument("--tasks", type=Path, metavar="FOLDER", help="folder of multiple-choice sets, a .jsonl each")
    parser.add_argument("--effort", default="balanced", choices=["fast", "balanced", "best"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where models are judged")
    args = options.parsed(parser)
    subject = causal.smollm2(None)
    tokenizer = causal.load_smollm2()[1]
    names = {name for mixture in MIXTURES.values() for name in mixture} | set(JUDGED)
    more = dict(one.partition("=")[::2] for one in args.more)
    unknown = sorted(set(more) - names)
    if unknown:
        parser.error(f"--more: there is no kind {unknown[0]}; there are {', '.join(sorted(names))}")
    for kind, path in more.items():
        if not Path(path).is_file():
            parser.error(f"--more: {path or 'nothing'} is no file with text of the kind {kind}; write {kind}=FILE")
    texts = {}
    for name in sorted(names):
        judged = args.judged_contexts if name in JUDGED else 0
        found = domains.load(name, tokenizer, judged, int(min(args.fit_contexts, domains.available(name))))
        missing = args.fit_contexts - len(found.fit)
        if name in more and missing > 0:
            added = spread(Path(more[name]), tokenizer, missing, found.fit.shape[1])
            if not len(added):
                parser.error(f"--more: {more[name]} has fewer than {found.fit.shape[1]} tokens, which is less than a context")
            found = replace(found, fit=torch.cat([found.fit, added]))
        texts[name] = found
    return evaluate(subject, texts, tokenizer, args)


def spread(path: Path, tokenizer: PreTrainedTokenizerBase, most: int, length: int) -> torch.Tensor:
    """Contexts of a text, evenly over it: `most`, or all that it has."""
    ids = tokenizer(path.read_text(encoding="utf-8")).input_ids
    whole = len(ids) // length
    count = min(most, whole)
    starts = [length * (index * whole // count) for index in range(count)]
    return torch.tensor([ids[start : start + length] for start in starts], dtype=torch.long).reshape(-1, length)


def evaluate(
    subject: Causal, texts: Mapping[str, domains.Domain], tokenizer: PreTrainedTokenizerBase | None, args: argparse.Namespace
) -> int:
    """Measures every calibration at every rate, then writes tables."""
    about = f"{subject.source}; up to {args.fit_contexts} contexts of each kind to calibrate on, {args.judged_contexts} to judge on; effort {args.effort}"
    kept = report.Report(args.out / f"weights-text-{subject.name}.json", about, fresh=args.fresh)
    weights = subject.block_weights()
    raw = copied(subject.model, args.device)
    sets = {name: tasks.read(args.tasks, name, None) for name in tasks.NAMES} if args.tasks is not None and tokenizer is not None else {}

    def judged() -> report.Row:
        model = copied(subject.model, args.device)
        row: report.Row = {"on": {name: compare(raw, model, texts[name].judged, args.device) for name in JUDGED}}
        if sets and tokenizer is not None:
            found = {name: tasks.score(tasks.of_model(model), tokenizer, items, args.device) for name, items in sets.items()}
            row["acc_norm"] = {name: 100 * sum(one.acc_norm) / len(one.acc_norm) for name, one in found.items()}
        return row

    def point(coder: Coder, bits: float) -> report.Row:
        subject.put(weights)
        start = time.monotonic()
        coded = coder(weights, bits)
        seconds = time.monotonic() - start
        subject.put(coded.weights)
        return {"bits": coded.bits} | judged() | {"settings": coded.settings, "coding_seconds": round(seconds, 2)}

    subject.put(weights)
    kept.measure({"coder": "uncompressed", "on_text": "", "asked": 32}, lambda: {"bits": 32.0} | judged())
    todo: list[tuple[str, str, Coder]] = []
    for mixture, names in MIXTURES.items():
        kinds = {name: texts[name].fit for name in names}
        how = Calibrated(subject.model, kinds, effort=args.effort, tell=tqdm.write)
        todo.append(("calibrated", mixture, how))
        if tokenizer is not None and mixture in BESIDE:
            todo.append(("calibrated", f"{mixture}, {ADDED:g} of the mixture", replace(how, mixture=ADDED, tokenizer=tokenizer)))
        todo.append(("importance", mixture, WithImportance(subject.model, torch.cat(list(kinds.values())), args)))
    todo = [one for one in todo if not args.only or any(word in " ".join(one[:2]) for word in args.only)]
    with tqdm(total=len(todo) * len(args.bits), unit="point") as bar:
        for name, mixture, coder in todo:
            for bits in args.bits:
                bar.set_description(f"{name}, {mixture}, {bits:g} bits")
                key = {"coder": name, "on_text": mixture, "asked": bits}
                kept.measure(key, lambda coder=coder, bits=bits: point(coder, bits))  # type: ignore[misc]
                bar.update()
    subject.put(weights)
    kept.write()
    show(kept, subject.name, args.out)
    return 0


@dataclass
class WithImportance:
    """tenfold with importance of input channels, which is measured when it is first needed: on the uncompressed model."""

    model: PreTrainedModel
    contexts: torch.Tensor
    args: argparse.Namespace

    def __call__(self, weights: Weights, bits: float) -> Coded:
        return self._coder(weights, bits)

    @cached_property
    def _coder(self) -> Coder:
        return Tenfold("equal", self.args.effort, self.args.threads, importance.collect(self.model, self.contexts))


def show(kept: report.Report, name: str, out: Path) -> None:
    """A table of all that was measured."""
    raw = kept.rows[0]["on"]
    header = ["coder", "calibrated on", "bits"]
    header += [f"{domains.TITLES[kind]}: perplexity, over uncompressed, divergence" for kind in JUDGED]
    sets = any("acc_norm" in row for row in kept.rows)
    header += ["mean acc_norm of tasks, %"] if sets else []
    lines = []
    for row in sorted(kept.rows, key=lambda row: (-row["bits"] // 0.1, row["coder"], row["on_text"])):
        line = [row["coder"], row["on_text"], f"{row['bits']:.2f}"]
        for kind in JUDGED:
            here = row["on"][kind]
            line.append(f"{report.number(here['perplexity'])}, {here['perplexity'] / raw[kind]['perplexity']:.3f}, {here['divergence']:.3f}")
        if sets:
            accuracies = list(row.get("acc_norm", {}).values())
            line.append(f"{sum(accuracies) / len(accuracies):.1f}" if accuracies else "–")
        lines.append(line)
    page = f"# Weights by the text of their calibration, {name}\n\n- {kept.about}\n\n{report.table(header, lines)}"
    (out / f"weights-text-{name}.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    sys.exit(main())
