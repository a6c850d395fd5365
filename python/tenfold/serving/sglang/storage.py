"""The backend as SGLang calls it: keys of pages in, numbers of pages and lists of successes out."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    HiCacheStorage,
    PoolTransferResult,
)
from sglang.srt.observability.metrics_collector import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    StorageMetrics,
)

from ..._errors import ArgumentError, UnsupportedError
from .._reloads import Reloads, Trace
from .._stats import describe
from ._hits import restorable
from ._options import Options
from ._pool_store import PoolStore

logger = logging.getLogger(__name__)

_KV = "kv"


class TenfoldStorage(HiCacheStorage):  # type: ignore[misc,unused-ignore]
    """Pages of SGLang's host pools, compressed, in a folder.

    Failures are reported as SGLang expects: False for a page that was not stored or not found, None for a flat page. A
    warning says why. The host pool never receives incomplete pages.

    Args:
        storage_config: SGLang's ``HiCacheStorageConfig``; its ``extra_config`` has the options of docs/sglang.md.
        kwargs: what SGLang's factory passes besides, which is nothing so far.
    """

    def __init__(self, storage_config: Any, kwargs: dict[str, Any] | None = None) -> None:
        if kwargs:
            raise ArgumentError(f"options of the tenfold backend are in the extra configuration; not {sorted(kwargs)}")
        self._config = storage_config
        self._options = Options.parse(storage_config.extra_config)
        if storage_config.dcp_size > 1 or storage_config.should_split_heads:
            raise UnsupportedError("the tenfold backend stores pages of a rank as they are: no DCP, no tp_lcm_size")
        threads = self._options.threads or os.cpu_count() or 1
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="tenfold-hicache")
        ranks = (storage_config.tp_rank, storage_config.tp_size), (storage_config.pp_rank, storage_config.pp_size)
        rank = ".".join(f"{kind}-{number}" for kind, (number, count) in zip(("tp", "pp"), ranks, strict=True) if count > 1)
        trace = Trace(self._options.trace, rank, logger)
        self._reloads = Reloads(ThreadPoolExecutor(1, thread_name_prefix="tenfold-prefetch"), threads, trace)
        self._pools: dict[str, PoolStore] = {}

    # Pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Takes the pool of keys and values."""
        super().register_mem_pool_host(mem_pool_host)
        self._pools[_KV] = self._open(_KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """Takes a further pool: layers with a sliding window, or of a draft model."""
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        name = str(host_pool_name)
        if name == _KV and _KV in self._pools and host_pool is self.mem_pool_host:
            return
        self._pools[name] = self._open(name, host_pool)

    def _open(self, name: str, pool: Any) -> PoolStore:
        return PoolStore(name, pool, self._config, self._options, self._workers, self._reloads)

    def pool(self, name: Any = _KV) -> PoolStore:
        """What keeps the pages of a pool."""
        if str(name) not in self._pools:
            raise ArgumentError(f"no host pool {name} was registered with the tenfold backend")
        return self._pools[str(name)]

    # Pages in the host pool

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None) -> list[bool]:
        """Stores pages of the host pool; which of them are stored."""
        pool = self.pool()
        return pool.save(keys, pool.at(host_indices, len(keys)), _position(pool, extra_info))

    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None) -> list[bool]:
        """Reads pages into the host pool; which of them were there."""
        pool = self.pool()
        return pool.load(keys, pool.at(host_indices, len(keys)))

    # Flat pages, without interface_v1

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Stores one flat page."""
        return self.batch_set([key], [value])

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Stores flat pages; whether all of them are stored."""
        pool = self.pool()
        if values is None or len(values) != len(keys):
            raise ArgumentError(f"{len(keys)} keys need as many pages")
        return all(pool.save(keys, [pool.pages.of_flat(_tensor(value)) for value in values], None))

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        """One flat page, written to the tensor that is given, or None."""
        if target_location is None:
            target_location = self.mem_pool_host.get_dummy_flat_data_page()
        return self.batch_get([key], [target_location])[0]

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        """Flat pages, written to the tensors that are given; None for those that are not there."""
        pool = self.pool()
        if target_locations is None or len(target_locations) != len(keys):
            raise ArgumentError(f"{len(keys)} keys need as many tensors to write to")
        found = pool.load(keys, [pool.pages.of_flat(_tensor(target)) for target in target_locations])
        return [target if hit else None for target, hit in zip(target_locations, found, strict=True)]

    # Several pools

    def batch_set_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        """Stores pages of several pools; for each pool which of them are stored."""
        done = {}
        for transfer in transfers:
            pool, keys = self.pool(transfer.name), transfer.keys or []
            views = pool.at(transfer.host_indices, len(keys))
            done[transfer.name] = pool.save(keys, views, _position(pool, extra_info))
        return done

    def batch_get_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        """Reads pages of several pools; for each pool which of them were there."""
        done = {}
        for transfer in transfers:
            pool, keys = self.pool(transfer.name), transfer.keys or []
            done[transfer.name] = pool.load(keys, pool.at(transfer.host_indices, len(keys)))
        return done

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """How many pages from the start are there in all pools, each by its policy."""
        hits: dict[Any, int] = {}
        pages = self.batch_exists(keys, extra_info)
        lengths = list(range(1, pages + 1))
        if pages:
            hits[_KV] = pages
        for transfer in pool_transfers or []:
            store = self.pool(transfer.name).store
            possible = restorable([store.contains(key) for key in keys[:pages]], transfer)
            if possible:
                hits[transfer.name] = possible[-1]
            lengths = sorted(set(lengths).intersection(possible))
        return PoolTransferResult(lengths[-1] if lengths else 0, hits, lengths)

    # Everything else

    def exists(self, key: str) -> bool:
        """Whether there is a page of a key. Reading it may still find that it is damaged."""
        return self.pool().store.contains(key)

    def clear(self) -> None:
        """Removes the pages of this model, rank and rate; those of others in the folder stay."""
        for pool in self._pools.values():
            pool.store.clear()

    def get_stats(self) -> Any:
        """What SGLang's own metrics of storage want of the calls since the last time: pages, and raw gigabytes a second."""
        found = StorageMetrics()
        for pool in self._pools.values():
            pool.transfers.add_to(found)
        return found

    def counts(self) -> dict[str, dict[str, int | float]]:
        """Of each pool: pages, bytes before and after, the codec's seconds, the ratio, and the bandwidths below which that pays."""
        return {name: pool.counts.totals() for name, pool in self._pools.items()}

    def close(self) -> None:
        """Waits for pending work, and says in the log what was done. The storage must not be used afterwards."""
        self._workers.shutdown()
        self._reloads.shutdown()
        for name, counted in self.counts().items():
            logger.info("tenfold: pages of %s: %s", name, describe(counted))


def _position(pool: PoolStore, extra_info: Any) -> int | None:
    """Of the first token of a call, where SGLang passes the pages before it."""
    before = None if extra_info is None else extra_info.prefix_keys
    return None if before is None else len(before) * pool.codec.shape.tokens


def _tensor(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(f"a flat page is a tensor, not {type(value).__name__}")
    return value
