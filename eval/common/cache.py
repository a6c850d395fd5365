"""The KV cache of a model as arrays, and the model with other arrays in its place.

A cache is judged in two passes. The first is exact and gives keys and values of a whole context; a coder sees all of them.
In the second, attention works with the decoded keys and values at every position, its own included. So coders may work
across layers, and none is helped by tokens that are still exact. Hidden states at cuts are coded on the way, in either pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

Change = Callable[[np.ndarray], np.ndarray]
"""What stands at a cut: hidden states, tokens × width, in and out."""
Hook = Callable[[object, object, object], object]


@dataclass(frozen=True)
class Cache:
    """Keys, before positions were put in, and values of one context: layers × tokens × (heads · width of a head)."""

    keys: np.ndarray
    values: np.ndarray

    @property
    def size(self) -> int:
        """Number of values."""
        return self.keys.size + self.values.size

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.keys, self.values))


def rows(layers: np.ndarray) -> np.ndarray:
    """Layers × tokens × width as tokens × (layers · width): what a token leaves in all layers."""
    return np.ascontiguousarray(layers.transpose(1, 0, 2)).reshape(layers.shape[1], -1)


def layers_of(table: np.ndarray, layers: int) -> np.ndarray:
    """Takes `rows` back."""
    return np.ascontiguousarray(table.reshape(len(table), layers, -1).transpose(1, 0, 2))


class Rotary:
    """A model's rotary positions, as turns of pairs of columns k and k + half of each head."""

    def __init__(self, model: PreTrainedModel, tokens: int) -> None:
        with torch.inference_mode():
            nothing = torch.zeros(1, 1, 1, device=model.device)
            cos, sin = model.model.rotary_emb(nothing, torch.arange(tokens, device=model.device)[None])
        self._cos, self._sin = cos[0].cpu(), sin[0].cpu()

    def turn(self, keys: np.ndarray, *, first: int = 0, back: bool = False) -> np.ndarray:
        """Puts positions, from `first` on, into keys (layers × tokens × heads · width), or takes them out."""
        width = self._cos.shape[-1]
        # torch, as it takes all cores for this.
        heads = torch.from_numpy(keys).reshape(*keys.shape[:2], -1, width)
        half = torch.cat([-heads[..., width // 2 :], heads[..., : width // 2]], -1)
        here = slice(first, first + keys.shape[1])
        cos, sin = (part[None, here, None] for part in (self._cos, -self._sin if back else self._sin))
        return (heads * cos + half * sin).float().reshape(keys.shape).numpy()


class Passes:
    """Passes of a model, on the device that it is on, in which keys, values and hidden states are taken or replaced. Contexts,
    caches and what stands at cuts are on the CPU; what the model predicts is on its device."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.device = model, model.device
        self.layers = model.config.num_hidden_layers

    def cache(self, context: torch.Tensor, cuts: Mapping[int, Change] | None = None) -> Cache:
        """The cache of a pass, with `cuts` behind layers."""
        return self.caches([context], cuts)[0]

    def caches(self, contexts: Sequence[torch.Tensor], cuts: Mapping[int, Change] | None = None) -> list[Cache]:
        """The caches of several contexts of any lengths, taken in one pass."""
        return [Cache(**taken) for taken in self._taken(contexts, ("keys", "values"), cuts)]

    def take(
        self, context: torch.Tensor, kinds: Sequence[str], cuts: Mapping[int, Change] | None = None
    ) -> dict[str, np.ndarray]:
        """`keys` (before positions), `values` or `hidden` (what layers hand on) of a pass with `cuts` behind layers: of
        all layers, layers × tokens × width."""
        return self._taken([context], kinds, cuts)[0]

    def _taken(
        self, contexts: Sequence[torch.Tensor], kinds: Sequence[str], cuts: Mapping[int, Change] | None
    ) -> list[dict[str, np.ndarray]]:
        seen: dict[tuple[str, int], np.ndarray] = {}
        lengths = [len(context) for context in contexts]

        changed = self._hooks(("hidden",), lambda _kind, layer: _changing(layer, cuts, lengths))
        with changed, self._hooks(kinds, _keeping(seen)), torch.inference_mode():
            self.model(_padded(contexts).to(self.device), use_cache=False, logits_to_keep=1)
        return [
            {kind: np.stack([seen[kind, layer][row, :length] for layer in range(self.layers)]) for kind in kinds}
            for row, length in enumerate(lengths)
        ]

    def loss(self, context: torch.Tensor, cache: Cache | None, cuts: Mapping[int, Change] | None = None) -> float:
        """Summed loss of all tokens but the first, with `cache` as the model's keys and values and `cuts` behind layers."""
        logits = self.logits(context, cache, cuts)[:-1]
        return torch.nn.functional.cross_entropy(logits, context[1:].to(self.device), reduction="sum").item()

    def logits(self, context: torch.Tensor, cache: Cache | None, cuts: Mapping[int, Change] | None = None) -> torch.Tensor:
        """What the model predicts at each token, tokens × vocabulary, with `cache` and `cuts`."""
        return self.predictions([context], None if cache is None else [cache], cuts)[0]

    def predictions(
        self, contexts: Sequence[torch.Tensor], caches: Sequence[Cache] | None, cuts: Mapping[int, Change] | None = None
    ) -> list[torch.Tensor]:
        """What the model predicts at each token of several contexts of any lengths, in one pass."""
        lengths = [len(context) for context in contexts]

        def hook(kind: str, layer: int) -> Hook | None:
            if kind == "hidden":
                return _changing(layer, cuts, lengths)
            if caches is None:
                return None
            sides = [torch.from_numpy((cache.keys if kind == "keys" else cache.values)[layer]) for cache in caches]
            return lambda _module, _inputs, _out: _padded(sides).to(self.device)

        with self._hooks(("keys", "values", "hidden"), hook), torch.inference_mode():
            logits = self.model(_padded(contexts).to(self.device), use_cache=False).logits
            return [row[:length] for row, length in zip(logits, lengths)]

    def streamed(self, context: torch.Tensor, page: int, rotary: Rotary, code: Callable[[int, Cache], Cache]) -> float:
        """Summed loss of all tokens but the first, page by page: older pages are what `code` (first token of the page, its
        cache) made of them, and the page itself is exact but for what that did to its states."""
        past, total = DynamicCache(config=self.model.config), 0.0
        for first in range(0, len(context), page):
            seen: dict[tuple[str, int], np.ndarray] = {}
            with self._hooks(("keys", "values"), _keeping(seen)), torch.inference_mode():
                here = context[None, first : first + page].to(self.device)
                logits = self.model(here, past_key_values=past, use_cache=True).logits[0]
            follow = context[first + 1 : first + 1 + page].to(self.device)
            total += torch.nn.functional.cross_entropy(logits[: len(follow)], follow, reduction="sum").item()
            exact = Cache(*(np.stack([seen[kind, i][0] for i in range(self.layers)]) for kind in ("keys", "values")))
            decoded = code(first, exact)
            with torch.inference_mode():
                for layer, keys, values in zip(past.layers, rotary.turn(decoded.keys, first=first), decoded.values):
                    for old, new in ((layer.keys, keys), (layer.values, values)):
                        heads = torch.from_numpy(new).view(len(new), old.shape[1], -1)
                        old[0, :, first : first + page] = heads.transpose(0, 1)
        return total

    def gradients(
        self, context: torch.Tensor, kinds: Sequence[str], generator: torch.Generator
    ) -> dict[str, np.ndarray]:
        """Gradients of the summed loss with respect to what `take` gives, where each token is followed by one that the
        model itself would have sampled."""
        seen: dict[tuple[str, int], torch.Tensor] = {}

        def hook(kind: str, layer: int) -> Hook:
            return lambda _module, _inputs, out: seen.update({(kind, layer): _tensor(out)})

        with torch.no_grad():
            # Copies, as tensors of inference mode have no gradients.
            embedded = self.model.get_input_embeddings()(context.clone()[None].to(self.device))
        with self._hooks(kinds, hook), torch.enable_grad():
            embedded.requires_grad_()
            logits = self.model(inputs_embeds=embedded, use_cache=False).logits[0]
            with torch.no_grad():
                sampled = torch.multinomial(logits.softmax(-1).cpu(), 1, generator=generator)[:, 0]
            loss = torch.nn.functional.cross_entropy(logits, sampled.to(self.device), reduction="sum")
            order = [(kind, layer) for kind in kinds for layer in range(self.layers)]
            found = iter(torch.autograd.grad(loss, [seen[key] for key in order]))
        return {kind: np.stack([next(found)[0].cpu().numpy() for _ in range(self.layers)]) for kind in kinds}

    @contextlib.contextmanager
    def _hooks(self, kinds: Sequence[str], make: Callable[[str, int], Hook | None]) -> Iterator[None]:
        placed = []
        for index, layer in enumerate(self.model.model.layers):
            modules = {"keys": layer.self_attn.k_proj, "values": layer.self_attn.v_proj, "hidden": layer}
            for kind in kinds:
                hook = make(kind, index)
                if hook is not None:
                    placed.append(modules[kind].register_forward_hook(hook))
        try:
            yield
        finally:
            for handle in placed:
                handle.remove()


def _tensor(out: object) -> torch.Tensor:
    """What a module gives: a tensor, or the first of several things."""
    return out[0] if isinstance(out, tuple) else out


def _keeping(seen: dict[tuple[str, int], np.ndarray]) -> Callable[[str, int], Hook]:
    """Hooks that leave copies in `seen`, by kind and layer: of all contexts of a pass."""

    def make(kind: str, layer: int) -> Hook:
        return lambda _module, _inputs, out: seen.update({(kind, layer): _tensor(out).to("cpu", copy=True).numpy()})

    return make


def _changing(layer: int, cuts: Mapping[int, Change] | None, lengths: Sequence[int]) -> Hook | None:
    if cuts is None or layer not in cuts:
        return None

    def hook(_module: object, _inputs: object, out: object) -> object:
        states = _tensor(out)
        new = [torch.from_numpy(cuts[layer](one[:length].cpu().numpy())) for one, length in zip(states, lengths)]
        changed = _padded(new).to(states.device)
        return (changed, *out[1:]) if isinstance(out, tuple) else changed

    return hook


def _padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of any lengths as one tensor. Padding lies behind a text, where a causal model does not look."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
