#!/usr/bin/env python3
"""A model cut in two over links of several rates: time to the first token, tokens a second and perplexity, by how hidden states are sent.

`python eval/split.py` as root: two network namespaces, a link between them, and in each of them one half of SmolLM2-135M in
python/examples/split_model.py, with one thread; tables and raw JSON go to results/eval/. All coders take turns in the same processes.
Perplexity does not depend on the link and is measured over the fastest. A run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import causal, options, report
from common.registry import cache_folder
from common.training.link import ADDRESSES, Link

EXAMPLE = report.ROOT / "python" / "examples" / "split_model.py"
LINKS = (10.0, 50.0, 100.0, 1000.0, 10000.0)
RATES = (3.5, 2.5)
PORT = "29513"
MEASURED = ("first_token_seconds", "tokens_per_second", "way_seconds")
SECONDS = 0.2e-3
"""What a link lets through at once: a step of a few kilobytes must not pass for free."""


def main() -> int:
    parser = options.parser(__doc__, RATES)
    parser.add_argument("--text", type=Path, default=causal.DATA / "wikitext2_test_start.txt", help="of prompts and of perplexity")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="SmolLM2 as save_smollm2 left it (default: made from the GGUF)")
    parser.add_argument("--link", type=float, nargs="+", default=list(LINKS), metavar="MBIT", help="rates of the link")
    parser.add_argument("--coder", nargs="+", default=["raw", "fp8", "tenfold", "auto"], help="how hidden states are sent")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--prompt-tokens", type=int, default=512, help="in all prompts of a batch together")
    parser.add_argument("--tokens", type=int, default=13, help="to make for each sequence")
    parser.add_argument("--repeat", type=int, default=1, help="how often; the median counts")
    parser.add_argument("--score", type=int, default=0, help="tokens whose perplexity is measured, instead of times")
    return evaluate(options.parsed(parser))


def evaluate(args: argparse.Namespace) -> int:
    """Runs over each link what was not run before, then writes the tables."""
    model = args.model or made()
    about = f"{model.name}, cut in the middle, bf16; prompts of {args.prompt_tokens} tokens a batch, {args.tokens} tokens each; one thread a half"
    kept = report.Report(args.out / "split.json", about, fresh=args.fresh)
    kept.notes = [
        "both halves, the link and its shaping share the cores of one machine",
        "raw is bf16; fp8 is e4m3 with a scale in f32 a token; tenfold at stated bits, effort fast; auto takes what the planner's rule says, of these and tenfold at the first rate",
        "first token: computing included, which goes on meanwhile. tokens/s: of the median step. The way: coding, sending and the token back, without computing",
        "expected: what auto reckons with for coding and sending, one way",
    ]
    if args.score:
        over = max(args.link)
        kept.measure({"megabits": over, "score": args.score, "text": args.text.name}, lambda: run(args, model, over))
    else:
        for megabits in args.link:
            kept.measure({"megabits": megabits, "score": 0, "text": args.text.name}, lambda m=megabits: run(args, model, m))
    show(kept, args.out)
    return 0


def made() -> Path:
    """The model as a folder, made once: each half loads in a second."""
    folder = cache_folder() / "SmolLM2-135M"
    if not (folder / "tokenizer.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        causal.save_smollm2(folder)
    return folder


def run(args: argparse.Namespace, model: Path, megabits: float) -> report.Row:
    """Runs the example once in each namespace: the rows of the first one's report."""
    os.environ |= {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "HF_HUB_OFFLINE": "1"}
    common = [sys.executable, str(EXAMPLE), "--model", str(model), "--threads", str(args.threads or 1), "--timeout", "120"]
    said = ["--coder", *args.coder, "--bits", *map(str, args.bits), "--text", str(args.text)]
    if args.score:
        said += ["--tokens", "0", "--score", str(args.score), "--chunk", "256"]
    else:
        said += ["--batch", *map(str, args.batch), "--tokens", str(args.tokens), "--prompt-tokens", str(args.prompt_tokens)]
        said += ["--repeat", str(args.repeat)]
    with tempfile.TemporaryDirectory() as folder, Link(megabits, max(int(megabits * 1e6 / 8 * SECONDS), 3200)) as link:
        path = Path(folder) / "report.json"
        ranks = [link.start(0, [*common, "--rank", "0", *said, "--json", str(path)]), link.start(1, [*common, "--rank", "1"])]
        for rank in ranks:
            rank.communicate()
        if any(rank.returncode for rank in ranks):
            raise SystemExit("a rank has failed; what it says stands above")
        return {"rows": json.loads(path.read_text(encoding="utf-8"))["rows"]}


def median(rows: list[report.Row], name: str) -> float:
    """Over the turns of a case."""
    return statistics.median(row[name] for row in rows)


def grouped(rows: list[report.Row]) -> dict[tuple[int, str], list[report.Row]]:
    """Turns by batch and coder."""
    found: dict[tuple[int, str], list[report.Row]] = {}
    for row in rows:
        found.setdefault((row["batch"], row["name"]), []).append(row)
    return found


def show(kept: report.Report, out: Path) -> None:
    """Tables of all that was measured."""
    page = "# A model cut in two\n\n" + "".join(f"- {note}\n" for note in [kept.about, *kept.notes])
    timed = sorted((row for row in kept.rows if not row["score"]), key=lambda row: row["megabits"])
    for row in timed:
        page += f"\n## {row['megabits']:g} Mb/s\n\n{report.table(*times(row))}"
    for row in kept.rows:
        if row["score"]:
            page += f"\n## Perplexity of {row['score']:,} tokens of {row['text']}\n\n{report.table(*perplexities(row))}"
    (out / "split.md").write_text(page, encoding="utf-8")
    print(page)


def times(row: report.Row) -> tuple[Any, list[Any]]:
    """Head and lines for one link; how much faster than raw."""
    cases, lines = grouped(row["rows"]), []
    for (batch, name), turns in cases.items():
        raw = cases.get((batch, "raw"), turns)
        first, rate, way = (median(turns, what) for what in MEASURED)
        raw_first, raw_rate, raw_way = (median(raw, what) for what in MEASURED)
        one, expected = turns[0], turns[0].get("steps_expected_seconds")
        lines.append(
            (
                str(batch),
                name,
                f"{one['prompt_coder']}, {one['prompt_raw'] / one['prompt_sent']:.1f}",
                f"{1e3 * first:.0f} ms",
                f"{raw_first / first:.2f}",
                f"{one['steps_coder']}, {one['steps_raw'] / one['steps_sent']:.1f}",
                f"{rate:.1f}",
                f"{rate / raw_rate:.2f}",
                f"{1e3 * way:.1f} ms",
                f"{raw_way / way:.2f}",
                "–" if expected is None else f"{1e3 * expected:.1f} ms",
            )
        )
    heads = ("batch", "coder", "prompt goes", "first token", "faster", "steps go", "tokens/s", "faster", "the way", "faster", "expected")
    return heads, lines


def perplexities(row: report.Row) -> tuple[Any, list[Any]]:
    """Head and lines for perplexity."""
    raw = next((one["perplexity"] for one in row["rows"] if one["name"] == "raw"), None)
    lines = []
    for one in row["rows"]:
        more = "–" if raw is None else f"{100 * (one['perplexity'] / raw - 1):+.2f} %"
        lines.append((one["name"], f"{16 * one['prompt_sent'] / one['prompt_raw']:.2f}", f"{one['perplexity']:.3f}", more))
    return ("coder", "bits", "perplexity", "more"), lines


if __name__ == "__main__":
    sys.exit(main())
