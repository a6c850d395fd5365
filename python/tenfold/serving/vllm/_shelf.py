"""The store as an engine sees it: faults are logged and counted, and requests go on without it."""

from __future__ import annotations

from vllm.logger import init_logger

from ..._errors import MachineError
from .._identity import Identity
from .._store import FileStore, StoreError, StoreWarning

# Below vLLM's own, so that its handlers and levels hold.
logger = init_logger("vllm.tenfold")


class Complaints:
    """Logs a fault the first, second, fourth, eighth time and so on."""

    def __init__(self) -> None:
        self._count = 0

    def say(self, message: str) -> None:
        self._count += 1
        if self._count & (self._count - 1) == 0:
            again = f" ({self._count} times so far)" if self._count > 1 else ""
            logger.warning("%s%s", message, again, stacklevel=2)


class Shelf:
    """Payloads of one identity. Threads may share it.

    Args:
        path: folder of the store. If it cannot be made, that is said, and tried again whenever something is stored.
        identity: what payloads belong to.
        max_bytes: room for them.
    """

    def __init__(self, path: str, identity: Identity, max_bytes: int | None = None) -> None:
        self._path = path
        self._identity = identity
        self._max_bytes = max_bytes
        self._store: FileStore | None = None
        self._complaints = Complaints()
        try:
            self._open()
        except StoreError as error:
            self._complaints.say(f"keys and values are neither stored nor found: {error}")

    def contains(self, key: str) -> bool:
        """Whether there is a payload; False where nobody can tell."""
        try:
            return self._store is not None and self._store.contains(key)
        except OSError as error:
            self._complaints.say(f"keys and values are not found: {error}")
            return False

    def get(self, key: str) -> memoryview | None:
        """A payload, or None if there is none that can be used."""
        try:
            return None if self._store is None else self._store.get(key)
        except (StoreError, StoreWarning) as error:
            # A damaged record that cannot be removed; or the process makes errors of warnings.
            self._complaints.say(f"keys and values were not read: {error}")
            return None

    def put(self, key: str, payload: bytes) -> None:
        """Stores a payload, or raises StoreError."""
        self._open().put(key, payload)

    def discard(self, key: str) -> None:
        """Removes a payload that turned out to be of no use."""
        try:
            if self._store is not None:
                self._store.remove(key)
        except MachineError as error:
            self._complaints.say(f"keys and values were not removed: {error}")

    def clear(self) -> None:
        """Removes all, or raises StoreError."""
        self._open().clear()

    def _open(self) -> FileStore:
        if self._store is None:
            self._store = FileStore(self._path, self._identity, max_bytes=self._max_bytes)
        return self._store
