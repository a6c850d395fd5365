"""Pages of a key-value cache: keys and values of some tokens, in one layer or many, within a number of bytes.

>>> import numpy as np, tenfold.kv
>>> rng = np.random.default_rng(0)
>>> keys = [rng.standard_normal((64, 4, 32), dtype=np.float32) for layer in range(2)]
>>> values = [rng.standard_normal((64, 4, 32), dtype=np.float32) for layer in range(2)]
>>> codec = tenfold.kv.PageCodec(layers=2, exact=(4, 0))
>>> page = codec.encode(keys, values, max_bytes=10_000)
>>> len(page) <= 10_000
True
>>> k, v = codec.decode_layer(page, 1)
>>> k.shape, bool((k[:4] == keys[1].reshape(64, 128)[:4]).all())
((64, 128), True)

With a file of bases (``tenfold basis fit``) pages take a fraction of that. See docs/kv.md.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _native
from ._arrays import allocate, as_blob, as_input, convert
from ._codec import stated_goal
from ._errors import ArgumentError, DtypeError
from ._native import PageInfo

if TYPE_CHECKING:
    from .torch._made import Saving
    from .torch._staged import Loading, Staged
    from transformers import PreTrainedModel  # type: ignore[import-not-found, unused-ignore] # an environment of its own may not have it

__all__ = ["Bases", "HiddenCodec", "PageCodec", "PageInfo", "fit", "latent"]


def fit(
    model: PreTrainedModel,
    texts: Sequence[Any] | Mapping[str, Sequence[Any] | tuple[Sequence[Any], float]],
    out: str | os.PathLike[str],
    *,
    tokenizer: Any = None,
    context: int = 1024,
    contexts: int | None = None,
    each: bool = False,
    group: int = 10,
    bits: float = 2.0,
    hidden: Sequence[int] = (),
    metric: bool = True,
    every: int = 4,
    sinks: int = 4,
    max_bytes: int | None = None,
    overwrite: bool = False,
    fresh: bool = False,
    seed: int = 0,
    progress: bool | Callable[[int, int], object] | None = None,
) -> dict[str, Any]:
    """Makes a file of bases for a model of transformers from sample text.

    Rows of keys and values, and what errors in them do to the model's predictions, are captured context by context into
    the folder ``out + ".capture"``, which takes four bytes for each token, layer and column of keys, and is removed at the
    end. If the work is interrupted, the same call goes on where it was; only ``group``, ``bits``, ``each``, ``max_bytes``,
    ``overwrite`` and ``progress`` may differ. A :class:`UserWarning` tells where a basis saves less than none.

    Args:
        model: a model with full attention in all layers; for a metric, in a dtype with gradients.
        texts: a list of strings or of token ids, in total several times as many tokens as a group of layers has columns.
            Or sets of several kinds of text: a dict from names to lists, or to pairs of a list and a weight. The weight
            (1 by default) is a set's share of the bases and of the metric, whatever its number of tokens.
        out: the file to write.
        tokenizer: for strings; by default the one that is saved with the model.
        context: tokens of a context, if the model has as many positions. Longer texts are cut.
        contexts: most contexts of each set; all by default.
        each: whether each set gets bases of its own, so that pages choose the best.
        group: layers that share a basis. More layers save bits and make the file larger.
        bits: highest rate that the bases must serve, in bits a value.
        hidden: layers before which the model is cut; they get bases for hidden states.
        metric: whether to measure what errors do. It takes several times as long as a forward pass, on some contexts.
        every: measure the metric on every n-th context of a set.
        sinks: tokens to leave out at the start of each context: they are attention sinks and differ from all others.
        max_bytes: largest size of the file; 2 % of the model's by default, with ``each`` for each set.
        overwrite: whether an existing file may be replaced.
        fresh: whether to begin again, whatever an earlier call left in the folder.
        seed: of the tokens that the model samples.
        progress: True for a tqdm bar, False for none, or a function that is called with the contexts done and the total.
            By default there is a bar on a terminal, if tqdm is installed.

    Returns:
        The report of ``tenfold basis fit --json``: gains, also for each set, vectors, bytes.
    """
    # Not before it is used: pages need neither torch nor transformers.
    from .transformers import _fit

    return _fit.fit(
        model,
        texts,
        out,
        tokenizer=tokenizer,
        context=context,
        contexts=contexts,
        each=each,
        group=group,
        bits=bits,
        hidden=hidden,
        metric=metric,
        every=every,
        sinks=sinks,
        max_bytes=max_bytes,
        overwrite=overwrite,
        fresh=fresh,
        seed=seed,
        progress=progress,
    )


def latent(pools: Sequence[Any], rotary: int = 64) -> tuple[list[Any], list[Any]]:
    """Splits the rows of latent attention (MLA, as of DeepSeek) into keys and values, as views: nothing is copied.

    Such a model caches one row a token and layer, whose last columns positions turn. These are coded as keys, behind rotary positions
    or not, and the columns before them as values. What is decoded into the views is in the pools.

    Args:
        pools: a tensor or array for each layer, of (blocks, slots, columns), (blocks, slots, 1, columns) or (slots, columns).
        rotary: how many columns positions turn.

    Returns:
        Keys and values, as :meth:`PageCodec.encode_blocks`, :meth:`PageCodec.decode_blocks` and ``staged.decode`` take them.

    >>> import numpy as np
    >>> pools = [np.zeros((10, 16, 576), np.float32) for _ in range(2)]      # 10 blocks of 16 tokens, 512 columns and 64 rotary ones
    >>> keys, values = latent(pools, rotary=64)
    >>> keys[0].shape, values[0].shape
    ((10, 16, 1, 64), (10, 16, 1, 512))
    >>> values[0][:] = 1
    >>> float(pools[0].sum()) == 10 * 16 * 512
    True
    """
    keys, values = [], []
    for pool in pools:
        shape = tuple(getattr(pool, "shape", ()))
        if not 2 <= len(shape) <= 4 or (len(shape) == 4 and shape[2] != 1):
            raise ArgumentError(f"a pool of latent rows has (blocks, slots, columns), (blocks, slots, 1, columns) or (slots, columns), not {shape}")
        if not 0 < rotary < shape[-1]:
            raise ArgumentError(f"of {shape[-1]} columns of a latent row some are rotary, and not all: {rotary} are none of that")
        # As a pool has heads: one.
        rows = pool[:, :, None] if len(shape) == 3 else pool
        keys.append(rows[..., shape[-1] - rotary :])
        values.append(rows[..., : shape[-1] - rotary])
    return keys, values


class Bases:
    """A file of bases for a model's keys and values, as ``tenfold basis fit`` writes it."""

    def __init__(self, native: _native.Bases) -> None:
        self._native = native

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bases:
        """Reads a file."""
        return cls(_native.Bases.open(os.fspath(path)))

    @property
    def model(self) -> str | None:
        """Fingerprint of the model that they were made for, if the file has it."""
        return self._native.model

    @property
    def head_dim(self) -> int | None:
        """Columns of a head."""
        return self._native.head_dim

    @property
    def sets(self) -> list[str]:
        """Names of the sets that have bases of their own; empty if all text shares the bases."""
        return self._native.sets

    @property
    def groups(self) -> list[tuple[int, int]]:
        """First layer and number of layers of each group."""
        return self._native.groups

    @property
    def layers(self) -> int:
        """Layers that there are bases for."""
        return sum(count for _, count in self.groups)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._native.nbytes

    def check_model(self, fingerprint: str) -> None:
        """Raises :class:`ArgumentError` if they were made for another model."""
        self._native.check_model(fingerprint)

    def __repr__(self) -> str:
        return f"Bases(layers={self.layers}, groups={len(self.groups)}, nbytes={self.nbytes})"


