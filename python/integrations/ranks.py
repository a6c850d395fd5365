"""Ranks of torch.distributed as processes that stay: starting one takes longer than most tests."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist


class Ranks:
    """Processes in one group of gloo. A call runs a function of a module on all of them."""

    def __init__(self, world: int, seconds: int = 60) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        self._ends = []
        self.processes = []
        for rank in range(world):
            here, there = spawn.Pipe()
            path = os.path.join(self._folder.name, "store")
            process = spawn.Process(target=_serve, args=(there, path, rank, world, seconds), daemon=True)
            process.start()
            self._ends.append(here)
            self.processes.append(process)

    def __call__(self, work: Callable[..., Any], *args: Any) -> list[Any]:
        """What `work(rank, *args)` returns on each rank; the first error of any is raised."""
        results = self.each(work, *args)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def each(self, work: Callable[..., Any], *args: Any) -> list[Any]:
        """What `work(rank, *args)` returns on each rank, or its error; EOFError of a rank that is gone."""
        for end in self._ends:
            end.send((work, args))
        results: list[Any] = []
        for end in self._ends:
            try:
                results.append(end.recv())
            except (EOFError, ConnectionResetError):
                results.append(EOFError("the process is gone"))
        return results

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.kill()
            process.join()
        self._folder.cleanup()


def _serve(end: Connection, path: str, rank: int, world: int, seconds: int) -> None:
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=seconds)
    dist.init_process_group("gloo", store=dist.FileStore(path, world), rank=rank, world_size=world, timeout=timeout)
    while True:
        try:
            work, args = end.recv()
        except EOFError:
            return
        try:
            end.send(work(rank, *args))
        except BaseException as error:  # noqa: BLE001 - the test raises it
            error.add_note(traceback.format_exc())
            end.send(error)
