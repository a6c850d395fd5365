#!/usr/bin/env python3
"""Perplexity of a language model whose KV cache, or whose hidden states at cuts of a pipeline, went through a coder.

`python eval/kv.py --fit-text wikitext2_valid.txt --fit-contexts 40`; tables, plots and raw JSON go to results/eval/. A run that
was interrupted goes on where it was. Bases are fitted on the validation text, which is never judged. tenfold is what is
shipped: files of bases as `tenfold basis fit` writes them, `tenfold.kv.PageCodec` and `tenfold.kv.HiddenCodec`.

Pages of a CUDA device beside those of the CPU, with the same steps, and the difference of their perplexities:

    python eval/kv.py --device cuda --pages both --effort fast --parts kv --only tenfold --bases smollm2.basis --model smollm2

That takes two things: a file of bases for keys and values (without --bases one is fitted first, which takes minutes), and the model: as
GGUF of a package in $TENFOLD_EVAL_CACHE or, where the package gguf is not installed, as a folder that common.causal.save_smollm2 has
filled. The CPU finds the step of each rate. Results go to kv-smollm2-device.json and .md, and nothing is drawn. Beside the difference
stands its noise, one standard error: on 2,000 tokens it is as large as a difference of 0.2 %. --text eval/data/domains/prose-judged.txt
--contexts 8 judges on four times as many.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import tenfold
import torch
from tenfold.torch import _device
from tqdm import tqdm

from common import bars, bases, causal, options, outside, report
from common.cache import Cache, Passes, Rotary
from common.causal import Causal
from common.coders import Coder
from common.cuts import Blobs, CutCoder, InBasis, Plain
from common.judge import Judge
from common.kvcoders import CacheCoder, Pages
from common.kvpeers import AsItIs, HadamardScalar, InPictures, Kvtc
from common.registry import cache_folder
from common.rounding import RoundToNearest

RATES = (0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0)
PARTS = ("kv", "streamed", "hidden", "both")
TITLES = {
    "kv": "KV cache",
    "streamed": "KV cache, streamed",
    "hidden": "Hidden states at cuts",
    "both": "KV cache and hidden states at cuts",
}
BARS = (("kv", 2.3, 0.05), ("kv", 1.4, 0.3), ("hidden", 3.5, 0.01))
"""Parts, the most bits, and how much perplexity may grow."""
CAPPED = "tenfold, capped pages"
ON_DEVICE = ", by the device"
"""Of pages that a CUDA device makes and decodes."""
CLOSE = 0.002
"""How far perplexity with those may be from that with the CPU's, as a share."""
IN_PICTURES = "basis + x265"
"""Principal components as pictures."""
FIRST = ", first token exact"
"""What tenfold does too: attention parks on the first token, and errors there hurt most."""
Job = tuple[str, str, float]


def main() -> int:
    parser = options.parser(__doc__, RATES)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is coded")
    parser.add_argument("--contexts", type=int, default=2, help="contexts of 1024 tokens to judge on")
    parser.add_argument("--text", type=Path, help="text to judge on (default: the start of WikiText-2's test set)")
    parser.add_argument("--fit-text", type=Path, help="text for bases (default: the start of WikiText-2's validation set)")
    parser.add_argument("--fit-contexts", type=int, default=2, help="contexts of 1024 tokens for bases; 40 are good")
    parser.add_argument("--group", type=int, default=10, help="layers that share a basis")
    parser.add_argument("--basis-bits", type=float, default=0.7, metavar="N", help="highest rate of caches that bases serve")
    size = "most bytes of all bases (default: 2 %% of the model in bf16)"
    parser.add_argument("--basis-bytes", type=int, metavar="N", help=size)
    parser.add_argument("--page", type=int, default=64, help="tokens of a page")
    parser.add_argument("--cuts", type=int, nargs="+", default=(8, 15, 22), metavar="N", help="layers behind which to cut")
    cut_bits = "rates at cuts; the last is theirs where both are coded"
    parser.add_argument("--cut-bits", type=float, nargs="+", default=(2.5, 3.5), metavar="N", help=cut_bits)
    parser.add_argument("--video-bits", type=float, nargs="+", default=(1.5, 2.5, 3.5), metavar="N", help="rates of x265")
    choose = "judge on contexts of the text for bases that they are not made from: to choose settings"
    parser.add_argument("--choose", action="store_true", help=choose)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only coders whose name has one of these words")
    parser.add_argument("--effort", default="best", choices=["fast", "balanced", "best"])
    parser.add_argument("--device", default="cpu", help="where the model runs, such as cuda")
    parser.add_argument("--pages", default="cpu", choices=["cpu", "device", "both"], help="where tenfold's pages are made and decoded")
    parser.add_argument("--bases", type=Path, metavar="FILE", help="bases for keys and values (default: fitted to the text for bases)")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="SmolLM2 as save_smollm2 left it (default: GGUF)")
    args = options.parsed(parser)
    if args.pages != "cpu" and not _device.is_ours(torch.device(args.device)):
        parser.error("pages are made by a CUDA device: take --device cuda too")
    if args.pages != "cpu" and args.effort != "fast":
        parser.error("a device makes pages of effort fast: take --effort fast too, which is then the CPU's as well")
    fit = {"fit_text": args.fit_text, "fit_contexts": args.fit_contexts, "between": args.choose, "folder": args.model}
    subject = causal.smollm2(args.text, args.contexts, **fit)
    subject.model.to(args.device)
    return evaluate(subject, args)


