"""Pages of a KV cache into the blocks of paged pools, as serving engines keep them: on a CUDA device or on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._errors import ArgumentError, UnsupportedError
from . import _device
from ._made import Maker, Saving
from ._pools import as_bits, check_count, check_pools, check_range, columns_of, numbers_of, places_in, slots_of, tokens_of
from ._staged import Loading, Passing, Staged, decode_in_waves, engine_of
from ._tensors import as_device

if TYPE_CHECKING:
    from ..kv import PageCodec

# Pages that a device decodes at a time: what it makes room for, which pages of one call share.
_AT_ONCE = 512


def decode(
    codec: PageCodec, pages: Sequence[Any], slots: Any, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> Loading:
    """See :meth:`tenfold.kv.PageCodec.decode_blocks`.

    >>> import tenfold.kv
    >>> codec = tenfold.kv.PageCodec(layers=1)
    >>> rows = torch.randn(4, 2, 8).bfloat16()
    >>> page = codec.encode([rows], [rows], lossless=True)
    >>> pool = torch.zeros(3, 2, 2, 8, dtype=torch.bfloat16)          # 3 blocks of 2 slots, 2 heads of 8 columns
    >>> codec.decode_blocks([page], [4, 1, 0, 5], [pool], [pool.clone()]).check()
    >>> torch.equal(pool[2, 0], rows[0]) and torch.equal(pool[0, 1], rows[1])
    True
    """
    check_pools(codec, keys, values)
    numbers = slots_of(slots)
    check_range(int(numbers.max(initial=-1)), keys[0])
    device = keys[0].device
    if not _device.is_ours(device):
        return _decode_on_cpu(codec, pages, numbers, keys, values)
    return Passing(codec, pages, numbers, device).decode(keys, values)


def decode_in_order(
    codec: PageCodec,
    pages: Sequence[Any],
    slots: Sequence[Sequence[int]],
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    waves: int,
) -> Loading:
    """As :func:`decode`, with a row of slots for each page, and layer by layer on a CUDA device: no layer of any page comes before an
    earlier layer of another. :meth:`Loading.wait_for` waits for one of so many runs of layers."""
    device = keys[0].device
    if not _device.is_ours(device) or not pages:
        return decode(codec, pages, [slot for row in slots for slot in row], keys, values)
    check_pools(codec, keys, values)
    slots_of([slot for row in slots for slot in row])
    parts = []
    for first in range(0, len(pages), _AT_ONCE):
        rows = slots[first : first + _AT_ONCE]
        parts.append(Passing(codec, pages[first : first + _AT_ONCE], [slot for row in rows for slot in row], device))
    return decode_in_waves(parts, keys, values, waves)


def encode(
    codec: PageCodec, slots: Any, positions: Any, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], goal: dict[str, Any]
) -> list[bytes]:
    """See :meth:`tenfold.kv.PageCodec.encode_blocks`.

    >>> import tenfold.kv
    >>> codec = tenfold.kv.PageCodec(layers=1)
    >>> pool = torch.randn(3, 2, 2, 8).bfloat16()
    >>> pages = codec.encode_blocks([[4, 1], [0, 5]], [pool], [pool], lossless=True)
    >>> back = [torch.zeros_like(pool) for _ in range(2)]
    >>> codec.decode_blocks(pages, [4, 1, 0, 5], back[:1], back[1:]).check()
    >>> torch.equal(back[0][2, 0], pool[2, 0])
    True
    """
    table, first = _tokens(codec, slots, positions, keys, values)
    pages: list[bytes | None] = [None] * len(table)
    lossless = "lossless" in goal
    # Without positions the host says whether the keys need any.
    if (positions is not None or lossless) and table.size and encodes(codec, keys[0].device, goal):
        begun = np.zeros(len(table), np.int64) if lossless else np.array(first, np.int64)
        maker, cap = Maker(codec, (keys, values)), _cap(goal, table.shape[1], (*keys, *values))
        if lossless:
            pages = maker.at_step(table, begun, None)
        elif "step" in goal:
            pages = maker.at_step(table, begun, float(goal["step"]))
        elif cap is not None:
            pages = maker.within(table, begun, cap)
    left = [number for number, page in enumerate(pages) if page is None]
    rows = [([tokens_of(pool, table[number]) for pool in keys], [tokens_of(pool, table[number]) for pool in values]) for number in left]
    made = codec.encode_many([(*rows[at], first[number]) for at, number in enumerate(left)], **goal) if left else []
    for number, page in zip(left, made, strict=True):
        pages[number] = page
    return [page for page in pages if page is not None]


def begin(
    codec: PageCodec, slots: Any, positions: Any, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], step: float
) -> Saving:
    """See :meth:`tenfold.kv.PageCodec.begin_blocks`."""
    table, first = _tokens(codec, slots, positions, keys, values)
    if len(table) and not table.size:
        raise ArgumentError("a page has at least one token")
    if positions is None or not encodes(codec, keys[0].device, {"step": step}):
        raise ArgumentError(
            f"{keys[0].device} does not make these pages by itself: that takes a CUDA device, bfloat16, float16 or float8 pools, and positions; "
            "encode_blocks takes others"
        )
    maker = Maker(codec, (keys, values))
    return maker.begin(table, np.array(first, np.int64), step) if table.size else Saving(maker, [])


def _tokens(
    codec: PageCodec, slots: Any, positions: Any, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> tuple[np.ndarray, list[Any]]:
    """Slots of each page's tokens, and positions of their first ones; None for each without positions."""
    check_pools(codec, keys, values)
    table = numbers_of(slots, 2, "slots are whole numbers: a row for each page, with one for each of its tokens")
    if table.size and table.min() < 0:
        raise ArgumentError("a page is made of tokens that have slots: none may be negative")
    check_range(int(table.max(initial=-1)), keys[0])
    first: list[Any] = [None] * len(table)
    if positions is not None:
        first = numbers_of(positions, 1, "positions are whole numbers, one for each page").tolist()
    if len(first) != len(table):
        raise ArgumentError(f"there are {len(table)} pages, but {len(first)} positions")
    return table, first


