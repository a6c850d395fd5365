"""Reloading on the stages of a pipeline: records are read and checked while others are decoded into blocks."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from pathlib import Path
from typing import Any, Generic, TypeVar

from .._errors import ArgumentError, MachineError
from .._stages import Stage, Stop, Timeline, run

T = TypeVar("T")
R = TypeVar("R")

# Seconds for which the pipeline waits for more before its threads end: the next load then needs no new ones.
_LINGER = 1.0
# Room for this many pages a worker, so that none waits for another stage.
_AHEAD = 2


class Trace:
    """A timeline in a file, if there is to be one.

    Args:
        path: the file, replaced whenever there is more to say.
        rank: of this process, where several processes have the path.
        logger: hears of a file that cannot be written.
    """

    def __init__(self, path: str | None, rank: str, logger: logging.Logger) -> None:
        self._path = None if path is None else _of_rank(Path(path), rank)
        if self._path is not None and not self._path.absolute().parent.is_dir():
            raise ArgumentError(f"trace is a file in a folder that exists, not {path}")
        self._logger = logger
        self._written = 0
        # Without a file a timeline would only grow.
        self.timeline = Timeline(room=0) if path is None else Timeline()

    def write(self) -> None:
        """Writes the file, unless it is up to date."""
        spans = len(self.timeline)
        if self._path is None or spans == self._written:
            return
        self._written = spans
        try:
            self.timeline.write_trace(self._path)
        except MachineError as error:
            self._logger.warning("tenfold: the trace was not written: %s", error)


def _of_rank(path: Path, rank: str) -> Path:
    return path.with_name(f"{path.stem}.{rank}{path.suffix}") if rank else path


class _Task(Generic[T, R]):
    """A page, or a part of one. What is wrong with it is its own matter, and in its future."""

    def __init__(self, read: Callable[[], tuple[T, int]], decode: Callable[[T], tuple[R, int]]) -> None:
        self.future: Future[R] = Future()
        self._read, self._decode = read, decode
        self._found: T | None = None

    def read(self) -> tuple[_Task[T, R], int]:
        try:
            self._found, size = self._read()
            return self, size
        except Exception as error:
            self.future.set_exception(error)
            return self, 0

    def decode(self) -> tuple[_Task[T, R], int]:
        if self.future.done():
            return self, 0
        # Not kept until the sink has it: payloads are what memory goes to.
        found, self._found = self._found, None
        try:
            result, size = self._decode(found)  # type: ignore[arg-type]
        except Exception as error:
            self.future.set_exception(error)
            return self, 0
        self.future.set_result(result)
        return self, size

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Reloads:
    """Tasks of two stages. Threads may share it.

    The pipeline runs while there are tasks, and ends its threads when none has come for a second. So nothing of it is left when a process
    ends that has forgotten it.

    Args:
        runner: one thread, which those of the pipeline are started from; it is shut down with this.
        threads: that read, and as many that decode.
        trace: gets the timeline.
        window: tasks that may be under way at once; two for each thread unless stated.
    """

    def __init__(self, runner: Executor, threads: int, trace: Trace, *, window: int | None = None) -> None:
        self._runner, self._threads, self._trace = runner, threads, trace
        self._window = window or 2 * _AHEAD * threads
        self._changed = threading.Condition()
        self._waiting: deque[_Task[Any, Any]] = deque()
        self._under_way: set[_Task[Any, Any]] = set()
        self._runs = self._closed = False
        self._stop = Stop()

    def submit(self, read: Callable[[], tuple[T, int]], decode: Callable[[T], tuple[R, int]]) -> Future[R]:
        """Adds a task.

        Args:
            read: gives what is to be decoded, and its bytes.
            decode: gives the result, and bytes that were decoded. Not called where reading failed.

        Returns:
            The result, or what one of the two raised. Tasks are begun in the order in which they are added.
        """
        task = _Task(read, decode)
        with self._changed:
            if self._closed:
                raise RuntimeError("pages are added to reloads that have been shut down")
            self._waiting.append(task)
            if not self._runs:
                self._runs = True
                self._runner.submit(self._run)
            self._changed.notify()
        return task.future

    def shutdown(self, *, cancel: bool = False) -> None:
        """Waits for all tasks, or cancels those that have not begun, and waits for the others."""
        with self._changed:
            self._closed = True
            if cancel:
                self._stop.stop()
            self._changed.notify_all()
        self._runner.shutdown()
        self._fail(CancelledError())
        self._trace.write()

    def _run(self) -> None:
        stages = [Stage("read", self._read, self._threads), Stage("decode", self._decode, self._threads)]
        try:
            run(self._tasks(), stages, ("settle", self._settle), window=self._window, timeline=self._trace.timeline, stop=self._stop)
        except BaseException as error:  # whatever it is, nobody must wait for these tasks
            with self._changed:
                self._runs = False
            self._fail(error)
        self._trace.write()

    def _tasks(self) -> Iterator[_Task[Any, Any]]:
        while True:
            with self._changed:
                while not self._waiting:
                    # Whatever is under way: a pipeline that has failed says nothing to its source, and must not be waited for.
                    if self._closed or not (self._changed.wait(_LINGER) or self._waiting):
                        self._runs = False
                        return
                task = self._waiting.popleft()
                self._under_way.add(task)
            yield task

    def _read(self, task: _Task[Any, Any]) -> tuple[_Task[Any, Any], int]:
        self._check()
        return task.read()

    def _decode(self, task: _Task[Any, Any]) -> tuple[_Task[Any, Any], int]:
        self._check()
        return task.decode()

    def _check(self) -> None:
        """At once, where the pipeline itself looks at intervals."""
        if self._stop.is_stopped:
            raise CancelledError

    def _settle(self, task: _Task[Any, Any]) -> int:
        with self._changed:
            self._under_way.discard(task)
        return 0

    def _fail(self, error: BaseException) -> None:
        """For tasks that no pipeline has any more."""
        with self._changed:
            left = [*self._under_way, *self._waiting]
            self._under_way.clear()
            self._waiting.clear()
        for task in left:
            task.fail(error)