class Bench:
    """The model, its caches, and what coders are made from; each is made when it is first needed."""

    def __init__(self, subject: Causal, args: argparse.Namespace) -> None:
        self.subject, self.args = subject, args
        self.passes = Passes(subject.model)
        self.judge = Judge(self.passes, subject.judged)
        # Of each token, by coder and rate: of pages of the CPU, for those of the device.
        self._losses: dict[tuple[str, float], torch.Tensor] = {}

    @cached_property
    def caches(self) -> list[Cache]:
        return [self.passes.cache(context) for context in self.subject.judged]

    @cached_property
    def hidden(self) -> np.ndarray:
        """Of the first context to judge, at cuts."""
        return self.passes.take(self.subject.judged[0], ["hidden"])["hidden"][list(self.args.cuts)]

    @cached_property
    def captured(self) -> bases.Captured:
        contexts, cuts = self.subject.chosen, self.args.cuts
        digest = hashlib.sha256(contexts.numpy().tobytes() + repr(tuple(cuts)).encode()).hexdigest()[:16]
        folder = cache_folder() / f"captured-{self.subject.name}-{digest}"
        return bases.Captured.of(folder, self.passes, contexts, cuts)

    @cached_property
    def statistics(self) -> dict[str, bases.Statistics]:
        return self.captured.statistics

    @cached_property
    def most(self) -> int:
        """Bytes that all bases may take."""
        two_percent = sum(weight.numel() for weight in self.subject.model.parameters()) * 2 // 50
        return two_percent if self.args.basis_bytes is None else self.args.basis_bytes

    @cached_property
    def hidden_basis(self) -> Path:
        """The file of bases for cuts."""
        return self.fitted(["hidden"], bits=max(self.args.cut_bits), max_bytes=self.most)

    @cached_property
    def cache_basis(self) -> Path:
        """The file of bases for keys and values: the stated one, or one within what those for cuts leave."""
        if self.args.bases is not None:
            stated: Path = self.args.bases
            return stated
        left, rope = self.most - self.hidden_basis.stat().st_size, bases.rope_of(self.subject.model.config)
        return self.fitted(["keys", "values"], bits=self.args.basis_bits, max_bytes=left, group=self.args.group, rope=rope)

    def fitted(self, kinds: Sequence[str], **stated: float | str) -> Path:
        """A file of bases, made if it is not there."""
        digest = hashlib.sha256(repr((tenfold.__version__, stated)).encode()).hexdigest()[:16]
        path = self.captured.folder / f"{'-'.join(kinds)}-{digest}.basis"
        if not path.exists():
            made = self.captured.fit(path, kinds, **stated)
            print(f"bases of {' and '.join(kinds)}: {made['bytes']:,} bytes, for {made['bits']:.2f} bits a value and less")
        return path

    @cached_property
    def pages(self) -> Pages:
        how = {"effort": self.args.effort, "threads": self.args.threads}
        return Pages(self.cache_basis, self.rotary, self.args.page, **how)

    def pages_of(self, name: str) -> Pages:
        """Pages of the CPU or of the device, as the name of a coder says."""
        return replace(self.pages, device=self.passes.device) if name.endswith(ON_DEVICE) else self.pages

    @cached_property
    def in_basis(self) -> InBasis:
        return InBasis(self.hidden_basis, effort=self.args.effort, threads=self.args.threads)

    @cached_property
    def kvtc(self) -> Kvtc:
        return Kvtc.fitted([self.statistics["keys"], self.statistics["values"]])

    @cached_property
    def rotary(self) -> Rotary:
        return Rotary(self.subject.model, self.subject.judged.shape[1])

    def cache_coder(self, name: str) -> CacheCoder:
        """The coder of caches with this name."""
        if name.startswith("tenfold"):
            return replace(self.pages_of(name), capped=name.startswith(CAPPED))
        if name.startswith("KVTC"):
            return self.kvtc.keeping(128) if "recent" in name else self.kvtc
        if name == IN_PICTURES:
            return InPictures.fitted([self.statistics["keys"], self.statistics["values"]], self.plain(name))
        return AsItIs(self.plain(name), self.rotary, sinks=1 if name.endswith(FIRST) else 0)

    def cut_coder(self, name: str) -> CutCoder:
        """The coder of hidden states with this name."""
        if name == "tenfold":
            return self.in_basis
        if name == "tenfold without a basis":
            return Blobs(self.args.effort, self.args.threads)
        return Plain(self.plain(name))

    def plain(self, name: str) -> Coder:
        """A peer that takes any tensor."""
        if name.startswith("RTN"):
            return RoundToNearest(64)
        if name.startswith("Hadamard"):
            return HadamardScalar(self.subject.model.config.head_dim)
        coder, why = outside.find_x265()
        if coder is None:
            raise ValueError(why)
        return coder

    def point(self, part: str, name: str, bits: float) -> report.Row:
        """One coder at one rate."""
        if part == "streamed":
            return self.streamed(self.pages_of(name), bits)
        start = time.monotonic()
        row: report.Row = {}
        caches: Sequence[Cache | None] = [None] * len(self.subject.judged)
        cuts = None
        if part != "kv":
            cuts = self.cut_coder(name)(self.hidden, self.args.cuts, self.args.cut_bits[-1] if part == "both" else bits)
        if part != "hidden":
            before = self.caches
            if cuts is not None:
                # A stage makes its keys and values of what came through the cut before it.
                before = [self.passes.cache(context, cuts.changes) for context in self.subject.judged]
            coded = self.cache_coder(name)(before, bits)
            caches = coded.caches
            row |= {"bits": coded.bits, "ratio": 16 / coded.bits, "settings": coded.settings}
        row |= self.judge(caches, None if cuts is None else cuts.changes)
        if part == "kv":
            row |= self.noise(name, bits)
        if cuts is not None:
            row |= {"cut_bits": cuts.bits, "cut_settings": cuts.settings}
            row = {"bits": cuts.bits, "ratio": 16 / cuts.bits} | row
        return row | {"seconds": round(time.monotonic() - start, 1)}

    def noise(self, name: str, bits: float) -> report.Row:
        """Of a device's pages: the standard error of how their losses differ from those with the CPU's, if both were measured. Two coders
        that are as good differ by about as much."""
        if not name.endswith(ON_DEVICE):
            self._losses[name, bits] = self.judge.losses
            return {}
        here = self._losses.get((name.removesuffix(ON_DEVICE), bits))
        if here is None:
            return {}
        apart = self.judge.losses - here
        return {"noise": float(apart.std() / len(apart) ** 0.5)}

    def streamed(self, pages: Pages, bits: float) -> report.Row:
        """tenfold's pages at one rate, each coded when it is full."""
        start, step, total, stored = time.monotonic(), pages.step(self.caches[0], bits), 0.0, 0

        def code(first: int, cache: Cache) -> Cache:
            nonlocal stored
            decoded, size = pages.code(cache, first=first, step=step)
            stored += size
            return decoded

        contexts = self.subject.judged
        for context in contexts:
            total += self.passes.streamed(context, self.args.page, self.rotary, code)
        taken = 8 * stored / sum(cache.size for cache in self.caches)
        row = {"bits": taken, "ratio": 16 / taken, "settings": pages.settings(step=step)}
        perplexity = float(np.exp(min(total / (contexts.numel() - len(contexts)), 700.0)))
        return row | {"perplexity": perplexity, "seconds": round(time.monotonic() - start, 1)}


