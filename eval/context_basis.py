#!/usr/bin/env python3
"""What a basis fitted to the context itself would save in long contexts of a KV cache.

`python eval/context_basis.py --basis FILE [FILE …] --text prose=wikitext2_test.txt code=argparse.py,inspect.py,tarfile.py` prints tables.
Files are of `tenfold basis fit` with a metric. Keys and values of 8,192 tokens become coordinates in a completed file's basis, in which
one step serves all and the squared error is the divergence to second order. Pages of 64 tokens go through `tenfold.encode`: bits
are bytes, errors are those of what comes back. Refits see what a decoder has by then, coordinates of earlier pages as decoded:
eigenvectors of (512 · file's covariance + sum of products) / (512 + tokens). Predictors learn their shares from the first half.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tenfold
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from common import options, report, zoo
from common.cache import Cache, Passes, layers_of, rows

TOKENS, PAGE, SINKS = 8192, 64, 4
REFITS = (1024, 2048, 4096)
"""Tokens after which a basis is fitted again."""
SPANS = ((1024, 2048, 4), (2048, 4096, 8), (4096, TOKENS, 16))
"""Tokens that are judged: from, to, and one page in how many."""
WIDTH = 192  # columns of a layer
LADDER = (1.25, 1.0, 0.8, 0.6)
Turns = dict[int, np.ndarray]  # of coordinates, each from a token on


class Group:
    """Layers that share a basis: their coordinates in a context, those of the file's vectors first."""

    decoded: np.ndarray
    """Coordinates after the coder, with the file alone."""

    def __init__(self, file: tenfold.Model, name: str, context: dict[str, np.ndarray]) -> None:
        parts = (file.read(f"{name}.{part}", dtype=np.float32) for part in ("means", "deviations", "vectors", "metric"))
        self.means, deviations, vectors, lower = parts
        self.kind, first = name.split(".")
        size = len(self.means)
        self.columns, self.factor = slice(int(first) * WIDTH, int(first) * WIDTH + size), np.zeros((size, size), np.float32)
        for start, block in zip(range(0, size, WIDTH), lower.reshape(-1, WIDTH * (WIDTH + 1) // 2)):
            self.factor[start : start + WIDTH, start : start + WIDTH][np.tril_indices(WIDTH)] = block
        self.basis = np.linalg.qr((vectors @ self.factor).T, mode="complete")[0].T
        # As a reader of the file knows them.
        self.variances = np.square(np.pad(deviations, (0, size - len(deviations)), constant_values=deviations.min() / 2))
        self.coordinates = (context[self.kind][:, self.columns] - self.means) @ self.factor @ self.basis.T

    def back(self, coordinates: np.ndarray) -> np.ndarray:
        """Keys or values of coordinates."""
        return np.linalg.solve(self.factor.T, (coordinates @ self.basis).T).T + self.means

    def known(self, decoded: np.ndarray, prior: float = 512) -> np.ndarray:
        """Covariance about the file's means, from the file and decoded tokens."""
        seen = decoded[SINKS:]
        return np.float32((prior * np.diag(self.variances) + seen.T @ seen) / (prior + len(seen)))


def subject() -> tuple[Any, Any]:
    """SmolLM2-135M, which knows 8,192 positions, and its tokenizer."""
    path = zoo.smollm2_gguf()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def captured(folder: Path, name: str, paths: str) -> dict[str, np.ndarray]:
    """Tokens of a text, and keys (before positions) and values of all layers side by side."""
    kinds = ("keys", "values", "ids")
    if not all((folder / f"{name}-{kind}.npy").exists() for kind in kinds):
        model, tokenizer = subject()
        text = "".join(Path(path).read_text(encoding="utf-8") for path in paths.split(","))
        ids = torch.tensor(tokenizer(text[: 10 * TOKENS]).input_ids[:TOKENS])
        for kind, layers in Passes(model).take(ids, ("keys", "values")).items():
            np.save(folder / f"{name}-{kind}.npy", rows(layers))
        np.save(folder / f"{name}-ids.npy", ids.numpy())
    return {kind: np.load(folder / f"{name}-{kind}.npy", mmap_mode="r") for kind in kinds}


def code(page: np.ndarray, step: float) -> tuple[np.ndarray, int]:
    """A page after the coder, and its bits."""
    blob = tenfold.encode(np.ascontiguousarray(page, np.float32), step=step, prepare="none")
    return tenfold.decode(blob), 8 * len(blob)


def judged(coordinates: np.ndarray, step: float, turns: Turns, side: int = 0) -> np.ndarray:
    """Bits and squared error a value, for each span; bits on the side count over the whole context."""
    out = []
    for first, last, every in SPANS:
        starts = range(first, last, every * PAGE)
        pages = [coordinates[at : at + PAGE] @ turns[max(t for t in turns if t <= at)].T for at in starts]
        coded = [code(page, step) for page in pages]
        errors = [np.square(back - page).mean() for page, (back, _) in zip(pages, coded)]
        out.append((np.mean([bits for _, bits in coded]) / pages[0].size + side / coordinates.size, np.mean(errors)))
    return np.array(out)


def decoded(group: Group, step: float, turns: Turns, first: int, last: int) -> np.ndarray:
    """Coordinates of some tokens after the coder, turned and turned back."""
    parts = ((group.coordinates[at : at + PAGE], turns[max(t for t in turns if t <= at)]) for at in range(first, last, PAGE))
    return np.concatenate([code(page @ turn.T, step)[0] @ turn for page, turn in parts])


def eigenvectors(covariance: np.ndarray) -> np.ndarray:
    """Rows, strongest first."""
    return torch.linalg.eigh(torch.from_numpy(covariance))[1].numpy()[:, ::-1].T.copy()


def turned(covariance: np.ndarray, most: int, fit: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A turn of the strongest coordinates that leaves the others as they are."""
    chosen, whole = np.argsort(-np.diag(covariance))[:most], np.eye(len(covariance), dtype=np.float32)
    whole[np.ix_(chosen, chosen)] = fit(covariance[np.ix_(chosen, chosen)])
    return whole


def backward(group: Group, step: float, most: int, seconds: list[float]) -> Turns:
    """Refits from what was decoded, within the `most` coordinates that are strongest by then."""
    turns, seen = {0: np.eye(len(group.means), dtype=np.float32)}, np.zeros((0, len(group.means)), np.float32)
    for tokens in REFITS:
        seen = np.concatenate([seen, decoded(group, step, turns, len(seen), tokens)])
        start = time.monotonic()
        turns[tokens] = turned(group.known(seen), most, eigenvectors)
        seconds.append(time.monotonic() - start)
    return turns


def forward(group: Group, step: float, most: int) -> tuple[Turns, int]:
    """A turn of the strongest coordinates, fitted to the whole context as it is and stored, and its bits."""
    seen, bits = group.coordinates[SINKS:], 0

    def stored(part: np.ndarray) -> np.ndarray:
        nonlocal bits
        vectors = eigenvectors(part)
        # An error in a strong vector is a large one in coordinates; what is weaker than the step hardly matters.
        weights = np.sqrt(np.maximum(np.einsum("ij,ji->i", vectors @ part, vectors.T), step**2 / 4))[:, None]
        kept, bits = code(weights * vectors, step / np.sqrt(most))
        # Orthonormal whatever was lost, the strongest first.
        return np.linalg.qr((kept / weights).T)[0].T

    return {0: turned(seen.T @ seen / len(seen), most, stored)}, bits


def predicted(group: Group, step: float, earlier: np.ndarray) -> np.ndarray:
    """What is left of coordinates after a share, one for each, of an earlier token as decoded (-1: none)."""
    source, half = np.where((earlier >= 0)[:, None], group.decoded[earlier], 0), slice(SINKS, TOKENS // 2)
    share = (source[half] * group.decoded[half]).sum(0) / ((source[half] ** 2).sum(0) + 50 * step**2)
    return group.coordinates - np.float32(np.clip(share, 0, 1)) * source


def same_token(ids: np.ndarray) -> np.ndarray:
    """The latest place of each token's id before it."""
    last: dict[int, int] = {}
    return np.array([(last.get(one, -1), last.update({one: at}))[0] for at, one in enumerate(ids.tolist())])


def entropy(group: Group, step: float) -> np.ndarray:
    """Bits a value of the second half's numbers for a coder that knows deviations, in classes half an octave apart, of the file, of the
    context's first half, of each page. The coder's trellis takes fewer."""
    numbers = np.clip(np.rint(group.decoded[TOKENS // 2 :] / step), -50, 50).astype(np.int64)
    own = np.repeat(np.square(step * numbers).reshape(-1, PAGE, numbers.shape[1]).mean(1), PAGE, 0)
    out = []
    for variances in (group.variances, np.diag(group.known(group.decoded[: TOKENS // 2], 32)), own):
        classes = np.clip(np.rint(np.log2(np.maximum(variances, 1e-12) / step**2)), -16, 15).astype(np.int64) + 16
        counts = np.bincount((numbers + 50 + 101 * classes).ravel(), minlength=101 * 32).reshape(32, 101)
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        out.append(-(counts * np.log2(np.where(counts, shares, 1))).sum() / numbers.size)
    return np.array(out)


def divergence(context: dict[str, np.ndarray], caches: list[dict[str, np.ndarray]]) -> list[float]:
    """Of predictions of the second half from those of the model as it is, in nats a token, with each cache."""
    passes, ids = Passes(subject()[0]), torch.from_numpy(np.array(context["ids"]))
    sides = [Cache(*(layers_of(cache[kind], passes.layers) for kind in ("keys", "values"))) for cache in caches]
    exact, *found = (passes.logits(ids, cache)[TOKENS // 2 :].log_softmax(-1) for cache in (None, *sides))
    return [float((exact.exp() * (exact - one)).sum(-1).mean()) for one in found]


def measure(context: dict[str, np.ndarray], path: Path, step: float, *, whole: bool, run: bool) -> dict[str, np.ndarray]:
    """Bits and errors of each way, over all groups; those of the file alone under factors of the step."""
    found: dict[str, list[np.ndarray]] = {}
    stored, seconds, entropies = 0, list[float](), list[np.ndarray]()
    caches = [{kind: np.array(context[kind]) for kind in ("keys", "values")} for _ in range(3 if run else 0)]
    file = tenfold.open(path)
    for group in (Group(file, name[:-6], context) for name in file if name.endswith(".means")):
        here, none = group.coordinates, {0: np.eye(len(group.means), dtype=np.float32)}
        refits, (update, bits) = backward(group, step, len(group.means), seconds), forward(group, step, 1024)
        got = {f"{factor}": judged(here, factor * step, none) for factor in LADDER}
        got |= {"refits": judged(here, step, refits), "stored, 1,024 strongest": judged(here, step, update, bits)}
        if whole:
            group.decoded = decoded(group, step, none, 0, TOKENS)
            got["refits, 512 strongest"] = judged(here, step, backward(group, step, 512, []))
            got["stored, 512 strongest"] = judged(here, step, *forward(group, step, 512))
            sums = np.cumsum(np.where(np.arange(TOKENS)[:, None] < SINKS, 0, group.decoded), 0)
            running = np.roll(sums / (np.arange(TOKENS) + 256)[:, None], 1, 0)[::PAGE]
            got["running mean"] = judged(here - np.repeat(running, PAGE, 0), step, none)
            for name, earlier in (("previous token", np.arange(-1, TOKENS - 1)), ("same token before", same_token(context["ids"]))):
                got[name] = judged(predicted(group, step, earlier), step, none)
            entropies.append(entropy(group, step))
        for cache, turns in zip(caches, (none, refits, update)):
            cache[group.kind][1:, group.columns] = group.back(decoded(group, step, turns, 0, TOKENS))[1:]
        stored += bits
        for name, one in got.items():
            found.setdefault(name, []).append(one)
    print(f"{path.stem}, {step:g}: a refit {sum(seconds) / len(REFITS):.1f} s; stored {stored // 8:,} bytes", flush=True)
    if whole:
        print("entropy given deviations of the file, the context, the page:", np.mean(entropies, 0))
    if run:
        print("divergence of the second half: file alone, refits, stored:", divergence(context, caches), flush=True)
    return {name: np.mean(one, 0) for name, one in found.items()}


def at_equal_error(found: dict[str, np.ndarray], got: np.ndarray) -> Iterator[str]:
    """Bits next to those that the file alone takes at the same error, in percent, for each span."""
    for span, (bits, error) in enumerate(got):
        ladder = np.log(np.array([found[f"{factor}"][span] for factor in LADDER]))[::-1]
        yield f"{100 * (bits / np.exp(np.interp(np.log(error), ladder[:, 1], ladder[:, 0])) - 1):+.1f}"


def main() -> int:
    parser = options.parser(__doc__, ())
    parser.add_argument("--basis", type=Path, nargs="+", required=True, help="files of bases; the first has all ways")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=PATH,…")
    parser.add_argument("--steps", type=float, nargs="+", default=(0.011, 0.02, 0.005), help="the first has all ways and files")
    parser.add_argument("--folder", type=Path, default=Path("."), help="where keys and values are kept")
    parser.add_argument("--divergence", nargs="*", default=(), metavar="NAME", help="texts to run the model on with decoded caches")
    args = options.parsed(parser)
    spans = [f"{start // 1024}–{end // 1024} k" for start, end, _ in SPANS]
    header = ("file", "step", "way", *spans, *(f"{span}, %" for span in spans), *(f"{span}, % of first" for span in spans))
    for name, paths in (one.split("=") for one in args.text):
        context, lines = captured(args.folder, name, paths), []
        for step, path in [(args.steps[0], path) for path in args.basis] + [(step, args.basis[0]) for step in args.steps[1:]]:
            whole = (step, path) == (args.steps[0], args.basis[0])
            found = measure(context, path, step, whole=whole, run=whole and name in args.divergence)
            first = found if path == args.basis[0] else first
            for way in ["1.0", *(way for way in found if way not in map(str, LADDER))]:
                ends = *at_equal_error(found, found[way]), *at_equal_error(first, found[way])
                title = "file alone" if way == "1.0" else way
                lines.append((path.stem, f"{step:g}", title, *(f"{bits:.3f}" for bits in found[way][:, 0]), *ends))
        print(f"\n## {name}\n\n{report.table(header, lines)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
