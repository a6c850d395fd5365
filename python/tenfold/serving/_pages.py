"""Keys and values of some tokens, in all layers, to bytes and back: what every plug-in stores."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy

from .. import max_encoded_len
from .._errors import ArgumentError, DataError, UnsupportedError
from ..kv import Bases, PageCodec
from ._identity import file_fingerprint

DEFAULT_BITS = 4.0
# Header of a page: fixed fields and padding; and, for each group of layers, five numbers of ten bytes at most.
_HEADER, _GROUP = 64, 50


class KvPages:
    """Encodes and decodes pages at one rate. Threads may share it.

    Args:
        layers: layers of the model.
        bits: bits a value, all bytes counted; pages never take more. 4 by default.
        max_bytes: bytes of a page, instead of bits.
        lossless: every bit stays.
        bases: path of a file of bases for the model (``tenfold basis fit``): fewer bits at the same error.
        rope: rotary positions of the keys, as in :class:`tenfold.kv.PageCodec`, if there are no bases.
        exact: how many tokens stay exact at the start of the page with position 0: they are attention sinks.
        group: layers that are coded together, if there are no bases. Larger groups encode faster and take fewer bytes,
            but reading one layer then costs as much as reading its whole group.
        key_step: quantiser step of keys over that of values.
        effort: "fast", "balanced" or "best".
        threads: worker threads; 0 uses all cores.
    """

    def __init__(
        self,
        layers: int,
        *,
        bits: float | None = None,
        max_bytes: int | None = None,
        lossless: bool = False,
        bases: str | os.PathLike[str] | None = None,
        rope: dict[str, Any] | None = None,
        exact: int = 1,
        group: int = 1,
        key_step: float = 1.0,
        effort: str = "fast",
        threads: int = 0,
    ) -> None:
        if (bits is not None) + (max_bytes is not None) + lossless > 1:
            raise ArgumentError("one of bits, max_bytes and lossless, not several")
        if bits is not None and not 0 < bits <= 64:
            raise ArgumentError(f"bits are above 0 and at most 64 a value, not {bits}")
        if max_bytes is not None and max_bytes < 1:
            raise ArgumentError(f"max_bytes is a number of bytes, not {max_bytes}")
        if group < 1:
            raise ArgumentError(f"a group has one layer at least, not {group}")
        self._max_bytes = max_bytes
        self._bits = None if lossless or max_bytes is not None else DEFAULT_BITS if bits is None else bits
        opened = None if bases is None else Bases.open(bases)
        if opened is not None and opened.layers != layers:
            raise ArgumentError(f"{os.fspath(bases or '')} has bases for {opened.layers} layers, the model has {layers}")
        self._basis = file_fingerprint(bases)
        self._turned = rope is not None or opened is not None
        if not 0 < key_step < math.inf:
            raise ArgumentError(f"key_step is above 0, not {key_step}")
        how: dict[str, Any] = {"effort": effort, "threads": threads, "steps": (key_step, 1.0)}
        self._layers = layers
        # Layers that are one layer of the codec.
        self._joined = 1 if opened is not None else min(group, layers)
        how |= {"bases": opened} if opened is not None else {"layers": -(-layers // self._joined), "rope": rope}
        self._codec = PageCodec(**how)
        # The page with the first token keeps some tokens exact. Reading does not need the distinction.
        self._first = PageCodec(**how, exact=(exact, 0)) if exact else self._codec

    @property
    def layers(self) -> int:
        """Layers of a page."""
        return self._layers

    @property
    def basis(self) -> str:
        """Fingerprint of the file of bases, ``""`` where there is none."""
        return self._basis

    def describe(self) -> str:
        """Returns the rate, for an identity's layout: pages of other rates differ."""
        if self._max_bytes is not None:
            return f"max_bytes={self._max_bytes}"
        return "lossless" if self._bits is None else f"bits={self._bits:g}"

    def encode(self, keys: Sequence[Any], values: Sequence[Any], position: int | None = None) -> bytes:
        """Encodes keys and values of some tokens.

        Args:
            keys: for each layer an array or CPU tensor of tokens × columns, or tokens × heads × columns.
            values: likewise.
            position: of the first token; needed with bases or rope.

        Raises:
            LimitError: it does not fit the bytes that the rate allows, for example if most values are NaN.
        """
        codec = self._first if position == 0 else self._codec
        goal: dict[str, Any] = {"lossless": True}
        if self._max_bytes is not None:
            goal = {"max_bytes": self._max_bytes}
        elif self._bits is not None:
            goal = {"max_bytes": int(sum(_values(t) for t in (*keys, *values)) * self._bits / 8)}
        if self._joined > 1:
            keys, values = ([_side_by_side(some) for some in self._grouped(all_)] for all_ in (keys, values))
        return codec.encode(keys, values, position=position if self._turned else None, **goal)

    def decode(self, page: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Decodes all layers into arrays or CPU tensors of tokens × columns.

        Raises:
            DataError: the page is damaged or has another shape. Do not use what was decoded before.
        """
        if len(keys) != self.layers or len(values) != self.layers:
            raise ArgumentError(f"a page has {self.layers} layers; {len(keys)} keys and {len(values)} values were given")
        if self._joined == 1:
            self._check_tokens(page, keys[0])
            self._codec.decode_many([page], [(keys, values)])
            return
        for group, parts in enumerate(zip(self._grouped(keys), self._grouped(values), strict=True)):
            for part, room in zip(parts, self._decoded(page, group, *parts), strict=True):
                first = 0
                for layer in map(_bits, part):
                    layer[...] = room[:, first : first + layer.shape[1]]
                    first += layer.shape[1]

    def decode_blocks(self, page: Any, slots: Sequence[int], keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Decodes all layers into paged pools, as :meth:`tenfold.kv.PageCodec.decode_blocks` does, and waits.

        Raises:
            DataError: the page is damaged. Do not use what its slots hold.
            UnsupportedError: the pools' device does not decode it.
        """
        if self._joined != 1:
            raise UnsupportedError("layers that are coded side by side without bases are not decoded into blocks")
        self._codec.decode_blocks([page], slots, keys, values).check()

    def decode_layer(self, page: Any, layer: int, key: Any, value: Any) -> None:
        """Decodes one layer."""
        if self._joined == 1:
            self._decode(page, layer, key, value)
            return
        if not 0 <= layer < self._layers:
            raise ArgumentError(f"layers are 0 to {self._layers - 1}, not {layer}")
        group, number = divmod(layer, self._joined)
        count = len(self._grouped(range(self._layers))[group])
        for into, room in zip((key, value), self._decoded(page, group, [key] * count, [value] * count), strict=True):
            columns = into.shape[1]
            _bits(into)[...] = room[:, number * columns : (number + 1) * columns]

    def _decoded(self, page: Any, group: int, keys: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Decodes the keys and values of a group, as integers, for layers like these."""
        rooms = [_room(part[0], sum(layer.shape[1] for layer in part)) for part in (keys, values)]
        self._decode(page, group, *rooms)
        return [_bits(room) for room in rooms]

    def _decode(self, page: Any, layer: int, key: Any, value: Any) -> None:
        self._check_tokens(page, key)
        self._codec.decode_layer(page, layer, keys=key, values=value)

    def _check_tokens(self, page: Any, like: Any) -> None:
        tokens = self._codec.inspect(page).tokens
        if tokens != like.shape[0]:
            raise DataError(f"the page has {tokens} tokens, {like.shape[0]} were expected")

    def _grouped(self, tensors: Sequence[Any]) -> list[Sequence[Any]]:
        return [tensors[first : first + self._joined] for first in range(0, len(tensors), self._joined)]

    def max_bytes(self, tokens: int, columns: int, dtype: Any) -> int:
        """Returns the largest size of a page of this many tokens; ``columns`` are those of a layer's keys or values."""
        if self._max_bytes is not None:
            return self._max_bytes
        if self._bits is not None:
            return int(2 * self.layers * tokens * columns * self._bits / 8)
        counts = [count for _, count in self._codec.groups]
        if self._joined > 1:
            counts = [len(some) for some in self._grouped(range(self._layers))]
        each = sum(max_encoded_len(dtype, (tokens, count * columns)) for count in counts)
        return _HEADER + _GROUP * len(counts) + 2 * each


def _side_by_side(layers: Sequence[Any]) -> Any:
    """Joins the columns of several layers into one."""
    rows = [_bits(layer) for layer in layers]
    room = _room(layers[0], sum(row.shape[1] for row in rows))
    numpy.concatenate(rows, axis=1, out=_bits(room))
    return room


def _room(like: Any, columns: int) -> Any:
    """Allocates an array or tensor like this one with more columns."""
    shape = (like.shape[0], columns)
    return like.new_empty(shape) if hasattr(like, "new_empty") else numpy.empty(shape, like.dtype)


def _bits(tensor: Any) -> Any:
    """Views an array or tensor as integers, tokens × columns: numpy has no bfloat16."""
    if hasattr(tensor, "new_empty"):
        import torch

        kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        tensor = tensor.detach().view(kinds[tensor.element_size()]).numpy()
    else:
        tensor = tensor.view(f"u{tensor.dtype.itemsize}")
    return tensor.reshape(tensor.shape[0], -1)


def _values(tensor: Any) -> int:
    count = 1
    for extent in tensor.shape:
        count *= int(extent)
    return count
