"""A few buffers that the stages of a model share in turn: one computes while the next is decoded.

The memory is a row of buffers, each large enough for any layer. A table of embeddings takes the whole row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch

from ..._errors import ArgumentError, Error
from .. import _device
from .._verdicts import watch
from ._engines import Checksums, CpuEngine, CudaEngine, Engine, Slot
from ._held import Stage


class Ring:
    """The stages of a model on one device, and the memory that they share.

    Args:
        stages: in the order in which the model has them.
        buffers: how many layers the memory holds.
        prefetch: whether to decode ahead.
        checksums: whether a device checks those of tiles: in every pass, in none, or once.
    """

    def __init__(self, stages: Sequence[Stage], buffers: int, prefetch: bool, checksums: Checksums = "once") -> None:
        self._stages = list(stages)
        self._layer_bytes = max((stage.nbytes for stage in stages if not stage.is_table), default=0)
        self._buffers = buffers if self._layer_bytes else 0
        self._prefetch, self._checksums = prefetch, checksums
        self._device: torch.device | None = None
        self._slots: list[Slot] = []
        self._whole: Slot | None = None
        self._engine: Engine | None = None
        self._clock = count(1)
        # Models mostly run layers in order and start again; what came after what the last time is the better guess.
        self._after: dict[int, int] = {}
        self._latest: int | None = None
        # Since the last time that everything was forgotten.
        self._first: int | None = None
        # A stage after which a graph ends without having carried the first one over.
        self._final: int | None = None
        watch(self)

    @property
    def device(self) -> torch.device | None:
        """Where it decodes, if that is a device that does not say at once what was wrong."""
        return self._device if isinstance(self._engine, CudaEngine) else None

    @property
    def nbytes(self) -> int:
        """Bytes of the memory for decoded weights, once it is allocated."""
        table = max((stage.nbytes for stage in self._stages if stage.is_table), default=0)
        return max(self._buffers * self._layer_bytes, table)

    @property
    def landing_bytes(self) -> int:
        """Bytes of the memory for blobs that come from the host, once it is allocated."""
        return self._buffers * self._largest_fetch()

    def _largest_fetch(self) -> int:
        return max((stage.blob_bytes for stage in self._stages if stage.from_host), default=0)

    def enter(self, index: int, device: torch.device | None = None) -> None:
        """Puts the decoded weights of a stage in place of its blobs, and sees to the next stage.

        Args:
            index: of the stage.
            device: where the weights are needed, if not where the blobs are.
        """
        stage = self._stages[index]
        engine = self._engine_on(device or stage.held[0].blob().device)
        slot = self._find(index) or self._start(engine, index)
        if slot is None or slot.busy:
            raise ArgumentError(
                f"{stage.name} runs while it or another layer is running; a model with compressed weights runs in one thread "
                "at a time"
            )
        try:
            engine.wait(slot)
        except BaseException:
            slot.stage = None
            raise
        slot.busy, slot.used = True, next(self._clock)
        for held, view in zip(stage.held, slot.views, strict=True):
            # The instance's own dictionary comes first, so the blob stays a parameter: for state_dict, .to and the like.
            held.module.__dict__[held.attribute] = view.to(held.wanted)
        if self._latest is not None:
            self._after[self._latest] = index
        if self._first is None:
            self._first = index
        self._latest = index
        self._look_ahead(engine)

    def leave(self, index: int) -> None:
        """Takes the decoded weights away again."""
        for held in self._stages[index].held:
            held.module.__dict__.pop(held.attribute, None)
        slot, engine = self._find(index), self._engine
        if slot is not None and slot.busy and engine is not None:
            engine.release(slot)
            slot.busy = False
            # Where a table is involved there was no room before.
            self._look_ahead(engine)

    def check(self, device: torch.device | None = None) -> None:
        """Decodes every stage once; raises if a blob is bad."""
        for index, stage in enumerate(self._stages):
            engine = self._engine_on(device or stage.held[0].blob().device)
            slot = self._start(engine, index)
            assert slot is not None  # nothing runs while the model is loaded
            try:
                engine.check(slot)
            except Error as error:
                raise stage.name_error(error) from error
            finally:
                slot.stage = None

    def collect(self) -> None:
        """Queues a look at what the device says of a pass."""
        if isinstance(self._engine, CudaEngine):
            self._engine.watch.collect(decoder.verdicts for decoder in self._engine.decoders.values())

    def report(self, wait: bool = True) -> None:
        """Raises the error of the first bad blob since the last report.

        Args:
            wait: whether to wait for the device. If not, what it has not said yet is left to a later report.
        """
        engine = self._engine
        if not isinstance(engine, CudaEngine) or not (wait or engine.watch.has_fault()):
            return
        assert self._device is not None
        _device.synchronize(self._device)
        try:
            for (index, _), decoder in engine.decoders.items():
                try:
                    decoder.check()
                except Error as error:
                    raise self._stages[index].name_error(error) from error
        finally:
            # A fault that has gone is one too; what has been said is not said again.
            said = _error_of(engine)
            for decoder in engine.decoders.values():
                decoder.verdicts.zero_()
        if said is not None:
            raise said

    def forget(self) -> None:
        """Lets the next pass begin with empty buffers, so that it is like any other that does."""
        for slot in self._all():
            if slot.busy:
                raise ArgumentError("a layer of the model is running; move or change the model between calls")
            slot.stage, slot.used = None, 0
        self._latest = self._first = None

    def reset(self) -> None:
        """Gives all memory back."""
        self.forget()
        self._slots, self._whole, self._engine = [], None, None

    def carry(self) -> tuple[int, int] | None:
        """Begins a graph: decodes the stage that the last pass began with. Returns it and its slot."""
        first, engine = self._first, self._engine
        self.forget()
        if first is None or engine is None:
            return None
        slot = self._start(engine, first)
        assert slot is not None  # nothing is busy
        engine.wait(slot)
        return first, slot.number

    @contextmanager
    def recorded(self, final: int | None) -> Iterator[None]:
        """In here all work becomes part of a CUDA graph.

        Args:
            final: the stage after which nothing more is decoded, if the graph does not carry over.
        """
        engine = self._engine
        assert isinstance(engine, CudaEngine)
        self._final = final
        engine.fork()
        try:
            yield
            engine.join()
        except BaseException:
            for slot in self._all():
                slot.busy = False
            raise
        finally:
            engine.abandon()
            self._final = None

    def carries(self, carried: tuple[int, int]) -> bool:
        """Whether a stage lies in a slot, where a graph expects or leaves it."""
        slot = self._find(carried[0])
        return slot is not None and slot.number == carried[1]

    def before_graph(self, carried: tuple[int, int] | None) -> None:
        """Sees to it that a graph finds what it expects."""
        engine = self._engine
        assert isinstance(engine, CudaEngine)
        if carried is not None and not self.carries(carried):
            self.forget()
            slot = self._start(engine, carried[0])
            assert slot is not None and slot.number == carried[1]  # as when it was captured
        engine.gather()

    def after_graph(self, carried: tuple[int, int] | None) -> None:
        """Notes what a graph leaves behind."""
        engine = self._engine
        assert isinstance(engine, CudaEngine)
        self.forget()
        for slot in self._all():
            if carried is not None and slot.number == carried[1]:
                slot.stage, slot.used = carried[0], next(self._clock)
                slot.views = engine.views(carried[0], slot)
        engine.settle(self._all())

    @property
    def latest(self) -> int | None:
        """The stage that ran last."""
        return self._latest

    def _look_ahead(self, engine: Engine) -> None:
        if self._prefetch and self._latest is not None and self._latest != self._final:
            upcoming = self._after.get(self._latest, (self._latest + 1) % len(self._stages))
            if self._find(upcoming) is None:
                self._start(engine, upcoming)

    def _all(self) -> list[Slot]:
        return [*self._slots, *([self._whole] if self._whole is not None else [])]

    def _find(self, index: int) -> Slot | None:
        return next((slot for slot in self._all() if slot.stage == index), None)

    def _start(self, engine: Engine, index: int) -> Slot | None:
        """Begins to decode a stage; None if all memory is in use."""
        stage = self._stages[index]
        if stage.is_table:
            slot, overlapping = self._whole, self._all()
        else:
            idle = [slot for slot in self._slots if not slot.busy]
            slot = min(idle, key=lambda slot: slot.used, default=None)
            overlapping = [one for one in (slot, self._whole) if one is not None]
        if slot is None or any(one.busy for one in overlapping):
            return None
        for one in overlapping:
            # Forgotten, so that after a table every pass goes through the buffers in the same order: what an engine makes
            # ready, it makes ready for a stage in a buffer.
            one.stage, one.used = None, 0
        slot.used = next(self._clock)
        # Tensors that are made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            slot.views = stage.views(slot.buffer)
            engine.start(index, slot, stage, overlapping)
        slot.stage = index
        return slot

    def _engine_on(self, device: torch.device) -> Engine:
        """The engine, with memory where the weights are needed now."""
        if self._engine is not None and self._device == device:
            return self._engine
        on_device = _device.is_ours(device)
        # The old memory goes before the new is taken.
        self.reset()
        with torch.inference_mode(False):
            memory = torch.empty(self.nbytes, dtype=torch.uint8, device=device)
            landing = torch.empty(self.landing_bytes if on_device else 0, dtype=torch.uint8, device=device)
            self._slots = [
                Slot(number, _cut(memory, number, self._layer_bytes), _cut(landing, number, self._largest_fetch()))
                for number in range(self._buffers)
            ]
        if any(stage.is_table for stage in self._stages):
            self._whole = Slot(self._buffers, memory)
        make: Any = CudaEngine if on_device else CpuEngine
        engine: Engine = make(device, self._prefetch, self._checksums)
        self._engine, self._device = engine, device
        return engine


def _cut(memory: torch.Tensor, number: int, size: int) -> torch.Tensor:
    return memory[number * size : (number + 1) * size]


def _error_of(engine: CudaEngine) -> Error | None:
    try:
        engine.watch.check()
    except Error as error:
        return error
    return None
