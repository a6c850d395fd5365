"""Threads that work beside an engine."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor


def cores() -> set[int]:
    """Cores that this process may use.

    vLLM may pin each of its threads on a CPU to a core of its own, the main one too, and new threads would be pinned
    with the one that starts them. What all threads together may use is what the process was given.
    """
    if not hasattr(os, "sched_getaffinity"):
        return set(range(os.cpu_count() or 1))
    found = set(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        try:
            found |= os.sched_getaffinity(int(thread))
        except ProcessLookupError:  # ended in the meantime
            continue
    return found


def pool(name: str, threads: int, *, background: bool) -> ThreadPoolExecutor:
    """A pool of threads on any core; in the background they only get what nobody else wants."""
    allowed = cores()

    def start() -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, allowed)
        if background and hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)

    return ThreadPoolExecutor(threads or len(allowed), thread_name_prefix=name, initializer=start)
