"""Pages that a device makes of tokens in paged pools, at a step or within a number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import _native
from . import _device
from ._pools import aligned, columns_of, describe
from ._staged import engine_of
from ._tensors import name_of

if TYPE_CHECKING:
    from ..kv import PageCodec

# Streams that keys and values of groups are encoded on: one alone leaves most of a device idle.
_STREAMS = 4
# Bytes that a device may make room for while it encodes, and about how many a value takes: rows, coordinates, streams, blobs.
_ROOM = 2 << 30
_PER_VALUE = 12
# Pages that are encoded at a time, at least and at most.
_FEWEST, _MOST = 16, 4096
# Where pages are among the bytes of all batches; None for a page that the device does not make.
_Places = list[tuple[int, int] | None]


@dataclass(frozen=True)
class _Making:
    """Pages that a device is at work on: batches, their blobs and where each batch's start, what will be said of each page in turn, and when
    all of it is done."""

    save: _native.CudaSave
    batches: list[_native.CudaBatch]
    blobs: torch.Tensor
    starts: list[int]
    status: torch.Tensor
    done: list[torch.cuda.Event]


@dataclass(frozen=True)
class _Rows:
    """Rows on their way to the host, and when they are there."""

    rows: list[torch.Tensor]
    arrived: torch.cuda.Event | None

    def arrays(self) -> list[np.ndarray]:
        if self.arrived is not None:
            self.arrived.synchronize()
        return [rows.numpy() for rows in self.rows]


@dataclass(frozen=True)
class _Given:
    """What the device knows of pages: slots of tokens, positions and steps."""

    slots: torch.Tensor
    positions: torch.Tensor
    steps: torch.Tensor

    def share(self, stream: torch.cuda.Stream) -> None:
        for tensor in self._all:
            _device.share(tensor, stream)

    @property
    def memory(self) -> list[tuple[int, int]]:
        return [_memory(tensor) for tensor in self._all]

    @property
    def _all(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.slots, self.positions, self.steps


@dataclass(frozen=True)
class Maker:
    """Makes pages of some pools: tensors of keys and of values for each layer."""

    codec: PageCodec
    pools: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]

    def at_step(self, slots: np.ndarray, positions: np.ndarray, step: float | None) -> list[bytes | None]:
        """Pages, and None for those that a device does not make, such as ones with NaN. ``slots`` are of each page's tokens, a row a page;
        ``positions`` of each page's first token. Without a step every bit stays."""
        pages: list[bytes | None] = []
        with _device.preserve_current(self._where), ThreadPoolExecutor(1) as host:
            # The host puts pages together while the device makes the next.
            made: list[Future[list[bytes | None]]] = []
            before: tuple[_Making, _Rows] | None = None
            for part in self._parts(slots):
                making = self._begin_at(slots[part], positions[part], step)
                if before is not None:
                    made.append(self._finish(*before, host))
                before = making
            if before is not None:
                made.append(self._finish(*before, host))
            self._rejoin()
            for one in made:
                pages += one.result()
        return pages

    def begin(self, slots: np.ndarray, positions: np.ndarray, step: float) -> Saving:
        """The same without waiting, but for a look where pages have bases to choose from."""
        with _device.preserve_current(self._where):
            begun = [self._begin_at(slots[part], positions[part], step) for part in self._parts(slots)]
            self._rejoin()
        return Saving(self, begun)

    def end(self, begun: list[tuple[_Making, _Rows]]) -> list[bytes | None]:
        """Pages of what was begun."""
        with _device.preserve_current(self._where), ThreadPoolExecutor(1) as host:
            made = [self._finish(*one, host) for one in begun]
            return [page for one in made for page in one.result()]

    def within(self, slots: np.ndarray, positions: np.ndarray, cap: int) -> list[bytes | None]:
        """Pages of at most ``cap`` bytes; None for those that must be made otherwise. All blobs of a page have one step, at which they nearly fill
        those bytes. It depends on the page alone."""
        pages: list[bytes | None] = []
        with _device.preserve_current(self._where), ThreadPoolExecutor(1) as host:
            for part in self._parts(slots):
                pages += self._fill(slots[part], positions[part], cap, host)
            self._rejoin()
        return pages

    @property
    def _where(self) -> torch.device:
        return self.pools[0][0].device

    @property
    def _engine(self) -> _native.CudaPages:
        return engine_of(self.codec, self._where)

    @cached_property
    def _columns(self) -> list[list[int]]:
        """Columns of keys and of values of a token, for each group."""
        return [[count * columns_of(side[first]) for side in self.pools] for first, count in self.codec.groups]

    def _save(self, slots: np.ndarray, steps: Sequence[float] | None) -> _native.CudaSave:
        if steps is None:
            return self._engine.save_lossless(slots.shape[1], len(slots), self._columns, name_of(self.pools[0][0].dtype))
        return self._engine.save(slots.shape[1], steps, self._columns, name_of(self.pools[0][0].dtype))

    def _parts(self, slots: np.ndarray) -> list[slice]:
        """Pages that a device makes at a time: no more than it is thought to have room for."""
        widest = max(max(columns) for columns in self._columns)
        lanes = min(_STREAMS, 2 * len(self.codec.groups))
        at_once = min(max(_ROOM // (_PER_VALUE * lanes * slots.shape[1] * widest), _FEWEST), _MOST)
        return [slice(first, first + at_once) for first in range(0, len(slots), at_once)]

    @cached_property
    def _described(self) -> list[list[Any]]:
        """Pools of keys and of values of each group."""
        return [[describe(side[first : first + count]) for side in self.pools] for first, count in self.codec.groups]

    def _streams(self) -> tuple[torch.cuda.Stream, list[torch.cuda.Stream]]:
        """The stream that brings pages to the host, and those that encode."""
        # Not the first, which brings pages to the device.
        _, home, *lanes = _device.sides(self._where, 2 + min(_STREAMS, 2 * len(self.codec.groups)))
        return home, lanes

    def _rejoin(self) -> None:
        """Lets the caller's stream wait: blocks may be written again once it goes on."""
        current = _device.stream(self._where)
        for stream in self._streams()[1]:
            current.wait_stream(stream)

    def _upload(self, numbers: np.ndarray) -> torch.Tensor:
        """Numbers of 64 bits on the device. Waits for nothing."""
        pinned = _device.staging(numbers.nbytes)
        pinned.numpy()[:] = numbers.reshape(-1).view(np.uint8)
        return pinned.to(self._where, non_blocking=True).view(torch.int64)

    def _give(self, save: _native.CudaSave, slots: np.ndarray, positions: np.ndarray, steps: Sequence[float]) -> _Given:
        """Brings to the device what it is to know of pages, and lets streams wait for that."""
        first, end = save.coded
        numbers = (np.ascontiguousarray(slots[:, first:end]), positions + first, np.array(steps, np.float64))
        given = _Given(*(self._upload(some) for some in numbers))
        for stream in self._streams()[1]:
            given.share(stream)
        return given

    def _lanes(self, lengths: list[int]) -> list[tuple[torch.cuda.Stream, torch.Tensor]]:
        """Streams that follow the caller's, each with memory for the largest of what is queued on it. Once all is queued the memory may go:
        whoever gets it next works on the same stream."""
        current, streams = _device.stream(self._where), self._streams()[1]
        lanes = []
        for number, stream in enumerate(streams):
            stream.wait_stream(current)
            with _device.on(stream):
                lanes.append((stream, aligned(max(lengths[number :: len(streams)], default=0), self._where)))
        return lanes

    def _ask(
        self, asked: list[tuple[tuple[int, int], int, int]], queue: Callable[..., None], save: _native.CudaSave, given: _Given
    ) -> list[bytes]:
        """Queues something for each of some sides, and waits for what the device has found."""
        if not asked:
            return []
        ends = np.cumsum([length for _, length, _ in asked]).tolist()
        found = torch.empty(ends[-1], dtype=torch.uint8, device=self._where)
        lanes = self._lanes([workspace for _, _, workspace in asked])
        for stream, _ in lanes:
            _device.share(found, stream)
        queue(save, [side for side, _, _ in asked], self._described, given.memory, _memory(found), _native_lanes(lanes))
        self._rejoin()
        told = found.cpu().numpy().tobytes()
        return [told[end - length : end] for end, (_, length, _) in zip(ends, asked, strict=True)]

    def _begin(self, slots: np.ndarray, positions: np.ndarray, given_steps: Sequence[float] | None) -> _Making:
        """Queues the encoding of pages. Waits only where they have bases to choose from."""
        engine, save = self._engine, self._save(slots, given_steps)
        steps = given_steps or [1.0] * len(slots)
        given = self._give(save, slots, positions, steps)
        seen = self._ask(engine.looks(save), engine.queue_looks, save, given)
        batches = engine.batches(save, seen)
        starts = np.cumsum([0] + [batch.blobs_len for batch in batches]).tolist()
        blobs = aligned(starts[-1], self._where)
        status = torch.zeros(sum(len(batch.pages) for batch in batches), 2, dtype=torch.int64, device=self._where)
        # What is brought to the device stays there until all is queued.
        each, _there = self._parts_of(save, batches, given, slots, positions, steps)
        lanes = self._lanes([batch.workspace_len for batch in batches])
        for stream, _ in lanes:
            _device.share(blobs, stream)
            _device.share(status, stream)
        engine.queue_saves(save, batches, self._described, each, _memory(blobs), status.data_ptr(), _native_lanes(lanes))
        return _Making(save, batches, blobs, starts, status, [_device.mark(stream) for stream, _ in lanes])

    def _parts_of(
        self,
        save: _native.CudaSave,
        batches: list[_native.CudaBatch],
        given: _Given,
        slots: np.ndarray,
        positions: np.ndarray,
        steps: Sequence[float],
    ) -> tuple[list[list[tuple[int, int]]], torch.Tensor | None]:
        """What the device is given for each batch: that of all pages, or of those that the batch has, brought there in one piece."""
        some = [batch.pages for batch in batches if len(batch.pages) != len(slots)]
        whole = given.memory
        if not some:
            return [whole] * len(batches), None
        first, end = save.coded
        own = [np.ascontiguousarray(slots[:, first:end]), positions + first, np.array(steps, np.float64).view(np.int64)]
        numbers = np.concatenate([part[pages].ravel() for pages in some for part in own])
        there = self._upload(numbers)
        for stream in self._streams()[1]:
            _device.share(there, stream)
        at, parts = there.data_ptr(), []
        for batch in batches:
            if len(batch.pages) == len(slots):
                parts.append(whole)
                continue
            memory = []
            for part in own:
                length = 8 * len(batch.pages) * (part[0].size if part.ndim > 1 else 1)
                memory.append((at, length))
                at += length
            parts.append(memory)
        return parts, there

    def _begin_at(self, slots: np.ndarray, positions: np.ndarray, step: float | None) -> tuple[_Making, _Rows]:
        steps = None if step is None else [step] * len(slots)
        rows = self._exact_rows(self._save(slots, steps), slots)
        return self._begin(slots, positions, steps), rows

    def _exact_rows(self, save: _native.CudaSave, slots: np.ndarray) -> _Rows:
        """Rows of tokens that stay exact, on their way to the host: keys and values of each group in turn."""
        if not save.exact:
            return _Rows([], None)
        at = self._upload(np.ascontiguousarray(slots[:, save.exact]))
        stream, rows = _device.stream(self._where), []
        for side in ((group, side) for group in range(len(self.codec.groups)) for side in range(2)):
            found = aligned(save.exact_len(*side), self._where)
            self._engine.queue_exact(save, side, self._described[side[0]][side[1]], _memory(at), _memory(found), stream.cuda_stream)
            rows.append(_device.staging(found.nbytes))
            rows[-1].copy_(found, non_blocking=True)
        return _Rows(rows, _device.mark(stream))

    def _places(self, making: _Making) -> list[_Places]:
        """Where the blobs of each batch are. Waits for them."""
        home, _ = self._streams()
        for event in making.done:
            home.wait_event(event)
        _device.share(making.status, home)
        with _device.on(home):
            said = making.status.cpu().numpy()
        found: list[_Places] = []
        at = 0
        for batch, start in zip(making.batches, making.starts[:-1], strict=True):
            own = said[at : at + len(batch.pages)].tobytes()
            at += len(batch.pages)
            places = self._engine.places(making.save, batch, own)
            found.append([None if place is None else (start + place[0], start + place[1]) for place in places])
        return found

    def _finish(self, making: _Making, rows: _Rows, host: ThreadPoolExecutor) -> Future[list[bytes | None]]:
        """Waits for blobs, sends for them, and lets the host put pages together."""
        fetched, arrived = self._fetch(making, self._places(making))

        def assemble() -> list[bytes | None]:
            exact = self._engine.encode_exact(making.save, rows.arrays())
            arrived.synchronize()
            return self._assemble(making, *fetched, exact)

        return host.submit(assemble)

    def _fetch(self, making: _Making, places: list[_Places]) -> tuple[tuple[torch.Tensor, list[_Places]], torch.cuda.Event]:
        """Sends for blobs that are done, and says when they are there."""
        home, _ = self._streams()
        _device.share(making.blobs, home)
        with _device.on(home):
            return _fetch(making.blobs, places), _device.mark(home)

    def _assemble(self, making: _Making, content: torch.Tensor, places: list[_Places], exact: _native.CudaExact) -> list[bytes | None]:
        bytes_of = content.numpy()
        batches = [(batch, bytes_of, its) for batch, its in zip(making.batches, places, strict=True)]
        return self._engine.assemble(making.save, batches, exact)

    def _fill(self, slots: np.ndarray, positions: np.ndarray, cap: int, host: ThreadPoolExecutor) -> list[bytes | None]:
        """Pages within a number of bytes, by as few encodings as it takes: those that are not settled are encoded together."""
        pages: list[bytes | None] = [None] * len(slots)
        ones = [1.0] * len(slots)
        save = self._save(slots, ones)
        given = self._give(save, slots, positions, ones)
        guessed = self._ask(self._engine.guesses(save), self._engine.queue_guesses, save, given)
        exact = self._engine.encode_exact(save, self._exact_rows(save, slots).arrays())
        budgets = [self._engine.budget(save, cap, taken) for taken in exact.sizes]
        ladder = self._engine.ladder(save, budgets, guessed)
        made: list[tuple[list[int], Future[list[bytes | None]]]] = []
        while standing := ladder.standing():
            some = [page for page, _ in standing]
            making = self._begin(slots[some], positions[some], [step for _, step in standing])
            places = self._places(making)
            sizes = _sizes(making, places, len(some))
            stay = [ladder.tried(page, size) for page, size in zip(some, sizes, strict=True)]
            if not any(stay):
                continue
            fetched, arrived = self._fetch(making, _only(making, places, stay))
            kept = exact.of(some)

            def assemble(
                making: _Making = making, fetched: tuple[torch.Tensor, list[_Places]] = fetched, arrived: Any = arrived, kept: Any = kept
            ) -> list[bytes | None]:
                arrived.synchronize()
                return self._assemble(making, *fetched, kept)

            made.append((some, host.submit(assemble)))
        for some, future in made:
            for page, content in zip(some, future.result(), strict=True):
                pages[page] = content if content is not None else pages[page]
        return pages


class Saving:
    """Pages that a device is making: see :meth:`tenfold.kv.PageCodec.begin_blocks`."""

    def __init__(self, maker: Maker, begun: list[tuple[_Making, _Rows]]) -> None:
        self._maker, self._begun = maker, begun
        self._pages: list[bytes | None] | None = None

    def done(self) -> bool:
        """Whether the device has encoded everything."""
        return self._pages is not None or all(_device.passed(event) for making, _ in self._begun for event in making.done)

    def pages(self) -> list[bytes | None]:
        """Waits for the pages, and brings them to the host."""
        if self._pages is None:
            self._pages = self._maker.end(self._begun)
            self._begun = []
        return self._pages


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.nbytes


def _native_lanes(lanes: list[tuple[torch.cuda.Stream, torch.Tensor]]) -> list[tuple[int, tuple[int, int]]]:
    return [(stream.cuda_stream, _memory(room)) for stream, room in lanes]


def _sizes(making: _Making, places: list[_Places], pages: int) -> list[int | None]:
    """Bytes of each page's blobs; None where one was refused."""
    sizes: list[int | None] = [0] * pages
    for batch, its in zip(making.batches, places, strict=True):
        for page, place in zip(batch.pages, its, strict=True):
            before = sizes[page]
            sizes[page] = None if place is None or before is None else before + place[1] - place[0]
    return sizes


def _only(making: _Making, places: list[_Places], stay: list[bool]) -> list[_Places]:
    """Where the blobs of pages that stay are, and None for others."""
    pairs = ((batch.pages, its) for batch, its in zip(making.batches, places, strict=True))
    return [[place if stay[page] else None for page, place in zip(pages, its, strict=True)] for pages, its in pairs]


def _fetch(blobs: torch.Tensor, places: list[_Places]) -> tuple[torch.Tensor, list[_Places]]:
    """Sends for the bytes of pages, side by side, and says where each page's will be. Waits for nothing."""
    wanted = np.array([place for its in places for place in its if place is not None], np.int64).reshape(-1, 2)
    if not len(wanted):
        return torch.empty(0, dtype=torch.uint8), places
    # In words of four bytes, which blobs are made of.
    lengths = wanted[:, 1] - wanted[:, 0]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    total = int(offsets[-1])
    by, words = (torch.from_numpy(numbers // 4).to(blobs.device, non_blocking=True) for numbers in (wanted[:, 0] - offsets[:-1], lengths))
    index = torch.arange(total // 4, device=blobs.device) + torch.repeat_interleave(by, words, output_size=total // 4)
    packed = blobs.view(torch.int32).index_select(0, index).view(torch.uint8)
    host = _device.staging(total)
    host.copy_(packed, non_blocking=True)
    runs = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return host, [[None if place is None else next(runs) for place in its] for its in places]
