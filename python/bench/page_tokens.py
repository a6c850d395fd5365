#!/usr/bin/env python3
"""How many tokens a page should have: the error at a rate, and lossless bits, by page size.

    python python/bench/page_tokens.py --json results/python/page-tokens.json

Keys and values are those of testdata/kv.safetensors, of one language model: keys of two layers, values of one. Bytes of
a page's record are counted, its overhead in the store too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from _about import about
from tenfold.serving import RECORD_OVERHEAD, KvPages

ROOT = Path(__file__).parents[2]
ROPE = {"head": 64, "base": 100000.0, "pairing": "neighbours"}
SIZES = (16, 32, 64, 128, 256)
GOALS: dict[str, dict[str, Any]] = {"4 bits": {"bits": 4.0}, "2.5 bits": {"bits": 2.5}, "lossless": {"lossless": True}}


def captured() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    rows = {name.split("[")[0]: tensor for name, tensor in load_file(ROOT / "testdata/kv.safetensors").items()}
    return [rows["layers.8.k"], rows["layers.22.k"]], [rows["layers.8.v"], rows["layers.8.v"]]


def measured(goal: dict[str, Any], size: int) -> dict[str, float]:
    """Bits a value, and the mean square error over the mean square."""
    keys, values = captured()
    pages = KvPages(len(keys), rope=ROPE, **goal)
    stored, error, energy = 0, 0.0, 0.0
    for start in range(0, len(keys[0]), size):
        part = [[rows[start : start + size] for rows in rows_of] for rows_of in (keys, values)]
        page = pages.encode(*part, position=start)
        stored += len(page) + RECORD_OVERHEAD
        found = [[torch.empty_like(rows) for rows in rows_of] for rows_of in part]
        pages.decode(page, *found)
        for wanted, got in zip(sum(part, []), sum(found, []), strict=True):
            error += float((wanted.double() - got.double()).square().sum())
            energy += float(wanted.double().square().sum())
    return {"bits": 8 * stored / sum(rows.numel() for rows in keys + values), "nmse": error / energy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write what was measured")
    options = parser.parse_args()
    rows = [{"goal": name, "tokens": size, **measured(goal, size)} for name, goal in GOALS.items() for size in SIZES]
    for row in rows:
        print(f"{row['goal']:>9} {row['tokens']:4} tokens: {row['bits']:7.3f} bits a value, nmse {row['nmse']:.5f}")
    if options.json:
        notes = ["256 tokens of SmolLM2-135M, testdata/kv.safetensors; effort fast, one exact token"]
        report = {**about("page_tokens"), "notes": notes, "rows": rows}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
