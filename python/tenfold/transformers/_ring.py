"""A few buffers that the stages of a model share in turn: one computes while the next is decoded.

The memory is a row of buffers, each large enough for any layer. A table of embeddings takes the whole row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import torch

from .._errors import ArgumentError, Error
from ._engines import CpuEngine, CudaEngine, Engine, Slot
from ._stages import Stage


class Ring:
    """The stages of a model on one device, and the memory that they share."""

    def __init__(self, stages: Sequence[Stage], buffers: int, prefetch: bool) -> None:
        self._stages = list(stages)
        self._layer_bytes = max((stage.nbytes for stage in stages if not stage.is_table), default=0)
        self._buffers = buffers if self._layer_bytes else 0
        self._prefetch = prefetch
        self._device: torch.device | None = None
        self._slots: list[Slot] = []
        self._whole: Slot | None = None
        self._engine: Engine | None = None
        self._clock = count(1)
        # Models mostly run layers in order and start again; what came after what the last time is the better guess.
        self._after: dict[int, int] = {}
        self._latest: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, once it is allocated."""
        table = max((stage.nbytes for stage in self._stages if stage.is_table), default=0)
        return max(self._buffers * self._layer_bytes, table)

    def enter(self, index: int) -> None:
        """Puts the decoded weights of a stage in place of its blobs, and sees to the next stage."""
        stage = self._stages[index]
        engine = self._engine_on(stage.held[0].blob().device)
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

    def check(self) -> None:
        """Decodes every stage once; raises if a blob is bad."""
        for index, stage in enumerate(self._stages):
            engine = self._engine_on(stage.held[0].blob().device)
            slot = self._start(engine, index)
            assert slot is not None  # nothing runs while the model is loaded
            try:
                engine.check(slot)
            except Error as error:
                raise stage.name_error(error) from error
            finally:
                slot.stage = None

    def _look_ahead(self, engine: Engine) -> None:
        if self._prefetch and self._latest is not None:
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
            engine.start(index, slot, [held.blob().detach() for held in stage.held], overlapping)
        slot.stage = index
        return slot

    def _engine_on(self, device: torch.device) -> Engine:
        """The engine, with memory where the blobs are now."""
        if self._engine is not None and self._device == device:
            return self._engine
        if any(slot.busy for slot in self._all()):
            raise ArgumentError("the model was moved while a layer was running; move it between calls")
        make: Any = CudaEngine if device.type == "cuda" else CpuEngine
        # The old memory goes before the new is taken.
        self._slots, self._whole, self._engine = [], None, None
        size = self._layer_bytes
        with torch.inference_mode(False):
            memory = torch.empty(self.nbytes, dtype=torch.uint8, device=device)
            self._slots = [Slot(number, memory[number * size : (number + 1) * size]) for number in range(self._buffers)]
        if any(stage.is_table for stage in self._stages):
            self._whole = Slot(self._buffers, memory)
        engine: Engine = make(device, self._prefetch)
        self._engine, self._device = engine, device
        return engine
