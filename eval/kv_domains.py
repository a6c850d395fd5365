#!/usr/bin/env python3
"""Perplexity of a language model whose KV cache went through a coder, by domain: prose, code, another language, chat, numbers and
random tokens, with bases from prose alone, from a mixture of all other domains, from one of all domains, and with bases for each.

`python eval/kv_domains.py`; tables, plots and raw JSON go to results/eval/. A run that was interrupted goes on where it was, and
`--domain` and `--coders` split the work. Coders run at fixed ladders of settings, and bits are what these take: curves are
compared between the points.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from common import bases, causal, domain_report, domains, options, outside, report
from common.cache import Cache, Passes, Rotary
from common.coders import Coder
from common.domain_bases import Sets
from common.judge import Judge
from common.kvcoders import CodedCaches, Pages
from common.kvpeers import AsItIs, Float8, HadamardScalar
from common.parallel import each
from common.registry import cache_folder
from common.rounding import RoundToNearest

STEPS = (0.017, 0.01, 0.006, 0.0035, 0.0018)
"""Of tenfold with bases, whose coordinates have a metric."""
PLAIN = {0.25: (0.75, 0.5, 0.33), 0.5: (0.33, 0.2)}
"""Of tenfold without: steps of keys, by the factor on them for values. Of 0.06 to 1, tried on a context of prose and one of Python, 0.25
has the least divergence at 2.8 bits, by far, and 0.35 or 0.5 at 3.7 bits. All points are one curve, of which the better ones count."""
DEALT = (0.2, 0.4, 0.8, 1.4)
"""Bits that KVTC's recipe deals out, before DEFLATE."""
PEERS: dict[str, tuple[float, ...]] = {
    "RTN, groups of 64": (2.0, 3.0, 4.0),
    "Hadamard + scalar": (1.0, 2.0, 3.0, 4.0),
    "fp8": (8.0,),
    "x265": (1.5, 2.5),
}
"""Coders that take the cache as it is, and their rates."""


@dataclass(frozen=True)
class Job:
    """A coder at a setting, with bases from `basis` if it has any."""

    domain: str
    coder: str
    basis: str
    at: float
    values: float = 1.0
    """A factor on the steps of values."""


