"""Calibrates a language model layer by layer: forwards with hidden states kept, then backwards with each layer run again.

One layer's weights and one layer's sums are in use at a time. A folder beside the output holds what is done: hidden states before each
layer, gradients behind the layer that is next, and a calibration of each layer that is finished. All appear only when complete, so
work that was interrupted goes on where it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._errors import ArgumentError, DtypeError
from .._model import open as open_file
from .._progress import Tell, bar, wanted
from .._resumable import work_folder
from .._write import save
from ._calibration import MAX_WIDTH, Calibration
from ._moments import Watcher
from ._stack import Stack, find_layers
from ._summary import linear_layers, summarise
from ._sums import Sums

# Of what a folder holds.
VERSION = 1


@dataclass(frozen=True)
class Passage:
    """A context, and how much each of its tokens counts."""

    ids: torch.Tensor
    share: float = 1.0


def calibrate_layers(
    model: nn.Module,
    contexts: Iterable[Any],
    path: str | os.PathLike[str],
    *,
    weighted: bool = True,
    device: torch.device | str | None = None,
    max_width: int = MAX_WIDTH,
    fresh: bool = False,
    seed: int = 0,
    progress: bool | Tell | None = None,
) -> Calibration:
    """Calibrates a causal language model and writes the file.

    The loss is that of tokens which the model itself samples, so that E[g²] is what an error costs: the predicted rise is in nats
    a token. Models of transformers with a list of decoder layers are run layer by layer; of these only one lies on ``device`` at a
    time. Others are run whole, where they are.

    Args:
        model: a model that takes token ids and gives logits.
        contexts: token ids in one or two dimensions (batch × tokens), or pairs of these and how much their tokens count.
        path: the file to write. Work in progress lies in a folder beside it, with ``.parts`` behind the name.
        weighted: whether tokens and outputs count by gradients. Without, there is no backward pass.
        device: where layers are run; by default where they are.
        max_width: as in :class:`Calibration`.
        fresh: whether to drop what an interrupted run has left for another model, other text or other options.
        seed: of the tokens that the model samples.
        progress: True for a tqdm bar, or a function of the layers done and all of them.
    """
    passages = as_passages(contexts)
    target = Path(path)
    if not target.parent.is_dir():
        raise ArgumentError(f"{target.parent} is not a folder")
    options = {"weighted": weighted, "max_width": max_width, "seed": seed}
    folder = parts_folder(target, digest_of(model, passages, options), fresh)
    with bar(wanted(progress), "calibrate", unit=" layers") as tell, still(model):
        if find_layers(model) is None:
            whole = Calibration.of(summarise(run_whole(model, passages, weighted, max_width, seeds_of(passages, seed), tell)))
        else:
            whole = Run(Stack(model, device), passages, folder, weighted, max_width, seed, tell).all()
    whole.save(target)
    if whole.notes:
        warnings.warn(brief(whole.notes), stacklevel=2)
    shutil.rmtree(folder)
    return Calibration.open(target)


@dataclass
class Run:
    """A calibration in progress, in a folder."""

    stack: Stack
    passages: Sequence[Passage]
    folder: Path
    weighted: bool
    max_width: int
    seed: int
    tell: Tell | None
    # Whether to keep how much each token counts, for those who go on with the same text.
    keep_counts: bool = False
    # Whether to leave sums, to which those of other text will be added.
    sums: bool = False
    # If the first passage is there only for how large gradients are: how many contexts of the text lie between it and the next.
    gap: int | None = None

    def all(self) -> Calibration:
        """Goes on from what the folder holds to the end."""
        self.collect()
        return Calibration.join(part for part in self.files() if part.stat().st_size)

    def files(self) -> list[Path]:
        """What is left of each layer, and of what lies behind them if gradients went through it."""
        return [self._part(index) for index in range(len(self.stack.layers) + self.weighted)]

    def collect(self) -> None:
        """The same, without a look at what came out."""
        count = len(self.stack.layers)
        with self.stack.outside():
            # Before anything is watched: a layer may have to run for it.
            for passage in self.passages:
                self.stack.calls(passage.ids)
        first = next((index for index in range(count + 1) if self._part(index).exists()), count + 1)
        if not self.weighted:
            self._forward(True)
            return
        if first > count:
            self._forward(False)
            self._head()
            first = count
        for index in reversed(range(first)):
            self._backward(index)
            self._say(2 * count - index)

    def _forward(self, watch: bool) -> None:
        """Hidden states before every layer and behind the last one."""
        stack, count = self.stack, len(self.stack.layers)
        index = max((index for index in range(count + 1) if self._hidden(index).exists()), default=-1)
        if index < 0:
            with stack.outside():
                hidden = [stack.begin(passage.ids).cpu() for passage in self.passages]
            self._store(self._hidden(0), hidden)
            index = 0
        else:
            hidden = self._load(self._hidden(index))
        for index in range(index, count):
            watcher = Watcher(linear_layers(stack.layers[index], stack.names[index]), self.max_width)
            with torch.no_grad(), stack.layer(index) as layer, watcher.watching() if watch else contextlib.nullcontext():
                for number, passage in enumerate(self.passages):
                    watcher.share = passage.share
                    call = stack.calls(passage.ids)[index]
                    hidden[number] = stack.run(layer, hidden[number].to(stack.device), call).cpu()
                if watch:
                    self._write_layer(index, layer, watcher)
            self._store(self._hidden(index + 1), hidden)
            if watch:
                self._hidden(index).unlink(missing_ok=True)
            self._say(index + 1)

    def _head(self) -> None:
        """Gradients behind the last layer, of the loss on tokens that the model samples."""
        stack, count = self.stack, len(self.stack.layers)
        hidden = self._load(self._hidden(count))
        inside = {id(module) for layer in stack.layers for module in layer.modules()}
        heads = {name: layer for name, layer in linear_layers(stack.model).items() if id(layer) not in inside}
        watcher = Watcher(heads, self.max_width)
        watcher.gradients = True
        gradients = []
        seeds = seeds_of(self.passages, self.seed, self.gap)
        with torch.enable_grad(), stack.outside(), watcher.watching():
            for number, (passage, states) in enumerate(zip(self.passages, hidden)):
                watcher.share = passage.share
                rows = []
                # Logits are the largest tensors there are: those of one context at a time.
                for at in range(len(passage.ids)):
                    leaf = states[at : at + 1].to(stack.device).requires_grad_()
                    loss = sampled_loss(stack.end(passage.ids[at : at + 1], leaf), seeds[number] + at)
                    (found,) = torch.autograd.grad(loss, leaf)
                    rows.append(found.cpu())
                gradients.append(torch.cat(rows))
                self._measured(number, watcher)
            behind = Sums.of(heads, watcher)
        self._store(self._gradient(count), gradients)
        if behind.leaders:
            self._write(count, behind)
        else:
            self._part(count).touch()

    def _backward(self, index: int) -> None:
        """Sums of one layer, and gradients before it."""
        stack = self.stack
        hidden, gradients = self._load(self._hidden(index)), self._load(self._gradient(index + 1))
        watcher = Watcher(linear_layers(stack.layers[index], stack.names[index]), self.max_width)
        watcher.gradients = True
        watcher.counted = {} if self.keep_counts else None
        with torch.enable_grad(), stack.layer(index) as layer, watcher.watching():
            for number, passage in enumerate(self.passages):
                watcher.share = passage.share
                leaf = hidden[number].to(stack.device).requires_grad_()
                out = stack.run(layer, leaf, stack.calls(passage.ids)[index])
                (found,) = torch.autograd.grad(out, leaf, gradients[number].to(stack.device))
                gradients[number] = found.cpu()
                self._measured(number, watcher)
            watcher.flush()
            self._store(self._gradient(index), gradients)
            if watcher.counted:
                each = {f"{name}#{number}": one for name, found in watcher.counted.items() for number, one in enumerate(found)}
                store_tensors(self.folder / f"counts-{index:04}.safetensors", each)
            self._write_layer(index, layer, watcher)
        self._gradient(index + 1).unlink(missing_ok=True)
        self._hidden(index + 1).unlink(missing_ok=True)

    def _measured(self, number: int, watcher: Watcher) -> None:
        """Drops what a passage said that is there only for how large gradients are."""
        if number == 0 and self.gap is not None:
            watcher.forget()

    def _write_layer(self, index: int, layer: nn.Module, watcher: Watcher) -> None:
        found = Sums.of(linear_layers(layer, self.stack.names[index]), watcher)
        if not found.leaders:
            raise ArgumentError(f"{self.stack.names[index]} has no linear layers that ran")
        self._write(index, found)

    def _write(self, index: int, found: Sums) -> None:
        if self.sums:
            found.save(self._part(index))
        else:
            Calibration.of(summarise(found)).save(self._part(index))

    def _say(self, done: int) -> None:
        if self.tell is not None:
            self.tell(done, (2 if self.weighted else 1) * len(self.stack.layers))

    def _part(self, index: int) -> Path:
        return self.folder / f"layer-{index:04}.safetensors"

    def _hidden(self, index: int) -> Path:
        return self.folder / f"hidden-{index:04}.safetensors"

    def _gradient(self, index: int) -> Path:
        return self.folder / f"gradient-{index:04}.safetensors"

    def _store(self, path: Path, tensors: Sequence[torch.Tensor]) -> None:
        store_tensors(path, {str(number): tensor for number, tensor in enumerate(tensors)})

    def _load(self, path: Path) -> list[torch.Tensor]:
        found = load_tensors(path)
        return [found[str(number)] for number in range(len(self.passages))]


def store_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes tensors of a run in progress; the file appears only when complete."""
    save({name: tensor.contiguous() for name, tensor in tensors.items()}, path, lossless=True, exclude=["*"])


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Reads what :func:`store_tensors` wrote."""
    with open_file(path) as file:
        rooms = {name: file.info(name) for name in file}
        return {name: file.read(name, out=torch.empty(one.shape, dtype=getattr(torch, one.dtype))) for name, one in rooms.items()}


def sampled_loss(logits: torch.Tensor, seed: int) -> torch.Tensor:
    """Summed loss if each token is followed by one that the model itself would have sampled."""
    rows = logits.flatten(0, -2).float()
    generator = torch.Generator(rows.device).manual_seed(seed)
    with torch.no_grad():
        follow = torch.multinomial(rows.softmax(-1), 1, generator=generator)[:, 0]
    return nn.functional.cross_entropy(rows, follow, reduction="sum")


def seeds_of(passages: Sequence[Passage], seed: int, gap: int | None = None) -> list[int]:
    """Of the first context of each passage; each context has a seed of its own. A gap lies behind the first passage."""
    starts = list(accumulate((len(one.ids) for one in passages), initial=seed))[:-1]
    return [starts[0], *(start + (gap or 0) for start in starts[1:])]


def run_whole(
    model: nn.Module,
    passages: Sequence[Passage],
    weighted: bool,
    max_width: int,
    seeds: Sequence[int],
    tell: Tell | None,
    measure: bool = False,
) -> Sums:
    """With hooks on all layers at once. If it is there to `measure`, the first passage is only for how large gradients are."""
    watched = linear_layers(model)
    if not watched:
        raise ArgumentError("the model has no linear layers to watch")
    device = next(model.parameters()).device
    watcher = Watcher(watched, max_width)
    watcher.gradients = weighted
    with torch.set_grad_enabled(weighted), watcher.watching():
        for number, passage in enumerate(passages):
            watcher.share = passage.share
            handle = _grad_source(model) if weighted else contextlib.nullcontext()
            with handle:
                out = model(passage.ids.to(device))
                if weighted:
                    sampled_loss(getattr(out, "logits", out), seeds[number]).backward()  # type: ignore[no-untyped-call]
            if measure and number == 0:
                watcher.forget()
            if tell is not None:
                tell(number + 1, len(passages))
    return Sums.of(watched, watcher)


@contextlib.contextmanager
def _grad_source(model: nn.Module) -> Iterator[None]:
    """While open, gradients flow through embeddings, though no parameter takes one."""

    def start(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        return output if output.requires_grad else output.detach().requires_grad_()

    handles = [one.register_forward_hook(start) for one in model.modules() if isinstance(one, nn.Embedding)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """While open, the model drops nothing out, and parameters take no gradients."""
    training = [module for module in model.modules() if module.training]
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for module in training:
            module.training = False
        for parameter in learning:
            parameter.requires_grad_(False)
        yield
    finally:
        for module in training:
            module.training = True
        for parameter in learning:
            parameter.requires_grad_(True)


def brief(notes: Sequence[str]) -> str:
    """Notes of all layers, of which a user need not see each."""
    more = [f"and {len(notes) - 2} more such notes: see Calibration.notes"] if len(notes) > 2 else []
    return "; ".join([*notes[:2], *more])


def as_passages(contexts: Iterable[Any]) -> list[Passage]:
    """Contexts with their shares, checked."""
    found = []
    for context in contexts:
        share = 1.0
        if isinstance(context, tuple) and len(context) == 2 and isinstance(context[1], float):
            context, share = context
        ids = torch.as_tensor(context)
        ids = ids[None] if ids.dim() == 1 else ids
        if ids.dim() != 2 or ids.is_floating_point() or ids.shape[1] < 2:
            raise DtypeError(f"a context is two or more token ids in one or two dimensions, not {ids.dtype} {tuple(ids.shape)}")
        if not share > 0:
            raise ArgumentError(f"a share of the text must be positive, not {share}")
        found.append(Passage(ids.cpu().long(), share))
    if not found:
        raise ArgumentError("there are no contexts to calibrate on")
    return found


def digest_of(model: nn.Module, passages: Sequence[Passage], options: dict[str, Any]) -> str:
    """Names all that sums depend on: shapes and samples of weights, text and options."""
    found = hashlib.sha256(repr(sorted(options.items())).encode())
    for name, weight in model.named_parameters():
        flat = weight.detach().reshape(-1)
        some = [] if weight.is_meta else flat[:: max(1, len(flat) // 16)][:16].tolist()
        found.update(f"{name} {weight.dtype} {tuple(weight.shape)} {some}".encode())
    for passage in passages:
        found.update(f"{passage.share.hex()} {tuple(passage.ids.shape)}".encode())
        found.update(passage.ids.numpy().tobytes())
    return found.hexdigest()


def parts_folder(target: Path, digest: str, fresh: bool) -> Path:
    """The folder beside a file that is made of parts."""
    return work_folder(Path(f"{target}.parts"), "calibration", VERSION, digest, fresh, "a calibration in progress")
