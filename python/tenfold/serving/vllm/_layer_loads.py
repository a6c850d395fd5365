"""Pages out of the store into blocks while a step computes: a layer's keys and values are there when its attention gets to them.

A step starts with its loads. Where a device decodes, the host reads records first; compressed bytes go to the device, which decodes all pages
layer by layer, on a stream of its own. The engine's stream waits for a run of layers before the first of them attends; the host does not.
When the step is queued, the host asks what the device says of the pages. Where the host decodes, the first run of layers of a page is decoded
while others are read, then the next run of all pages. The host waits before a layer attends, and later runs are decoded meanwhile.

A request with a damaged page has computed nothing of use by then. Its blocks are named to vLLM with the step's output, which throws that
request's part away and computes the blocks. :class:`._scheduler.Scheduler` keeps other requests from these blocks until then.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from ..._errors import MachineError, UnsupportedError
from ...torch import _device
from ._arriving import Arriving, ByThread, Failed, OnHost, Wrong
from ._blocks import Pools
from ._loads import Found, Held, Loads, Lost
from ._plan import Page

# Runs of layers that the engine waits for one by one. With more of them the first layer starts sooner, and a device is less busy.
_WAVES = 8

class _Record:
    """A record that the runs of its page share, from the first that gets to it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.lock = threading.Lock()
        self.found: Found | None = None


@dataclass
class _Step:
    """Loads of one step.

    Attributes:
        pages: all of them.
        lost: those that are known to have no record.
        sizes: bytes of the others' records.
        arriving: pages that are not lost, in their order.
        waited: layers whose attention has waited for them.
        clock: counts the time of a device's decoding until it is closed.
    """

    pages: Sequence[Page]
    lost: Lost = field(default_factory=dict)
    sizes: dict[Page, int] = field(default_factory=dict)
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
        step = self._step = _Step([page for some in loads.values() for page in some])
        if self._pools is None:
            step.arriving = [self._begin_on_host(step)]
        else:
            self._begin_beside(step)
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
        held = [page for page in step.pages if page not in step.lost]
        with step.clock:
            found = self._verdicts(step, len(held))
        missed = [name for name in self._shape.layers if name not in step.waited]
        if missed:
            # Attention may have come before keys and values.
            why = MachineError(f'vLLM did not wait for {missed[0]} to be loaded; state load="whole"')
            found = [error or why for error in found]
        return self._settle([(page, step.sizes.get(page, 0)) for page in held], found, step.lost)[0]

    def _verdicts(self, step: _Step, pages: int) -> Sequence[Wrong]:
        """Waits, and says what is wrong with each page that is not lost."""
        try:
            found = [error for one in step.arriving for error in one.errors()]
        except Exception as error:  # of the device
            return [error] * pages
        for one in step.arriving:
            if isinstance(one, ByThread):
                self._refused(one.refused, one.errors())
            elif not isinstance(one, OnHost):
                self._counts.add(pages_by_device=list(one.errors()).count(None))
        return found

    def _begin_on_host(self, step: _Step) -> Arriving:
        """All pages run by run. The stages decode in the order in which tasks are added, so the first run of some pages is decoded while
        others are read. Records stay until their last run: compressed, as a device has them; what is decoded is written at once."""
        ready = None if self._blocks.streams is None else self._blocks.streams.mark()
        records = [_Record(page) for page in step.pages]
        runs = self._pages.runs(_WAVES)
        return OnHost(runs, [[self._begin_run(step, record, run, ready) for record in records] for run in runs])

    def _begin_run(self, step: _Step, record: _Record, run: range, ready: Any) -> Future[Wrong]:
        page = record.page

        def read() -> tuple[Found, int]:
            with record.lock:
                if record.found is not None:
                    return record.found, 0
                found = record.found = self._read(page)
            if isinstance(found, memoryview):
                step.sizes[page] = len(found)
            return self._sized(found)

        def decode(found: Found) -> tuple[Wrong, int]:
            if ready is not None:
                ready.synchronize()
            with self._timed(), self._counts.restoring():
                wrong = self._fill_run(page, found, run)
            if wrong is not None and record.found is found:
                # Of no use for its other runs.
                record.found = wrong
            return wrong, 0 if wrong is not None else self._raw_bytes(page) * len(run) // len(self._shape.layers)

        return self._reloads.submit(read, decode)

    def _fill_run(self, page: Page, found: Found, run: range) -> Wrong:
        """Decodes some layers into their blocks. What a sampler does with numbers that are none nobody knows, so a page that is lost is zeros."""
        part = self._part_of(page)
        wrong: Wrong = None
        rooms = [self._blocks.room() for _ in run]
        if isinstance(found, memoryview):
            try:
                self._pages.decode_run(found, run, [keys for keys, _ in rooms], [values for _, values in rooms])
            except Exception as error:  # whatever it is, nothing of the page may be used
                wrong = error
        else:
            wrong = found
        for layer, (keys, values) in zip(run, rooms, strict=True):
            if wrong is not None:
                keys.zero_()
                values.zero_()
            self._blocks.write(layer, page.blocks, keys[part], values[part])
        return wrong

    def _begin_beside(self, step: _Step) -> None:
        """Reads the records of all pages, then has the device decode them: it takes them in the order of layers, so it needs all at once."""
        held: list[Held] = []
        for page, future in [(page, self._begin_read(page)) for page in step.pages]:
            error = future.exception()
            found = future.result() if error is None else MachineError(f"{error!r} while it was read")
            if isinstance(found, memoryview):
                held.append((page, found))
                step.sizes[page] = len(found)
            else:
                step.lost[page] = found
        step.clock.enter_context(self._counts.restoring())
        step.arriving = self._begin(held)
        # Of no use to anybody, as above.
        unfilled = [page for (page, _), one in zip(held, step.arriving, strict=False) if isinstance(one, Failed)]
        self._blocks.clear([block for page in (*step.lost, *unfilled) for block in page.blocks])

    def _begin_read(self, page: Page) -> Future[Found]:
        return self._reloads.submit(lambda: self._sized(self._read(page)), lambda found: (found, 0))

    def _begin(self, held: Sequence[Held]) -> list[Arriving]:
        """What the device decodes, and what the host does in its place."""
        ready = None if self._blocks.streams is None else self._blocks.streams.mark()
        if self._pools is not None and held:
            try:
                return [self._begin_on_device(held, ready, self._pools)]
            except (UnsupportedError, MachineError) as error:
                if len(held) > 1:
                    return [self._begin([one])[0] for one in held]
                return [ByThread(self._begin_page_on_host(ready, *held[0]), error)]
            except Exception as error:  # damage that shows before anything is decoded, or no memory: of which page?
                return [Failed(error)] if len(held) == 1 else [self._begin([one])[0] for one in held]
        return []

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

    def _begin_page_on_host(self, ready: Any, page: Page, payload: memoryview) -> Future[Exception | None]:
        def decode(payload: memoryview) -> tuple[Exception | None, int]:
            if ready is not None:
                ready.synchronize()
            wrong = self._fill_on_host(page, payload)
            return wrong, 0 if wrong is not None else self._raw_bytes(page)

        return self._reloads.submit(lambda: (payload, 0), decode)

