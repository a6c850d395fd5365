#!/usr/bin/env python3
"""Loss of a small GPT over bytes, trained by workers that exchange compressed gradients.

`python eval/training.py TEXT... --shape small`; curves, a table and raw JSON go to results/eval/. A run that was interrupted
goes on where it was. Workers are side by side in one process; each one's gradients go through what its rank would send, the
slots of `tenfold.torch.distributed` or a peer's scheme. The last tenth of the last text is never trained on, and judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common import plot, report
from common.training.exchanges import Exchange, OneBit, PowerSgd, Rounded, Tenfold, Uncompressed
from common.training.gpt import SHAPES, Shape
from common.training.loop import Schedule, train
from common.training.options import parsed
from common.training.schemes import measured

RATES = (2.6, 1.4, 0.8)
PLAIN = "uncompressed"
Job = tuple[str, Callable[[], Exchange]]


def main() -> int:
    return evaluate(parsed(__doc__, RATES, "workers that exchange gradients"))


def evaluate(args: argparse.Namespace) -> int:
    """Trains with every scheme, then writes a table and a plot."""
    kept = measured(args, "training", f"{args.workers} workers", jobs(args), train)
    show(kept, args.shape, SHAPES[args.shape], args.out)
    return 0


def jobs(args: argparse.Namespace) -> list[Job]:
    """Schemes by name. Peers have the volume of one of tenfold's rates where theirs can be chosen."""
    n = args.workers
    how = {"effort": args.effort, "threads": args.threads, "bucket": args.bucket}
    made: list[Job] = [(PLAIN, Uncompressed)]
    for bits in args.bits:
        for feedback in (False, True):
            name = f"tenfold {bits:g} bits" + (", feedback" if feedback else "")
            made.append((name, lambda b=bits, f=feedback: Tenfold(n, b, feedback=f, **how)))
    for bits in (4, 2):
        made.append((f"RTN {bits} bits", lambda b=bits: Rounded(n, b, feedback=False)))
        made.append((f"RTN {bits} bits, feedback", lambda b=bits: Rounded(n, b, feedback=True)))
    made += [(f"PowerSGD {bits:g} bits", lambda b=bits: PowerSgd(n, b)) for bits in args.bits]
    made.append(("1-bit Adam", lambda: OneBit(n, args.steps // 5, Schedule.betas[0])))
    return made


def show(kept: report.Report, name: str, shape: Shape, out: Path) -> None:
    """Table and plot of all that was measured."""
    plain = kept.measured(scheme=PLAIN)
    lines = {row["scheme"]: [tuple(point) for point in row["held_out"]] for row in kept.rows}
    rows = [
        (
            row["scheme"],
            f"{row['bits']:.2f}",
            f"{row['loss']:.4f}",
            "" if plain is None else f"{100 * (row['loss'] / plain['loss'] - 1):+.1f} %",
        )
        for row in kept.rows
    ]
    text = report.table(("scheme", "bits a value sent", "held-out loss", "against uncompressed"), rows)
    checks = "".join(f"- {line}\n" for line in [*bars(kept)])
    page = f"# Data-parallel training, {name}\n\n- {kept.about}\n{checks}\n{text}"
    (out / f"training-{name}.md").write_text(page, encoding="utf-8")
    print(page)
    title = f"{shape.name}: compressed gradients"
    plot.losses(out / f"training-{name}.png", title, lines)


def bars(kept: report.Report) -> Sequence[str]:
    """What is to be reached, and whether it is; of what was measured."""
    loss = {row["scheme"]: row["loss"] for row in kept.rows}
    found = []

    def check(ours: str, factor: float, peer: str, what: str) -> None:
        if ours in loss and peer in loss:
            met = "met" if loss[ours] <= factor * loss[peer] else "missed"
            found.append(f"{ours}: {what}: {loss[ours]:.4f} against {loss[peer]:.4f}: {met}")

    for feedback in ("", ", feedback"):
        check(f"tenfold 2.6 bits{feedback}", 1.02, PLAIN, "within 2 % of uncompressed")
        for peer in ("RTN 2 bits", "RTN 2 bits, feedback", "PowerSGD 1.4 bits"):
            check(f"tenfold 1.4 bits{feedback}", 1, peer, f"better than {peer}")
    check("tenfold 1.4 bits, feedback", 1.05, PLAIN, "within 5 % of uncompressed")
    return found


if __name__ == "__main__":
    sys.exit(main())
