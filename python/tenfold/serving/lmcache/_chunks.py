"""Encodes LMCache objects as records within the estimated size, and decodes them.

A record's payload has, for each tensor of the object, a byte that says how it is stored, eight bytes of length, and that many
bytes: a page, or the tensor as it is.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from typing import Any

import torch

from ..._errors import ArgumentError, DataError, LimitError
from .._identity import Identity, file_fingerprint
from .._pages import DEFAULT_BITS, KvPages
from .._records import RECORD_OVERHEAD, open_record, seal
from .._stats import Counts
from ._layout import Layout, Part, Rows
from ._options import Options

_HEAD = struct.Struct("<BQ")
_PAGE, _PLAIN = 1, 0


@dataclass(frozen=True)
class Plan:
    """How chunks of one layout are stored: bytes of the record, and of each part."""

    size: int
    # Whether all records have this size.
    padded: bool
    # For each part the bytes that it may take.
    room: tuple[int, ...]
    # Whether pages are lossless to begin with.
    lossless: bool


Makers = tuple[KvPages | None, KvPages] | None
"""What makes pages of a part: at the rate, and lossless ones; nothing for a part that has no pages."""


class ChunkCodec:
    """Makes records of chunks and reads them. Threads may share it.

    Args:
        options: of the serde.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._basis = file_fingerprint(options.bases)
        self._makers: dict[Layout, list[Makers]] = {}
        self._identities: dict[tuple[str, Layout], Identity] = {}
        self._lock = threading.Lock()
        self._counts = Counts()

    @property
    def counts(self) -> Counts:
        """What was encoded and decoded so far."""
        return self._counts

    @property
    def options(self) -> Options:
        """As they were stated."""
        return self._options

    def max_bytes(self, layout: Layout) -> int:
        """Bytes that no record of the layout exceeds; all have this size unless options say that they are not padded."""
        return plan(self._options, layout).size

    def encode(self, model: str, key: str, layout: Layout, tensors: Rows) -> bytes:
        """The record of a chunk.

        Raises:
            LimitError: it does not fit the bytes that the rate allows, for example if most values are NaN.
            ArgumentError: bases are for other layers or columns.
        """
        made = plan(self._options, layout)
        payload = bytearray()
        with self._counts.encoding():
            for part, tensor, room, makers in zip(layout, tensors, made.room, self._pages(layout, made), strict=True):
                kind, data = self._stored(part, tensor, room, makers)
                payload += _HEAD.pack(kind, len(data))
                payload += data
        if len(payload) + RECORD_OVERHEAD > made.size:
            raise LimitError(f"the chunk takes {len(payload) + RECORD_OVERHEAD} bytes, {made.size} are allowed")
        record = seal(self._identity(model, layout), key, payload)
        if made.padded:
            record += bytes(made.size - len(record))
        self._counts.saved(sum(part.nbytes for part in layout), len(record))
        return record

    def decode(self, model: str, key: str, layout: Layout, record: Any, device: torch.device | None = None) -> Rows:
        """Decodes the tensors of a record into new memory, of the host unless a device is stated.

        Raises:
            DataError: the record is damaged, or of another model, layout, rate or key.
        """
        payload = open_record(self._identity(model, layout), key, record)
        coded = len(payload)
        with self._counts.decoding():
            found = self._tensors(layout, payload, device)
        self._counts.loaded(sum(part.nbytes for part in layout), coded)
        return found

    def _tensors(self, layout: Layout, payload: memoryview, device: torch.device | None) -> Rows:
        found = []
        for part, makers in zip(layout, self._pages(layout, plan(self._options, layout)), strict=True):
            if len(payload) < _HEAD.size:
                raise DataError("the record ends before all of the chunk's tensors")
            kind, length = _HEAD.unpack(payload[: _HEAD.size])
            data = payload[_HEAD.size : _HEAD.size + length]
            if len(data) != length or kind not in (_PAGE, _PLAIN) or (kind == _PAGE and makers is None):
                raise DataError("the record holds no tensor of the chunk where one should be")
            payload = payload[_HEAD.size + length :]
            if makers is None or kind == _PLAIN:
                found.append(_plain(part, data))
            else:
                found.append(_paged(part.empty(device), part, data, makers[1]))
        if len(payload):
            raise DataError("the record holds more than the chunk's tensors")
        return found

    def _stored(self, part: Part, tensor: torch.Tensor, room: int, makers: Makers) -> tuple[int, bytes]:
        tensor = tensor.detach().contiguous()
        if makers is None:
            return _PLAIN, _bytes(tensor)
        keys, values = part.rows(tensor)
        why: LimitError | None = None
        for maker in makers:
            if maker is None:
                continue
            try:
                # No position is known, and no bases need one. Position 0 makes the first tokens exact, where that is asked for.
                page = maker.encode(keys, values, 0)
            except LimitError as error:
                why = error
                continue
            if len(page) <= min(room, part.nbytes):
                return _PAGE, page
            why = why or LimitError(f"a lossless page takes {len(page)} bytes, {room} are allowed")
        if part.nbytes <= room or why is None:
            return _PLAIN, _bytes(tensor)
        raise why

    def _identity(self, model: str, layout: Layout) -> Identity:
        options = self._options
        found = self._identities.get((model, layout))
        if found is None:
            dtypes = sorted({str(part.values_are).removeprefix("torch.") for part in layout})
            parts = ", ".join(part.describe() for part in layout)
            text = f"lmcache {parts}, {options.rate}, {'padded' if options.pad else 'as long as it is'}"
            found = Identity(options.model or model, options.revision, " ".join(dtypes), self._basis, text)
            self._identities[(model, layout)] = found
        return found

    def _pages(self, layout: Layout, made: Plan) -> list[Makers]:
        """Made once a layout, and only here: size estimates must not fail."""
        with self._lock:
            if layout not in self._makers:
                self._makers[layout] = [
                    self._pages_of(part, None if made.lossless else room) for part, room in zip(layout, made.room, strict=True)
                ]
            return self._makers[layout]

    def _pages_of(self, part: Part, room: int | None) -> Makers:
        if not part.planes:
            return None
        at_rate = None if room is None else self._options.pages(part.layers, max(room, 1))
        return at_rate, self._options.pages(part.layers)


