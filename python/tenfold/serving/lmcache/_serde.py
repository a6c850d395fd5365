"""The serde as LMCache calls it: from an object in memory to a buffer of bytes and back, for one key at a time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from lmcache.v1.distributed.serde import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AsyncSerdeProcessor,
    Deserializer,
    Serializer,
    get_registered_serde_types,
    register_serde_factory,
)

from ..._errors import Error, LimitError
from .._stats import Report
from ._chunks import ChunkCodec
from ._layout import Layout, flat_bytes, layout, tensors
from ._metrics import publish
from ._options import Options

logger = logging.getLogger(__name__)

NAME = "tenfold"


class TenfoldSerializer(Serializer):  # type: ignore[misc,unused-ignore]
    """Compresses chunks on their way to storage.

    Args:
        codec: what makes records; the deserializer's.
    """

    def __init__(self, codec: ChunkCodec) -> None:
        self._codec = codec
        self._report = Report(logger, codec.counts)

    def estimate_serialized_size(self, layout_desc: Any) -> int:
        """Bytes of a record of this layout; it never takes more."""
        bytes_are = self._codec.options.bytes_are
        return self._codec.max_bytes(layout(layout_desc.shapes, layout_desc.dtypes, bytes_are, self._codec.options.rotary))

    def serialize(self, src: Any, dst: Any, key: Any) -> int:
        """Writes the record of an object.

        Returns:
            Its bytes.

        Raises:
            Error: it was not stored; the message says why. LMCache then stores nothing of the call.
        """
        try:
            held, buffer = tensors(src), flat_bytes(dst)
            record = self._codec.encode(key.model_name, _text(key), _layout(self._codec, held), held)
            if len(record) > buffer.numel():
                raise LimitError(f"the buffer has {buffer.numel()} bytes, the record {len(record)}")
        except Error as error:
            logger.warning("tenfold: chunk %s is not stored: %s", key.chunk_hash.hex(), error)
            raise
        buffer[: len(record)].copy_(torch.frombuffer(bytearray(record), dtype=torch.uint8))
        self._report.remind()
        return len(record)


class TenfoldDeserializer(Deserializer):  # type: ignore[misc,unused-ignore]
    """Decompresses chunks that come from storage.

    Args:
        codec: what reads records; the serializer's.
    """

    def __init__(self, codec: ChunkCodec) -> None:
        self._codec = codec
        self._report = Report(logger, codec.counts)

    def deserialize(self, src: Any, dst: Any, key: Any) -> None:
        """Writes an object from its record: all of it, or nothing.

        Raises:
            DataError: the record is damaged or foreign. LMCache counts the call's keys as not found.
        """
        try:
            held, buffer = tensors(dst), flat_bytes(src)
            about = (key.model_name, _text(key), _layout(self._codec, held))
            found = self._codec.decode(*about, buffer.cpu().numpy(), held[0].device)
        except Error as error:
            logger.warning("tenfold: chunk %s cannot be used, taken as a miss: %s", key.chunk_hash.hex(), error)
            raise
        # Last, so that nothing half decoded reaches LMCache's memory.
        for target, tensor in zip(held, found, strict=True):
            target.copy_(tensor)
        self._report.remind()


def create(options: Mapping[str, Any]) -> Any:
    """A ``SerdeProcessor`` of LMCache with the options of docs/lmcache.md.

    Raises:
        ArgumentError: options that are unknown or cannot work.
    """
    stated = Options.parse(options)
    codec = ChunkCodec(stated)
    publish(codec.counts)
    return AsyncSerdeProcessor(TenfoldSerializer(codec), TenfoldDeserializer(codec), max_workers=stated.max_workers)


def register() -> None:
    """Registers the serde with LMCache; importing the package calls it."""
    if NAME not in get_registered_serde_types():
        register_serde_factory(NAME, create)


def _layout(codec: ChunkCodec, held: list[torch.Tensor]) -> Layout:
    return layout([tensor.shape for tensor in held], [tensor.dtype for tensor in held], codec.options.bytes_are, codec.options.rotary)


def _text(key: Any) -> str:
    """All of an ``ObjectKey``, as text of its own: neither names nor salts have an @."""
    return f"{key.chunk_hash.hex()}@{key.model_name}@{key.kv_rank:x}@{key.object_group_id:x}@{key.cache_salt}"
