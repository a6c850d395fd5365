"""Pages of a KV cache into the blocks of paged pools, as serving engines keep them: on a CUDA device or on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import _native
from .._arrays import as_blob
from .._errors import ArgumentError, DtypeError, UnsupportedError
from . import _device
from ._tensors import as_device, mark_written

if TYPE_CHECKING:
    from ..kv import PageCodec

# What memory of the engine starts at a multiple of.
_ALIGN = 256
# Pages that a device encodes at a time.
_AT_ONCE = 256
# Memory of layers, their counts and their strides, as the native module takes them.
_Pool = tuple[list[tuple[int, int]], tuple[int, int, int, int], tuple[int, int, int]]


class Loading:
    """Pages on their way into blocks. Work that is queued on the same stream afterwards finds them there; whether all is well only the
    device knows until :meth:`check` or :meth:`errors` asks, which waits for it."""

    def __init__(
        self,
        pages: int,
        said: Sequence[tuple[_native.CudaLoad, int, torch.Tensor]] = (),
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self._pages, self._said, self._stream = pages, list(said), stream
        self._found: list[Exception | None] | None = None

    def errors(self) -> list[Exception | None]:
        """Waits, and returns what is wrong with each page: None where it is whole."""
        if self._found is None:
            found: list[Exception | None] = [None] * self._pages
            # On the stream that the device works on, whichever is current by now.
            with nullcontext() if self._stream is None else _device.on(self._stream):
                statuses = [status.cpu().numpy().tobytes() for _, _, status in self._said]
            for (load, group, _), status in zip(self._said, statuses, strict=True):
                for page, error in enumerate(load.check(group, status)):
                    found[page] = found[page] or error
            self._found, self._said = found, []
        return self._found

    def check(self) -> None:
        """Waits, and raises what is wrong with the first page that is not whole. Do not attend to its tokens."""
        for page, error in enumerate(self.errors()):
            if error is not None:
                if hasattr(error, "add_note"):  # Python 3.11
                    error.add_note(f"page {page} of the call")
                raise error


class Staged:
    """Compressed pages in a device's memory, with the slots of their tokens: decoded as often as wanted, without the host.

    >>> staged = codec.stage(pages, slots, "cuda")                       # doctest: +SKIP
    >>> staged.decode(keys, values).check()                              # doctest: +SKIP
    """

    def __init__(self, codec: PageCodec, pages: Sequence[Any], slots: Any, device: torch.device) -> None:
        self._codec, self._pages = codec, len(pages)
        self._numbers = _slots(slots)
        blobs = [as_blob(page) for page in pages]
        with _device.preserve_current(device):
            self._stream = _device.stream(device)
            self._engine = _engine(codec, device)
            self._load = self._engine.plan(blobs)
            _check_count(self._numbers, self._load.tokens)
            host = _device.staging(self._load.staged_len)
            self._load.stage(blobs, self._numbers.tolist(), host)
            self._memory = _aligned(self._load.staged_len, device)
            self._memory.copy_(host, non_blocking=True)

    @property
    def device(self) -> torch.device:
        """Where the pages are."""
        return self._memory.device

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self._memory.nbytes

    def decode(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> Loading:
        """Queues the decoding into pools of the same device, as :meth:`tenfold.kv.PageCodec.decode_blocks` has them, on torch's current
        stream. Waits for nothing."""
        _check_pools(self._codec, keys, values)
        _check_range(self._numbers, keys[0])
        device = self._memory.device
        if keys[0].device != device:
            raise ArgumentError(f"the pages are on {device}, but the pools on {keys[0].device}")
        with _device.preserve_current(device):
            stream = _device.stream(device)
            if stream != self._stream:
                # The pages may still be on their way.
                stream.wait_stream(self._stream)
                _device.share(self._memory, stream)
            # Freed when this returns; the allocator reuses it only for later work on this stream.
            workspace = _aligned(self._load.workspace_len, device)
            memory = (workspace.data_ptr(), workspace.nbytes)
            staged = (self._memory.data_ptr(), self._memory.nbytes)
            said = []
            for group, (first, count) in enumerate(self._codec.groups):
                of_keys, of_values = (_pool(layers[first : first + count]) for layers in (keys, values))
                status = torch.zeros(self._load.statuses(group), 2, dtype=torch.int64, device=device)
                how = (of_keys, of_values, status.data_ptr(), memory, stream.cuda_stream)
                self._engine.queue(self._load, group, staged, *how)
                said.append((self._load, group, status))
        for pool in (*keys, *values):
            mark_written(pool)
        return Loading(self._pages, said, stream)


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
    _check_pools(codec, keys, values)
    numbers = _slots(slots)
    _check_range(numbers, keys[0])
    device = keys[0].device
    if not _device.is_ours(device):
        return _decode_on_cpu(codec, pages, numbers, keys, values)
    return Staged(codec, pages, numbers, device).decode(keys, values)


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
    _check_pools(codec, keys, values)
    table = _numbers(slots, 2, "slots are whole numbers: a row for each page, with one for each of its tokens")
    if table.size and table.min() < 0:
        raise ArgumentError("a page is made of tokens that have slots: none may be negative")
    _check_range(table, keys[0])
    first: list[Any] = [None] * len(table)
    if positions is not None:
        first = _numbers(positions, 1, "positions are whole numbers, one for each page").tolist()
    if len(first) != len(table):
        raise ArgumentError(f"there are {len(table)} pages, but {len(first)} positions")
    pages: list[bytes | None] = [None] * len(table)
    # Without positions the host says whether the keys need any.
    if positions is not None and table.size and encodes(codec, keys[0].device, goal):
        # What a device makes room for; pages of one call share it.
        for start in range(0, len(table), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            pages[part] = _encode_on_device(codec, table[part], first[part], keys, values, float(goal["step"]))
    left = [number for number, page in enumerate(pages) if page is None]
    rows = [([_tokens(pool, table[number]) for pool in keys], [_tokens(pool, table[number]) for pool in values]) for number in left]
    made = codec.encode_many([(*rows[at], first[number]) for at, number in enumerate(left)], **goal) if left else []
    for number, page in zip(left, made, strict=True):
        pages[number] = page
    return [page for page in pages if page is not None]


def encodes(codec: PageCodec, device: torch.device, goal: dict[str, Any]) -> bool:
    """Whether a device makes pages of a codec."""
    if not _device.is_ours(device) or list(goal) != ["step"]:
        return False
    try:
        _engine(codec, device).save(1, 1, float(goal["step"]))
    except UnsupportedError:
        return False
    return True


def _encode_on_device(
    codec: PageCodec,
    slots: np.ndarray,
    positions: Sequence[int],
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    step: float,
) -> list[bytes | None]:
    """Pages that the device makes; None for those that it does not, such as ones with NaN."""
    device = keys[0].device
    engine = _engine(codec, device)
    save = engine.save(len(slots), slots.shape[1], step)
    with _device.preserve_current(device):
        stream = _device.stream(device)
        at = torch.from_numpy(slots).to(device)
        starts = torch.tensor(positions, dtype=torch.int64).to(device)
        workspace = _aligned(save.workspace_len, device)
        made, said = [], []
        for group, (first, count) in enumerate(codec.groups):
            of_keys, of_values = (_pool(layers[first : first + count]) for layers in (keys, values))
            blobs = _aligned(save.blobs_len[group], device)
            status = torch.zeros(save.statuses, 2, dtype=torch.int64, device=device)
            given, begun, to, work = ((one.data_ptr(), one.nbytes) for one in (at, starts, blobs, workspace))
            how = (of_keys, of_values, given, begun, to, status.data_ptr(), work, stream.cuda_stream)
            engine.queue_save(save, group, *how)
            made.append(blobs)
            said.append(status)
        places = [engine.places(save, group, status.cpu().numpy().tobytes()) for group, status in enumerate(said)]
        # One copy a group, of what was used.
        content = [_fetch(blobs, found) for blobs, found in zip(made, places, strict=True)]
    pages: list[bytes | None] = []
    for parts in zip(*content, strict=True):
        whole = [part for part in parts if part is not None]
        pages.append(engine.assemble(save, whole) if len(whole) == len(parts) else None)
    return pages


def _fetch(blobs: torch.Tensor, places: Sequence[Sequence[tuple[int, int]] | None]) -> list[tuple[np.ndarray, np.ndarray] | None]:
    """Keys and values of pages on the host."""
    wanted = [place for page in places if page is not None for place in page]
    if not wanted:
        return [None] * len(places)
    host = torch.cat([blobs[start:end] for start, end in wanted]).cpu().numpy()
    parts = iter(np.split(host, np.cumsum([end - start for start, end in wanted])[:-1]))
    return [None if page is None else (next(parts), next(parts)) for page in places]


def _tokens(pool: torch.Tensor, slots: np.ndarray) -> torch.Tensor:
    """Rows of some slots, on the host."""
    return pool[_at(pool, torch.from_numpy(slots).to(pool.device))].flatten(1).contiguous().cpu()


def _at(pool: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Where slots are in a pool."""
    block = _per_block(pool)
    return (slots // block, slots % block) if pool.dim() == 4 else (slots,)


def _engine(codec: PageCodec, device: torch.device) -> _native.CudaPages:
    """What a codec has on a device."""
    if device not in codec._engines:
        with _device.preserve_current(device):
            codec._engines[device] = _native.CudaPages(codec._native, _device.native(device))
    return codec._engines[device]


def stage(codec: PageCodec, pages: Sequence[Any], slots: Any, device: Any) -> Staged:
    """See :meth:`tenfold.kv.PageCodec.stage`."""
    where = as_device(device)
    if not _device.is_ours(where):
        raise ArgumentError(f"pages are staged on a CUDA device, not on {where}; decode_blocks takes pools of the CPU")
    return Staged(codec, pages, slots, where)


def _decode_on_cpu(
    codec: PageCodec, pages: Sequence[Any], slots: np.ndarray, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> Loading:
    tokens = [codec.inspect(page).tokens for page in pages]
    _check_count(slots, sum(tokens))

    def room(count: int, pools: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.empty(count, pool[0].numel() // _per_block(pool), dtype=pool.dtype) for pool in pools]

    outs = [(room(count, keys), room(count, values)) for count in tokens]
    codec.decode_many(pages, outs)
    wanted = torch.from_numpy(slots >= 0)
    index = torch.from_numpy(slots)[wanted]
    for side, pools in enumerate((keys, values)):
        for layer, pool in enumerate(pools):
            rows = torch.cat([out[side][layer] for out in outs])[wanted] if outs else torch.empty(0)
            at = _at(pool, index)
            pool[at] = rows.view(len(index), *pool.shape[len(at) :])
    return Loading(len(pages))


def _per_block(pool: torch.Tensor) -> int:
    """Slots of a block."""
    return pool.shape[1] if pool.dim() == 4 else 1


def _check_pools(codec: PageCodec, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    if len(keys) != codec.layers or len(values) != codec.layers:
        raise ArgumentError(f"a page has {codec.layers} layers; {len(keys)} pools of keys and {len(values)} of values were given")
    for pool in (*keys, *values):
        if not isinstance(pool, torch.Tensor) or not 2 <= pool.dim() <= 4 or pool.stride(-1) != 1:
            raise ArgumentError(
                "a pool is a tensor of (blocks, slots, heads, columns), (slots, heads, columns) or (slots, columns), with columns side by side"
            )
        if pool.device != keys[0].device:
            raise ArgumentError(f"a pool is on {pool.device}, but others are on {keys[0].device}")
        if pool.shape[:-2] != keys[0].shape[:-2] or pool.dim() != keys[0].dim() or pool.shape[0] != keys[0].shape[0]:
            raise ArgumentError("all pools must have the same blocks and slots")
        if _device.is_ours(pool.device) and pool.dtype != torch.bfloat16:
            raise DtypeError(f"a device decodes pages into pools of torch.bfloat16, not {pool.dtype}; decode on the CPU")


def _slots(slots: Any) -> np.ndarray:
    """Slots of tokens as numbers on the host; −1 for tokens that go nowhere."""
    found = _numbers(slots, 1, "slots are a list of whole numbers, one for each token")
    if found.size and found.min() < -1:
        raise ArgumentError("slots are not negative, but for -1: a token that goes nowhere")
    used = found[found >= 0]
    if len(np.unique(used)) != len(used):
        raise ArgumentError("two tokens have the same slot")
    return found


def _numbers(given: Any, dimensions: int, why: str) -> np.ndarray:
    """Whole numbers on the host."""
    found = np.asarray(given.cpu() if isinstance(given, torch.Tensor) else given)
    if found.ndim != dimensions or found.dtype.kind not in "iu" and found.size:
        raise DtypeError(why)
    return np.ascontiguousarray(found, np.int64)


def _check_range(slots: np.ndarray, pool: torch.Tensor) -> None:
    count = pool.shape[0] * _per_block(pool)
    if slots.size and slots.max() >= count:
        raise ArgumentError(f"the pools have slots 0 to {count - 1}, and a token goes to {slots.max()}")


def _check_count(slots: np.ndarray, tokens: int) -> None:
    if len(slots) != tokens:
        raise ArgumentError(f"the pages have {tokens} tokens, but there are {len(slots)} slots")


def _pool(layers: Sequence[torch.Tensor]) -> _Pool:
    """How layers lie in memory, which must be the same way for all of a group."""
    first = layers[0]
    if any(layer.stride() != first.stride() or layer.shape != first.shape for layer in layers):
        raise ArgumentError("pools of layers that are coded together must have the same shape and strides")
    size = first.element_size()
    shape, strides = list(first.shape), [size * stride for stride in first.stride()]
    if first.dim() == 2:
        shape.insert(1, 1)
        strides.insert(1, size * shape[-1])
    if first.dim() < 4:
        shape.insert(1, 1)
        strides.insert(1, strides[0])
    blocks, block, heads, columns = shape
    extent = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True)) + size
    memory = [(layer.data_ptr(), extent) for layer in layers]
    return memory, (blocks, block, heads, size * columns), (strides[0], strides[1], strides[2])


def _aligned(length: int, device: torch.device) -> torch.Tensor:
    room = torch.empty(length + _ALIGN, dtype=torch.uint8, device=device)
    start = -room.data_ptr() % _ALIGN
    return room[start : start + length]
