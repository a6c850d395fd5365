#!/usr/bin/env python3
"""Error of the features of a speech model (the encoder of whisper-base) and of an audio CNN (CREPE) whose weights went
through a coder: `python eval/features.py`. The sound is synthetic."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import WhisperFeatureExtractor

from common import ctranslate2, options, plot, report, sound, zoo
from common.coders import Coder, Tenfold, Weights, nmse
from common.crepe import Crepe
from common.rounding import NormalFloat, RoundToNearest

RATES = (1.5, 2.0, 2.5, 3.0, 4.0)


@dataclass
class Subject:
    """A model as what it does to weights: features, and what else is worth measuring."""

    name: str
    source: str
    weights: dict[str, np.ndarray]
    features: Callable[[Weights], np.ndarray]
    """Frames × features."""
    pitch: Callable[[], np.ndarray] | None = None
    """Cents of each frame, after `features`."""


def whisper(seconds: float) -> Subject:
    """The encoder of whisper-base; all matrices and convolutions are coded, positions are not."""
    arrays = ctranslate2.read(zoo.whisper_bin(), "encoder/")
    model = ctranslate2.whisper_encoder(arrays)
    extract = WhisperFeatureExtractor(feature_size=arrays["encoder/conv1/weight"].shape[1])
    heard = extract(sound.babble(seconds), sampling_rate=sound.RATE, return_tensors="pt").input_features
    used = int(seconds * 50)
    coded = {n: flat(np.float32(v)) for n, v in arrays.items() if n.endswith("/weight")}

    def features(weights: Weights) -> np.ndarray:
        shaped = {name: value.reshape(arrays[name].shape) for name, value in weights.items()}
        ctranslate2.put(model, arrays | shaped)
        with torch.inference_mode():
            return model(heard).last_hidden_state[0, :used].numpy()

    return Subject("whisper", "encoder of whisper-base, from f16", coded, features)


def crepe(seconds: float) -> Subject:
    """CREPE, the full model."""
    model = Crepe(zoo.crepe_file())
    heard = torch.from_numpy(sound.frames(sound.babble(seconds), hop=640))
    state = model.state_dict()
    coded = {n: flat(v.numpy().copy()) for n, v in state.items() if v.dim() >= 2}
    cents: list[np.ndarray] = []

    def features(weights: Weights) -> np.ndarray:
        with torch.inference_mode():
            for name, value in weights.items():
                state[name].copy_(torch.from_numpy(value.reshape(state[name].shape)))
            found, pitch = model(heard)
        cents[:] = [20.0 * pitch.argmax(1).numpy()]
        return found.numpy()

    return Subject("crepe", "CREPE (full), f32", coded, features, lambda: cents[0])


def flat(weight: np.ndarray) -> np.ndarray:
    """A weight as outputs × inputs: the kernel of a convolution belongs to its inputs."""
    return np.ascontiguousarray(weight.reshape(weight.shape[0], -1))


def coders(rates: tuple[float, ...], threads: int) -> list[tuple[str, float, Coder]]:
    """All coders with their rates."""
    jobs: list[tuple[str, float, Coder]] = []
    for alloc in ("equal", "step"):
        jobs += [(f"tenfold {alloc}", bits, Tenfold(alloc, "best", threads)) for bits in rates]
    jobs += [("RTN, groups of 64", bits, RoundToNearest(64)) for bits in (2.0, 3.0, 4.0)]
    jobs += [("Hadamard + RTN, groups of 64", bits, RoundToNearest(64, hadamard=True)) for bits in (2.0, 3.0, 4.0)]
    return [*jobs, ("NF4", 4.0, NormalFloat())]


def evaluate(subject: Subject, kept: report.Report, rates: tuple[float, ...], threads: int) -> None:
    """Measures all coders on a model; rows go into the report."""
    before = subject.features(subject.weights)
    pitch = None if subject.pitch is None else subject.pitch()

    def point(coder: Coder, bits: float) -> report.Row:
        coded = coder(subject.weights, bits)
        after = subject.features(coded.weights)
        row = {"bits": coded.bits, "nmse": nmse(subject.weights, coded.weights)} | compare(before, after)
        if subject.pitch is not None and pitch is not None:
            row["pitch_kept"] = float(np.mean(np.abs(subject.pitch() - pitch) <= 50))
        return row

    with tqdm(coders(rates, threads), unit="point") as bar:
        for name, bits, coder in bar:
            bar.set_description(f"{subject.name}, {name}, {bits:g} bits")
            kept.measure({"model": subject.name, "coder": name, "asked": bits}, lambda: point(coder, bits))


def compare(before: np.ndarray, after: np.ndarray) -> report.Row:
    """Squared error of features over their variance in each channel's mean, and the mean cosine of frames."""
    error = float(np.square(after - before).sum() / np.square(before - before.mean(0)).sum())
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    return {"feature_nmse": error, "cosine": float(np.mean((before * after).sum(1) / np.maximum(lengths, 1e-30)))}


def show(kept: report.Report, subjects: list[Subject], out: Path) -> None:
    """A table and a plot for each model."""
    page = f"# Features of audio models\n\n{kept.about}\n"
    for subject in subjects:
        rows = [row for row in kept.rows if row["model"] == subject.name]
        rows.sort(key=lambda row: (not row["coder"].startswith("tenfold"), row["coder"], row["bits"]))
        columns = ["nmse", "feature_nmse", "cosine"] + (["pitch_kept"] if subject.pitch else [])
        body = [(r["coder"], f"{r['bits']:.2f}", *(f"{r[c]:.4g}" for c in columns)) for r in rows]
        header = ("coder", "bits", *(c.replace("_", " ") for c in columns))
        page += f"\n## {subject.source}\n\n{report.table(header, body)}"
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            lines.setdefault(row["coder"], []).append((row["bits"], row["feature_nmse"]))
        title = f"{subject.source}: error of the features"
        plot.curves(out / f"features-{subject.name}.png", title, "squared error over variance", lines, log=True)
    (out / "features.md").write_text(page, encoding="utf-8")
    print(page)


def main() -> int:
    parser = options.parser(__doc__, RATES)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of the sound, at most 30")
    args = options.parsed(parser)
    about = f"{args.seconds:g} seconds of synthetic speech; features against those of the uncompressed model"
    kept = report.Report(args.out / "features.json", about, fresh=args.fresh)
    subjects = [whisper(args.seconds), crepe(args.seconds)]
    for subject in subjects:
        evaluate(subject, kept, tuple(args.bits), args.threads)
    kept.write()
    show(kept, subjects, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