def evaluate(subject: Causal, args: argparse.Namespace) -> int:
    """Measures every coder at every rate, then writes tables and plots."""
    bench = Bench(subject, args)
    fitted_on = args.fit_text.name if args.fit_text else "WikiText-2 valid, its start"
    bases_from = f"{subject.chosen.numel():,} tokens of {fitted_on}, groups of {args.group} layers"
    about = (
        f"{subject.source}; bases from {args.bases.name if args.bases else bases_from}; "
        f"pages of {args.page} tokens; cuts behind layers {', '.join(map(str, args.cuts))}; effort {args.effort}"
    )
    if args.device != "cpu":
        about += f"; on {torch.cuda.get_device_name(args.device)}"
    file = f"kv-{subject.name}" + ("-choice" if args.choose else "") + ("" if args.pages == "cpu" else "-device")
    kept = report.Report(args.out / f"{file}.json", about, fresh=args.fresh)
    todo, missing = jobs(args)
    kept.notes += missing
    print(about, *missing, sep="\n")
    raw = {"part": "none", "coder": "uncompressed", "asked": 16}
    kept.measure(raw, lambda: {"bits": 16.0} | bench.judge([None] * len(subject.judged)))
    with tqdm(todo, unit="point") as bar:
        for part, name, bits in bar:
            bar.set_description(f"{TITLES[part]}: {name}, {bits:g} bits")
            kept.measure({"part": part, "coder": name, "asked": bits}, lambda: bench.point(part, name, bits))
    kept.write()
    # Curves of a device and of the CPU would lie on each other.
    show(kept, file, subject.name, args.out, draw=args.pages == "cpu")
    return 0


