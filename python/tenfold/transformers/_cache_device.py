"""Pages of a cache that a CUDA device decodes: compressed bytes lie there or in pinned memory, and keys and values are made where attention
reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._errors import MachineError, UnsupportedError
from ..kv import PageCodec
from ..torch import _blocks, _device
from ..torch._staged import Together
from ._cache_slots import ROOM, Wanted, copies_of, part_of, room_for, slots_of

if TYPE_CHECKING:
    from ..torch._staged import Loading, Staged
    from ._cache_pages import Page, Pair

# Pages that are staged anew as often as one is added; with more, all are staged together.
_TAIL = 16
# Tokens whose verdicts may be on their way.
_PENDING = 4
# Bytes of keys and values that are decoded ahead of the layers that ask for them.
_WAVE = 512 << 20


@dataclass
class Budget:
    """Bytes of decoded keys and values that a cache may keep on the device, and where compressed pages are."""

    decoded: int = 0
    pinned: bool = False

    def take(self, count: int) -> bool:
        """Whether so many bytes are left, which are then taken."""
        if count > self.decoded:
            return False
        self.decoded -= count
        return True


@dataclass
class _Chunk:
    """Pages that are staged together."""

    count: int
    staged: Staged


@dataclass
class _Held:
    """What is staged: of which pages, for which slots."""

    first: Page
    last: Page
    count: int
    start: int
    room: int
    chunks: list[_Chunk]
    # Tokens that several sequences share: from which, to which, where, and how many.
    shared: list[tuple[int, int, int, int]]


@dataclass
class _Kept:
    """Decoded keys and values of all layers that stay on the device, and which pages they have."""

    layers: list[Pair]
    held: _Held
    bytes: int


class OnDevice:
    """Decodes the pages of a group. Its layers share the bytes, so all are decoded when the first one asks, and each is handed out once."""

    def __init__(self, codec: PageCodec, budget: Budget) -> None:
        self._codec, self._budget = codec, budget
        # The group that is asked next, and whether this one is the first.
        self.next: OnDevice | None = None
        self.leads = False
        # What a layer of this group will ask for once there are so many tokens, if that is known.
        self.peek: Callable[[int], Wanted | None] = lambda tokens: None
        # Until it has seen pages that a device does not decode, such as ones before RoPE without bases, or there is no cuBLAS.
        self._able = True
        self._held: _Held | None = None
        # Of one token's pass: what layers have not asked for yet, and how many tokens there are.
        self._made: dict[int, Pair] = {}
        self._tokens = 0
        # Chunks that were decoded together the last time.
        self._together: tuple[list[Staged], Together] | None = None
        self._kept: _Kept | None = None
        self._pending: list[Loading] = []

    @property
    def keeps(self) -> bool:
        """Whether what :meth:`decode` returns is written to again when the next token comes."""
        return self._kept is not None

    def fresh(self) -> OnDevice:
        """The same for a copy of the cache."""
        return OnDevice(self._codec, Budget(0, self._budget.pinned))

    def encode(
        self, states: Sequence[Pair], pages: tuple[int, int], start: int, padding: Sequence[int], goal: dict[str, Any]
    ) -> list[bytes] | None:
        """So many pages, of so many tokens, of the first tokens of each sequence: one sequence after the other. None if the host must make
        them. States are (sequence, head, token, column), one pair a layer."""
        like, (count, size) = states[0][0], pages
        # Padding has no positions of its own.
        if not self._able or like.dtype != torch.bfloat16 or any(start < padded for padded in padding):
            return None
        try:
            if not _blocks.encodes(self._codec, like.device, goal):
                return None
        except MachineError:
            self._able = False
            return None
        room = like.shape[2]
        first = np.arange(len(padding))[:, None, None] * room + np.arange(count)[:, None] * size
        positions = [start - padded + index * size for padded in padding for index in range(count)]
        # Sequences are the blocks, and their tokens the slots.
        keys, values = ([pair[side].contiguous().transpose(1, 2) for pair in states] for side in range(2))
        slots = (first + np.arange(size)).reshape(-1, size)
        return self._codec.encode_blocks(slots, keys, values, positions=positions, **goal)

    def decode(self, layer: int, wanted: Wanted) -> Pair | None:
        """Room for all tokens of a layer, with those of its pages in their place: (sequence, token, head, column). None if the host must do
        it."""
        if not self._able or not wanted.able:
            return None
        if self._kept is not None and self._is_kept(wanted):
            return part_of(self._kept.layers[layer], wanted.tokens)
        if layer not in self._made or not self._has(wanted, self._held) or self._tokens != wanted.tokens:
            self._settle()
            try:
                self._stage(wanted)
            except (UnsupportedError, MachineError):
                self._able = False
                return None
            self._decode(wanted)
        return part_of(self._made.pop(layer), wanted.tokens)

    def _decode(self, wanted: Wanted) -> None:
        """Queues the decoding of this group, and of those after it that decoded keys and values have room for."""
        wave = [(self, wanted), *self._following(wanted)]
        try:
            self._queue(wave)
        except BaseException:
            # No memory, for one. Nobody may take for decoded what was only made room for.
            self._forget_all()
            raise
        # What comes next is on its way while attention goes over this.
        last = wave[-1][0]
        if last.next is not None and self._budget.pinned:
            last.next.fetch(wanted)

    def _queue(self, wave: Sequence[tuple[OnDevice, Wanted]]) -> None:
        chunks: list[Staged] = []
        pools: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        for one, its in wave:
            made, missing = one._prepare(its)
            chunks.extend(chunk.staged for chunk in missing)
            pools.extend(([keys for keys, _ in made], [values for _, values in made]) for _ in missing)
        if chunks:
            if self._together is None or self._together[0] != chunks:
                self._together = chunks, Together(chunks)
            self._pending.append(self._together[1].decode(pools))
            self._pending[-1].ask()
        for one, _ in wave:
            one._share()

    def _following(self, wanted: Wanted) -> list[tuple[OnDevice, Wanted]]:
        """Groups after this one, up to the last of the model, whose pages are known and take no more than a wave with these."""
        found: list[tuple[OnDevice, Wanted]] = []
        size, one = self._size(wanted), self
        while one.next is not None and not one.next.leads:
            one = one.next
            its = one.peek(wanted.tokens) if one._able else None
            if its is None or not its.able or not its.pages:
                break
            if one._is_kept(its):
                continue
            size += one._size(its)
            if size > _WAVE:
                break
            try:
                one._stage(its)
            except (UnsupportedError, MachineError):
                one._able = False
                break
            found.append((one, its))
        return found

    def _size(self, wanted: Wanted) -> int:
        """Bytes of decoded keys and values."""
        columns = sum(heads * width for heads, width in wanted.widths)
        return 2 * wanted.sequences * wanted.room * columns * self._codec.layers

    def fetch(self, like: Wanted) -> None:
        """Sends for pinned pages that will be asked for next, as many groups as will be decoded together."""
        one, size = self, 0
        while one._held is not None and one._able:
            size += one._size(like)
            if size > _WAVE and one is not self:
                break
            if one._kept is None:
                for chunk in one._held.chunks:
                    chunk.staged.fetch()
            if one.next is None or one.next.leads:
                break
            one = one.next

    def _has(self, wanted: Wanted, held: _Held | None) -> bool:
        """Whether what is staged is what a layer asks for. Pages of a layer are made anew together, so two of them tell."""
        pages = wanted.pages
        same = held is not None and held.first is pages[0] and held.last is pages[-1] and held.count == len(pages)
        return same and held is not None and held.start == wanted.start and (wanted.sequences == 1 or held.room == wanted.room)

    def _stage(self, wanted: Wanted) -> None:
        """Brings pages to where the device finds them, unless they are there."""
        self._made = {}
        held = self._held
        if self._has(wanted, held):
            return
        pages, chunks = wanted.pages, held.chunks[:1] if held is not None else []
        grown = held is not None and self._grew(wanted, held)
        main = chunks[0].count if grown else 0
        if not grown or len(pages) - main > max(_TAIL, main // 8):
            chunks, main = [], 0
        if main < len(pages):
            chunks = [*chunks, _Chunk(len(pages) - main, self._staged(wanted, main))]
        copies = copies_of(wanted)
        self._held = _Held(pages[0], pages[-1], len(pages), wanted.start, wanted.room, chunks, copies)

    def _grew(self, wanted: Wanted, held: _Held) -> bool:
        """Whether pages were added to those that are staged, and nothing else has changed."""
        pages = wanted.pages
        there = len(pages) > held.count and pages[0] is held.first and pages[held.count - 1] is held.last
        return there and held.start == wanted.start and (wanted.sequences == 1 or held.room == wanted.room)

    def _staged(self, wanted: Wanted, skip: int) -> Staged:
        """Stages all pages but the first few."""
        blobs, slots = slots_of(wanted, skip)
        return self._codec.stage(blobs, slots, wanted.device, pinned=self._budget.pinned)

    def _prepare(self, wanted: Wanted) -> tuple[list[Pair], list[_Chunk]]:
        """Room for all layers, which are alike, and what has to be decoded into it."""
        held = self._held
        assert held is not None
        made, chunks = self._reuse(wanted, held)
        if made is None:
            # What is kept has room for more tokens; sequences of a batch have it anyway.
            room = wanted.room + ROOM if self._budget.decoded and wanted.sequences == 1 else wanted.room
            made = [room_for(wanted, room) for _ in range(self._codec.layers)]
        self._made, self._tokens = dict(enumerate(made)), wanted.tokens
        self._keep(made, held)
        return made, chunks

    def _share(self) -> None:
        """Copies what sequences have from others."""
        assert self._held is not None
        for source, sequence, at, count in self._held.shared:
            for pair in self._made.values():
                for states in pair:
                    states[sequence, at : at + count] = states[source, at : at + count]

    def _reuse(self, wanted: Wanted, held: _Held) -> tuple[list[Pair] | None, list[_Chunk]]:
        """Decoded layers that were kept, if all tokens have room there, and the chunks that are missing in them."""
        kept = self._kept
        if kept is None:
            return None, held.chunks
        if not self._fits(wanted, kept):
            self.forget()
            self._held = held
            return None, held.chunks
        same = kept.held.chunks[0] is held.chunks[0]
        return kept.layers, held.chunks[1:] if same else held.chunks

    def _is_kept(self, wanted: Wanted) -> bool:
        """Whether all pages that a layer asks for are decoded already."""
        kept = self._kept
        return kept is not None and self._fits(wanted, kept) and self._has(wanted, kept.held)

    def _fits(self, wanted: Wanted, kept: _Kept) -> bool:
        sequences, room = kept.layers[0][0].shape[:2]
        return sequences == wanted.sequences and (room >= wanted.room if sequences == 1 else room == wanted.room)

    def _keep(self, made: list[Pair], held: _Held) -> None:
        """Keeps decoded layers if the budget allows."""
        if self._kept is not None:
            self._kept.held = held
            return
        size = sum(states.nbytes for pair in made for states in pair)
        self._kept = _Kept(made, held, size) if self._budget.take(size) else None

    def forget(self) -> None:
        """Lets go of everything."""
        if self._kept is not None:
            self._budget.decoded += self._kept.bytes
        self._held, self._kept, self._made, self._together = None, None, {}, None

    def _settle(self) -> None:
        """Raises what a device has said of the last tokens' pages. Waits only where very many have not been judged."""
        while self._pending and (self._pending[0].arrived() or len(self._pending) > _PENDING):
            try:
                self._pending.pop(0).check()
            except BaseException:
                self._forget_all()
                raise

    def _forget_all(self) -> None:
        """Lets go of what this group and all others have, as after a fault."""
        one: OnDevice | None = self
        while one is not None:
            one.forget()
            one = one.next if one.next is not self else None
