"""One layer of a cache: first tokens exact, then pages, then recent tokens exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from transformers.cache_utils import CacheLayerMixin

from .._errors import ArgumentError, DtypeError, UnsupportedError
from ._cache_pages import Group, Page, Pair, Plan
from ._cache_slots import Wanted

DTYPES = (torch.bfloat16, torch.float16, torch.float32)

Function = TypeVar("Function", bound=Callable[..., Any])


def _uncompiled(function: Function) -> Function:
    """Marks code outside torch: a compiled model has a graph break here."""
    disable: Any = torch.compiler.disable
    try:
        made: Function = disable(function, reason="a TenfoldCache codes pages on the host; compile without fullgraph=True")
    except TypeError:  # An older torch takes no reasons.
        made = disable(function)
    return made


class PagedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call] # their __init_subclass__
    """A ``DynamicLayer`` whose older tokens are compressed.

    Tensors are (sequence, head, token, column), as everywhere in transformers.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, group: Group, plan: Plan) -> None:
        # Not the inherited one: keys and values are no attributes here but assembled on request.
        self.is_initialized = False
        self.group = group
        group.layers.append(self)
        self.pages: list[Page] = []
        # Tokens in them.
        self._compressed = 0
        # Left padding of each sequence, if it was stated.
        self.padding: list[int] = []
        self.told: list[int] = []
        self._plan = plan

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Takes shape, dtype and device from the first tokens."""
        if key_states.dtype not in DTYPES or value_states.dtype != key_states.dtype:
            raise DtypeError(
                f"keys are {key_states.dtype} and values {value_states.dtype}; a TenfoldCache holds both as bfloat16, float16 or "
                "float32: load the model in one of these"
            )
        sequences = key_states.shape[0]
        told = self.told or [0]
        if sequences % len(told):
            raise ArgumentError(
                f"the attention mask was one of {len(told)} sequences, and now there are {sequences}; pass the mask that generate "
                "gets"
            )
        # Beams and returned sequences of one prompt are consecutive.
        self.padding = [padding for padding in told for _ in range(sequences // len(told))]
        self.dtype, self.device = key_states.dtype, key_states.device
        self.widths = tuple((states.shape[1], states.shape[3]) for states in (key_states, value_states))
        self.first = self.last = (key_states[:, :, :0], value_states[:, :, :0])
        self.is_initialized = True

    @_uncompiled
    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Pair:
        """Adds new tokens and returns keys and values of all tokens, the new ones exact."""
        if torch.is_grad_enabled() and (key_states.requires_grad or value_states.requires_grad):
            raise ArgumentError("no gradients flow through compressed pages; run the model under torch.no_grad()")
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self._check(key_states, value_states)
        new = (key_states, value_states)
        if not self.pages and not _length(self.last):
            room = self._plan.sinks - _length(self.first)
            self.first = _join(self.first, _part(new, 0, room))
            new = _part(new, room)
        self.last = _join(self.last, new)
        everything = self._everything()
        self.group.compress_full()
        return everything

    @property
    def keys(self) -> torch.Tensor | None:  # type: ignore[override] # theirs is a plain attribute
        """Keys of all tokens, decoded for the caller."""
        return self._copy()[0] if self.is_initialized else None

    @property
    def values(self) -> torch.Tensor | None:  # type: ignore[override]
        """Values of all tokens, decoded for the caller."""
        return self._copy()[1] if self.is_initialized else None

    def get_seq_length(self) -> int:
        return self.exact_from + _length(self.last) if self.is_initialized else 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.is_initialized = False
        self.pages, self.padding, self.told = [], [], []
        self._compressed = 0
        self.group.forget()
        self.first = self.last = (torch.empty(0), torch.empty(0))

    def crop(self, tokens_to_remove: int) -> None:
        """Forgets the last tokens. The argument is their negative number, as in transformers."""
        if tokens_to_remove > 0:
            raise ArgumentError(f"crop({tokens_to_remove}): pass -n to forget the last n tokens")
        if tokens_to_remove == 0 or not self.is_initialized:
            return
        left = max(self.get_seq_length() + tokens_to_remove, 0)
        self.last = _part(self.last, 0, max(left - self.exact_from, 0))
        self.first = _part(self.first, 0, left)
        left -= _length(self.first)
        pages = []
        for page in self.pages:
            if left > 0:
                pages.append(replace(page, kept=min(page.kept, left)))
            left -= page.kept
        self.pages = pages
        self._compressed = sum(page.kept for page in pages)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.is_initialized:
            self._select([index for index in range(len(self.padding)) for _ in range(repeats)])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self.is_initialized:
            # Anything that selects rows of a tensor: numbers, a mask, a slice.
            chosen = indices.cpu() if isinstance(indices, torch.Tensor) else indices
            self._select(torch.arange(len(self.padding))[chosen].tolist())

    def offload(self) -> None:
        raise UnsupportedError("a TenfoldCache moves its pages itself; pass offload=True to keep them in host memory")

    prefetch = offload

    # For the group, which makes pages.

    @property
    def exact_from(self) -> int:
        """Index of the first token after the pages."""
        return _length(self.first) + self._compressed

    @property
    def behind_window(self) -> int:
        """Number of tokens after the pages that are no longer recent."""
        return _length(self.last) - self._plan.window if self.is_initialized else 0

    def wanted(self, tokens: int) -> Wanted:
        """What a device must know to decode the pages, where there are so many tokens in all."""
        start = _length(self.first)
        return Wanted(self.pages, start, tokens, len(self.padding), self.widths, self.dtype, self.device)

    def oldest(self, count: int) -> Pair:
        """Copies the first tokens after the pages to the host, as rows; waits for the device."""
        keys, values = (states.transpose(1, 2).contiguous().cpu() for states in _part(self.last, 0, count))
        return keys, values

    def replace_oldest(self, count: int, pages: Sequence[Page]) -> None:
        self.pages.extend(pages)
        self._compressed += sum(page.kept for page in pages)
        # Copied: a view would keep all of the old memory.
        keys, values = _part(self.last, count)
        self.last = (keys.clone(), values.clone())

    def _everything(self) -> Pair:
        start, end = _length(self.first), self.exact_from
        tokens, sequences = end + _length(self.last), len(self.padding)
        made = None
        if self.pages:
            made = self.group.decode_on_device(self, self.wanted(tokens))
        if made is None:
            # Rows of tokens, as pages have them and as the model made them: nothing needs to be moved around.
            keys, values = (torch.empty((sequences, tokens, *width), dtype=self.dtype, device=self.device) for width in self.widths)
            if self.pages:
                self.group.decode_on_host(self, keys[:, start:end], values[:, start:end])
        else:
            keys, values = made
        for states, first, last in zip((keys, values), self.first, self.last, strict=True):
            states[:, :start] = first.transpose(1, 2)
            states[:, end:] = last.transpose(1, 2)
        return keys.transpose(1, 2), values.transpose(1, 2)

    def _copy(self) -> Pair:
        """Keys and values of all tokens, which stay as they are."""
        keys, values = self._everything()
        return (keys.clone(), values.clone()) if self.group.keeps else (keys, values)

    def _select(self, sequences: list[int]) -> None:
        index = torch.tensor(sequences, dtype=torch.long, device=self.device)
        self.first, self.last = ((keys[index], values[index]) for keys, values in (self.first, self.last))
        self.pages = [page.select(sequences) for page in self.pages]
        self.padding = [self.padding[sequence] for sequence in sequences]

    def _check(self, *states: torch.Tensor) -> None:
        for new, (heads, columns) in zip(states, self.widths, strict=True):
            have = (len(self.padding), heads, columns)
            came = (new.shape[0], new.shape[1], new.shape[3])
            if came != have or new.dtype != self.dtype:
                raise ArgumentError(
                    f"the cache holds (sequences, heads, columns) = {have} of {self.dtype}, and {came} of {new.dtype} came; "
                    "reset() it before another batch or model"
                )
        if states[0].shape[2] != states[1].shape[2]:
            raise ArgumentError(f"keys of {states[0].shape[2]} tokens, but values of {states[1].shape[2]}")


def _length(pair: Pair) -> int:
    return pair[0].shape[2]


def _part(pair: Pair, start: int, end: int | None = None) -> Pair:
    return pair[0][:, :, start:end], pair[1][:, :, start:end]


def _join(*pairs: Pair) -> Pair:
    keys, values = (torch.cat(states, dim=2) for states in zip(*pairs, strict=True))
    return keys, values
