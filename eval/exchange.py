#!/usr/bin/env python3
"""Time of an exchange of gradients between two ranks over a link of a given rate: as it is, and compressed, codec included.

`python eval/exchange.py TEXT` as root: two network namespaces, a link between them, a rank of gloo in each; a table and raw JSON go
to results/eval/. Gradients are those of a GPT for a batch of text, in buckets of DistributedDataParallel's size. All ways
take turns, so that what else the machine does is the same for all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tqdm import tqdm

from common import options, report
from common.training.exchanges import buckets
from common.training.gpt import SHAPES, Text, gpt, loss_of
from common.training.link import ADDRESSES, Link

RATES = (2.6, 1.4)
BARS = {1000.0: 0.5, 200.0: 0.2}
"""Megabits a second, and the most of the uncompressed time that is to be taken."""


def main() -> int:
    parser = options.parser(__doc__, RATES)
    parser.add_argument("text", type=Path, help="text that gradients are made of")
    parser.add_argument("--link", type=float, nargs="+", default=list(BARS), metavar="MBIT", help="rates of the link")
    parser.add_argument("--shape", choices=SHAPES, default="25m")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--effort", default="fast", choices=["fast", "balanced", "best"])
    parser.add_argument("--feedback", action="store_true", help="with error feedback, which costs passes over gradients")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = options.parsed(parser)
    if args.rank is not None:
        return measure(args)
    about = f"GPT over bytes, {SHAPES[args.shape].name}; two ranks of gloo, {args.rounds} rounds, effort {args.effort}"
    about += ", error feedback" if args.feedback else ""
    kept = report.Report(args.out / "exchange.json", about, fresh=args.fresh)
    for rate in tqdm(args.link, unit="link", disable=None):
        kept.measure({"megabits": rate}, lambda: over(rate))
    kept.write()
    show(kept, args.out)
    return 0


def over(megabits: float) -> dict[str, Any]:
    """Runs this program once in each namespace; what the first one says."""
    with Link(megabits) as link:
        ranks = [link.start(end, [sys.executable, *sys.argv, "--rank", str(end)]) for end in (0, 1)]
        said = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            raise SystemExit("a rank has failed; what it says stands above")
    return json.loads(said[0])


def measure(args: argparse.Namespace) -> int:
    """What a rank does."""
    from tenfold.torch.distributed._exchange import Exchange

    threads = args.threads or max((os.cpu_count() or 2) // 2, 1)
    torch.set_num_threads(threads)
    at = f"tcp://{ADDRESSES[0]}:29511"
    dist.init_process_group("gloo", init_method=at, rank=args.rank, world_size=2)
    parts = gradients(args)
    group = dist.group.WORLD
    how = {"exchange": "gather", "feedback": args.feedback, "effort": args.effort, "threads": threads}
    ours = {bits: Exchange(group, bits=bits, **how) for bits in args.bits}
    times: dict[str, list[float]] = {}
    for _ in range(args.rounds + 1):
        for name, exchange in {"uncompressed": None, **{f"{bits:g}": e for bits, e in ours.items()}}.items():
            copies = [part.clone() for _, _, part in parts]
            dist.barrier()
            start = time.perf_counter()
            # As in backward: buckets are sent as they come, and then awaited.
            if exchange is None:
                works = [dist.all_reduce(part, async_op=True) for part in copies]
                for work, part in zip(works, copies, strict=True):
                    work.wait()
                    part.div_(2)
            else:
                ends = [exchange.start(part, *of) for part, of in zip(copies, (p[:2] for p in parts), strict=True)]
                for end in ends:
                    end()
            # The slower rank counts.
            taken = torch.tensor(time.perf_counter() - start)
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            times.setdefault(name, []).append(float(taken))
    if args.rank == 0:
        values = sum(part.numel() for _, _, part in parts)
        # The first round warms up.
        seconds = {name: statistics.median(all_[1:]) for name, all_ in times.items()}
        rounds = {name: [round(t, 4) for t in all_] for name, all_ in times.items()}
        print(json.dumps({"values": values, "seconds": seconds, "rounds": rounds, "threads": threads}))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def gradients(args: argparse.Namespace) -> list[tuple[list[str], list[int], torch.Tensor]]:
    """Names, sizes and values of each bucket."""
    shape = SHAPES[args.shape]
    model = gpt(shape, 1)
    tokens, targets = next(Text([args.text], "cpu").batches(args.rank, 1, shape.context, 1))
    loss_of(model(tokens), targets).backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return [
        (names, [found[name].numel() for name in names], torch.cat([found[name].flatten() for name in names]))
        for names in buckets(found)
    ]


def show(kept: report.Report, out: Path) -> None:
    """A table of ratios."""
    rows = []
    for row in kept.rows:
        plain = row["seconds"]["uncompressed"]
        for name, seconds in row["seconds"].items():
            bar = BARS.get(row["megabits"]) if name != "uncompressed" else None
            met = "" if bar is None else f"≤ {bar:g}: {'met' if seconds <= bar * plain else 'missed'}"
            rows.append((f"{row['megabits']:g} Mb/s", name, f"{seconds:.3f} s", f"{seconds / plain:.2f}", met))
    text = report.table(("link", "bits a value", "median", "of uncompressed", "bar"), rows)
    values = kept.rows[0]["values"]
    page = f"# Exchange of gradients\n\n- {kept.about}; {values:,} values\n\n{text}"
    (out / "exchange.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    sys.exit(main())
