"""A few buffers in which the layers of a model take turns: one computes while the next is decoded.

On the CPU a thread decodes ahead. On a CUDA device a stream of its own does, and events keep the two streams apart; nobody waits
on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import torch
from torch import nn

from .. import torch as tenfold_torch
from .._errors import ArgumentError, Error

# Tensors in a buffer start at such offsets; devices like wide loads.
_ALIGN = 256


@dataclass(frozen=True)
class Held:
    """A weight that stays compressed: its blob is where the weight was."""

    module: nn.Module
    attribute: str
    name: str
    shape: tuple[int, ...]
    stored: torch.dtype
    wanted: torch.dtype

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * self.stored.itemsize

    def blob(self) -> torch.Tensor:
        """The blob, wherever the model has been moved to."""
        found = self.module._parameters.get(self.attribute)
        return self.module._buffers[self.attribute] if found is None else found  # type: ignore[return-value]


@dataclass(frozen=True)
class Stage:
    """Weights that are decoded together: those of a layer."""

    name: str
    held: tuple[Held, ...]

    @property
    def nbytes(self) -> int:
        return sum(-(-held.nbytes // _ALIGN) * _ALIGN for held in self.held)

    def views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The weights' places in a buffer."""
        out, at = [], 0
        for held in self.held:
            out.append(buffer[at : at + held.nbytes].view(held.stored).view(held.shape))
            at += -(-held.nbytes // _ALIGN) * _ALIGN
        return out


@dataclass
class Slot:
    """A buffer, and what lies in it."""

    number: int
    buffer: torch.Tensor
    stage: int | None = None
    busy: bool = False
    used: int = 0
    views: list[torch.Tensor] = field(default_factory=list)


def named(stage: Stage, error: Error) -> Error:
    """The error of a stage, with the name of the tensor that it is about."""
    for held in stage.held:
        try:
            tenfold_torch.decode(held.blob().detach().cpu())
        except Error as own:
            return type(own)(f"tensor {held.name!r}: {own}; fetch the model again, or compress it again")
    return type(error)(f"{stage.name}: {error}")


class Engine(Protocol):
    """What decodes into slots on one kind of device."""

    def start(self, stage: int, slot: Slot, blobs: Sequence[torch.Tensor]) -> None:
        """Begins to decode; does not wait."""

    def wait(self, slot: Slot) -> None:
        """Holds the caller's work back until the slot is decoded; raises what went wrong."""

    def release(self, slot: Slot) -> None:
        """The caller's work with the slot has been queued."""

    def check(self, slot: Slot) -> None:
        """Waits, and raises if a blob was bad."""


class CpuEngine:
    """Decodes in a thread beside the one that computes."""

    def __init__(self, device: torch.device, prefetch: bool) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tenfold") if prefetch else None
        self._work: dict[int, Future[None]] = {}

    def start(self, stage: int, slot: Slot, blobs: Sequence[torch.Tensor]) -> None:
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


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]


class CudaEngine:
    """Decodes on a stream beside the current one. What a stage needs in a slot is made ready once."""

    def __init__(self, device: torch.device, prefetch: bool) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device) if prefetch else None  # type: ignore[no-untyped-call]
        self._ready: dict[int, torch.cuda.Event] = {}
        self._free: dict[int, torch.cuda.Event] = {}
        self._decoders: dict[tuple[int, int], tenfold_torch.Decoder] = {}
        self._last: dict[int, tenfold_torch.Decoder] = {}

    def start(self, stage: int, slot: Slot, blobs: Sequence[torch.Tensor]) -> None:
        decoder = self._decoders.get((stage, slot.number))
        if decoder is None:
            decoder = self._decoders[stage, slot.number] = tenfold_torch.Decoder(blobs, slot.views)
        self._last[slot.number] = decoder
        if self._side is None:
            decoder()
            return
        free = self._free.get(slot.number)
        if free is None:
            self._side.wait_stream(torch.cuda.current_stream(self._device))
        else:
            self._side.wait_event(free)
        with torch.cuda.stream(self._side):
            decoder()
            ready = self._ready.setdefault(slot.number, _event())
            ready.record(self._side)

    def wait(self, slot: Slot) -> None:
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_event(self._ready[slot.number])

    def release(self, slot: Slot) -> None:
        free = self._free.setdefault(slot.number, _event())
        free.record(torch.cuda.current_stream(self._device))

    def check(self, slot: Slot) -> None:
        self._last[slot.number].check()


