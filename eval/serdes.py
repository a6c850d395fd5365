#!/usr/bin/env python3
"""Serdes of LMCache side by side: bytes, errors and times of chunks of keys and values, and tenfold's bytes at the error of each.

`python eval/serdes.py KV.safetensors`; a table, a plot and raw JSON go to results/eval/. The file has `layers.N.k` and
`layers.N.v`, a row for each token, as captured from SmolLM2. Needs LMCache beside torch: python/serving/requirements-lmcache.txt.
Bases for tenfold are fitted on tokens that are not judged, of keys as they are: LMCache does not say positions.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tqdm import tqdm

from common import options, plot, report, serdes

RATES = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)
PRESETS = ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc")
OURS = ("tenfold", "tenfold with bases")
BAR = 0.7
"""Of the bytes of the best rival, at its error."""
NEAR = 0.01
"""Bits a value that the rate at a rival's error is found to."""
BASE = "fp8"
"""Times are also told as ratios to this one's."""


def main() -> int:
    parser = options.parser(__doc__, RATES)
    parser.add_argument("file", type=Path, help="safetensors file of keys and values")
    parser.add_argument("--chunk", type=int, default=256, help="tokens of a chunk")
    parser.add_argument("--fit-tokens", type=int, default=1024, help="tokens at the file's start that bases are fitted on")
    parser.add_argument("--tokens", type=int, help="tokens behind those to judge (default: all)")
    parser.add_argument("--head", type=int, default=64, help="columns of a head")
    parser.add_argument("--model-layers", type=int, default=30, help="layers of the model that the file has some of")
    parser.add_argument("--repeat", type=int, default=3, help="how often times are taken; the median counts")
    return evaluate(options.parsed(parser))


class Bench:
    """Chunks to judge, and serdes that take them."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder
        tensors = load_file(args.file)
        self.layers = sorted({int(name.split(".")[1]) for name in tensors if name.endswith(".v")})
        planes = [torch.stack([tensors[f"layers.{layer}.{kind}"] for layer in self.layers]) for kind in "kv"]
        cache = torch.stack([plane.flatten(2) for plane in planes])
        fit, judged = cache[:, :, : args.fit_tokens], cache[:, :, args.fit_tokens :]
        if args.tokens is not None:
            judged = judged[:, :, : args.tokens]
        self.chunks = [chunk.contiguous() for chunk in judged.split(args.chunk, 2) if chunk.shape[2] == args.chunk]
        if not self.chunks:
            raise SystemExit(f"{args.file} has no chunk of {args.chunk} tokens behind those that bases are fitted on")
        self.values = sum(chunk.numel() for chunk in self.chunks)
        self._fit = fit

    def bases(self, bits: float) -> str:
        """A file of bases for a rate, of the tokens that are not judged."""
        path = self.folder / f"{bits:g}.basis"
        if not path.exists():
            captured = self.folder / "captured.safetensors"
            kinds = zip("kv", self._fit, strict=True)
            # Numbers of layers as the cache has them.
            save_file(
                {f"layers.{at}.{kind}": rows.contiguous() for kind, plane in kinds for at, rows in enumerate(plane)}, captured
            )
            command = [sys.executable, "-m", "tenfold", "basis", "fit", str(captured), "--out", str(path)]
            command += ["--rope", "none", "--head-dim", str(self.args.head), "--group", "1", "--parts", "0"]
            subprocess.run([*command, "--bits", f"{bits:g}", "--quiet"], check=True)
        return str(path)

    def ours(self, name: str, bits: float) -> serdes.Serde:
        """tenfold's serde at a rate."""
        how: dict[str, object] = {"bits": bits}
        if name == "tenfold with bases":
            how["bases"] = self.bases(min(math.ceil(bits), 8))
        return serdes.tenfold(self.args.threads, **how)

    def rivals(self) -> Iterator[tuple[str, str, Callable[[], serdes.Serde]]]:
        """Names, settings, and what makes them."""
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            yield "fp8", str(dtype).removeprefix("torch."), lambda dtype=dtype: serdes.float8(dtype)
        yield "asym_k16_v8", "storage only", serdes.asymmetric
        for preset in PRESETS:
            yield "turboquant", preset, lambda preset=preset: serdes.turbo(preset, self.args.head)
        heads = self.chunks[0].shape[-1] // self.args.head
        shape = (self.layers, self.args.model_layers, heads, self.args.head, self.args.chunk)
        yield "cachegen", "bins as for the whole model", lambda: serdes.cachegen(*shape)

    def measure(self, serde: serdes.Serde) -> report.Row:
        """All chunks through a serde; times are medians over rounds, the first of which warms up."""
        rounds = [[serde(chunk) for chunk in self.chunks] for _ in range(1 + self.args.repeat)]
        coded = rounds[-1]
        size = sum(chunk.nbytes for chunk in coded)
        keys, values = serdes.errors([chunk.decoded for chunk in coded], self.chunks)
        row: report.Row = {"bytes": size, "bits": 8 * size / self.values, "nmse_keys": keys, "nmse_values": values}
        row["error"] = (keys + values) / 2
        for what in ("encode", "decode"):
            taken = [sum(getattr(chunk, f"{what}_seconds") for chunk in chunks) for chunks in rounds[1:]]
            row[f"{what}_seconds"] = None if math.isnan(taken[0]) else statistics.median(taken)
        return row

    def error(self, name: str, bits: float) -> float:
        """tenfold's at a rate."""
        serde = self.ours(name, bits)
        return sum(serdes.errors([serde(chunk).decoded for chunk in self.chunks], self.chunks)) / 2

    def bits_at(self, name: str, error: float) -> report.Row:
        """The least rate at which tenfold's error is no more than this, by bisection."""
        low, high = 0.5, 10.0
        while high - low > NEAR:
            middle = (low + high) / 2
            low, high = (low, middle) if self.error(name, middle) <= error else (middle, high)
        return self.measure(self.ours(name, high)) | {"at": high}