def plan(options: Options, layout: Layout) -> Plan:
    """Bytes for chunks of a layout: what the rate allows, less what the record takes for itself, by numbers of values."""
    overhead = RECORD_OVERHEAD + _HEAD.size * len(layout)
    plain = sum(part.nbytes for part in layout if not part.planes)
    values = sum(part.values for part in layout if part.planes)
    if options.lossless and options.bits is None and options.max_bytes is None:
        # What does not shrink is stored as it is.
        all_of_it = tuple(part.nbytes for part in layout)
        return Plan(overhead + sum(all_of_it), False, all_of_it, True)
    if options.max_bytes is not None:
        size = options.max_bytes
    else:
        bits = DEFAULT_BITS if options.bits is None else options.bits
        size = plain + int(values * bits / 8) + (0 if values else overhead)
    left = max(size - overhead - plain, 0)
    room = tuple(left * part.values // values if part.planes else part.nbytes for part in layout)
    return Plan(size, options.pad, room, options.lossless)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().flatten().view(torch.uint8).numpy().tobytes()


def _plain(part: Part, data: Any) -> torch.Tensor:
    if len(data) != part.nbytes:
        raise DataError(f"the record holds {len(data)} bytes of a tensor that has {part.nbytes}")
    if not part.nbytes:
        return part.empty()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(part.dtype).view(part.shape)


def _paged(tensor: torch.Tensor, part: Part, data: Any, pages: KvPages) -> torch.Tensor:
    keys, values = part.rows(tensor)
    try:
        pages.decode(data, keys, values)
    except ArgumentError as error:
        # Of a page that is of another shape than it should be.
        raise DataError(f"the record's page does not decode: {error}") from None
    part.join(keys, values, tensor)
    return tensor
