"""Options that programs which train have in common."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from common import options
from common.training.exchanges import BUCKET
from common.training.gpt import SHAPES


def parsed(about: str | None, rates: Sequence[float], workers: str) -> argparse.Namespace:
    """The arguments of the command line; `workers` says what these are."""
    parser = options.parser(about, rates)
    parser.add_argument("text", type=Path, nargs="+", help="text files; the last one's end is judged")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--workers", type=int, default=4, help=workers)
    parser.add_argument("--batch", type=int, default=8, help="contexts of each of these in a step")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate at its highest")
    parser.add_argument("--warmup", type=float, default=0.05, help="share of the steps in which that rate is reached")
    parser.add_argument("--bucket", type=float, default=BUCKET, metavar="MIB", help="size of a bucket of gradients")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--effort", default="fast", choices=["fast", "balanced", "best"])
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only schemes whose name has one of these words")
    args = options.parsed(parser)
    for path in args.text:
        if not path.is_file():
            parser.error(f"{path}: no such file")
    return args
