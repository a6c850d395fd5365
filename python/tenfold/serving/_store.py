"""Records in a folder, one file each, written atomically and checked when they are read."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
import warnings
from pathlib import Path

from .._errors import ArgumentError, DataError, MachineError
from ._identity import Identity
from ._records import open_record, seal

_SUFFIX = ".tnkv"
# Of records that are being written. A process that is killed leaves them behind; nobody writes one for so many seconds.
_UNFINISHED, _STALE = "unfinished-", 3600.0


class StoreError(MachineError):
    """Keys and values could not be stored."""


class StoreWarning(UserWarning):
    """A store holds a record that it cannot use and counts as a miss."""


class FileStore:
    """Payloads by key in a folder, for one identity. Threads and processes may share it.

    Args:
        folder: where to keep them; created if it does not exist.
        identity: what they belong to. Payloads of other identities are never found.
        max_bytes: room for all records of this identity. When it is full, the least recently read records are removed.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Identity, *, max_bytes: int | None = None) -> None:
        if max_bytes is not None and max_bytes < 1:
            raise ArgumentError(f"max_bytes is a number of bytes, not {max_bytes}")
        self._identity = identity
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._folder = Path(folder) / identity.digest
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(error.errno, f"the store has no folder: {error.strerror}", os.fspath(self._folder)) from None
        self._sweep()
        # Counted once; records of other processes are noticed when room is made.
        self._bytes = sum(size for _, size, _ in self._records()) if max_bytes is not None else 0

    @property
    def identity(self) -> Identity:
        """What the records belong to."""
        return self._identity

    def put(self, key: str, payload: bytes | bytearray | memoryview) -> None:
        """Stores a payload and replaces any other with this key.

        Raises:
            StoreError: it was not stored; the message says why.
        """
        record = seal(self._identity, key, payload)
        if self._max_bytes is not None and len(record) > self._max_bytes:
            raise StoreError(f"a record of {len(record)} bytes has no room in a store of {self._max_bytes}")
        path = self._path(key)
        temporary = None
        try:
            path.parent.mkdir(exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
            with open(handle, "wb") as file:
                file.write(record)
            with self._lock:
                before = path.stat().st_size if self._max_bytes is not None and path.exists() else 0
                os.replace(temporary, path)
                self._bytes += len(record) - before
        except OSError as error:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
            raise StoreError(error.errno, f"keys and values were not stored: {error.strerror}", os.fspath(path)) from None
        if self._max_bytes is not None and self._bytes > self._max_bytes:
            self._make_room(self._max_bytes, path)

    def get(self, key: str) -> memoryview | None:
        """Returns the payload of a key, or None. An unusable record is removed with a warning."""
        path = self._path(key)
        try:
            record = path.read_bytes()
            if self._max_bytes is not None:
                # Marks the record as recently read.
                os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            warnings.warn(f"{path} does not read, taken as a miss: {error.strerror}", StoreWarning, stacklevel=2)
            return None
        try:
            return open_record(self._identity, key, record)
        except DataError as error:
            warnings.warn(f"{path}: {error}; taken as a miss and removed", StoreWarning, stacklevel=2)
            self.remove(key)
            return None

    def contains(self, key: str) -> bool:
        """Whether there is a record for a key. Reading may still find it damaged."""
        return self._path(key).is_file()

    def remove(self, key: str) -> None:
        """Removes a key's record, if there is one."""
        self._unlink(self._path(key))

    def clear(self) -> None:
        """Removes all records of this identity."""
        for path, _, _ in self._records():
            self._unlink(path)

    def _path(self, key: str) -> Path:
        # Keys are arbitrary text, so file names are digests, in folders of a few thousand files each.
        name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        return self._folder / name[:2] / (name + _SUFFIX)

    def _records(self) -> list[tuple[Path, int, float]]:
        """Lists path, bytes and last read time of each record."""
        found = []
        for path in self._folder.glob(f"*/*{_SUFFIX}"):
            try:
                status = path.stat()
            except FileNotFoundError:  # removed by another process in between
                continue
            found.append((path, status.st_size, status.st_mtime))
        return found

    def _make_room(self, max_bytes: int, newest: Path) -> None:
        with self._lock:
            records = sorted(self._records(), key=lambda record: record[2])
            total = sum(size for _, size, _ in records)
            # A tenth more than needed, so that not every put scans all records.
            for path, size, _ in records:
                if total <= max_bytes * 0.9:
                    break
                if path != newest:
                    path.unlink(missing_ok=True)
                    total -= size
            self._bytes = total

    def _sweep(self) -> None:
        """Removes what killed processes did not finish."""
        for path in self._folder.glob(f"*/{_UNFINISHED}*"):
            try:
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()
            except OSError:  # another process was faster, or it is not ours to remove
                continue

    def _unlink(self, path: Path) -> None:
        with self._lock:
            try:
                size = path.stat().st_size
                path.unlink()
                self._bytes -= size
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StoreError(error.errno, f"a record was not removed: {error.strerror}", os.fspath(path)) from None
