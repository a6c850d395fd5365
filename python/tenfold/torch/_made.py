"""Pages that a device makes of tokens in paged pools, at a step or within a number of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import _native
from . import _device
from ._ladder import climb, step_of
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
# Where a batch's pages are among its bytes; None for a page that the device does not make.
_Places = Sequence[tuple[int, int] | None]


@dataclass(frozen=True)
class _Making:
    """Pages that a device is at work on: batches with their blobs and what will be said of them, and rows of exact tokens."""

    save: _native.CudaSave
    batches: list[tuple[_native.CudaBatch, torch.Tensor, torch.Tensor, torch.cuda.Stream]]
    exact: list[torch.Tensor]


@dataclass(frozen=True)
class Maker:
    """Makes pages of some pools: tensors of keys and of values for each layer."""

    codec: PageCodec
    pools: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]

    def at_step(self, slots: np.ndarray, positions: np.ndarray, step: float) -> list[bytes | None]:
        """Pages, and None for those that a device does not make, such as ones with NaN. ``slots`` are of each page's tokens, a row a page;
        ``positions`` of each page's first token."""
        pages: list[bytes | None] = []
        at_once = self._at_once(slots.shape[1])
        parts = [slice(first, first + at_once) for first in range(0, len(slots), at_once)]
        with _device.preserve_current(self._where), ThreadPoolExecutor(1) as host:
            # The host puts pages together while the device makes the next.
            made: list[Future[list[bytes | None]]] = []
            before: _Making | None = None
            for part in parts:
                making = self._begin(slots[part], positions[part], step)
                if before is not None:
                    made.append(self._finish(before, host))
                before = making
            if before is not None:
                made.append(self._finish(before, host))
            self._rejoin()
            for one in made:
                pages += one.result()
        return pages

    def within(self, slots: np.ndarray, positions: np.ndarray, cap: int) -> list[bytes | None]:
        """Pages of at most ``cap`` bytes; None for those that must be made otherwise. All blobs of a page have one step, the smallest of a
        ladder that was found to suffice. It depends on the page alone."""
        pages: list[bytes | None] = [None] * len(slots)
        at_once = self._at_once(slots.shape[1])
        for first in range(0, len(slots), at_once):
            part = np.arange(first, min(first + at_once, len(slots)))
            with _device.preserve_current(self._where):
                budgets = self._budgets(slots[part], cap)
                found = climb(budgets, partial(self._sizes_on, slots[part], positions[part]))
            for rung in sorted({rung for rung in found if rung is not None}):
                some = part[[page for page, its in enumerate(found) if its == rung]]
                for page, made in zip(some, self.at_step(slots[some], positions[some], step_of(rung)), strict=True):
                    pages[page] = made
        return pages

    @property
    def _where(self) -> torch.device:
        return self.pools[0][0].device

    @property
    def _engine(self) -> _native.CudaPages:
        return engine_of(self.codec, self._where)

    def _columns(self) -> list[list[int]]:
        """Columns of keys and of values of a token, for each group."""
        return [[count * columns_of(side[first]) for side in self.pools] for first, count in self.codec.groups]

    def _save(self, pages: int, tokens: int, step: float) -> _native.CudaSave:
        return self._engine.save(pages, tokens, step, self._columns(), name_of(self.pools[0][0].dtype))

    def _at_once(self, tokens: int) -> int:
        """Pages that a device makes at a time: no more than it is thought to have room for."""
        widest = max(max(columns) for columns in self._columns())
        lanes = min(_STREAMS, 2 * len(self.codec.groups))
        return min(max(_ROOM // (_PER_VALUE * lanes * tokens * widest), _FEWEST), _MOST)

    def _pool(self, side: tuple[int, int]) -> Any:
        first, count = self.codec.groups[side[0]]
        return describe(self.pools[side[1]][first : first + count])

    def _streams(self) -> list[torch.cuda.Stream]:
        # Not the first, which brings pages to the device.
        streams = _device.sides(self._where, 1 + min(_STREAMS, 2 * len(self.codec.groups)))
        return streams[1:] or streams

    def _rejoin(self) -> None:
        """Lets the caller's stream wait: blocks may be written again once it goes on."""
        current = _device.stream(self._where)
        for stream in self._streams():
            current.wait_stream(stream)

    def _begin(self, slots: np.ndarray, positions: np.ndarray, step: float) -> _Making:
        """Queues the encoding of pages. Waits only where they have bases to choose from."""
        engine = self._engine
        save = self._save(len(slots), slots.shape[1], step)
        first, end = save.lossy
        current, streams = _device.stream(self._where), self._streams()
        at = torch.from_numpy(np.ascontiguousarray(slots[:, first:end])).to(self._where)
        starts = torch.from_numpy(positions + first).to(self._where)
        exact = self._exact_rows(save, slots)
        for stream in streams:
            stream.wait_stream(current)
            _device.share(at, stream)
            _device.share(starts, stream)
        rooms: list[torch.Tensor | None] = [None] * len(streams)

        def room(lane: int, length: int) -> torch.Tensor:
            # What is queued later on a stream follows what was queued there before.
            kept = rooms[lane]
            if kept is None or kept.nbytes < length:
                rooms[lane] = kept = aligned(length, self._where)
            return kept

        seen = []
        for number, (side, length, workspace) in enumerate(engine.looks(save)):
            lane = number % len(streams)
            with _device.on(streams[lane]):
                found = torch.empty(length // 8, dtype=torch.int64, device=self._where)
                given, begun, to, work = ((one.data_ptr(), one.nbytes) for one in (at, starts, found, room(lane, workspace)))
                engine.queue_look(save, side, self._pool(side), given, begun, to, work, streams[lane].cuda_stream)
                seen.append((found, streams[lane]))
        told = []
        for found, stream in seen:
            with _device.on(stream):
                told.append(found.cpu().numpy().tobytes())
        batches = []
        for number, batch in enumerate(engine.batches(save, told)):
            lane = number % len(streams)
            with _device.on(streams[lane]):
                some, first_of = at, starts
                if len(batch.pages) != len(slots):
                    index = torch.tensor(batch.pages).to(self._where)
                    some, first_of = at.index_select(0, index), starts.index_select(0, index)
                blobs = aligned(batch.blobs_len, self._where)
                status = torch.zeros(len(batch.pages), 2, dtype=torch.int64, device=self._where)
                memory = (some, first_of, blobs, room(lane, batch.workspace_len))
                given, begun, to, work = ((one.data_ptr(), one.nbytes) for one in memory)
                stream = streams[lane]
                engine.queue_save(save, batch, self._pool(batch.side), given, begun, to, status.data_ptr(), work, stream.cuda_stream)
            batches.append((batch, blobs, status, streams[lane]))
        return _Making(save, batches, exact)

    def _exact_rows(self, save: _native.CudaSave, slots: np.ndarray) -> list[torch.Tensor]:
        """Rows of tokens that stay exact, on their way to the host: keys and values of each group in turn."""
        if not save.exact:
            return []
        at = torch.from_numpy(np.ascontiguousarray(slots[:, save.exact])).to(self._where)
        stream, rows = _device.stream(self._where), []
        for side in ((group, side) for group in range(len(self.codec.groups)) for side in range(2)):
            found = aligned(save.exact_len(*side), self._where)
            given, to = ((one.data_ptr(), one.nbytes) for one in (at, found))
            self._engine.queue_exact(save, side, self._pool(side), given, to, stream.cuda_stream)
            rows.append(found.cpu())
        return rows

    def _places(self, making: _Making) -> list[_Places]:
        """Where the blobs of each batch are. Waits for them."""
        found: list[_Places] = []
        for batch, _, status, stream in making.batches:
            with _device.on(stream):
                found.append(self._engine.places(making.save, batch, status.cpu().numpy().tobytes()))
        return found

    def _finish(self, making: _Making, host: ThreadPoolExecutor) -> Future[list[bytes | None]]:
        """Waits for blobs, sends for them, and lets the host put pages together."""
        engine, save = self._engine, making.save
        fetched = []
        for (batch, blobs, _, stream), places in zip(making.batches, self._places(making), strict=True):
            with _device.on(stream):
                fetched.append((batch, *_fetch(blobs, places), _device.mark(stream)))

        def assemble() -> list[bytes | None]:
            exact = engine.encode_exact(save, [rows.numpy() for rows in making.exact])
            content = []
            for batch, bytes_of, places, arrived in fetched:
                arrived.synchronize()
                content.append((batch, bytes_of.numpy(), places))
            return engine.assemble(save, content, exact)

        return host.submit(assemble)

    def _budgets(self, slots: np.ndarray, cap: int) -> list[int | None]:
        """Bytes that blobs of each page may take, beside its exact tokens."""
        save = self._save(len(slots), slots.shape[1], 1.0)
        taken = self._engine.encode_exact(save, [rows.numpy() for rows in self._exact_rows(save, slots)]).sizes
        return [self._engine.budget(save, cap, exact) for exact in taken]

    def _sizes_on(self, slots: np.ndarray, positions: np.ndarray, some: np.ndarray, rung: int) -> list[int | None]:
        return self._sizes(slots[some], positions[some], step_of(rung))

    def _sizes(self, slots: np.ndarray, positions: np.ndarray, step: float) -> list[int | None]:
        """Bytes of each page's blobs at a step."""
        making = self._begin(slots, positions, step)
        sizes: list[int | None] = [0] * len(slots)
        for (batch, *_), places in zip(making.batches, self._places(making), strict=True):
            for page, place in zip(batch.pages, places, strict=True):
                before = sizes[page]
                sizes[page] = None if place is None or before is None else before + place[1] - place[0]
        self._rejoin()
        return sizes


def _fetch(blobs: torch.Tensor, places: _Places) -> tuple[torch.Tensor, _Places]:
    """Sends for the bytes of pages, side by side, and says where each page's will be. Waits for nothing."""
    wanted = np.array([place for place in places if place is not None], np.int64).reshape(-1, 2)
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
    return host, [None if place is None else next(runs) for place in places]