def main() -> int:
    parser = options.parser(__doc__)
    parser.add_argument("--domain", nargs="+", choices=domains.TITLES, default=list(domains.TITLES), help="what is judged")
    parser.add_argument("--coders", nargs="+", metavar="WORD", help="only coders whose name has one of these words")
    kinds = ["none", *domain_report.BASES]
    parser.add_argument("--bases", nargs="+", choices=kinds, default=kinds, help="what bases are made from")
    parser.add_argument("--contexts", type=int, default=8, help="contexts of 1024 tokens to judge on, of each domain")
    parser.add_argument("--fit-contexts", type=int, default=24, help="contexts of 1024 tokens for bases, of each domain that has as many")
    parser.add_argument("--steps", type=float, nargs="+", default=STEPS, metavar="N", help="of tenfold with bases")
    parser.add_argument("--dealt", type=float, nargs="+", default=DEALT, metavar="N", help="bits of KVTC's recipe")
    parser.add_argument("--group", type=int, default=10, help="layers that share a basis")
    parser.add_argument("--basis-bits", type=float, default=0.7, metavar="N", help="highest rate of caches that bases serve")
    size = "most bytes of bases for one kind of text (default: 2 %% of the model in bf16)"
    parser.add_argument("--basis-bytes", type=int, metavar="N", help=size)
    parser.add_argument("--page", type=int, default=64, help="tokens of a page")
    parser.add_argument("--effort", default="balanced", choices=["fast", "balanced", "best"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help=f"where the model runs (default: {device})")
    parser.add_argument("--fit-only", action="store_true", help="make all files of bases, and end")
    args = options.parsed(parser)
    model, tokenizer = causal.load_smollm2()
    return evaluate(Bench(model.to(args.device), tokenizer, args), args)


class Bench:
    """The model, bases, and what coders are made from; each is made when it is first needed."""

    def __init__(self, model: Any, tokenizer: Any, args: argparse.Namespace, length: int = 1024) -> None:
        self.args, self.length = args, length
        self.passes, self.tokenizer = Passes(model), tokenizer
        self.rotary = Rotary(model, length)
        self._pages: dict[tuple[Path | None, float], Pages] = {}

    @cached_property
    def sets(self) -> Sets:
        """What bases are made from: so many contexts of each domain, or all that it has."""
        counts = {name: int(min(self.args.fit_contexts, domains.available(name))) for name in domains.TITLES}
        fit = {name: domains.load(name, self.tokenizer, 0, count, self.length).fit for name, count in counts.items()}
        return Sets(cache_folder() / "domains-smollm2", self.passes, fit)

    def basis(self, domain: str, basis: str) -> Path | None:
        """A file of bases for a domain, if it is to have any."""
        names = names_of(domain, basis)
        if not names:
            return None
        weights = sum(weight.numel() for weight in self.passes.model.parameters())
        most = weights * 2 // 50 if self.args.basis_bytes is None else self.args.basis_bytes
        most *= len(names) if basis == "each" else 1
        how = {"bits": self.args.basis_bits, "group": self.args.group, "max_bytes": most}
        return self.sets.basis(names, each=basis == "each", rope=bases.rope_of(self.passes.model.config), **how)

    def pages(self, path: Path | None, values: float) -> Pages:
        """tenfold with a file of bases; or without, and a factor on the steps of values. Codecs take long to make, and are
        kept."""
        if (path, values) not in self._pages:
            config = self.passes.model.config
            rope = {"head": config.head_dim, "base": config.rope_parameters["rope_theta"]}
            plain = {"layers": self.passes.layers, "rope": rope, "steps": (1.0, values)}
            how = {"effort": self.args.effort, "threads": self.args.threads, "without": {} if path else plain}
            self._pages[path, values] = Pages(path, self.rotary, self.args.page, **how)
        return self._pages[path, values]

    def leave(self, domain: str) -> None:
        """Lets go of what no other domain needs."""
        if "others" in self.args.bases:
            self.sets.forget(names_of(domain, "others"))
            self._pages.pop((self.basis(domain, "others"), 1.0), None)

    def code(self, job: Job, caches: list[Cache]) -> list[CodedCaches]:
        """Caches after a coder; after each of its variants if it has several, of which the better is taken."""
        if job.coder == "tenfold":
            return [self.pages(self.basis(job.domain, job.basis), job.values).at(caches, step=job.at)]
        if job.coder == "KVTC's recipe":
            return [self.sets.kvtc(names_of(job.domain, job.basis)).at(caches, job.at)]
        # Attention parks on the first token: exact, it may help by more than its bits.
        coder = plain(job.coder, self.passes.model.config.head_dim)
        return [together(AsItIs(coder, self.rotary, sinks), caches, job.at) for sinks in (0, 1)]


def names_of(domain: str, basis: str) -> list[str]:
    """Domains that bases are made from."""
    if basis in ("none", "prose"):
        return [] if basis == "none" else ["prose"]
    return [name for name in domains.TITLES if basis != "others" or name != domain]


def plain(name: str, head: int) -> Coder:
    """A peer that takes any tensor."""
    known = {"RTN, groups of 64": RoundToNearest(64), "Hadamard + scalar": HadamardScalar(head), "fp8": Float8()}
    coder, why = (known[name], "") if name in known else outside.find_x265()
    if coder is None:
        raise ValueError(why)
    return coder


def together(coder: AsItIs, caches: list[Cache], bits: float) -> CodedCaches:
    """Contexts beside each other, each on its own core."""
    done = each(lambda cache: coder([cache], bits), caches)
    mean = sum(one.bits for one in done) / len(done)
    return CodedCaches([cache for one in done for cache in one.caches], mean, done[0].settings)


def jobs(args: argparse.Namespace, domain: str) -> Iterator[Job]:
    """What is measured on a domain."""
    peers = {name: rates for name, rates in PEERS.items() if name != "x265" or outside.find_x265()[0]}
    found = []
    for basis in args.bases:
        if basis == "none":
            found += [Job(domain, "tenfold", basis, at, values) for values, steps in PLAIN.items() for at in steps]
            found += [Job(domain, name, basis, at) for name, rates in peers.items() for at in rates]
            continue
        found += [Job(domain, "tenfold", basis, at) for at in args.steps]
        # Its recipe has one basis.
        found += [Job(domain, "KVTC's recipe", basis, at) for at in args.dealt if basis != "each"]
    yield from (job for job in found if not args.coders or any(word in job.coder for word in args.coders))


def evaluate(bench: Bench, args: argparse.Namespace) -> int:
    """Measures every coder at every setting on every domain, then writes tables and plots."""
    about = (
        f"{causal.SMOLLM2}; {args.contexts} contexts of {bench.length} tokens of each domain; bases from up to "
        f"{args.fit_contexts} contexts of each domain, groups of {args.group} layers; pages of {args.page} tokens; effort {args.effort}"
    )
    print(about)
    if args.bases != ["none"]:
        bench.sets.capture_all()
        for domain, basis in itertools.product(args.domain, args.bases):
            bench.basis(domain, basis)
    if args.fit_only:
        return 0
    kept = report.Report(args.out / "kv-domains.json", about, fresh=args.fresh)
    why = outside.find_x265()[1]
    kept.notes += [why] if why else []
    for domain in args.domain:
        todo = [job for job in jobs(args, domain) if not kept.measured(**vars(job))]
        if todo or not kept.measured(domain=domain, coder="uncompressed"):
            measure(bench, kept, domain, todo)
        bench.leave(domain)
    kept.write()
    domain_report.show(kept, args.out)
    return 0


def measure(bench: Bench, kept: report.Report, domain: str, todo: list[Job]) -> None:
    """Measures what is still to do on a domain."""
    judged = domains.load(domain, bench.tokenizer, bench.args.contexts, 0, bench.length).judged
    judge = Judge(bench.passes, judged)
    caches = [bench.passes.cache(context) for context in judged]
    raw = {"domain": domain, "coder": "uncompressed", "basis": "none", "at": 16.0}
    kept.measure(raw, lambda: {"bits": 16.0} | judge([None] * len(judged)))
    with tqdm(todo, unit="point") as bar:
        for job in bar:
            bar.set_description(f"{job.domain}: {job.coder}, {job.basis}, {job.at:g}")
            kept.measure(vars(job), lambda: point(bench, judge, job, caches))


def point(bench: Bench, judge: Judge, job: Job, caches: list[Cache]) -> report.Row:
    """One coder at one setting: the better of its variants."""
    start = time.monotonic()
    coded = bench.code(job, caches)
    middle = time.monotonic()
    rows: list[report.Row] = [{"bits": one.bits, "settings": one.settings} | judge(one.caches) for one in coded]
    best = min(rows, key=lambda row: row["divergence"])
    return best | {"coding": round(middle - start, 1), "judging": round(time.monotonic() - middle, 1)}


if __name__ == "__main__":
    sys.exit(main())
