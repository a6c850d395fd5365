"""Compressed pages of a KV cache on their way to a device: in its memory, in pinned memory of the host, or just passing through."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from .. import _native
from .._arrays import as_blob
from .._errors import ArgumentError
from . import _device
from ._pools import aligned, check_count, check_pools, check_range, describe, slots_of
from ._tensors import mark_written
from ._verdicts import CODE

if TYPE_CHECKING:
    from ..kv import PageCodec

# Groups of layers: the first, and the one behind the last.
_Wave = tuple[int, int]


class Loading:
    """Pages on their way into blocks. Work that is queued on the same stream afterwards finds them there; whether all is well only the
    device knows until :meth:`check` or :meth:`errors` asks, which waits for it."""

    def __init__(
        self,
        pages: int,
        said: Sequence[tuple[_native.CudaLoad, _Wave, torch.Tensor]] = (),
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self._pages, self._said, self._stream = pages, list(said), stream
        self._found: list[Exception | None] | None = None
        # What the device said, on its way to the host.
        self._answer: tuple[list[torch.Tensor], torch.cuda.Event] | None = None

    def ask(self) -> None:
        """Sends for what the device says, without waiting; :meth:`arrived` tells when it is there."""
        if self._found is None and self._stream is not None and self._answer is None:
            with _device.on(self._stream):
                there = [_device.pinned(*status.shape).copy_(status, non_blocking=True) for _, _, status in self._said]
                self._answer = there, self._stream.record_event()

    def arrived(self) -> bool:
        """Whether :meth:`errors` would not wait."""
        return self._found is not None or self._stream is None or (self._answer is not None and self._answer[1].query())

    def errors(self) -> list[Exception | None]:
        """Waits, and returns what is wrong with each page: None where it is whole."""
        if self._found is None:
            found: list[Exception | None] = [None] * self._pages
            for (load, wave, _), status in zip(self._said, self._statuses(), strict=True):
                if not (status[:, 0] & CODE).any():
                    continue
                for page, error in enumerate(load.check(wave, status.numpy().tobytes())):
                    found[page] = found[page] or error
            self._found, self._said, self._answer = found, [], None
        return self._found

    def _statuses(self) -> list[torch.Tensor]:
        if self._answer is not None:
            self._answer[1].synchronize()
            return self._answer[0]
        # On the stream that the device works on, whichever is current by now.
        with nullcontext() if self._stream is None else _device.on(self._stream):
            return [status.cpu() for _, _, status in self._said]

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

    def __init__(self, codec: PageCodec, pages: Sequence[Any], slots: Any, device: torch.device, *, pinned: bool = False) -> None:
        self._plan(codec, pages, slots, device)
        with _device.preserve_current(device):
            self._stream = _device.stream(device)
            host = self._gather((0, len(codec.groups)))
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
        # All groups on the device; else all of them pinned on the host; else blobs that are gathered when they are wanted.
        self._memory: torch.Tensor | None = None
        self._host: torch.Tensor | None = None
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
    def pinned(self) -> bool:
        """Whether the pages are in pinned memory of the host."""
        return self._host is not None

    def fetch(self) -> None:
        """Copies pinned pages to the device on a stream beside the current one, for the next :meth:`decode`. Waits for nothing."""
        if self._memory is None:
            with _device.preserve_current(self._device):
                for wave in self._load.waves:
                    if wave not in self._ahead:
                        self._ahead[wave] = self._bring(wave)

    def decode(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> Loading:
        """Queues the decoding into pools of the same device, as :meth:`tenfold.kv.PageCodec.decode_blocks` has them, on torch's current
        stream. Waits for nothing."""
        check_pools(self._codec, keys, values)
        check_range(self._numbers, keys[0])
        device = self._device
        if keys[0].device != device:
            raise ArgumentError(f"the pages are for {device}, but the pools on {keys[0].device}")
        with _device.preserve_current(device):
            stream = _device.stream(device)
            # Freed when this returns; the allocator reuses it only for later work on this stream.
            workspace = aligned(self._load.workspace_len, device)
            said = [(self._load, wave, self._queue(wave, keys, values, workspace, stream)) for wave in self._load.waves]
        for pool in (*keys, *values):
            mark_written(pool)
        return Loading(self._pages, said, stream)

    def _queue(
        self,
        wave: _Wave,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        workspace: torch.Tensor,
        stream: torch.cuda.Stream,
    ) -> torch.Tensor:
        """Queues the decoding of some groups; what the device says of their blobs."""
        memory = self._there(wave, stream)
        pools = []
        for first, count in self._codec.groups[slice(*wave)]:
            pools.append((describe(keys[first : first + count]), describe(values[first : first + count])))
        status = torch.zeros(self._load.statuses(wave), 2, dtype=torch.int64, device=self._device)
        staged, work = ((one.data_ptr(), one.nbytes) for one in (memory, workspace))
        self._engine.queue(self._load, wave, staged, pools, status.data_ptr(), work, stream.cuda_stream)
        return status

    def _there(self, wave: _Wave, stream: torch.cuda.Stream) -> torch.Tensor:
        """Some groups in the device's memory, when the stream gets there."""
        if self._memory is not None:
            if stream != self._stream:
                # The pages may still be on their way.
                stream.wait_stream(self._stream)
                _device.share(self._memory, stream)
            return self._memory[slice(*self._load.staged(wave))]
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


def engine_of(codec: PageCodec, device: torch.device) -> _native.CudaPages:
    """What a codec has on a device."""
    if device not in codec._engines:
        with _device.preserve_current(device):
            codec._engines[device] = _native.CudaPages(codec._native, _device.native(device))
    return codec._engines[device]
