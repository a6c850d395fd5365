"""Options that all evaluation programs have."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch


def parser(about: str | None, rates: Sequence[float] = ()) -> argparse.ArgumentParser:
    """A parser with the common options, rates only if there are any by default; programs add their own."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rates:
        made.add_argument("--bits", type=float, nargs="+", default=rates, metavar="N", help="rates of tenfold")
    made.add_argument("--threads", type=int, default=0, help="threads of torch and of tenfold (default: all cores)")
    made.add_argument("--out", type=Path, default=Path("results/eval"), help="folder of the results")
    made.add_argument("--fresh", action="store_true", help="forget what was measured before")
    return made


def parsed(made: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments of the command line, with torch's threads set."""
    args = made.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    return args