def jobs(args: argparse.Namespace) -> tuple[list[Job], list[str]]:
    """What is measured, and a line for each coder that is not to be had."""
    rates = tuple(args.bits)
    families: list[tuple[str, str, Sequence[float]]] = [
        ("kv", "tenfold", rates),
        ("kv", CAPPED, [bits for bits in rates if bits in (0.5, 1.0)] or rates[:1]),
        ("kv", "RTN, groups of 64", (2.0, 3.0, 4.0)),
        ("kv", f"RTN, groups of 64{FIRST}", (2.0, 3.0, 4.0)),
        ("kv", "Hadamard + scalar", (1.0, 2.0, 3.0, 4.0)),
        ("kv", f"Hadamard + scalar{FIRST}", (1.0, 2.0, 3.0, 4.0)),
        ("kv", "KVTC's recipe", rates),
        ("kv", "KVTC's recipe, 128 recent exact", (2.5, 3.0)),
        ("streamed", "tenfold", rates[::2]),
        ("hidden", "tenfold", args.cut_bits),
        ("hidden", "tenfold without a basis", args.cut_bits),
        ("hidden", "RTN, groups of 64", (3.0, 4.0)),
        ("hidden", "Hadamard + scalar", (2.0, 3.0, 4.0)),
        ("both", "tenfold", rates[1::2]),
        ("both", "RTN, groups of 64", (3.0, 4.0)),
        ("both", "Hadamard + scalar", (3.0, 4.0)),
    ]
    coder, why = outside.find_x265()
    if coder is not None:
        families += [("kv", name, args.video_bits) for name in ("x265", f"x265{FIRST}")]
        # Many components are all but constant: samples of 12 bits come to two bits a value at most.
        families += [("kv", IN_PICTURES, tuple(bits for bits in (*[r for r in rates if r >= 0.5][::2], *args.video_bits) if bits < 2))]
        families += [("hidden", "x265", args.cut_bits)]
    families = [family for one in families for family in at_places(one, args.pages)]
    wanted = [f for f in families if f[0] in args.parts and (not args.only or any(word in f[1] for word in args.only))]
    return [(part, name, bits) for part, name, at in wanted for bits in at], [why] if coder is None else []


