#!/usr/bin/env python3
"""Quality of a sentence encoder (all-MiniLM-L6-v2) whose weights went through a coder: `python eval/encoder.py`.

The sentences are those of the WikiText-2 excerpts. Measured are the cosine between the embedding of a sentence before and
after, and how much of the order of retrieved sentences stays. What is calibrated sees the package's prose, which is of other articles.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from common import options, plot, report, zoo
from common.calibrated import WithFile
from common.causal import DATA
from common.coders import Coded, Coder, Tenfold, Weights, nmse
from common.gptq import gptq
from common.rounding import NormalFloat, RoundToNearest
from tenfold.torch import Calibration, Importance
from tenfold.transformers._mixture import stored_texts

RATES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
TOP = 10


def main() -> int:
    args = options.parsed(options.parser(__doc__, RATES))
    folder = zoo.minilm_folder()
    model = AutoModel.from_pretrained(folder).eval()
    text = "".join((DATA / name).read_text(encoding="utf-8") for name in ("wikitext2_test_start.txt", "wikitext2_valid_start.txt"))
    subject = Encoder(model, AutoTokenizer.from_pretrained(folder), sentences(text))
    about = f"all-MiniLM-L6-v2, f32, all matrices with embeddings; {len(subject.sentences)} sentences of WikiText-2"
    kept = report.Report(args.out / "encoder.json", about, fresh=args.fresh)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "calibration.safetensors"
        learnt = calibrate(subject, sentences("\n".join(stored_texts("prose"))), path)
        evaluate(subject, kept, tuple(args.bits), args.threads, learnt)
    show(kept, args.out)
    return 0


@dataclass
class Encoder:
    """A sentence encoder with mean pooling, and sentences."""

    model: PreTrainedModel
    tokenizer: object
    sentences: list[str]

    def weights(self) -> dict[str, np.ndarray]:
        """All matrices, embeddings included, as copies."""
        return {name: value.numpy().copy() for name, value in self.model.state_dict().items() if value.dim() == 2}

    def embed(self, weights: Weights, texts: list[str]) -> np.ndarray:
        """Embeddings of unit length, with these weights."""
        state = self.model.state_dict()
        rows = []
        with torch.inference_mode():
            for name, value in weights.items():
                state[name].copy_(torch.from_numpy(np.ascontiguousarray(value)))
            for start in range(0, len(texts), 32):
                rows.append(self.run(texts[start : start + 32]).numpy())
        return np.concatenate(rows)

    def run(self, texts: list[str]) -> torch.Tensor:
        """The same of a batch, with the weights that the model has."""
        batch = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")  # type: ignore[operator]
        hidden = self.model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)


def sentences(text: str) -> list[str]:
    """Sentences of ten words or more, each once."""
    found = (part.strip() for line in text.splitlines() for part in re.split(r"(?<= [.!?]) ", line))
    return list(dict.fromkeys(part for part in found if len(part.split()) >= 10 and not part.startswith("=")))


@dataclass(frozen=True)
class Learnt:
    """What other sentences tell of the model."""

    path: Path
    seen: Calibration
    importance: dict[str, np.ndarray]


def calibrate(subject: Encoder, texts: list[str], path: Path) -> Learnt:
    """Runs the model on sentences. Gradients of embeddings along random directions say what the outputs of each layer do to them."""
    generator = torch.Generator().manual_seed(1)
    # By length, so that few tokens are padding, which importance would count.
    texts = sorted(texts, key=len)
    batches = [texts[start : start + 32] for start in range(0, len(texts), 32)]
    with Calibration(subject.model) as seen, torch.enable_grad():
        for batch in batches:
            vectors = subject.run(batch)
            (vectors * torch.randn(vectors.shape, generator=generator)).sum().backward()
    subject.model.zero_grad()
    seen.save(path)
    with Importance(subject.model) as columns, torch.no_grad():
        for batch in batches:
            subject.run(batch)
    return Learnt(path, seen, columns.vectors())


@dataclass(frozen=True)
class Gptq:
    """GPTQ of the linear layers; embeddings rounded to nearest, as nothing is known of them."""

    seen: Calibration
    group: int = 128

    def __call__(self, weights: Weights, bits: float) -> Coded:
        found = RoundToNearest(self.group)(weights, bits)
        for name in self.seen:
            weight, inputs = (torch.from_numpy(np.float32(one)) for one in (weights[name], self.seen.inputs(name)))
            found.weights[name] = gptq(weight, inputs, int(bits), self.group).numpy()
        return found


def coders(rates: tuple[float, ...], threads: int, learnt: Learnt) -> list[tuple[str, float, Coder]]:
    """All coders with their rates."""
    jobs: list[tuple[str, float, Coder]] = []
    for alloc in ("loss", "equal"):
        jobs += [(f"tenfold calibrated, {alloc}", bits, WithFile(learnt.path, alloc, threads=threads)) for bits in rates]
    jobs += [("tenfold importance", bits, Tenfold("equal", "best", threads, learnt.importance)) for bits in rates]
    jobs += [("GPTQ, groups of 128", bits, Gptq(learnt.seen)) for bits in (2.0, 3.0, 4.0)]
    for alloc in ("equal", "step"):
        jobs += [(f"tenfold {alloc}", bits, Tenfold(alloc, "best", threads)) for bits in rates]
    jobs += [(f"RTN, groups of {group}", b, RoundToNearest(group)) for group in (32, 64, 128) for b in (2.0, 3.0, 4.0)]
    jobs += [("Hadamard + RTN, groups of 64", bits, RoundToNearest(64, hadamard=True)) for bits in (2.0, 3.0, 4.0)]
    return [*jobs, ("NF4", 4.0, NormalFloat())]


def evaluate(subject: Encoder, kept: report.Report, rates: tuple[float, ...], threads: int, learnt: Learnt) -> None:
    """Measures all coders; rows go into the report."""
    weights = subject.weights()
    before = subject.embed(weights, subject.sentences)

    def measure(after: Weights) -> report.Row:
        vectors = subject.embed(after, subject.sentences)
        return {"nmse": nmse(weights, after)} | agreement(before, vectors)

    kept.measure({"coder": "uncompressed", "asked": 32}, lambda: {"bits": 32.0} | measure(weights))

    def point(coder: Coder, bits: float) -> report.Row:
        coded = coder(weights, bits)
        return {"bits": coded.bits} | measure(coded.weights)

    with tqdm(coders(rates, threads, learnt), unit="point") as bar:
        for name, bits, coder in bar:
            bar.set_description(f"{name}, {bits:g} bits")
            kept.measure({"coder": name, "asked": bits}, lambda: point(coder, bits))
    kept.write()


def agreement(before: np.ndarray, after: np.ndarray) -> report.Row:
    """How alike embeddings and their neighbourhoods are: mean and least cosine, the share of the ten nearest
    sentences that stay, the share of nearest ones, and the mean rank correlation of all others."""
    cosine = (before * after).sum(1)
    old, new = order(before), order(after)
    overlap = [len(set(a[:TOP]) & set(b[:TOP])) / TOP for a, b in zip(old, new)]
    return {
        "cosine": float(cosine.mean()),
        "least_cosine": float(cosine.min()),
        "top10_kept": float(np.mean(overlap)),
        "top1_kept": float(np.mean(old[:, 0] == new[:, 0])),
        "rank_correlation": float(np.mean([spearman(a, b) for a, b in zip(old, new)])),
    }


def order(vectors: np.ndarray) -> np.ndarray:
    """For each vector the others, nearest first."""
    near = vectors @ vectors.T
    np.fill_diagonal(near, -np.inf)
    return np.argsort(-near, axis=1, kind="stable")[:, :-1]


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation of two orders of the same numbers."""
    return float(np.corrcoef(np.argsort(a), np.argsort(b))[0, 1])


def show(kept: report.Report, out: Path) -> None:
    """Table and plot."""
    rows = sorted(kept.rows, key=lambda row: (not row["coder"].startswith("tenfold"), row["coder"], row["bits"]))
    columns = ("cosine", "least_cosine", "top10_kept", "top1_kept", "rank_correlation")
    body = [(r["coder"], f"{r['bits']:.2f}", f"{r['nmse']:.3g}", *(f"{r[c]:.4f}" for c in columns)) for r in rows]
    header = ("coder", "bits", "nmse", *(c.replace("_", " ") for c in columns))
    page = f"# Sentence encoder\n\n{kept.about}\n\n{report.table(header, body)}"
    (out / "encoder.md").write_text(page, encoding="utf-8")
    print(page)
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["coder"] != "uncompressed":
            lines.setdefault(row["coder"], []).append((row["bits"], row["top10_kept"]))
    title = "all-MiniLM-L6-v2: how many of the ten nearest sentences stay"
    plot.curves(out / "encoder.png", title, "share that stays", lines)


if __name__ == "__main__":
    sys.exit(main())