class Ring:
    """The stages of a model on one device, and the buffers that they share."""

    def __init__(self, stages: Sequence[Stage], buffers: int, prefetch: bool) -> None:
        self._stages = list(stages)
        self._buffers = buffers
        self._prefetch = prefetch
        self._slots: list[Slot] = []
        self._engine: Engine | None = None
        self._clock = count(1)
        # Models mostly run layers in order and start again; what came after what the last time is the better guess.
        self._after: dict[int, int] = {}
        self._latest: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that all buffers take, once they are there."""
        return self._buffers * max(stage.nbytes for stage in self._stages)

    def enter(self, index: int) -> None:
        """Puts the decoded weights of a stage in place of its blobs, and sees to the next stage."""
        stage = self._stages[index]
        self._move_to(stage.held[0].blob().device)
        slot = self._find(index) or self._start(index)
        if slot.busy:
            raise ArgumentError(f"{stage.name} is running already; a model with compressed weights runs in one thread at a time")
        assert self._engine is not None  # _move_to made it
        try:
            self._engine.wait(slot)
        except BaseException:
            slot.stage = None
            raise
        slot.busy, slot.used = True, next(self._clock)
        for held, view in zip(stage.held, slot.views, strict=True):
            # The instance's own dictionary comes first, so the blob stays a parameter: for state_dict, .to and the like.
            held.module.__dict__[held.attribute] = view.to(held.wanted)
        if self._latest is not None:
            self._after[self._latest] = index
        self._latest = index
        upcoming = self._after.get(index, (index + 1) % len(self._stages))
        room = any(not slot.busy for slot in self._slots)
        if self._prefetch and room and self._find(upcoming) is None:
            self._start(upcoming)

    def leave(self, index: int) -> None:
        """Takes the decoded weights away again."""
        for held in self._stages[index].held:
            held.module.__dict__.pop(held.attribute, None)
        slot = self._find(index)
        if slot is not None and slot.busy and self._engine is not None:
            self._engine.release(slot)
            slot.busy = False

    def check(self) -> None:
        """Decodes every stage once; raises if a blob is bad."""
        for index, stage in enumerate(self._stages):
            self._move_to(stage.held[0].blob().device)
            slot = self._start(index)
            assert self._engine is not None  # _move_to made it
            try:
                self._engine.check(slot)
            except Error as error:
                raise named(stage, error) from error
            finally:
                slot.stage = None

    def _find(self, index: int) -> Slot | None:
        return next((slot for slot in self._slots if slot.stage == index), None)

    def _start(self, index: int) -> Slot:
        idle = [slot for slot in self._slots if not slot.busy]
        if not idle:
            raise ArgumentError(f"{self._stages[index].name} runs inside other layers; pass more buffers to TenfoldConfig")
        slot = min(idle, key=lambda slot: slot.used)
        assert self._engine is not None  # slots and engine are made together
        stage = self._stages[index]
        slot.stage, slot.used, slot.views = None, next(self._clock), stage.views(slot.buffer)
        with torch.no_grad():
            self._engine.start(index, slot, [held.blob().detach() for held in stage.held])
        slot.stage = index
        return slot

    def _move_to(self, device: torch.device) -> None:
        """Makes buffers where the blobs are now."""
        if self._slots and self._slots[0].buffer.device == device:
            return
        if any(slot.busy for slot in self._slots):
            raise ArgumentError("the model was moved while a layer was running; move it between calls")
        make: Any = CudaEngine if device.type == "cuda" else CpuEngine
        size = max(stage.nbytes for stage in self._stages)
        self._slots = []
        self._engine = make(device, self._prefetch)
        self._slots = [
            Slot(number, torch.empty(size, dtype=torch.uint8, device=device)) for number in range(self._buffers)
        ]
