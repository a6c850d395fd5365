"""Bases for a model's keys, values and hidden states, from what it computes on sample text.

Two things are captured: rows (how keys and values vary) and, with a metric, gradients (what an error does). The
gradients are those of the loss if each token is followed by one that the model itself would have sampled. Their second
moments are the second-order term of the divergence between predictions with and without an error. Errors of keys and
values in all layers then have one unit, and one quantiser step is right for all.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from .. import _native
from .._errors import ArgumentError
from .._write import save
from ._cache_config import decoder_config, layers_of, rotary_of
from ._rotary import rope_text, undo_rotary

Taken = dict[str, torch.Tensor]


def fit_bases(
    model: PreTrainedModel,
    contexts: Iterable[torch.Tensor],
    path: str | os.PathLike[str],
    *,
    group: int = 10,
    bits: float = 2.0,
    hidden: Sequence[int] = (),
    metric: bool = True,
    every: int = 4,
    sinks: int = 4,
    max_bytes: int | None = None,
    overwrite: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Makes a file of bases for :class:`TenfoldCache`, :class:`tenfold.kv.PageCodec` and :class:`tenfold.kv.HiddenCodec`.

    Args:
        model: a model with full attention in all layers; for a metric, in a dtype with gradients.
        contexts: token ids of sample text, with one or two dimensions (batch × tokens), in total several times as many
            tokens as a group of layers has columns. They are iterated once.
        path: the file to write.
        group: layers that share a basis. More layers save bits and make the file larger.
        bits: highest rate that the bases must serve, in bits a value.
        hidden: layers before which the model is cut; they get bases for hidden states.
        metric: whether to measure what errors do. It takes several times as long as a forward pass, on some contexts.
        every: measure the metric on every n-th context.
        sinks: tokens to leave out at the start of each context: they are attention sinks and differ from all others.
        max_bytes: largest size of the file; 2 % of the model's by default.
        overwrite: whether an existing file may be replaced.
        seed: of the tokens that the model samples.

    Returns:
        The report of ``tenfold basis fit --json``: gains, vectors, bytes.
    """
    config = decoder_config(model.config)
    layers, rope = layers_of(config), rotary_of(config).rope
    if every < 1 or sinks < 0 or group < 1:
        raise ArgumentError("every and group must be at least 1, and sinks not negative")
    if any(not 0 <= layer < layers for layer in hidden):
        raise ArgumentError(f"hidden names layers before which to cut, 0 to {layers - 1}, not {list(hidden)}")
    sampled = torch.Generator(model.device).manual_seed(seed)
    sums, files = _Metrics(), []
    with tempfile.TemporaryDirectory() as folder:
        for number, context in enumerate(contexts):
            ids = torch.as_tensor(context, device=model.device)
            ids = ids[None] if ids.dim() == 1 else ids
            if ids.dim() != 2 or ids.shape[1] <= sinks:
                raise ArgumentError(f"a context has more than {sinks} token ids, not the shape {tuple(ids.shape)}")
            with torch.no_grad():
                rows = _take(model, ids, layers, hidden)[0]
            files.append(Path(folder) / f"rows-{number}.safetensors")
            stored = {name: _stored(_rows(name, value, rope, sinks)) for name, value in rows.items()}
            save(stored, files[-1], bits=16, exclude=["*"])
            if metric and number % every == 0:
                sums.add(_gradients(model, ids, layers, hidden, sampled), rope, sinks)
        if not files:
            raise ArgumentError("there are no contexts to make bases from")
        metrics = Path(folder) / "metrics.safetensors" if metric else None
        if metrics is not None:
            save(sums.done(), metrics, bits=16, exclude=["*"])
        size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        report: dict[str, Any] = json.loads(
            _native.fit_bases(
                [os.fspath(file) for file in files],
                os.fspath(path),
                group,
                float(bits),
                None if rope is None else rope_text(rope),
                size // 50 if max_bytes is None else max_bytes,
                None if metrics is None else os.fspath(metrics),
                overwrite,
            )
        )
        return report


