"""Compressed pages of a KV cache on their way to a device: in its memory, in pinned memory of the host, or just passing through."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import _native
from .._arrays import as_blob
from .._errors import ArgumentError, DtypeError
from . import _device
from ._pools import aligned, check_count, check_pools, check_range, describe, slots_of
from ._tensors import mark_written, name_of
from ._verdicts import CODE

if TYPE_CHECKING:
    from ..kv import PageCodec

# Groups of layers: the first, and the one behind the last.
_Wave = tuple[int, int]
# What the native module takes, and the memory that it is in.
_Part = tuple[tuple[Any, ...], torch.Tensor]
# Pages, some of their groups, pools of keys and of values, and the number of the first page.
_Call = tuple["Staged", _Wave, Sequence[torch.Tensor], Sequence[torch.Tensor], int]


@dataclass(frozen=True)
class _Said:
    """What a device says of blobs: groups of some loads, each with the number of its first page in the call."""

    parts: Sequence[tuple[_native.CudaLoad, _Wave, int]]
    status: torch.Tensor

    def read(self, status: torch.Tensor, found: list[Exception | None]) -> None:
        """Adds what is wrong with pages."""
        at = 0
        for load, wave, first in self.parts:
            count = load.statuses(wave)
            for page, error in enumerate(load.check(wave, status[at : at + count].numpy().tobytes()), first):
                found[page] = found[page] or error
            at += count


@dataclass(frozen=True)
class _Arrival:
    """When some layers are in their blocks: the number of the layer behind them, and an event."""

    end: int
    there: torch.cuda.Event


class Loading:
    """Pages on their way into blocks. Work that is queued on the same stream afterwards finds them there; other streams wait for a layer with
    :meth:`wait_for`. Whether all is well only the device knows until :meth:`check` or :meth:`errors` asks, which waits for it."""

    def __init__(
        self,
        pages: int,
        said: Sequence[_Said] = (),
        stream: torch.cuda.Stream | None = None,
        arrivals: Sequence[_Arrival] = (),
    ) -> None:
        self._pages, self._said, self._stream, self._arrivals = pages, list(said), stream, arrivals
        self._found: list[Exception | None] | None = None
        # What the device said, on its way to the host.
        self._answer: tuple[list[torch.Tensor], torch.cuda.Event] | None = None

    def wait_for(self, layer: int) -> None:
        """Makes torch's current stream wait until a layer is in its blocks. The host does not wait.

        Layers before it are there too. On the CPU all of them are as soon as there is a Loading.
        """
        for arrival in self._arrivals if self._found is None else ():
            if layer < arrival.end:
                _device.stream(self._said[0].status.device).wait_event(arrival.there)
                return

    def ask(self) -> None:
        """Sends for what the device says, without waiting; :meth:`arrived` tells when it is there."""
        if self._found is None and self._stream is not None and self._answer is None:
            with _device.on(self._stream):
                there = [_device.pinned(*said.status.shape).copy_(said.status, non_blocking=True) for said in self._said]
                self._answer = there, self._stream.record_event()

    def arrived(self) -> bool:
        """Whether :meth:`errors` would not wait."""
        if self._found is not None or self._stream is None:
            return True
        return self._answer is not None and bool(self._answer[1].query())  # type: ignore[no-untyped-call]

    def errors(self) -> list[Exception | None]:
        """Waits, and returns what is wrong with each page: None where it is whole."""
        if self._found is None:
            found: list[Exception | None] = [None] * self._pages
            for said, status in zip(self._said, self._statuses(), strict=True):
                if (status[:, 0] & CODE).any():
                    said.read(status, found)
            self._found, self._said, self._answer = found, [], None
        return self._found

    def _statuses(self) -> list[torch.Tensor]:
        if self._answer is not None:
            self._answer[1].synchronize()
            return self._answer[0]
        # On the stream that the device works on, whichever is current by now.
        with nullcontext() if self._stream is None else _device.on(self._stream):
            return [said.status.cpu() for said in self._said]

    def check(self) -> None:
        """Waits, and raises what is wrong with the first page that is not whole. Do not attend to its tokens."""
        for page, error in enumerate(self.errors()):
            if error is not None:
                if hasattr(error, "add_note"):  # Python 3.11
                    error.add_note(f"page {page} of the call")
                raise error


class Staged:
    """Compressed pages in a device's memory, or in pinned memory of the host, with the slots of their tokens: decoded as often as wanted.

    >>> staged = codec.stage(pages, slots, "cuda")                       # doctest: +SKIP
    >>> staged.decode(keys, values).check()                              # doctest: +SKIP
    """

    # All groups on the device; else all of them pinned on the host; else blobs that are gathered when they are wanted.
    _memory: torch.Tensor | None = None
    _host: torch.Tensor | None = None
    _blobs: list[Any]

    def __init__(self, codec: PageCodec, pages: Sequence[Any], slots: Any, device: torch.device, *, pinned: bool = False) -> None:
        self._plan(codec, pages, slots, device)
        with _device.preserve_current(device):
            self._stream = _device.stream(device)
            host = self._gather(self.whole)
            if pinned:
                self._host = host
            else:
                self._memory = aligned(len(host), device)
                self._memory.copy_(host, non_blocking=True)
        self._blobs = []

    def _plan(self, codec: PageCodec, pages: Sequence[Any], slots: Any, device: torch.device) -> None:
        self._codec, self._device = codec, device
        self._numbers = slots_of(slots)
        self._blobs = [as_blob(page) for page in pages]
        self._pages = len(self._blobs)
        with _device.preserve_current(device):
            self._engine = engine_of(codec, device)
            self._load = self._engine.plan(self._blobs)
        check_count(self._numbers, self._load.tokens)
        self._most = int(self._numbers.max(initial=-1))
        # Waves that were fetched ahead of time, and when they are there.
        self._ahead: dict[_Wave, tuple[torch.Tensor, torch.cuda.Event]] = {}

    @property
    def device(self) -> torch.device:
        """The device that decodes the pages."""
        return self._device

    @property
    def nbytes(self) -> int:
        """Bytes of blobs and slots, on the device or pinned."""
        return self._load.staged_len

    @property
    def whole(self) -> _Wave:
        """All groups."""
        return 0, len(self._codec.groups)

    def fetch(self) -> None:
        """Copies pinned pages to the device on a stream beside the current one, for the next :meth:`decode`. Waits for nothing."""
        if self._memory is None:
            with _device.preserve_current(self._device):
                # As they will be asked for.
                for wave in [self.whole] if len(self._codec.groups) == 1 else self._load.waves:
                    if wave not in self._ahead:
                        self._ahead[wave] = self._bring(wave)

    def decode(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> Loading:
        """Queues the decoding into pools of the same device, as :meth:`tenfold.kv.PageCodec.decode_blocks` has them, on torch's current
        stream. Waits for nothing, and can be captured in a CUDA graph: pages and pools must then live as long as the graph, and what
        :meth:`Loading.errors` tells is of the last replay."""
        self.check(keys, values)
        return _decode([self], self._load.waves, self._load.workspace_len, keys, values)

    def check(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        """Raises an error if pages cannot go to these pools."""
        check_pools(self._codec, keys, values)
        check_range(self._most, keys[0])
        if self._load.dtype is not None and name_of(keys[0].dtype) != self._load.dtype:
            raise DtypeError(f"the pages have torch.{self._load.dtype}, but the pools {keys[0].dtype}; pass pools of the pages' dtype")
        if keys[0].device != self._device:
            raise ArgumentError(f"the pages are for {self._device}, but the pools on {keys[0].device}")

    def part(self, wave: _Wave, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], stream: torch.cuda.Stream) -> _Part:
        """Some groups as the native module takes them, in the device's memory when the stream gets there."""
        memory = self._there(wave, stream)
        pools = [
            (describe(keys[first : first + count]), describe(values[first : first + count]))
            for first, count in self._codec.groups[slice(*wave)]
        ]
        return (self._engine, self._load, wave, (memory.data_ptr(), memory.nbytes), pools), memory

    def _there(self, wave: _Wave, stream: torch.cuda.Stream) -> torch.Tensor:
        """Some groups in the device's memory, when the stream gets there."""
        if self._memory is not None:
            if stream != self._stream:
                # The pages may still be on their way; but a graph's capture waits for the device first, and for nothing after.
                if not _device.is_capturing():
                    stream.wait_stream(self._stream)
                _device.share(self._memory, stream)
            return self._memory[slice(*self._load.staged(wave))]
        if _device.is_capturing():
            # Part of the graph: each replay copies the pages again.
            if self._host is None:
                raise ArgumentError("a CUDA graph decodes pages that were staged before it is captured: see PageCodec.stage")
            host = self._host[slice(*self._load.staged(wave))]
            return aligned(len(host), self._device).copy_(host, non_blocking=True)
        memory, there = self._ahead.pop(wave) if wave in self._ahead else self._bring(wave)
        stream.wait_event(there)
        _device.share(memory, stream)
        return memory

    def _bring(self, wave: _Wave) -> tuple[torch.Tensor, torch.cuda.Event]:
        """Copies some groups to the device, beside what it does; they are there when the event is."""
        host = self._gather(wave) if self._host is None else self._host[slice(*self._load.staged(wave))]
        (beside,) = _device.sides(self._device, 1)
        with _device.on(beside):
            memory = aligned(len(host), self._device)
            memory.copy_(host, non_blocking=True)
        return memory, beside.record_event()

    def _gather(self, wave: _Wave) -> torch.Tensor:
        """Blobs and slots of some groups in pinned memory."""
        start, end = self._load.staged(wave)
        host = _device.staging(end - start)
        self._load.stage(wave, self._blobs, self._numbers.tolist(), host)
        return host


