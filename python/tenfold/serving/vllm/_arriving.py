"""Pages on their way into blocks, from whoever decodes them: what a layer waits for, and what came of each page."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

from ..._errors import MachineError

Wrong = Exception | str | None


class Arriving(Protocol):
    """Pages on their way into blocks."""

    def wait_for(self, layer: int) -> None:
        """Makes a layer's attention wait for them."""

    def errors(self) -> Sequence[Wrong]:
        """Waits, and says what is wrong with each page."""


@dataclass(frozen=True)
class ByThread:
    """A page that the host decodes, as the device has refused it."""

    found: Future[Exception | None]
    refused: Exception

    def wait_for(self, layer: int) -> None:
        self.found.exception()

    def errors(self) -> Sequence[Wrong]:
        return [_outcome(self.found)]


@dataclass(frozen=True)
class Failed:
    """A page that nobody decodes."""

    why: Exception

    def wait_for(self, layer: int) -> None:
        pass

    def errors(self) -> Sequence[Wrong]:
        return [self.why]


@dataclass(frozen=True)
class OnHost:
    """Pages that the host decodes, run by run.

    Attributes:
        runs: of layers.
        found: for each run, of each page.
    """

    runs: Sequence[range]
    found: Sequence[Sequence[Future[Wrong]]]

    def wait_for(self, layer: int) -> None:
        for run, found in zip(self.runs, self.found, strict=True):
            if layer in run:
                wait(found)

    def errors(self) -> Sequence[Wrong]:
        pages = [[_outcome(future) for future in runs] for runs in zip(*self.found, strict=True)]
        return [next((wrong for wrong in runs if wrong is not None), None) for runs in pages]


def _outcome(future: Future[Any]) -> Wrong:
    """What is wrong with what was decoded: also that it was not."""
    error = future.exception()
    if error is None:
        found: Wrong = future.result()
        return found
    return error if isinstance(error, Exception) else MachineError(f"{error!r} while it was loaded")