def at_places(family: tuple[str, str, Sequence[float]], pages: str) -> list[tuple[str, str, Sequence[float]]]:
    """A coder of tenfold's pages, made where they are wanted; other coders as they are."""
    part, name, rates = family
    if pages == "cpu" or part not in ("kv", "streamed") or not name.startswith("tenfold"):
        return [family]
    there = (part, name + ON_DEVICE, rates)
    return [there] if pages == "device" else [family, there]


def show(kept: report.Report, file: str, name: str, out: Path, *, draw: bool) -> None:
    """Tables and plots of all that was measured, and how it stands next to bars and peers."""
    raw = next(row["perplexity"] for row in kept.rows if row["coder"] == "uncompressed")
    notes = "".join(f"- {note}\n" for note in [kept.about, f"uncompressed: {raw:.3f}", *kept.notes])
    page = f"# KV cache and hidden states, {name}\n\n{notes}"
    for part in PARTS:
        rows = [row for row in kept.rows if row["part"] == part]
        if rows:
            header = ("coder", "bits", "ratio to bf16", "perplexity", "more", "divergence", "basis, MB")
            page += f"\n## {TITLES[part]}\n\n{report.table(header, list(cells(rows, raw)))}"
            if draw:
                curves(rows, raw, f"{TITLES[part]} of {name}, compressed", out / f"{file}-{part}.png")
    page += shown("Pages of the device beside the CPU's", beside(kept.rows))
    page += shown("Bars", bars.limits(kept.rows, raw, BARS))
    for part in ("kv", "hidden"):
        rows = [row for row in kept.rows if row["part"] == part]
        page += shown(f"{TITLES[part]}: bits of tenfold where a peer is as good", bars.peers(rows, raw))
    (out / f"{file}.md").write_text(page, encoding="utf-8")
    print(page)


def curves(rows: Sequence[report.Row], raw: float, title: str, path: Path) -> None:
    """Draws perplexity over bits."""
    # Not before it is needed: machines with a device may lack what draws.
    from common import plot

    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        lines.setdefault(row["coder"], []).append((row["bits"], row["perplexity"]))
    plot.curves(path, title, "perplexity (logarithmic)", lines, log=True, level=(raw, "uncompressed"), top=raw * 4)


def beside(rows: Sequence[report.Row]) -> str:
    """A table: each rate of a device's pages, and how far its perplexity is from that of the CPU's pages."""
    found = {(row["part"], row["coder"], row["asked"]): row for row in rows}
    lines = []
    for (part, name, asked), there in found.items():
        here = found.get((part, name.removesuffix(ON_DEVICE), asked))
        if here is None or here is there:
            continue
        off = there["perplexity"] / here["perplexity"] - 1
        cells = [TITLES[part], name.removesuffix(ON_DEVICE), f"{asked:g}"]
        cells += [f"{row['bits']:.3f} / {row['perplexity']:.4f}" for row in (here, there)]
        noise = f"{100 * there['noise']:.3f} %" if "noise" in there else "–"
        lines.append([*cells, f"{100 * off:+.3f} %", noise, "yes" if abs(off) <= CLOSE else "no"])
    header = ("part", "coder", "asked", "CPU: bits / perplexity", "device", "difference", "its noise", f"within {100 * CLOSE:g} %")
    return report.table(header, lines) if lines else ""


def shown(title: str, table: str) -> str:
    """A section, if there is anything in it."""
    return f"\n## {title}\n\n{table}" if table else ""


def cells(rows: Sequence[report.Row], raw: float) -> Iterator[tuple[str, ...]]:
    """Rows of a table, coders together and tenfold first."""
    for row in sorted(rows, key=lambda row: (not row["coder"].startswith("tenfold"), row["coder"], row["bits"])):
        basis = sum(row.get(key, {}).get("basis_bytes", 0) for key in ("settings", "cut_settings"))
        bits = f"{row['bits']:.2f}" + (f" + {row['cut_bits']:.2f}" if row["part"] == "both" else "")
        ratio, more = f"{row['ratio']:.1f}", f"{100 * (row['perplexity'] / raw - 1):+.1f} %"
        divergence, stored = report.number(row.get("divergence")), f"{basis / 1e6:.2f}" if basis else "–"
        yield row["coder"], bits, ratio, report.number(row["perplexity"]), more, divergence, stored


if __name__ == "__main__":
    sys.exit(main())
