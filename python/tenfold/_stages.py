"""A pipeline of stages whose work is Python's: threads, queues, window and timeline are those of `tenfold pull`, in Rust."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ._errors import ArgumentError
from ._native import Stop, Timeline, run_stages

__all__ = ["Stage", "Stop", "Timeline", "run"]


@dataclass(frozen=True)
class Stage:
    """What happens to each item.

    Attributes:
        name: in the timeline.
        work: takes an item and returns another, and the bytes that went through. Called by several threads at once.
        workers: how many.
    """

    name: str
    work: Callable[[Any], tuple[Any, int]]
    workers: int = 1


def run(
    source: Iterable[Any],
    stages: Sequence[Stage],
    sink: tuple[str, Callable[[Any], int]],
    *,
    window: int,
    timeline: Timeline | None = None,
    stop: Stop | None = None,
) -> Timeline:
    """Passes items through stages until the source has no more, and waits for that.

    The functions are called on threads of the pipeline. They overlap as far as they release the interpreter's lock, as reading files,
    hashing, decoding and copying tensors do. What one raises ends all of them and is raised here, as does Ctrl-C on the main thread; both
    wait for calls that have begun.

    Args:
        source: items. It is asked for the next one by a thread of its own, as soon as there is room for it.
        stages: what happens to them.
        sink: name and function of the last stage. It gets the items in the order of the source, and returns the bytes that went through.
        window: items that may be under way at once, from the source to the sink: memory follows from that.
        timeline: where to record; a new one unless stated.
        stop: what ends the pipeline from another thread, with :class:`concurrent.futures.CancelledError`.

    Returns:
        The timeline: ``summary()`` has bytes and busy seconds of each stage and the overlap reached, ``write_trace(path)`` is for Perfetto.

    >>> squares = []
    >>> found = run(range(100), [Stage("square", lambda n: (n * n, 8), 2)], ("keep", lambda n: squares.append(n) or 8), window=4)
    >>> squares == [n * n for n in range(100)]
    True
    >>> [(stage["stage"], stage["items"], stage["bytes"]) for stage in found.summary()["stages"]]
    [('square', 100, 800), ('keep', 100, 800)]
    """
    if window < 1:
        raise ArgumentError(f"at least one item is under way, not {window}")
    for stage in stages:
        if stage.workers < 1:
            raise ArgumentError(f"stage {stage.name} has at least one worker, not {stage.workers}")
    timeline = Timeline() if timeline is None else timeline
    run_stages(source, [(one.name, one.workers, one.work) for one in stages], sink, window, timeline, Stop() if stop is None else stop)
    return timeline