class _Taking(DynamicLayer):  # type: ignore[no-untyped-call] # theirs registers itself
    """A cache layer that returns the tensors it is given, so that they have gradients."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = key_states, value_states
        self.is_initialized = True
        return key_states, value_states


def _take(model: PreTrainedModel, ids: torch.Tensor, layers: int, hidden: Sequence[int], **inputs: Any) -> tuple[Taken, Any]:
    """Keys, values (batch × heads × tokens × columns) and hidden states (batch × tokens × columns) of a pass, by the names
    of captured tensors, and what the model gave."""
    cache = Cache(layer_class_to_replicate=_Taking)
    seen: Taken = {}
    with _hooks(model, hidden, seen):
        out = model(**(inputs or {"input_ids": ids}), past_key_values=cache, use_cache=True)
    if len(cache.layers) != layers:
        raise ArgumentError(f"{len(cache.layers)} of {layers} layers used the cache; bases are for models with one in each")
    for number, layer in enumerate(cache.layers):
        if not isinstance(layer, _Taking) or layer.keys is None or layer.values is None:
            raise ArgumentError(f"layer {number} did not use the cache; bases are for models with one in each")
        seen[f"layers.{number}.k_before_rope"], seen[f"layers.{number}.v"] = layer.keys, layer.values
    return seen, out


@contextlib.contextmanager
def _hooks(model: PreTrainedModel, hidden: Sequence[int], seen: Taken) -> Iterator[None]:
    """While open, puts the states before the layers of `hidden` into `seen`."""
    placed = []
    decoder = model.get_decoder() if hidden else None  # type: ignore[no-untyped-call] # theirs has no types
    blocks = getattr(decoder, "layers", None)
    if hidden and blocks is None:
        raise ArgumentError(f"{type(model).__name__} does not list its layers, so hidden states cannot be captured")
    for number in hidden:

        def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = f"layers.{number}.hidden") -> None:
            seen[name] = args[0] if args else kwargs["hidden_states"]

        assert blocks is not None
        placed.append(blocks[number].register_forward_pre_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for handle in placed:
            handle.remove()


def _gradients(model: PreTrainedModel, ids: torch.Tensor, layers: int, hidden: Sequence[int], sampled: torch.Generator) -> Taken:
    """Gradients of the summed loss by what :func:`_take` gives, each token followed by one that the model would sample."""
    with torch.enable_grad():
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        seen, out = _take(model, ids, layers, hidden, inputs_embeds=embedded)
        logits = out.logits.flatten(0, 1).float()
        with torch.no_grad():
            follow = torch.multinomial(logits.softmax(-1), 1, generator=sampled)[:, 0]
        loss = torch.nn.functional.cross_entropy(logits, follow, reduction="sum")
        found = torch.autograd.grad(loss, list(seen.values()))
    return dict(zip(seen, found))


def _rows(name: str, taken: torch.Tensor, rope: dict[str, Any] | None, sinks: int) -> torch.Tensor:
    """Returns the rows to capture: keys without positions, without the first tokens of a context."""
    if name.endswith(".k_before_rope"):
        taken = undo_rotary(taken, rope)
    if taken.dim() == 4:
        taken = taken.transpose(1, 2).flatten(2)
    return taken[:, sinks:].flatten(0, 1).float().cpu().contiguous()


def _stored(rows: torch.Tensor) -> torch.Tensor:
    """Rounds rows for a temporary file: half the bytes, and still far more exact than sums over them need."""
    return rows.bfloat16()


class _Metrics:
    """Second moments of gradients, streamed."""

    def __init__(self) -> None:
        self._sums: Taken = {}
        self._count = 0

    def add(self, gradients: Taken, rope: dict[str, Any] | None, sinks: int) -> None:
        """Adds gradients of one batch of contexts."""
        for name, found in gradients.items():
            rows = _rows(name, found, rope, sinks)
            self._count += len(rows) if name == "layers.0.v" else 0
            self._sums[name] = self._sums.get(name, 0) + (rows.T @ rows).double()

    def done(self) -> Taken:
        """The metrics, each a block for the whole layer."""
        return {name: (total / self._count).float()[None].contiguous() for name, total in self._sums.items()}
