"""Decodes stages into buffers ahead of time: with a thread on a CPU, with a stream on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import torch

from .. import torch as tenfold_torch


@dataclass
class Slot:
    """A buffer, and what lies in it."""

    number: int
    buffer: torch.Tensor
    stage: int | None = None
    busy: bool = False
    used: int = 0
    views: list[torch.Tensor] = field(default_factory=list)


class Engine(Protocol):
    """Decodes into slots on one kind of device."""

    def start(self, stage: int, slot: Slot, blobs: Sequence[torch.Tensor], before: Sequence[Slot]) -> None:
        """Starts decoding after the work on the slots ``before``, whose memory it reuses; does not wait."""

    def wait(self, slot: Slot) -> None:
        """Delays the caller's work until the slot is decoded; raises any error."""

    def release(self, slot: Slot) -> None:
        """The caller's work with the slot has been queued."""

    def check(self, slot: Slot) -> None:
        """Waits, and raises if a blob was bad."""


class CpuEngine:
    """Decodes in a second thread, one stage after the other."""

    def __init__(self, device: torch.device, prefetch: bool) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tenfold") if prefetch else None
        self._work: dict[int, Future[None]] = {}

    def start(self, stage: int, slot: Slot, blobs: Sequence[torch.Tensor], before: Sequence[Slot]) -> None:
        # What the caller did with slots is done when it gives them back.
        if self._pool is None:
            tenfold_torch.decode_many(blobs, slot.views)
        else:
            self._work[slot.number] = self._pool.submit(tenfold_torch.decode_many, blobs, slot.views)

    def wait(self, slot: Slot) -> None:
        if self._pool is not None:
            self._work[slot.number].result()

    def release(self, slot: Slot) -> None:
        pass

    def check(self, slot: Slot) -> None:
        self.wait(slot)


class CudaEngine:
    """Decodes on a second stream; events order the two, and the host never waits.

    A decoder for a stage in a slot is prepared once.
    """

    def __init__(self, device: torch.device, prefetch: bool) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device) if prefetch else None  # type: ignore[no-untyped-call]
        self._ready: dict[int, torch.cuda.Event] = {}
        self._free: dict[int, torch.cuda.Event] = {}
        self._decoders: dict[tuple[int, int], tenfold_torch.Decoder] = {}
        self._last: dict[int, tenfold_torch.Decoder] = {}

    def start(self, stage: int, slot: Slot, blobs: Sequence[torch.Tensor], before: Sequence[Slot]) -> None:
        decoder = self._decoders.get((stage, slot.number))
        if decoder is None:
            # It belongs to the current stream, where blobs and buffers were made, and sees to the change to the other.
            decoder = self._decoders[stage, slot.number] = tenfold_torch.Decoder(blobs, slot.views)
        self._last[slot.number] = decoder
        if self._side is None:
            decoder()
            return
        for one in before:
            if one.number in self._free:
                self._side.wait_event(self._free[one.number])
        with torch.cuda.stream(self._side):
            decoder()
            self._ready.setdefault(slot.number, _event()).record(self._side)

    def wait(self, slot: Slot) -> None:
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_event(self._ready[slot.number])

    def release(self, slot: Slot) -> None:
        self._free.setdefault(slot.number, _event()).record(torch.cuda.current_stream(self._device))

    def check(self, slot: Slot) -> None:
        self._last[slot.number].check()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
