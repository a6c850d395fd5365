#!/usr/bin/env python3
"""Loss of a small GPT over bytes, trained by a pipeline of four stages that sends activations and their gradients compressed.

`python eval/pipeline.py TEXT... --shape small`; curves, a table and raw JSON go to results/eval/. A run that was interrupted
goes on where it was. Stages are side by side in one process; what crosses from one to the next goes through the slots of
`tenfold.torch.distributed.CompressedStage`, or is rounded to nearest. The last tenth of the last text is never trained on, and
judged, without any compression.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from common import plot, report
from common.training.exchanges import Uncompressed
from common.training.gpt import SHAPES, Shape, Text
from common.training.loop import Schedule, train
from common.training.options import parsed
from common.training.schemes import measured
from common.training.stages import STAGES, Compressed, Link, Rounded

PLAIN = "uncompressed"
Job = tuple[str, Callable[[], Link]]


def main() -> int:
    return evaluate(parsed(__doc__, (3.5,), "micro-batches of a step"))


def evaluate(args: argparse.Namespace) -> int:
    """Trains with every scheme, then writes a table and a plot."""
    kept = measured(args, "pipeline", f"{STAGES} stages, {args.workers} micro-batches", jobs(args), over)
    show(kept, args.shape, SHAPES[args.shape], args.out)
    return 0


def over(name: str, shape: Shape, text: Text, schedule: Schedule, link: Link, device: str) -> report.Row:
    """Curves and rates of a scheme."""
    row = train(name, shape, text, schedule, Uncompressed(), device, link)
    del row["bits"]
    return row | link.rates()


def jobs(args: argparse.Namespace) -> list[Job]:
    """Schemes by name."""
    how = {"effort": args.effort, "threads": args.threads}
    made: list[Job] = [(PLAIN, lambda: Compressed(**how))]
    for bits in args.bits:
        start = f"activations {bits:g}"
        made.append((f"{start}, gradients as they are", lambda b=bits: Compressed(**how, activation_bits=b)))
        for each in (8, 4):
            made.append((f"{start}, gradients RTN {each}", lambda b=bits, e=each: Rounded(**how, bits=e, activation_bits=b)))
        both = {"activation_bits": bits, "gradient_bits": bits}
        layers = both | {"residual_bits": bits}
        made.append((f"{start}, gradients {bits:g}", lambda b=both: Compressed(**how, **b)))
        made.append((f"{start}, gradients {bits:g} + {bits:g}", lambda b=layers: Compressed(**how, **b)))
        later = layers | {"round_after": args.steps // 5}
        made.append((f"{start}, gradients {bits:g} + {bits:g}, then + RTN 8", lambda b=later: Compressed(**how, **b)))
    return made


def show(kept: report.Report, name: str, shape: Shape, out: Path) -> None:
    """Table and plot of all that was measured."""
    plain = kept.measured(scheme=PLAIN)
    rows = [
        (
            row["scheme"],
            f"{row['activation_bits']:.2f}",
            f"{row['gradient_bits']:.2f}",
            f"{row['loss']:.4f}",
            "" if plain is None else f"{100 * (row['loss'] / plain['loss'] - 1):+.1f} %",
        )
        for row in kept.rows
    ]
    heads = ("scheme", "bits of activations", "bits of gradients", "held-out loss", "against uncompressed")
    page = f"# Pipeline-parallel training, {name}\n\n- {kept.about}\n\n{report.table(heads, rows)}"
    (out / f"pipeline-{name}.md").write_text(page, encoding="utf-8")
    print(page)
    lines = {row["scheme"]: [tuple(point) for point in row["held_out"]] for row in kept.rows}
    plot.losses(out / f"pipeline-{name}.png", f"{shape.name}: {STAGES} stages", lines)


if __name__ == "__main__":
    sys.exit(main())