class PageCodec:
    """Encodes and decodes pages of keys and values. A codec is immutable, so threads may share it.

    Args:
        bases: a file of bases, or its path; groups of layers and rotary positions are then the file's.
        layers: layers of a page, if there are no bases.
        group: layers that are coded together, if there are no bases.
        rope: rotary positions of the keys, to be undone: a dict with ``head`` (columns of a head) and ``base``, and
            optionally ``pairing`` ("halves", the default, or "neighbours"), ``turned`` (columns of each head that
            rotate) and ``scaling``:
            ``("linear", factor)`` or ``("llama3", factor, low, high, original)``.
        effort: "fast", "balanced" or "best".
        exact: how many tokens stay exact at the start and at the end of a page.
        steps: factors on the quantiser steps of keys and of values.
        threads: worker threads for the pages of a call; 0 uses all cores.
    """

    def __init__(
        self,
        bases: Bases | str | os.PathLike[str] | None = None,
        *,
        layers: int | None = None,
        group: int = 1,
        rope: dict[str, Any] | None = None,
        effort: str = "balanced",
        exact: tuple[int, int] = (0, 0),
        steps: tuple[float, float] = (1.0, 1.0),
        threads: int = 0,
    ) -> None:
        if bases is not None and not isinstance(bases, Bases):
            bases = Bases.open(bases)
        if (bases is None) == (layers is None):
            raise ArgumentError("state either bases or the number of layers")
        if bases is not None and rope is not None:
            raise ArgumentError("bases bring their own rotary positions: leave out rope")
        if min(threads, *exact, layers or 0, group) < 0:
            raise ArgumentError("threads, exact, layers and group must not be negative")
        native = None if bases is None else bases._native
        first, last = exact
        keys, values = steps
        how = (effort, (first, last), (float(keys), float(values)), threads)
        self._native = _native.Pages(native, layers or 0, group, _rope(rope), *how)
        self._engines: dict[Any, _native.CudaPages] = {}

    @property
    def layers(self) -> int:
        """Layers of a page."""
        return self._native.layers

    @property
    def groups(self) -> list[tuple[int, int]]:
        """First layer and number of layers of each group."""
        return self._native.groups

    def part(self, group: int) -> PageCodec:
        """Returns a codec for pages of one group alone; its layers count from 0."""
        part = object.__new__(PageCodec)
        part._native = self._native.part(group)
        part._engines = {}
        return part

    def encode(
        self,
        keys: Sequence[Any],
        values: Sequence[Any],
        *,
        position: int | None = None,
        positions: Sequence[int] | None = None,
        **goal: Any,
    ) -> bytes:
        """Encodes a page.

        Args:
            keys: for each layer an array or CPU tensor of tokens × columns (or tokens × heads × columns), as attention
                sees them: with rotary positions applied.
            values: likewise.
            position: position of the first token; keys with rotary positions need it or ``positions``.
            positions: one a token.
            goal: ``max_bytes``, ``bits`` (all bytes over all keys and values; 2.5 if no goal is stated), ``step`` or
                ``lossless``.
        """
        return self.encode_many([(keys, values, position if positions is None else positions)], **goal)[0]

    def encode_many(self, pages: Sequence[tuple[Sequence[Any], Sequence[Any], Any]], **goal: Any) -> list[bytes]:
        """Encodes many pages at once: each is keys, values, and a first position, a list of positions or None."""
        name, number = stated_goal(**goal)
        _page_goal(name)
        return self._native.encode([_page(*page) for page in pages], name, number)

    def encode_together(
        self, pages: Sequence[tuple[Sequence[Any], Sequence[Any], Any]], *, max_bytes: int
    ) -> list[bytes]:
        """Encodes the pages of a context within a number of bytes for all of them.

        All have one step, so those that are harder to code get more bytes. Where each page has a slot of its own, pass ``max_bytes`` to
        :meth:`encode_many` instead, which caps each.

        >>> import numpy as np
        >>> codec = PageCodec(layers=1)
        >>> quiet = np.random.default_rng(0).standard_normal((64, 32), dtype=np.float32)
        >>> pages = codec.encode_together([([quiet], [quiet], None), ([50 * quiet], [50 * quiet], None)], max_bytes=6000)
        >>> sum(map(len, pages)) <= 6000, len(pages[0]) < len(pages[1])
        (True, True)
        """
        try:
            cap = operator.index(max_bytes)
        except TypeError:
            raise DtypeError(f"max_bytes must be a whole number, not {max_bytes!r}") from None
        if not 0 <= cap < 1 << 63:
            raise ArgumentError(f"max_bytes must be a number of bytes, not {cap}")
        return self._native.encode_together([_page(*page) for page in pages], cap)

    def encode_blocks(
        self, slots: Any, keys: Sequence[Any], values: Sequence[Any], *, positions: Sequence[int] | None = None, **goal: Any
    ) -> list[bytes]:
        """Encodes pages of tokens that lie in paged pools: see :meth:`decode_blocks`.

        On a CUDA device, the device gathers and encodes, after what is queued on torch's current stream, and compressed bytes alone come back,
        with the rows of exact tokens; the call waits for them. Under ``bits`` or ``max_bytes`` it guesses each page's step from a look at it, and
        encodes again those that do not fit, or leave more than 3 % of their bytes: once or twice from a bit a value on, a few times below.
        Effort "fast" is by far the quickest there. Pages with values that are not finite are made by the CPU, unless they are lossless.

        Args:
            slots: of each page's tokens, a row a page, all of one length.
            keys: a tensor for each layer, as for :meth:`decode_blocks`.
            values: likewise.
            positions: of each page's first token; keys with rotary positions need them.
            goal: as for :meth:`encode`.
        """
        from .torch import _blocks

        name, number = stated_goal(**goal)
        _page_goal(name)
        return _blocks.encode(self, slots, positions, keys, values, {name: True if name == "lossless" else number})

    def begin_blocks(self, slots: Any, keys: Sequence[Any], values: Sequence[Any], *, positions: Sequence[int], step: float) -> Saving:
        """Starts to encode pages on a CUDA device, and returns while it does: ``pages()`` of the result waits for them.

        Everything is queued after what is on torch's current stream, which waits for it: tokens that are queued later may take the blocks. The
        call waits for the device only where pages have bases to choose from. Caps take more than one encoding: :meth:`encode_blocks`, in a thread
        of yours, is for those. Where the CPU would make a page, as with values that are not finite, ``pages()`` has None.

        Args:
            slots: as for :meth:`encode_blocks`.
            keys: likewise, on a CUDA device.
            values: likewise.
            positions: of each page's first token.
            step: the quantiser's.
        """
        from .torch import _blocks

        stated_goal(step=step)
        return _blocks.begin(self, slots, positions, keys, values, float(step))

    def decode_layer(self, page: Any, layer: int, *, keys: Any = None, values: Any = None) -> tuple[Any, Any]:
        """Decodes keys and values of one layer, into new arrays or into the arrays or CPU tensors passed."""
        page = as_blob(page)
        if keys is None or values is None:
            dtype, *columns = self._native.describe(page, layer)
            tokens = self.inspect(page).tokens
            keys = allocate(dtype, (tokens, columns[0])) if keys is None else keys
            values = allocate(dtype, (tokens, columns[1])) if values is None else values
        self._native.decode([page], layer, [(keys, values)])
        return keys, values

    def decode_layers(self, pages: Sequence[Any], layer: int, outs: Sequence[tuple[Any, Any]]) -> None:
        """Decodes one layer of many pages, each into a pair of arrays or CPU tensors."""
        self._native.decode([as_blob(page) for page in pages], layer, list(outs))

    def decode_run(self, page: Any, first: int, outs: Sequence[tuple[Any, Any]]) -> None:
        """Decodes layers of a page from ``first`` on, one for each pair of arrays or CPU tensors. Layers that share a basis are decoded at
        once."""
        self._native.decode_run(as_blob(page), first, list(outs))

    def decode_many(self, pages: Sequence[Any], outs: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> None:
        """Decodes all layers of many pages: each into keys and values, an array or CPU tensor for each layer. Layers that share
        a basis are decoded at once, so this takes a fraction of the time that :meth:`decode_layers` takes for each of them."""
        into = [(list(keys), list(values)) for keys, values in outs]
        self._native.decode_all([as_blob(page) for page in pages], into)

    def decode_blocks(self, pages: Sequence[Any], slots: Any, keys: Sequence[Any], values: Sequence[Any]) -> Loading:
        """Decodes all layers of pages into paged pools, as serving engines keep keys and values.

        On a CUDA device the compressed bytes are what crosses the link, and the device does the rest, on torch's current stream: the
        call returns once everything is queued. That takes pages behind bases, or without rotary positions, of bfloat16, float16, float8_e4m3fn
        or float8_e5m2, pools of the same dtype, and cuBLAS. Rows are the CPU's within 1/64 of a row's largest magnitude, and the last rounding to
        eight bits.

        Args:
            pages: bytes of pages.
            slots: where each token goes, page after page: whole numbers on the host, -1 for a token that goes nowhere. Slot ``s`` is
                ``s % slots`` of block ``s // slots``.
            keys: a tensor for each layer, of (blocks, slots, heads, columns) with any strides but the last, or of (slots, heads,
                columns) or (slots, columns).
            values: likewise.

        Returns:
            What to ask whether all pages were whole: ``check()`` raises, ``errors()`` lists. On the CPU errors are raised at once.
        """
        # Not before it is used: pages of arrays do not need torch.
        from .torch import _blocks

        return _blocks.decode(self, pages, slots, keys, values)

    def stage(self, pages: Sequence[Any], slots: Any, device: Any = "cuda", *, pinned: bool = False) -> Staged:
        """Copies compressed pages to a CUDA device, with the slots of their tokens, and returns what decodes them there as often as
        wanted: ``staged.decode(keys, values)``. With ``pinned`` they stay in pinned memory of the host, and each decoding copies them to
        the device first; ``staged.fetch()`` does that ahead of time. Other arguments are those of :meth:`decode_blocks`."""
        from .torch import _blocks

        return _blocks.stage(self, pages, slots, device, pinned)

    def inspect(self, page: Any) -> PageInfo:
        """Reads the header of a page."""
        return self._native.inspect(as_blob(page))

    def __repr__(self) -> str:
        return f"PageCodec(layers={self.layers}, groups={len(self.groups)})"


class HiddenCodec:
    """Encodes and decodes hidden states before one layer, for the stages of a pipeline.

    Args:
        bases: a file with bases for hidden states (``tenfold basis fit --kind hidden``), or its path.
        layer: the layer of the model before which it is cut.
        effort: "fast", "balanced" or "best".
        threads: worker threads; 0 uses all cores.
    """

    def __init__(
        self, bases: Bases | str | os.PathLike[str], layer: int, *, effort: str = "balanced", threads: int = 0
    ) -> None:
        if threads < 0 or layer < 0:
            raise ArgumentError("layer and threads must not be negative")
        opened = bases if isinstance(bases, Bases) else Bases.open(bases)
        self._native = _native.Hidden(opened._native, layer, effort, threads)

    def encode(self, states: Any, **goal: Any) -> bytes:
        """Encodes an array or CPU tensor whose last dimension is the model's width; the goal is one of :func:`tenfold.encode`."""
        return self._native.encode(as_input(states), *stated_goal(**goal))

    def decode(self, blob: Any, *, out: Any = None, dtype: Any = None) -> Any:
        """Decodes a blob into a new numpy array, or into an array or CPU tensor passed as ``out``."""
        blob = as_blob(blob)
        if out is not None:
            self._native.decode_into(blob, out)
            return out
        info = _native.inspect(blob)
        array = allocate(info.dtype, info.shape)
        self._native.decode_into(blob, array)
        return convert(array, info.dtype, dtype)


def _page_goal(name: str) -> None:
    if name not in ("bits", "max_bytes", "step", "lossless"):
        raise ArgumentError(f"a page's goal must be max_bytes, bits, step or lossless, not {name}")


def _page(keys: Sequence[Any], values: Sequence[Any], positions: Any) -> tuple[list[Any], list[Any], Any, Any]:
    first, listed = positions, None
    if positions is not None and not isinstance(positions, int):
        try:
            first, listed = None, [int(p) for p in positions]
        except (TypeError, ValueError):
            raise DtypeError("positions must be a number, or one a token") from None
    if (first is not None and first < 0) or (listed is not None and min(listed, default=0) < 0):
        raise ArgumentError("positions must not be negative")
    return [as_input(k) for k in keys], [as_input(v) for v in values], first, listed


def _rope(rope: dict[str, Any] | None) -> tuple[int, float, str, int | None, tuple[str, list[float]] | None] | None:
    if rope is None:
        return None
    known = {"head", "base", "pairing", "turned", "scaling"}
    if not {"head", "base"} <= rope.keys() <= known:
        raise ArgumentError(f"rope needs head and base, and can have {', '.join(sorted(known))}, not {sorted(rope)}")
    scaling = rope.get("scaling")
    if scaling is not None:
        scaling = (str(scaling[0]), [float(v) for v in scaling[1:]])
    return int(rope["head"]), float(rope["base"]), rope.get("pairing", "halves"), rope.get("turned"), scaling