def evaluate(args: argparse.Namespace) -> int:
    """Measures every serde, then writes tables and the plot."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        about = (
            f"{args.file.name}, layers {', '.join(map(str, bench.layers))}: {len(bench.chunks)} chunks of {args.chunk} tokens, "
            f"{bench.values:,} values; bases from {args.fit_tokens} other tokens; the error is the mean of keys' and values' nmse"
        )
        kept = report.Report(args.out / "serdes.json", about, fresh=args.fresh)
        print(about)
        kept.notes += [
            "turboquant has Triton kernels for CUDA only (on a CPU it says 'TurboQuant Triton serde requires CUDA'): its errors "
            "are those of its arithmetic in torch, checked against the kernels in Triton's interpreter; it is not timed. "
            "No layers are skipped",
            "cachegen runs in LMCache's own coder for CPUs, which is slower than its kernels for CUDA",
        ]
        judge(bench, kept)
        kept.write()
        show(kept, args.out)
    return 0


def judge(bench: Bench, kept: report.Report) -> None:
    """Rivals, tenfold at its rates, and tenfold at the errors of rivals."""
    rivals = []
    for name, setting, make in tqdm(list(bench.rivals()), unit="serde", disable=None):
        key = {"serde": name, "setting": setting}
        try:
            rivals.append(kept.measure(key, lambda: bench.measure(make())))
        except (RuntimeError, ImportError, ValueError) as error:
            kept.notes.append(f"{name} ({setting}) does not run here: {error}")
    ours = [(name, bits) for name in OURS for bits in bench.args.bits]
    for name, bits in tqdm(ours, unit="rate", disable=None):
        kept.measure({"serde": name, "setting": f"{bits:g} bits"}, lambda: bench.measure(bench.ours(name, bits)))
    pairs = [(name, rival) for name in OURS for rival in rivals]
    for name, rival in tqdm(pairs, unit="pair", disable=None):
        key = {"serde": name, "setting": f"at the error of {rival['setting']}"}
        against = {"rival": rival["serde"], "rival_bytes": rival["bytes"]}
        kept.measure(key, lambda: bench.bits_at(name, rival["error"]) | against)


def show(kept: report.Report, out: Path) -> None:
    """Tables and the plot of all that was measured."""
    notes = "".join(f"- {note}\n" for note in [kept.about, *kept.notes])
    plain = [row for row in kept.rows if "rival" not in row]
    base = next((row for row in plain if row["serde"] == BASE), None)
    header = ("serde", "setting", "bytes", "bits", "nmse of keys", "of values", "encode", "decode", f"ratios to {BASE}")
    page = f"# Serdes of LMCache\n\n{notes}\n{report.table(header, [cells(row, base) for row in plain])}"
    found = [(row, row["bytes"] / row["rival_bytes"]) for row in kept.rows if "rival" in row]
    lines = []
    for row, ratio in found:
        setting = row["setting"].removeprefix("at the error of ")
        size = (f"{row['bytes']:,}", f"{row['rival_bytes']:,}", f"{ratio:.3f}")
        lines.append((row["serde"], row["rival"], setting, report.number(row["error"]), *size))
    header = ("tenfold", "rival", "setting", "error", "bytes", "bytes of the rival", "ratio")
    page += f"\n## Bytes of tenfold at the error of each\n\n{report.table(header, lines)}"
    for name in OURS:
        ratios = [ratio for row, ratio in found if row["serde"] == name]
        if ratios:
            met = "met" if max(ratios) <= BAR else "missed"
            settings = f"over {len(ratios)} settings of rivals"
            page += f"\n{name}: at most {max(ratios):.3f} of a rival's bytes at its error, {settings} (bar: {BAR:g}, {met}).\n"
    (out / "serdes.md").write_text(page, encoding="utf-8")
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in plain:
        curves.setdefault(row["serde"], []).append((row["bits"], row["error"]))
    order = sorted(curves, key=lambda name: not name.startswith("tenfold"))
    title = "Serdes of LMCache on keys and values of SmolLM2"
    plot.curves(out / "serdes.png", title, "nmse (logarithmic)", {name: curves[name] for name in order}, log=True)
    print(page)


def cells(row: report.Row, base: report.Row | None) -> Sequence[str]:
    """A row of the table."""
    seconds = [row["encode_seconds"], row["decode_seconds"]]
    times = ["–" if taken is None else f"{1000 * taken:.1f} ms" for taken in seconds]
    ratios = "–"
    if base is not None and None not in seconds:
        ratios = ", ".join(f"{taken / base[what]:.1f}" for taken, what in zip(seconds, ("encode_seconds", "decode_seconds")))
    errors = (report.number(row["nmse_keys"]), report.number(row["nmse_values"]))
    return (row["serde"], row["setting"], f"{row['bytes']:,}", f"{row['bits']:.2f}", *errors, *times, ratios)


if __name__ == "__main__":
    sys.exit(main())
