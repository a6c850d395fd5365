"""One host pool's pages in a store: compressed on the way in, whole or not at all on the way out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any, TypeVar

import torch

from ..._errors import ArgumentError, Error
from .._identity import Identity
from .._reloads import Reloads
from .._stats import Counts, Report
from .._store import FileStore, StoreError
from ._host_pages import HostPages, Views
from ._options import Options
from ._transfers import Transfers
from .codec import SlotCodec

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PoolStore:
    """Pages of one pool by key.

    Args:
        name: the pool's name at SGLang, ``"kv"`` for the one that all models have.
        pool: the host pool.
        config: SGLang's ``HiCacheStorageConfig``.
        options: of the backend.
        workers: what pages to store are spread over.
        reloads: what reads and decodes pages.
    """

    def __init__(self, name: str, pool: Any, config: Any, options: Options, workers: Executor, reloads: Reloads) -> None:
        if not config.model_name:
            raise ArgumentError("pages of two models would be taken for one: state a name, --served-model-name")
        self.pages = HostPages(pool, options.torch_dtype)
        shape = self.pages.shape
        bases = options.bases
        if name != "kv":
            if bases is not None or options.max_bytes is not None:
                raise ArgumentError(f"bases and max_bytes are for one pool; with {name} beside, state bits or lossless")
        elif bases is not None:
            bases = bases.replace("{tp_rank}", str(config.tp_rank)).replace("{pp_rank}", str(config.pp_rank))
        # One thread a page: the pages of a call have threads of their own.
        how: dict[str, Any] = {"effort": options.effort, "threads": 1, "device": options.device}
        self.codec = SlotCodec(shape, **options.rate(), bases=bases, **how)
        # Bases of other columns would fail page after page.
        keys, values = (list(part.zero_()) for part in shape.empty())
        self.codec.encode(keys, values, 0)
        self.identity = _identity(name, pool, config, options.revision, self)
        self.store = FileStore(options.path, self.identity, max_bytes=options.max_store_bytes)
        self._workers, self._reloads = workers, reloads
        self.counts = Counts()
        self.transfers = Transfers(shape.nbytes)
        self._report = Report(logger, self.counts)
        what = (name, shape.nbytes, self.codec.rate, options.path)
        logger.info("tenfold: pages of %s, %d bytes each, are stored with %s in %s", *what)

    def save(self, keys: Sequence[str], views: Sequence[Views], first: int | None) -> list[bool]:
        """Stores pages; ``first`` is the position of the first token. Returns False, and logs why, for each not stored."""
        tokens = self.codec.shape.tokens

        def one(number: int) -> str | None:
            if self.store.contains(keys[number]):
                return None
            position = None if first is None else first + number * tokens
            try:
                with self.counts.encoding():
                    page = self.codec.encode(*self.pages.read(views[number]), position)
                self.store.put(keys[number], page)
            except Error as error:
                return str(error)
            self.counts.saved(self.codec.shape.nbytes, len(page))
            return None

        started = time.perf_counter()
        errors = self._each(one, len(keys))
        self.transfers.note("backup", errors.count(None), time.perf_counter() - started)
        self._report.remind()
        if wrong := [error for error in errors if error is not None]:
            hint = ""
            if first is None and self.codec.basis:
                hint = '; bases may need positions: "hicache_storage_pass_prefix_keys": true and "interface_v1": 1'
            logger.warning("tenfold: %d of %d pages were not stored: %s%s", len(wrong), len(keys), wrong[0], hint)
        return [error is None for error in errors]

    def load(self, keys: Sequence[str], views: Sequence[Views]) -> list[bool]:
        """Reads pages into views. Returns False for each page not found or damaged; its view is unchanged."""

        started = time.perf_counter()
        pages = [self._begin(key, view) for key, view in zip(keys, views, strict=True)]
        # Nothing may be written to a view once SGLang hears of it.
        wait(pages)
        found = [page.result() for page in pages]
        self.transfers.note("prefetch", sum(found), time.perf_counter() - started)
        self._report.remind()
        return found

    def at(self, indices: torch.Tensor | None, pages: int) -> list[Views]:
        """Views of the pages that slots of the pool make up."""
        tokens = self.codec.shape.tokens
        if indices is None or indices.numel() != pages * tokens:
            given = 0 if indices is None else indices.numel()
            raise ArgumentError(f"{pages} pages have {pages * tokens} slots, {given} were given")
        slots = indices.detach().cpu().view(pages, tokens)
        wanted = slots[:, :1] // tokens * tokens + torch.arange(tokens, dtype=slots.dtype)
        if not torch.equal(slots, wanted):
            raise ArgumentError("slots of a page follow each other, from a multiple of its tokens on; these do not")
        return [self.pages.at(int(start)) for start in slots[:, 0].tolist()]

    def _begin(self, key: str, view: Views) -> Future[bool]:
        """Reads a page while others are decoded; whether it was there."""

        def read() -> tuple[memoryview | None, int]:
            was_there = self.store.contains(key)
            with self.counts.reading():
                try:
                    page = self.store.get(key)
                except Error as error:
                    self._refuse(key, error)
                    return None, 0
            if page is None and was_there:
                # The store has warned and says why; filters of warnings do not reach the log.
                logger.warning("tenfold: page %s cannot be used, taken as a miss", key)
            return page, 0 if page is None else len(page)

        def decode(page: memoryview | None) -> tuple[bool, int]:
            if page is None:
                return False, 0
            decoded = self.codec.shape.empty()
            try:
                with self.counts.restoring():
                    self.codec.decode(page, *(list(part) for part in decoded))
            except Error as error:
                self._refuse(key, error)
                return False, 0
            # Last, so that nothing half decoded reaches the pool.
            self.pages.write(view, decoded)
            raw = self.codec.shape.nbytes
            self.counts.loaded(raw, len(page))
            return True, raw

        return self._reloads.submit(read, decode)

    def _refuse(self, key: str, error: Error) -> None:
        logger.warning("tenfold: page %s cannot be used, taken as a miss: %s", key, error)
        self._discard(key)

    def _discard(self, key: str) -> None:
        """So that it is not found again."""
        try:
            self.store.remove(key)
        except StoreError as error:
            logger.warning("tenfold: page %s was not removed: %s", key, error)

    def _each(self, work: Callable[[int], T], count: int) -> list[T]:
        return list(self._workers.map(work, range(count)))


def _identity(name: str, pool: Any, config: Any, revision: str, owner: PoolStore) -> Identity:
    shape = owner.codec.shape
    rank = "all" if owner.pages.replicated else f"{config.tp_rank}/{config.tp_size}"
    parts = {
        "pool": name,
        "layers": f"{pool.start_layer}+{shape.layers}",
        "tokens": shape.tokens,
        "columns": f"{shape.key_columns}+{shape.value_columns}",
        "heads": getattr(pool, "head_num", 1),
        "tp": rank,
        "pp": f"{config.pp_rank}/{config.pp_size}",
        "cp": f"{config.attn_cp_rank}/{config.attn_cp_size}",
        "rate": owner.codec.rate,
    }
    layout = "sglang " + " ".join(f"{part}={value}" for part, value in parts.items())
    return Identity(config.model_name, revision, shape.dtype_name, owner.codec.basis, layout)
