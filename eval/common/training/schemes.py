"""Trains with one scheme after the other and keeps what each gives."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tqdm import tqdm

from common import report
from common.training.gpt import SHAPES, Shape, Text
from common.training.loop import Schedule

Made = TypeVar("Made")


def measured(
    args: argparse.Namespace,
    kind: str,
    workers: str,
    jobs: Sequence[tuple[str, Callable[[], Made]]],
    train: Callable[[str, Shape, Text, Schedule, Made, str], report.Row],
) -> report.Report:
    """The report of all schemes that are asked for; those that it has are not trained again.

    Args:
        args: as of `options.parsed`.
        kind: first part of the report's name.
        workers: what trains, as in "4 workers".
        jobs: schemes by name, with what makes each.
        train: trains with a scheme.
    """
    shape = SHAPES[args.shape]
    schedule = Schedule(args.steps, args.batch, args.workers, args.rate, args.warmup, seed=args.seed)
    texts = ", ".join(path.name for path in args.text)
    about = (
        f"GPT over bytes, {shape.name}; {workers} × {args.batch} contexts, {args.steps} steps of AdamW at {args.rate:g}, "
        f"warmed up in {args.warmup:.0%}; {texts}; buckets of {args.bucket:g} MiB, effort {args.effort}, seed {args.seed}"
    )
    kept = report.Report(args.out / f"{kind}-{args.shape}.json", about, fresh=args.fresh)
    text = Text(args.text, args.device)
    todo = [job for job in jobs if not args.only or any(word in job[0] for word in args.only)]
    with tqdm(todo, unit="run", disable=None) as bar:
        for name, make in bar:
            bar.set_description(name)

            def once(name: str = name, make: Callable[[], Any] = make) -> report.Row:
                return train(name, shape, text, schedule, make(), args.device)

            kept.measure({"scheme": name}, once)
    kept.write()
    return kept
