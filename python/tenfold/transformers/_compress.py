"""`tenfold.transformers.compress`: from a model and text to a small model in one call."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from .. import _native
from .._codec import curvature, encode_options
from .._errors import ArgumentError
from .._progress import Tell, bar, wanted
from .._write import compress as compress_files
from ..torch._calibration import MAX_WIDTH, Calibration
from ..torch._codec import curvature_unit, encode_calibrated_with
from ..torch._codec import decode as decode_tensor
from ..torch._layerwise import Passage, Run, digest_of, load_tensors, parts_folder, still, store_tensors
from ..torch._stack import Stack
from ._budget import Budget
from ._mixture import beside, default_texts
from ._sequential import Sequential, Target
from ._texts import find_tokenizer, read_texts, share_of

# Smaller weights are left as they are, as in files.
SMALLEST = 4096
# One context in so many is held back: for how much of the drift to correct, and to measure.
HELD = 8
# Contexts of one length run together on a device, as long as they have no more tokens than this: one alone leaves it idle.
TOGETHER = 8192


@dataclass(frozen=True)
class CompressedWeight:
    """What became of a weight."""

    bits: float
    loss: float
    """Predicted rise of the loss, in nats a token."""
    share: float
    """How much of the drift of the layers before was corrected."""


@dataclass
class CompressReport:
    """What :func:`compress` did."""

    bits: float = 0.0
    """Bits a value over all weights that were calibrated, every byte counted."""
    values: int = 0
    loss: float = 0.0
    """Predicted rise of the loss, in nats a token."""
    tokens: int = 0
    perplexity: tuple[float, float] | None = None
    """Before and predicted; of contexts that were held back."""
    measured: tuple[float, float] | None = None
    """Perplexity measured, and divergence from the model as it was in nats a token; with ``check``."""
    weights: dict[str, CompressedWeight] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: _native.Report | None = None

    def __str__(self) -> str:
        lines = [f"{len(self.weights)} weights, {self.values:,} values at {self.bits:.3f} bits, calibrated on {self.tokens:,} tokens"]
        if self.perplexity is not None:
            before, after = self.perplexity
            lines.append(f"perplexity on text held back: {before:.2f} before, {after:.2f} predicted")
        if self.measured is not None:
            perplexity, divergence = self.measured
            lines.append(f"measured: {perplexity:.2f}, divergence {divergence:.4f} nats a token")
        return "\n".join([*lines, *self.notes])


def compress(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    texts: Any = None,
    mixture: float = 0.1,
    bits: float = 2.5,
    alloc: str = "loss",
    effort: str = "balanced",
    exclude: Iterable[str] = (),
    sequential: bool = True,
    weighted: bool = True,
    tokenizer: Any = None,
    context: int = 1024,
    contexts: int | None = None,
    device: torch.device | str | None = None,
    check: bool = False,
    overwrite: bool = False,
    fresh: bool = False,
    seed: int = 0,
    progress: bool | Tell | None = None,
) -> CompressReport:
    """Calibrates a causal language model on text and compresses it, layer after layer, into a folder that ``from_pretrained`` loads.

    The linear layers of the decoder are compressed. Embeddings, norms and head are copied as they are.

    Args:
        model: a folder with ``config.json``, safetensors files and a tokenizer.
        out: the folder to make. Work in progress lies in a folder beside it, with ``.parts`` behind the name: call again to go on.
        texts: a list of strings or of token ids; or several kinds of text by name, each a list or a pair of a list and its weight. Without any,
            those of :func:`default_texts`.
        mixture: how much of what counts are texts of :func:`default_texts` beside yours; 0 for none. Without them a model loses what your texts
            do not show.
        bits: bits a value over all weights that are compressed, every byte of their blobs counted.
        alloc: "loss" gives bits to the weights where they do most, "equal" the same to each.
        effort: as in :func:`tenfold.encode`.
        exclude: patterns of names of weights to leave unchanged.
        sequential: whether each layer is calibrated behind the compressed layers before it, and corrects for their errors.
        weighted: whether tokens and outputs count by gradients of the loss on the model's own samples.
        tokenizer: for texts that are strings; that of the model by default.
        context: tokens of a context.
        contexts: at most so many of each kind of text.
        device: where layers are run and weights are encoded; "cuda" if there is a device, else the CPU.
        check: whether to measure perplexity and divergence on the contexts that were held back.
        overwrite: whether an existing folder may be replaced.
        fresh: whether to drop an interrupted run with other arguments.
        seed: of the tokens that the model samples.
        progress: True for a bar, or a function of the layers done and all of them.
    """
    source, target = Path(model), Path(out)
    if not (source / "config.json").exists():
        raise ArgumentError(f"{source} is not the folder of a model: it has no config.json")
    if target.exists() and not overwrite:
        raise ArgumentError(f"{target} exists; pass overwrite=True to replace it")
    if not (isinstance(mixture, (int, float)) and 0 <= mixture < 1):
        raise ArgumentError(f"mixture must be a number from 0 to below 1, not {mixture!r}")
    if alloc not in ("loss", "equal"):
        raise ArgumentError(f"alloc is 'loss' or 'equal', not {alloc!r}")
    if not (isinstance(bits, (int, float)) and 0 < bits <= 16):
        raise ArgumentError(f"bits must be a number above 0 and at most 16, not {bits!r}")
    place = torch.device(device) if device is not None else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # On a CPU half precision is slow, and sums are better without it.
    loaded = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32 if place.type == "cpu" else "auto")
    notes = []
    if texts is None:
        tokenizer, mixture = tokenizer or find_tokenizer(loaded), 0.0
        texts = default_texts(tokenizer)
    elif mixture:
        try:
            tokenizer = tokenizer or find_tokenizer(loaded)
        except ArgumentError as error:
            notes.append(f"nothing of the package's mixture was added to the texts: {error}")
            mixture = 0.0
    together = TOGETHER if place.type == "cuda" else 0
    passages, held = _passages(loaded, texts, tokenizer, context, contexts, together, mixture)
    excluded = sorted(exclude)
    options = {"weighted": weighted, "seed": seed, "bits": bits, "alloc": alloc, "effort": effort, "sequential": sequential}
    options["exclude"] = excluded
    folder = parts_folder(target, digest_of(loaded, passages, options), fresh)
    work = _Work(Stack(loaded, place), passages, held, folder, bits, alloc, effort, excluded, sequential)
    work.stored = _stored_dtypes(source)
    with bar(wanted(progress), "compress", unit=" layers") as tell, still(loaded):
        known = work.calibrate(weighted, seed, tell)
        report = work.run(known, tell)
        report.perplexity, report.measured = work.judge(report.loss, check)
    report.notes += notes
    made = {name: str(work.blob(name)) for name in report.weights}
    report.files = compress_files(source, target, bits=bits, exclude=["*"], made=made, overwrite=overwrite)
    shutil.rmtree(folder)
    return report


def _passages(
    model: PreTrainedModel, texts: Any, tokenizer: Any, context: int, most: int | None, together: int, mixture: float
) -> tuple[list[Passage], int]:
    """Contexts of all kinds, those held back at the end, and how many these are. Up to `together` tokens make one passage. Of the mixture
    nothing is held back."""
    sets = read_texts(model, texts, tokenizer, context, most, 1)
    learnt: list[Passage] = []
    held: list[Passage] = []
    for part in sets:
        share = share_of(part, sets)
        for number, ids in enumerate(part.contexts):
            back = number % HELD == HELD // 2 and len(part.contexts) > 1
            (held if back else learnt).append(Passage(ids[None], share))
    if mixture:
        learnt += beside(model, tokenizer, learnt, mixture, context)
    learnt, held = joined(learnt, together), joined(held, together)
    return learnt + held, len(held)


def joined(passages: list[Passage], together: int) -> list[Passage]:
    """Neighbours of the same length and share as one passage, of so many tokens at most."""
    found: list[Passage] = []
    for one in passages:
        last = found[-1] if found else None
        alike = last is not None and last.share == one.share and last.ids.shape[1] == one.ids.shape[1]
        if last is not None and alike and last.ids.numel() + one.ids.numel() <= together:
            found[-1] = Passage(torch.cat([last.ids, one.ids]), one.share)
        else:
            found.append(one)
    return found


def _stored_dtypes(source: Path) -> dict[str, str]:
    """The dtypes that weights have in the files, by name."""
    archive = _native.Archive(os.fspath(source))
    infos = [archive.info(index) for index in range(len(archive.names()))]
    return {info.name: info.dtype for info in infos}


def _plain(name: str, weight: torch.Tensor, known: Calibration) -> Target:
    """A weight as it is."""
    return Target(name, weight.float(), torch.from_numpy(known.inputs(name)), known.layers[name].damping, 0.0)


@dataclass
class _Work:
    stack: Stack
    passages: list[Passage]
    held: int
    folder: Path
    bits: float
    alloc: str
    effort: str
    exclude: list[str]
    sequential: bool
    stored: dict[str, str] = field(default_factory=dict)
    # Layers that were done when the state was last kept, and when to keep it again.
    _kept: int = 0
    _next_keep: float = 0.0

    def calibrate(self, weighted: bool, seed: int, tell: Tell | None) -> Calibration:
        """The model as it was, on the contexts that are not held back."""
        parts, total = self.folder / "calibration", self._total(weighted)
        parts.mkdir(exist_ok=True)
        learnt = self.passages[: len(self.passages) - self.held]
        told = None if tell is None else lambda done, _: tell(done, total)
        self._before = total - len(self.stack.layers)
        # Its parts stay as they are: as one file they would take the room once more, a gigabyte a layer of an 8 B model.
        return Run(self.stack, learnt, parts, weighted, MAX_WIDTH, seed, told, keep_counts=True).all()

    def _total(self, weighted: bool) -> int:
        return (3 if weighted else 2) * len(self.stack.layers)

    def blob(self, name: str) -> Path:
        return self.folder / f"{name}.blob"

    def run(self, known: Calibration, tell: Tell | None) -> CompressReport:
        """Encodes all weights, from the layer at which an earlier run was interrupted."""
        names = [name for name in known if self._is_chosen(name)]
        if not names:
            raise ArgumentError("there are no weights to compress")
        report = CompressReport(notes=[*known.notes, *self._left_out(names)])
        learnt = self.passages[: len(self.passages) - self.held]
        report.tokens = sum(one.ids.numel() for one in learnt)
        budget = self._budget(known, names) if self.alloc == "loss" else None
        first = self._resume(report, budget)
        state = self._hidden(first)
        for index in range(first, len(self.stack.layers)):
            counts = self._counts(index)
            outputs = {name: torch.from_numpy(found) for name in known if (found := known.outputs(name)) is not None}

            def encode(target: Target) -> torch.Tensor:
                if target.name not in names:
                    return target.weight
                return self._encode(target, outputs.get(target.name), budget, report)

            if self.sequential:
                state.advance(index, outputs, counts, encode)
            else:
                inside = [name for name in names if name.startswith(f"{self.stack.names[index]}.")]
                state.follow(index, {name: encode(_plain(name, self._weight(name), known)) for name in inside})
            self._keep(index + 1, state, report)
            if tell is not None:
                tell(self._before + index + 1, self._before + len(self.stack.layers))
        self._state = state
        report.values = sum(self._weight(name).numel() for name in report.weights)
        report.bits = sum(8 * self.blob(name).stat().st_size for name in report.weights) / report.values
        report.loss = sum(one.loss for one in report.weights.values())
        return report

    def judge(self, loss: float, check: bool) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
        """Perplexity before and predicted, and measured with the divergence, on contexts that were held back."""
        if not self.held:
            return None, None
        before, after, divergence, count = 0.0, 0.0, 0.0, 0
        with torch.no_grad(), self.stack.outside():
            for at in range(len(self.passages) - self.held, len(self.passages)):
                for row, context in enumerate(self.passages[at].ids):
                    follow = context[1:].to(self.stack.device)
                    was = self._expects(context, self._state.was[at][row])
                    before -= float(was.gather(1, follow[:, None]).double().sum())
                    if check:
                        now = self._expects(context, self._state.now[at][row])
                        after -= float(now.gather(1, follow[:, None]).double().sum())
                        divergence += float((was.exp() * (was - now)).double().sum())
                    count += len(follow)
        raw = math.exp(before / count)
        measured = (math.exp(min(after / count, 700.0)), divergence / count) if check else None
        return (raw, raw * math.exp(min(loss, 50.0))), measured

    def _expects(self, context: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Logarithms of what a model expects behind each token but the last, from the hidden states behind its layers."""
        logits = self.stack.end(context[None], hidden[None].to(self.stack.device))
        return logits[0, :-1].float().log_softmax(-1)

    def _is_chosen(self, name: str) -> bool:
        inside = any(name.startswith(f"{layer}.") for layer in self.stack.names)
        large = name in self.stored and self._weight(name).numel() >= SMALLEST
        return inside and large and not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def _left_out(self, names: list[str]) -> list[str]:
        """A note on large weights of layers that no calibration knows, such as those of experts in one tensor."""
        left = []
        for index, layer in enumerate(self.stack.layers):
            for name, one in layer.named_parameters(prefix=self.stack.names[index]):
                large = one.ndim >= 2 and one.numel() >= SMALLEST and name not in names
                if large and not any(fnmatchcase(name, pattern) for pattern in self.exclude):
                    left.append(name)
        return [f"{len(left)} weights do not belong to linear layers that ran, and are copied as they are: {left[0]} and others"] if left else []

    def _weight(self, name: str) -> torch.Tensor:
        return self.stack.model.get_parameter(name).data

    def _budget(self, known: Calibration, names: list[str]) -> Budget:
        budget = Budget(self.bits)
        for name in names:
            outputs = known.outputs(name)
            rows = None if outputs is None else torch.from_numpy(outputs)
            inputs = torch.from_numpy(known.inputs(name)).to(self.stack.device)
            budget.expect(name, self._weight(name).float().to(inputs.device), inputs, rows, known.layers[name].damping)

        def real(name: str, step: float) -> int:
            of = curvature(known.inputs(name), known.outputs(name), damping=known.layers[name].damping)
            return len(self._code(self._weight(name).float(), of, step=step)[0])

        budget.settle(real)
        return budget

    def _code(self, weight: torch.Tensor, of: _native.Curvature, **goal: Any) -> tuple[torch.Tensor, float]:
        """A blob of a weight, on the device that runs the layers, and the predicted rise of the loss. A step is one for the whole model."""
        place = self.stack.device
        if "step" in goal:
            goal["step"] *= curvature_unit(of, place)
        options = encode_options(effort=self.effort, curvature=of, **goal)
        return encode_calibrated_with(weight.to(place).contiguous(), options)

    def _encode(self, target: Target, outputs: torch.Tensor | None, budget: Budget | None, report: CompressReport) -> torch.Tensor:
        of = curvature(target.inputs.cpu().numpy(), None if outputs is None else outputs.numpy(), damping=target.damping)
        weight = target.weight.to(getattr(torch, self.stored[target.name]))
        goal = {"bits": self.bits} if budget is None else {"step": budget.step()}
        found, loss = self._code(weight, of, **goal)
        blob = found.cpu().numpy().tobytes()
        if budget is not None:
            budget.spend(target.name, len(blob))
        path = self.blob(target.name)
        path.with_suffix(".new").write_bytes(blob)
        os.replace(path.with_suffix(".new"), path)
        report.weights[target.name] = CompressedWeight(8 * len(blob) / weight.numel(), loss, target.share)
        return decode_tensor(found, dtype=torch.float32)

    def _counts(self, index: int) -> dict[str, list[torch.Tensor]]:
        """How much each token counts, by group; contexts held back count as they are."""
        path = self.folder / "calibration" / f"counts-{index:04}.safetensors"
        found: dict[str, list[torch.Tensor]] = {}
        for name, one in load_tensors(path).items() if path.exists() else ():
            found.setdefault(name.rpartition("#")[0], []).append(one)
        return found

    def _hidden(self, first: int) -> Sequential:
        """Hidden states of both models before a layer."""
        path = self.folder / f"state-{first:04}.safetensors"
        if first and path.exists():
            found = load_tensors(path)
            was = [found[f"was.{at}"] for at in range(len(self.passages))]
            now = [found[f"now.{at}"] for at in range(len(self.passages))]
        else:
            with self.stack.outside():
                was = [self.stack.begin(passage.ids).cpu() for passage in self.passages]
            now = list(was)
        return Sequential(self.stack, self.passages, self.held, was, now)

    def _keep(self, done: int, state: Sequential, report: CompressReport) -> None:
        """Leaves what a later run goes on with, once that takes a tenth of the time since it was last done: these are all hidden states."""
        start = time.monotonic()
        if start < self._next_keep:
            return
        both = {f"{side}.{at}": one for side, all_ in (("was", state.was), ("now", state.now)) for at, one in enumerate(all_)}
        store_tensors(self.folder / f"state-{done:04}.safetensors", both)
        about = json.dumps({"layers": done, "weights": {name: asdict(one) for name, one in report.weights.items()}})
        (self.folder / "done.new").write_text(about)
        os.replace(self.folder / "done.new", self.folder / "done.json")
        (self.folder / f"state-{self._kept:04}.safetensors").unlink(missing_ok=True)
        self._kept = done
        took = time.monotonic() - start
        self._next_keep = time.monotonic() + 10 * took

    def _resume(self, report: CompressReport, budget: Budget | None) -> int:
        path = self.folder / "done.json"
        if not path.exists():
            return 0
        about = json.loads(path.read_text())
        self._kept = int(about["layers"])
        for name, one in about["weights"].items():
            report.weights[name] = CompressedWeight(**one)
            if budget is not None:
                budget.spend(name, self.blob(name).stat().st_size)
        return int(about["layers"])
