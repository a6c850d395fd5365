"""What bases are made from: keys, values and hidden states that a model computes on sample text, and what errors in them do.

Two things are captured: rows (how keys and values vary) and, with a metric, gradients (what an error does). The
gradients are those of the loss if each token is followed by one that the model itself would have sampled. Their second
moments are the second-order term of the divergence between predictions with and without an error. Errors of keys and
values in all layers then have one unit, and one quantiser step is right for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from .._errors import ArgumentError
from ._rotary import undo_rotary

Taken = dict[str, torch.Tensor]


@contextlib.contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """While open, the model drops nothing out."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


class _Taking(DynamicLayer):  # type: ignore[no-untyped-call] # theirs registers itself
    """A cache layer that returns the tensors it is given, so that they have gradients."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = key_states, value_states
        self.is_initialized = True
        return key_states, value_states


def take(model: PreTrainedModel, ids: torch.Tensor, layers: int, hidden: Sequence[int], **inputs: Any) -> tuple[Taken, Any]:
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


def gradients(model: PreTrainedModel, ids: torch.Tensor, layers: int, hidden: Sequence[int], sampled: torch.Generator) -> Taken:
    """Gradients of the summed loss by what :func:`take` gives, each token followed by one that the model would sample."""
    with torch.enable_grad():
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        seen, out = take(model, ids, layers, hidden, inputs_embeds=embedded)
        logits = out.logits.flatten(0, 1).float()
        with torch.no_grad():
            follow = torch.multinomial(logits.softmax(-1), 1, generator=sampled)[:, 0]
        loss = torch.nn.functional.cross_entropy(logits, follow, reduction="sum")
        found = torch.autograd.grad(loss, list(seen.values()))
    return dict(zip(seen, found))


def rows(name: str, taken: torch.Tensor, rope: dict[str, Any] | None, sinks: int) -> torch.Tensor:
    """Returns the rows to capture: keys without positions, without the first tokens of a context."""
    if name.endswith(".k_before_rope"):
        taken = undo_rotary(taken, rope)
    if taken.dim() == 4:
        taken = taken.transpose(1, 2).flatten(2)
    return taken[:, sinks:].flatten(0, 1).float().cpu().contiguous()