def _cap(goal: dict[str, Any], tokens: int, pools: Sequence[torch.Tensor]) -> int | None:
    """Bytes of a page; None for a number that is none, of which the host says what is wrong."""
    cap = float(goal.get("max_bytes", 0))
    if "bits" in goal:
        cap = sum(tokens * columns_of(pool) for pool in pools) * float(goal["bits"]) / 8
    return int(goal.get("max_bytes", cap)) if 0 <= cap < 2**62 else None


def encodes(codec: PageCodec, device: torch.device, goal: dict[str, Any]) -> bool:
    """Whether a device makes pages of a codec."""
    if not _device.is_ours(device) or not {"step", "bits", "max_bytes", "lossless"}.issuperset(goal):
        return False
    try:
        engine_of(codec, device)
    except UnsupportedError:
        return False
    return True


def stage(codec: PageCodec, pages: Sequence[Any], slots: Any, device: Any, pinned: bool) -> Staged:
    """See :meth:`tenfold.kv.PageCodec.stage`."""
    where = as_device(device)
    if not _device.is_ours(where):
        raise ArgumentError(f"pages are staged on a CUDA device, not on {where}; decode_blocks takes pools of the CPU")
    return Staged(codec, pages, slots, where, pinned=pinned)


def _decode_on_cpu(
    codec: PageCodec, pages: Sequence[Any], slots: np.ndarray, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> Loading:
    tokens = [codec.inspect(page).tokens for page in pages]
    check_count(slots, sum(tokens))

    def room(count: int, pools: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.empty(count, columns_of(pool), dtype=pool.dtype) for pool in pools]

    outs = [(room(count, keys), room(count, values)) for count in tokens]
    codec.decode_many(pages, outs)
    wanted = torch.from_numpy(slots >= 0)
    index = torch.from_numpy(slots)[wanted]
    for side, pools in enumerate((keys, values)):
        for layer, pool in enumerate(pools):
            rows = torch.cat([as_bits(out[side][layer]) for out in outs])[wanted] if outs else torch.empty(0, dtype=pool.dtype)
            at = places_in(pool, index)
            as_bits(pool)[at] = as_bits(rows).view(len(index), *pool.shape[len(at) :])
    return Loading(len(pages))


