"""Keys and values of some tokens, in all layers, to bytes and back: what every plug-in stores."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import max_encoded_len
from .._errors import ArgumentError, DataError, UnsupportedError
from ..kv import Bases, PageCodec
from ._identity import file_fingerprint
from ._rows import as_bits, count_values, room_like, side_by_side

if TYPE_CHECKING:
    from ..torch._staged import Loading

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
        goal = self._goal(sum(count_values(t) for t in (*keys, *values)))
        if self._joined > 1:
            keys, values = ([side_by_side(some) for some in self._grouped(all_)] for all_ in (keys, values))
        return codec.encode(keys, values, position=position if self._turned else None, **goal)

    def decode(self, page: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Decodes all layers into arrays or CPU tensors of tokens × columns.

        Raises:
            DataError: the page is damaged or has another shape. Do not use what was decoded before.
        """
        if len(keys) != self.layers or len(values) != self.layers:
            raise ArgumentError(f"a page has {self.layers} layers; {len(keys)} keys and {len(values)} values were given")
        if self._joined == 1:
            self._check_tokens(page, keys[0].shape[0])
            self._codec.decode_many([page], [(keys, values)])
            return
        for group, parts in enumerate(zip(self._grouped(keys), self._grouped(values), strict=True)):
            for part, room in zip(parts, self._decoded(page, group, *parts), strict=True):
                first = 0
                for layer in map(as_bits, part):
                    layer[...] = room[:, first : first + layer.shape[1]]
                    first += layer.shape[1]

    def encodes_blocks(self, device: Any, values: int, position: int | None) -> bool:
        """Whether a device makes pages of so many values by itself, and compressed bytes alone leave it.

        Args:
            device: a torch device.
            values: numbers in all keys and values of a page.
            position: of a page's first token; the page with the first token of all may be another matter.
        """
        if self._joined != 1 or not self._turned:
            return False
        from ..torch import _blocks

        return _blocks.encodes(self._first if position == 0 else self._codec, device, self._goal(values))

    def encode_blocks(
        self, slots: Sequence[Sequence[int]], keys: Sequence[Any], values: Sequence[Any], positions: Sequence[int]
    ) -> list[bytes]:
        """Encodes pages of tokens in paged pools, as :meth:`tenfold.kv.PageCodec.encode_blocks` does.

        Args:
            slots: of each page's tokens, a row a page, all of one length.
            keys: the pool of each layer.
            values: likewise.
            positions: of each page's first token.
        """
        if self._joined != 1:
            raise UnsupportedError("layers that are coded side by side without bases are not made from blocks")
        tokens = len(slots[0]) if slots else 0
        goal = self._goal(sum(tokens * pool[0].numel() // (pool.shape[1] if pool.dim() == 4 else 1) for pool in (*keys, *values)))
        made: list[bytes] = [b""] * len(slots)
        for codec, wanted in self._by_codec(positions):
            starts = [positions[number] for number in wanted] if self._turned else None
            table = [slots[number] for number in wanted]
            for number, page in zip(wanted, codec.encode_blocks(table, keys, values, positions=starts, **goal), strict=True):
                made[number] = page
        return made

    def decode_blocks(
        self, pages: Sequence[Any], slots: Sequence[Sequence[int]], keys: Sequence[Any], values: Sequence[Any]
    ) -> list[Exception | None]:
        """Decodes all layers of pages into paged pools, as :meth:`tenfold.kv.PageCodec.decode_blocks` does, and waits.

        Args, Raises: as for :meth:`begin_blocks`.

        Returns:
            What is wrong with each page; None where it is whole. Do not use what the slots of others hold.
        """
        return self.begin_blocks(pages, slots, keys, values).errors()

    def begin_blocks(
        self, pages: Sequence[Any], slots: Sequence[Sequence[int]], keys: Sequence[Any], values: Sequence[Any], *, waves: int | None = None
    ) -> Loading:
        """Queues the decoding of all layers of pages into paged pools. Waits for nothing on a CUDA device.

        Args:
            pages: bytes of pages.
            slots: of each page's tokens, a row a page; -1 for a token that goes nowhere.
            keys: the pool of each layer.
            values: likewise.
            waves: all pages layer by layer, in so many runs of layers, each of which a stream can wait for. Unless stated, in as few as
                a device likes.

        Returns:
            What says when a layer is there, and at last what is wrong with each page.

        Raises:
            DataError: a page is not one of so many tokens, or so damaged that nothing was begun.
            UnsupportedError: the pools' device does not decode it.
        """
        if self._joined != 1:
            raise UnsupportedError("layers that are coded side by side without bases are not decoded into blocks")
        for page, row in zip(pages, slots, strict=True):
            self._check_tokens(page, len(row))
        if waves is None:
            return self._codec.decode_blocks(pages, [slot for row in slots for slot in row], keys, values)
        from ..torch import _blocks

        return _blocks.decode_in_order(self._codec, pages, slots, keys, values, waves)

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
            as_bits(into)[...] = room[:, number * columns : (number + 1) * columns]

    def runs(self, most: int) -> list[range]:
        """All layers in so many runs at most, one after the other. Layers that share a basis are in one, as one costs as much as all."""
        groups = [count for _, count in self._codec.groups]
        if self._joined > 1:
            groups = [len(some) for some in self._grouped(range(self._layers))]
        ends = [sum(groups[: (part + 1) * len(groups) // most]) for part in range(most)]
        return [range(first, last) for first, last in zip([0, *ends], ends, strict=False) if first < last]

    def decode_run(self, page: Any, layers: range, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Decodes layers that follow each other, each into arrays or CPU tensors of tokens × columns; see :meth:`runs`.

        Raises:
            DataError: the page is damaged or has another shape. Do not use what was decoded before.
        """
        if self._joined > 1:
            for layer, key, value in zip(layers, keys, values, strict=True):
                self.decode_layer(page, layer, key, value)
            return
        self._check_tokens(page, keys[0].shape[0])
        self._codec.decode_run(page, layers.start, list(zip(keys, values, strict=True)))

    def _decoded(self, page: Any, group: int, keys: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Decodes the keys and values of a group, as integers, for layers like these."""
        rooms = [room_like(part[0], sum(layer.shape[1] for layer in part)) for part in (keys, values)]
        self._decode(page, group, *rooms)
        return [as_bits(room) for room in rooms]

    def _decode(self, page: Any, layer: int, key: Any, value: Any) -> None:
        self._check_tokens(page, key.shape[0])
        self._codec.decode_layer(page, layer, keys=key, values=value)

    def _check_tokens(self, page: Any, expected: int) -> None:
        tokens = self._codec.inspect(page).tokens
        if tokens != expected:
            raise DataError(f"the page has {tokens} tokens, {expected} were expected")

    def _goal(self, values: int) -> dict[str, Any]:
        """The rate of a page of so many values, as the codec takes it."""
        if self._max_bytes is not None:
            return {"max_bytes": self._max_bytes}
        return {"lossless": True} if self._bits is None else {"max_bytes": int(values * self._bits / 8)}

    def _by_codec(self, positions: Sequence[int]) -> list[tuple[PageCodec, list[int]]]:
        """What makes pages at these positions, and which of them."""
        first = [number for number, position in enumerate(positions) if position == 0]
        rest = [number for number, position in enumerate(positions) if position != 0]
        return [(codec, wanted) for codec, wanted in ((self._first, first), (self._codec, rest)) if wanted]

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
