"""Decodes stages into buffers ahead of time: with a thread on a CPU, with streams on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

from ... import torch as tenfold_torch
from .. import _device
from ._held import Stage, aligned, version_of
from ._watch import Watch

# Share of the multiprocessors that decoding ahead takes; the layer that computes meanwhile has the others.
SHARE = 0.79


# Of tiles: in every pass, in none, or once, in the first; what lies in memory most likely stays as it was found then.
Checksums = bool | Literal["once"]


@dataclass
class Slot:
    """A buffer, and what lies in it."""

    number: int
    buffer: torch.Tensor
    # Where blobs arrive that lie in host memory.
    landing: torch.Tensor | None = None
    stage: int | None = None
    busy: bool = False
    used: int = 0
    views: list[torch.Tensor] = field(default_factory=list)


class Engine(Protocol):
    """Decodes into slots on one kind of device."""

    def start(self, index: int, slot: Slot, stage: Stage, before: Sequence[Slot]) -> None:
        """Starts decoding after the work on the slots ``before``, whose memory it reuses; does not wait."""

    def wait(self, slot: Slot) -> None:
        """Delays the caller's work until the slot is decoded; raises any error."""

    def release(self, slot: Slot) -> None:
        """The caller's work with the slot has been queued."""

    def check(self, slot: Slot) -> None:
        """Waits, and raises if a blob was bad."""


class CpuEngine:
    """Decodes in a second thread, one stage after the other."""

    def __init__(self, device: torch.device, prefetch: bool, checksums: Checksums) -> None:
        # A CPU always checks.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tenfold") if prefetch else None
        self._work: dict[int, Future[None]] = {}

    def start(self, index: int, slot: Slot, stage: Stage, before: Sequence[Slot]) -> None:
        # What the caller did with slots is done when it gives them back.
        if self._pool is None:
            tenfold_torch.decode_many(stage.blobs(), slot.views)
        else:
            self._work[slot.number] = self._pool.submit(tenfold_torch.decode_many, stage.blobs(), slot.views)

    def wait(self, slot: Slot) -> None:
        if self._pool is not None:
            self._work[slot.number].result()

    def release(self, slot: Slot) -> None:
        pass

    def check(self, slot: Slot) -> None:
        self.wait(slot)


class CudaEngine:
    """Decodes on a second stream and fetches blobs from host memory on a third; events order them, and the host never waits.

    A decoder for a stage in a slot is prepared once. All of this can be part of a CUDA graph: between ``fork`` and ``join``
    the streams belong to the graph and know only events that were recorded there.
    """

    def __init__(self, device: torch.device, prefetch: bool, checksums: Checksums) -> None:
        self._device, self._checksums = device, checksums
        self._side = torch.cuda.Stream(device) if prefetch else None  # type: ignore[no-untyped-call]
        self._multiprocessors = max(1, round(SHARE * _device.multiprocessors(device))) if prefetch else None
        self._link: torch.cuda.Stream | None = None
        self._ready: dict[int, torch.cuda.Event] = {}
        self._free: dict[int, torch.cuda.Event] = {}
        self._outside: tuple[dict[int, torch.cuda.Event], dict[int, torch.cuda.Event]] | None = None
        self._decoders: dict[tuple[int, int], tenfold_torch.Decoder] = {}
        # How often its blobs had been written to.
        self._versions: dict[tuple[int, int], list[int]] = {}
        self._last: dict[int, tenfold_torch.Decoder] = {}
        self.watch = Watch(device)

    @property
    def decoders(self) -> dict[tuple[int, int], tenfold_torch.Decoder]:
        """By stage and slot."""
        return self._decoders

    def views(self, index: int, slot: Slot) -> list[torch.Tensor]:
        """The weights of a stage that has been decoded in a slot before."""
        return self._decoders[index, slot.number].outs

    def start(self, index: int, slot: Slot, stage: Stage, before: Sequence[Slot]) -> None:
        main = torch.cuda.current_stream(self._device)
        side = self._side or main
        blobs = self._fetch(slot, stage, before, main) if stage.from_host else stage.blobs()
        versions = [version_of(blob) for blob in stage.blobs()]
        decoder = self._decoders.get((index, slot.number))
        if decoder is None or self._versions.get((index, slot.number)) != versions:
            # It belongs to the current stream, where blobs and buffers were made, and sees to the change to the other. It
            # reads the blobs' headers, so fetched ones must have arrived.
            if stage.from_host and self._link is not None:
                main.wait_stream(self._link)
            self._versions[index, slot.number] = versions
            decoder = self._decoders[index, slot.number] = tenfold_torch.Decoder(
                blobs,
                slot.views,
                checksums=self._checksums,
                multiprocessors=self._multiprocessors,
                transposed_views=True,
            )
        # Weights of transposed blobs lie there column by column.
        slot.views = decoder.outs
        self._last[slot.number] = decoder
        for one in before:
            if one.number in self._free:
                side.wait_event(self._free[one.number])
        if stage.from_host and self._link is not None:
            side.wait_stream(self._link)
        with torch.cuda.stream(side):
            decoder()
            self._ready.setdefault(slot.number, _event()).record(side)

    def _fetch(self, slot: Slot, stage: Stage, before: Sequence[Slot], main: torch.cuda.Stream) -> list[torch.Tensor]:
        """Copies blobs to the device, as soon as those that lay there before have been decoded."""
        if self._link is None:
            self._link = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._link.wait_stream(main)
        assert slot.landing is not None
        for one in before:
            if one.number in self._ready:
                self._link.wait_event(self._ready[one.number])
        blobs, at = [], 0
        with torch.cuda.stream(self._link):
            for blob in stage.blobs():
                blobs.append(slot.landing[at : at + blob.nbytes])
                copy(blobs[-1], blob)
                at += aligned(blob.nbytes)
        return blobs

    def wait(self, slot: Slot) -> None:
        # In a graph there is no event for what was decoded before it began.
        if slot.number in self._ready:
            torch.cuda.current_stream(self._device).wait_event(self._ready[slot.number])

    def release(self, slot: Slot) -> None:
        self._free.setdefault(slot.number, _event()).record(torch.cuda.current_stream(self._device))

    def check(self, slot: Slot) -> None:
        try:
            self._last[slot.number].check()
        finally:
            # What has been said is not said again.
            self._last[slot.number].verdicts.zero_()

    def fork(self) -> None:
        """Makes the streams part of the graph that is being captured."""
        self._outside = self._ready, self._free
        self._ready, self._free = {}, {}
        for stream in self._others():
            stream.wait_stream(torch.cuda.current_stream(self._device))

    def join(self) -> None:
        """Ends the streams' part in the graph."""
        self.gather()
        self.abandon()

    def abandon(self) -> None:
        """Forgets the graph's events."""
        if self._outside is not None:
            self._ready, self._free = self._outside
            self._outside = None

    def gather(self) -> None:
        """Delays the caller's work until all others' is done."""
        for stream in self._others():
            torch.cuda.current_stream(self._device).wait_stream(stream)

    def settle(self, slots: Sequence[Slot]) -> None:
        """After a graph has been launched: whoever uses a slot next, uses it after the graph."""
        main = torch.cuda.current_stream(self._device)
        for slot in slots:
            for events in (self._ready, self._free):
                events.setdefault(slot.number, _event()).record(main)

    def _others(self) -> list[torch.cuda.Stream]:
        return [stream for stream in (self._side, self._link) if stream is not None]


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies without waiting, on the current stream."""
    target.copy_(source, non_blocking=True)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
