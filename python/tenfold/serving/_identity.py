"""What cached keys and values belong to. Bytes of another identity are never a hit, whatever their key."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, fields
from functools import cached_property

from .. import FORMAT_VERSION
from .._errors import ArgumentError, MachineError, NotFoundError

# Incremented whenever bytes of earlier versions must no longer be read.
RECORD_VERSION = 1


@dataclass(frozen=True)
class Identity:
    """What a cache's bytes depend on besides the tokens.

    Attributes:
        model: the model's name or path.
        revision: the state of the model: a commit, a date, anything that changes with the weights.
        dtype: of keys and values, as in ``"bfloat16"``.
        basis: :func:`file_fingerprint` of the file of bases, or ``""``.
        layout: everything else that distinguishes bytes: layers, heads, tokens of a page, tensor-parallel rank and
            size, the rate.
    """

    model: str
    revision: str = ""
    dtype: str = ""
    basis: str = ""
    layout: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not isinstance(getattr(self, field.name), str):
                raise ArgumentError(f"{field.name} of an identity is text, not {getattr(self, field.name)!r}")
        if not self.model:
            raise ArgumentError("an identity needs the model's name: without it caches of two models would be taken for one")

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits over all of it, the bitstream's version and the record's."""
        hashed = hashlib.blake2b(digest_size=16)
        numbers = (str(FORMAT_VERSION), str(RECORD_VERSION))
        for part in (*(getattr(self, field.name) for field in fields(self)), *numbers):
            text = part.encode()
            # With its length, so that parts cannot run into each other.
            hashed.update(len(text).to_bytes(8, "little") + text)
        return hashed.hexdigest()

    def describe(self) -> str:
        """Returns the fields that are not empty, for messages."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


def file_fingerprint(path: str | os.PathLike[str] | None) -> str:
    """32 hexadecimal digits of a file's content; ``""`` for no file."""
    if path is None:
        return ""
    try:
        with open(path, "rb") as file:
            # hashlib.file_digest is Python 3.11.
            hashed = hashlib.blake2b(digest_size=16)
            while part := file.read(1 << 20):
                hashed.update(part)
    except FileNotFoundError as error:
        raise NotFoundError(error.errno, error.strerror, os.fspath(path)) from None
    except OSError as error:
        raise MachineError(error.errno, error.strerror, os.fspath(path)) from None
    return hashed.hexdigest()
