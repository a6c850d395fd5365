"""Self-describing payloads, with their identity, their key and a digest."""

from __future__ import annotations

import hashlib
import struct

from .._errors import DataError
from ._identity import RECORD_VERSION, Identity

_MAGIC = b"TNKV"
# Magic, version, three bytes of nothing, identity, key, length of the payload; then the digest of all that and the payload.
_HEAD = struct.Struct("<4sB3x16s16sQ")
_DIGEST = 16
RECORD_OVERHEAD = _HEAD.size + _DIGEST
"""Bytes that a record takes besides its payload."""


def seal(identity: Identity, key: str, payload: bytes | bytearray | memoryview) -> bytes:
    """Makes a record from a payload."""
    view = memoryview(payload).cast("B")
    head = _HEAD.pack(_MAGIC, RECORD_VERSION, bytes.fromhex(identity.digest), _hash(key.encode()), len(view))
    return b"".join((head, _digest(head, view), view))


def open_record(identity: Identity, key: str, record: bytes | bytearray | memoryview) -> memoryview:
    """Returns the payload of a record; bytes after its end are ignored.

    Raises:
        DataError: it is damaged, truncated, not a record, or belongs to another identity or key.
    """
    view = memoryview(record).cast("B")
    if len(view) < RECORD_OVERHEAD:
        raise DataError(f"{len(view)} bytes are no record of cached keys and values, which has {RECORD_OVERHEAD} at least")
    magic, version, owner, hashed, length = _HEAD.unpack(view[: _HEAD.size])
    if magic != _MAGIC:
        raise DataError("these bytes are no record of cached keys and values")
    if version != RECORD_VERSION:
        raise DataError(f"the record has version {version}, this build reads {RECORD_VERSION}")
    if length > len(view) - RECORD_OVERHEAD:
        raise DataError(f"the record is cut off: {length} bytes of payload, {len(view) - RECORD_OVERHEAD} are there")
    payload = view[RECORD_OVERHEAD : RECORD_OVERHEAD + length]
    if _digest(view[: _HEAD.size], payload) != view[_HEAD.size : RECORD_OVERHEAD]:
        raise DataError("the record is damaged")
    # Checked last, so that a damaged record is not reported as foreign.
    if owner.hex() != identity.digest:
        raise DataError(f"the record was made for another model or with other options than {identity.describe()}")
    if hashed != _hash(key.encode()):
        raise DataError("the record is of another key")
    return payload


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _digest(head: bytes | memoryview, payload: memoryview) -> bytes:
    hashed = hashlib.blake2b(head, digest_size=_DIGEST)
    hashed.update(payload)
    return hashed.digest()
