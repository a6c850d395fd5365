"""Pages that a device makes of tokens in paged pools, at a step or within a number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from .. import _native
from . import _device
from ._ladder import climb, step_of
from ._pools import aligned, describe
from ._staged import engine_of

if TYPE_CHECKING:
    from ..kv import PageCodec

# Streams that groups of layers are encoded on: one group alone leaves most of a device idle.
_STREAMS = 4
# Where keys and values of a page are; None for a page that the device does not make.
_Places = Sequence[Sequence[tuple[int, int]] | None]


@dataclass(frozen=True)
class Maker:
    """Makes pages of some pools: tensors of keys and of values for each layer."""

    codec: PageCodec
    pools: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]

    def at_step(self, slots: np.ndarray, positions: np.ndarray, step: float) -> list[bytes | None]:
        """Pages, and None for those that a device does not make, such as ones with NaN. ``slots`` are of each page's tokens, a row a page;
        ``positions`` of each page's first token."""
        save = self._engine.save(len(slots), slots.shape[1], step)
        content: list[tuple[torch.Tensor, _Places]] = []
        self._run(save, slots, positions, lambda blobs, places: content.append(_fetch(blobs, places)))
        return self._engine.assemble(save, [(host.numpy(), places) for host, places in content])

    def within(self, slots: np.ndarray, positions: np.ndarray, cap: int) -> list[bytes | None]:
        """Pages of at most ``cap`` bytes; None for those that must be made otherwise. All blobs of a page have one step, the smallest of a
        ladder that was found to suffice. It depends on the page alone."""
        pages: list[bytes | None] = [None] * len(slots)
        budget = self._engine.budget(self._engine.save(1, slots.shape[1], 1.0), cap)
        if budget is None or budget <= 0:
            return pages
        found = climb(len(slots), budget, lambda some, rung: self._sizes(slots[some], positions[some], step_of(rung)))
        for rung in sorted({rung for rung in found if rung is not None}):
            some = np.array([page for page, its in enumerate(found) if its == rung])
            for page, made in zip(some, self.at_step(slots[some], positions[some], step_of(rung)), strict=True):
                pages[page] = made
        return pages

    @property
    def _engine(self) -> _native.CudaPages:
        return engine_of(self.codec, self.pools[0][0].device)

    def _sizes(self, slots: np.ndarray, positions: np.ndarray, step: float) -> list[int | None]:
        """Bytes of each page's blobs at a step."""
        save = self._engine.save(len(slots), slots.shape[1], step)
        sizes: list[int | None] = [0] * len(slots)

        def add(_: torch.Tensor, places: _Places) -> None:
            for page, place in enumerate(places):
                before = sizes[page]
                sizes[page] = None if place is None or before is None else before + sum(end - start for start, end in place)

        self._run(save, slots, positions, add)
        return sizes

    def _run(
        self, save: _native.CudaSave, slots: np.ndarray, positions: np.ndarray, then: Callable[[torch.Tensor, _Places], None]
    ) -> None:
        """Encodes all groups, and gives the blobs of each, and where pages are in them, to ``then``, on the stream that made them. Waits for
        everything in the end."""
        device = self.pools[0][0].device
        with _device.preserve_current(device):
            current = _device.stream(device)
            at, starts = torch.from_numpy(slots).to(device), torch.from_numpy(positions).to(device)
            # Not the first, which brings pages to the device.
            streams = _device.sides(device, 1 + _STREAMS)
            streams = streams[1:] or streams
            # A workspace for each; what is made later on a stream follows what was made there before.
            room = []
            for stream in streams:
                stream.wait_stream(current)
                _device.share(at, stream)
                _device.share(starts, stream)
                with _device.on(stream):
                    room.append(aligned(save.workspace_len, device))
            for wave in _waves(len(self.codec.groups), len(streams)):
                made = [self._queue(save, group, (at, starts), streams[lane], room[lane]) for lane, group in enumerate(wave)]
                for lane, (group, (blobs, status)) in enumerate(zip(wave, made, strict=True)):
                    with _device.on(streams[lane]):
                        then(blobs, self._engine.places(save, group, status.cpu().numpy().tobytes()))
            for stream in streams:
                # Blocks may be written again once the caller's stream goes on.
                current.wait_stream(stream)
                stream.synchronize()

    def _queue(
        self,
        save: _native.CudaSave,
        group: int,
        tokens: tuple[torch.Tensor, torch.Tensor],
        stream: torch.cuda.Stream,
        workspace: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queues the encoding of a group; its blobs, and what the device says of them."""
        first, count = self.codec.groups[group]
        of_keys, of_values = (describe(side[first : first + count]) for side in self.pools)
        with _device.on(stream):
            blobs = aligned(save.blobs_len[group], workspace.device)
            status = torch.zeros(save.statuses, 2, dtype=torch.int64, device=workspace.device)
            given, begun, to, work = ((one.data_ptr(), one.nbytes) for one in (*tokens, blobs, workspace))
            how = (of_keys, of_values, given, begun, to, status.data_ptr(), work, stream.cuda_stream)
            self._engine.queue_save(save, group, *how)
        return blobs, status


def _waves(count: int, lanes: int) -> Iterator[range]:
    for first in range(0, count, lanes):
        yield range(first, min(first + lanes, count))


def _fetch(blobs: torch.Tensor, places: _Places) -> tuple[torch.Tensor, _Places]:
    """Sends for the bytes of pages, side by side, and says where each page's will be. Waits for nothing."""
    wanted = [place for page in places if page is not None for place in page]
    if not wanted:
        return torch.empty(0, dtype=torch.uint8), places
    # In words of four bytes, which blobs are made of.
    starts, ends = (torch.tensor(numbers, dtype=torch.int64).to(blobs.device) // 4 for numbers in zip(*wanted, strict=True))
    lengths = [end - start for start, end in wanted]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    before = torch.from_numpy(offsets[:-1] // 4).to(blobs.device)
    total = int(offsets[-1])
    index = torch.arange(total // 4, device=blobs.device) + torch.repeat_interleave(starts - before, ends - starts, output_size=total // 4)
    packed = blobs.view(torch.int32).index_select(0, index).view(torch.uint8)
    host = _device.staging(total)
    host.copy_(packed, non_blocking=True)
    runs = iter(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    return host, [None if page is None else [next(runs), next(runs)] for page in places]
