"""Pages out of the store into blocks while a step computes: a layer's keys and values are there when its attention gets to them.

A step starts with its loads. The host reads records; compressed bytes go to the device, which decodes all pages layer by layer, on a stream
of its own. The engine's stream waits for a run of layers before the first of them attends; the host does not. When the step is queued, the
host asks what the device says of the pages. A request with a damaged page has computed nothing of use by then. Its blocks are named to vLLM
with the step's output, which throws that request's part away and computes the blocks. :class:`._scheduler.Scheduler` keeps other requests
from these blocks until then.

Where the host decodes, the first layer waits for all pages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..._errors import MachineError, UnsupportedError
from ...torch import _device
from ._blocks import Pools
from ._loads import Held, Loads, Lost
from ._plan import Page

# Runs of layers that the engine waits for one by one. With more of them the first layer starts sooner, and a device is less busy.
_WAVES = 8


class Arriving(Protocol):
    """Pages on their way into blocks."""

    def wait_for(self, layer: int) -> None:
        """Makes a layer's attention wait for them."""

    def errors(self) -> list[Exception | None]:
        """Waits, and says what is wrong with each page."""


@dataclass(frozen=True)
class _ByThread:
    """A page that the host decodes, as the device has refused it or is none."""

    found: Future[Exception | None]
    refused: Exception | None = None

    def wait_for(self, layer: int) -> None:
        self.found.exception()

    def errors(self) -> list[Exception | None]:
        return [self.found.result()]


@dataclass(frozen=True)
class _Failed:
    """A page that nobody decodes."""

    why: Exception

    def wait_for(self, layer: int) -> None:
        pass

    def errors(self) -> list[Exception | None]:
        return [self.why]


@dataclass
class _Step:
    """Loads of one step.

    Attributes:
        started: when.
        held: pages that there are records of.
        lost: pages that there are none of.
        arriving: pages that are held, in their order.
        waited: layers whose attention has waited for them.
        clock: counts the time of decoding until it is closed.
    """

    started: float
    held: list[Held]
    lost: Lost
    arriving: list[Arriving] = field(default_factory=list)
    waited: set[str] = field(default_factory=set)
    clock: ExitStack = field(default_factory=ExitStack)


class LayerLoads(Loads):
    """Loads pages of requests that the same step computes. The arguments are those of :class:`Loads`."""

    _step: _Step | None = None

    def start(self, loads: Mapping[str, Sequence[Page]], *, by_layer: bool) -> None:
        """Queues the loads of a step."""
        # Of a step that failed.
        self.take_lost()
        if not loads:
            return
        pages = [page for some in loads.values() for page in some]
        step = self._step = _Step(time.perf_counter(), [], {})
        for held, lost in self._threads.map(lambda page: self._read([page]), pages):
            step.held += held
            step.lost |= lost
        step.clock.enter_context(self._counts.decoding())
        step.arriving = self._begin(step.held)
        # Of no use to anybody, but what a sampler does with numbers that are none nobody knows.
        unfilled = [page for (page, _), one in zip(step.held, step.arriving, strict=False) if isinstance(one, _Failed)]
        self._blocks.clear([block for page in (*step.lost, *unfilled) for block in page.blocks])
        if not by_layer:
            for name in self._shape.layers:
                self.wait_for_layer(name)

    def wait_for_layer(self, name: str) -> None:
        """Makes a layer's attention wait for the pages of this step."""
        if self._step is not None and name in self._shape.layers:
            for one in self._step.arriving:
                one.wait_for(self._shape.layers.index(name))
            self._step.waited.add(name)

    def take_lost(self) -> set[int]:
        """Waits for the loads of this step, and returns the blocks that nothing was loaded into."""
        step, self._step = self._step, None
        if step is None:
            return set()
        with step.clock:
            found = self._verdicts(step)
        missed = [name for name in self._shape.layers if name not in step.waited]
        if missed:
            # Attention may have come before keys and values.
            why = MachineError(f'vLLM did not wait for {missed[0]} to be loaded; state load="whole"')
            found = [error or why for error in found]
        return self._settle(step.held, found, step.lost, step.started)

    def _verdicts(self, step: _Step) -> list[Exception | None]:
        """Waits, and says what is wrong with each page that is held."""
        try:
            found = [error for one in step.arriving for error in one.errors()]
        except Exception as error:  # of the device
            return [error] * len(step.held)
        for one in step.arriving:
            if isinstance(one, _ByThread):
                if one.refused is not None:
                    self._refused(one.refused, one.errors())
            else:
                self._counts.add(pages_by_device=one.errors().count(None))
        return found

    def _begin(self, held: Sequence[Held]) -> list[Arriving]:
        """Starts to decode pages."""
        ready = None if self._blocks.streams is None else self._blocks.streams.mark()
        if self._pools is not None and held:
            try:
                return [self._begin_on_device(held, ready, self._pools)]
            except (UnsupportedError, MachineError) as error:
                if len(held) > 1:
                    return [self._begin([one])[0] for one in held]
                return [_ByThread(self._threads.submit(self._fill_when, ready, *held[0]), error)]
            except Exception as error:  # damage that shows before anything is decoded, or no memory: of which page?
                return [_Failed(error)] if len(held) == 1 else [self._begin([one])[0] for one in held]
        return [_ByThread(self._threads.submit(self._fill_when, ready, *one)) for one in held]

    def _begin_on_device(self, held: Sequence[Held], ready: Any, pools: Pools) -> Arriving:
        streams = self._blocks.streams
        assert streams is not None, "pools are those of a device"
        # What the engine has queued may still use these blocks.
        streams.loads.wait_event(ready)
        try:
            with _device.on(streams.loads):
                return self._pages.begin_blocks([payload for _, payload in held], self._slots(held), *pools, waves=_WAVES)
        except Exception:
            # Nothing may be written to these blocks once the engine hears of it.
            streams.loads.synchronize()
            raise

    def _fill_when(self, ready: Any, page: Page, payload: memoryview) -> Exception | None:
        if ready is not None:
            ready.synchronize()
        return self._fill_on_host(page, payload)