class Passing(Staged):
    """Pages that are decoded once: while a device decodes some groups, the host gathers the next."""

    def __init__(self, codec: PageCodec, pages: Sequence[Any], slots: Any, device: torch.device) -> None:
        self._plan(codec, pages, slots, device)


class Together:
    """Staged pages of several codecs, decoded in one go: one alone may leave most of a device idle, and each call takes time."""

    def __init__(self, staged: Sequence[Staged]) -> None:
        self._staged = list(staged)
        self._workspace = _native.cuda_pages_workspace([(one._engine, one._load, one.whole) for one in staged])

    def decode(self, pools: Sequence[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]]) -> Loading:
        """As :meth:`Staged.decode`, with pools of keys and values for each; pages are counted through."""
        calls: list[_Call] = []
        pages = 0
        for one, (keys, values) in zip(self._staged, pools, strict=True):
            one.check(keys, values)
            calls.append((one, one.whole, keys, values, pages))
            pages += one._pages
        device = self._staged[0].device
        with _device.preserve_current(device):
            stream = _device.stream(device)
            return Loading(pages, [_queue(calls, aligned(self._workspace, device), stream)], stream)


def decode_in_waves(parts: Sequence[Staged], keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], waves: int) -> Loading:
    """Decodes pages of one codec into the same pools as :meth:`Staged.decode` does: all pages of some layers, then all of the next.

    Args:
        parts: pages, counted through. What one part needs at a time is the memory that is taken.
        keys: the pool of each layer.
        values: likewise.
        waves: into how many runs the groups of layers are cut, if there are so many; other streams wait for one of them.
    """
    for one in parts:
        one.check(keys, values)
    groups = parts[0].whole[1]
    count = max(min(waves, groups), 1)
    cuts = [(groups * wave // count, groups * (wave + 1) // count) for wave in range(count)]
    most = max(_native.cuda_pages_workspace([(one._engine, one._load, wave)]) for one in parts for wave in cuts)
    return _decode(parts, cuts, most, keys, values)


def _decode(
    parts: Sequence[Staged], waves: Sequence[_Wave], room: int, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> Loading:
    """Queues waves one after the other, each for all parts, with an event behind each. Waits for nothing."""
    device, groups = parts[0].device, parts[0]._codec.groups
    said, arrivals = [], []
    with _device.preserve_current(device):
        stream = _device.stream(device)
        # Freed when this returns; the allocator reuses it only for later work on this stream.
        workspace = aligned(room, device)
        for wave in waves:
            pages = 0
            for one in parts:
                said.append(_queue([(one, wave, keys, values, pages)], workspace, stream))
                pages += one._pages
            first, count = groups[wave[1] - 1]
            arrivals.append(_Arrival(first + count, stream.record_event()))
    return Loading(sum(one._pages for one in parts), said, stream, arrivals)


def _queue(calls: Sequence[_Call], workspace: torch.Tensor, stream: torch.cuda.Stream) -> _Said:
    """Queues the decoding of groups; where the device says what came of it."""
    status = torch.zeros(sum(one._load.statuses(wave) for one, wave, *_ in calls), 2, dtype=torch.int64, device=workspace.device)
    # Memory is held until all is queued; later work on the stream may reuse it.
    made = [one.part(wave, keys, values, stream) for one, wave, keys, values, _ in calls]
    work = (workspace.data_ptr(), workspace.nbytes)
    _native.cuda_pages_queue([part for part, _ in made], status.data_ptr(), work, stream.cuda_stream)
    for _, _, keys, values, _ in calls:
        for pool in (*keys, *values):
            mark_written(pool)
    return _Said([(one._load, wave, first) for one, wave, _, _, first in calls], status)


def engine_of(codec: PageCodec, device: torch.device) -> _native.CudaPages:
    """What a codec has on a device."""
    if device not in codec._engines:
        with _device.preserve_current(device):
            codec._engines[device] = _native.CudaPages(codec._native, _device.native(device))
    return codec._engines[device]
