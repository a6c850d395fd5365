#!/usr/bin/env python3
"""Checkpoints of a small GPT over bytes, in bf16, some training steps apart: versions of one model for `tenfold-lab bench delta`.

`python eval/checkpoints.py TEXT... --shape 25m --out checkpoints` trains with f32 master weights, keeps the base, and goes on from it. Then:

    tenfold-lab bench delta checkpoints/base.safetensors checkpoints/step-1.safetensors checkpoints/step-10.safetensors
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tqdm import tqdm

from common.training.gpt import SHAPES, Text, gpt, loss_of
from common.training.loop import Adam, Schedule


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="+", help="text files")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--base", type=int, default=100, metavar="N", help="steps before the base")
    parser.add_argument("--apart", type=int, nargs="+", default=(1, 10, 100), metavar="N", help="steps from the base to each version")
    parser.add_argument("--batch", type=int, default=8, help="contexts of a step")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate before the base")
    parser.add_argument("--later-rate", type=float, metavar="RATE", help="learning rate behind it, as of a fine-tune (default: the same)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("checkpoints"), help="folder of the files")
    args = parser.parse_args()
    for path in args.text:
        if not path.is_file():
            parser.error(f"{path}: no such file")
    if args.base < 1 or min(args.apart) < 1:
        parser.error("versions are at least one training step apart")
    for path in make(args):
        print(path)
    return 0


def make(args: argparse.Namespace) -> list[Path]:
    """Trains, and keeps versions."""
    shape, text = SHAPES[args.shape], Text(args.text, args.device)
    steps = args.base + max(args.apart)
    schedule = Schedule(steps, args.batch, 1, rate=args.rate, seed=args.seed)
    model = gpt(shape, args.seed).to(args.device)
    adam = Adam(model, schedule)
    batches = text.batches(0, args.batch, shape.context, args.seed)
    cast = torch.autocast(torch.device(args.device).type, torch.bfloat16, enabled=args.device != "cpu")
    args.out.mkdir(parents=True, exist_ok=True)
    kept = []
    for step in tqdm(range(1, steps + 1), unit="step", disable=None):
        tokens, targets = next(batches)
        with cast:
            loss = loss_of(model(tokens), targets)
        model.zero_grad(set_to_none=True)
        loss.backward()
        rise = min(step / 20, 1.0)
        later = step > args.base and args.later_rate is not None
        average = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
        adam.step(average, args.later_rate if later else args.rate * rise, momentum=False)
        if step == args.base or step - args.base in args.apart:
            name = "base" if step == args.base else f"step-{step - args.base}"
            path = args.out / f"{name}.safetensors"
            save_file({name: one.detach().bfloat16().cpu().contiguous() for name, one in model.named_parameters()}, path)
            kept.append(path)
    return kept


if __name__ == "__main__":
    sys.exit(main())
