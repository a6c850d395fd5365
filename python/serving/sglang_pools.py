"""SGLang's pools, configuration and controllers on a CPU, for the tests."""

from __future__ import annotations

import hashlib
import struct
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

with warnings.catch_warnings():
    # SGLang says what it does not do without a GPU.
    warnings.simplefilter("ignore")
    from sglang.srt.managers.cache_controller import HiCacheController
    from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolName
    from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
    from sglang.srt.mem_cache.pool_host import HostPoolGroup, PoolEntry
    from sglang.srt.mem_cache.pool_host.mha import get_mha_host_pool_cls
    from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
    from sglang.srt.mem_cache.storage import StorageBackendFactory
    from sglang.srt.runtime_context import get_parallel
    from tenfold.serving.sglang import TenfoldStorage

LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head", "page_unified")
PAGE = 16
LAYERS, HEADS, WIDTH = 3, 2, 32


def device_pool(dtype: torch.dtype = torch.bfloat16, **geometry: Any) -> Any:
    """SGLang's pool of a device, which is the CPU here."""
    sizes = {"head_num": HEADS, "head_dim": WIDTH, "layer_num": LAYERS} | geometry
    return MHATokenToKVPool(
        size=8 * PAGE, page_size=PAGE, dtype=dtype, device="cpu", enable_memory_saver=False, **sizes
    )  # fmt: skip


def mha(layout: str = "layer_first", dtype: torch.dtype = torch.bfloat16, **geometry: Any) -> Any:
    """A host pool of keys and values, full of noise."""
    device = device_pool(dtype, **geometry)
    info = device.get_device_pool_infos()[0].buffer_info
    pool = get_mha_host_pool_cls(info)(
        info, 2.0, 0, PAGE, layout, pin_memory=False, device="cpu",
        device_capacity_tokens=device.size, start_layer=device.start_layer, end_layer=device.end_layer,
    )  # fmt: skip
    return filled(pool)


def mla(layout: str = "layer_first", **geometry: Any) -> Any:
    """A host pool of latent rows, full of noise."""
    sizes = {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "layer_num": LAYERS} | geometry
    device = MLATokenToKVPool(
        size=8 * PAGE, page_size=PAGE, dtype=torch.bfloat16, device="cpu", enable_memory_saver=False, **sizes
    )  # fmt: skip
    pool = MLATokenToKVPoolHost(
        device.get_device_pool_infos()[0].buffer_info, 2.0, 0, PAGE, layout, pin_memory=False, device="cpu",
        device_capacity_tokens=device.size, start_layer=device.start_layer, end_layer=device.end_layer,
        target_layer_num=device.layer_num, override_kv_cache_dim=device.kv_cache_dim,
    )  # fmt: skip
    return filled(pool)


def buffers(pool: Any) -> tuple[torch.Tensor, ...]:
    """A host pool's memory."""
    return tuple(pool.kv_buffer) if isinstance(pool.kv_buffer, (tuple, list)) else (pool.kv_buffer,)


def filled(pool: Any) -> Any:
    """The pool with noise in it."""
    for buffer in buffers(pool):
        if buffer.dtype == torch.uint8:
            buffer.copy_(torch.randn(buffer.shape).to(torch.float8_e4m3fn).view(torch.uint8))
        else:
            buffer.copy_(torch.randn(buffer.shape))
    return pool


def snapshot(pool: Any) -> tuple[torch.Tensor, ...]:
    """A copy of a host pool's memory."""
    return tuple(buffer.clone() for buffer in buffers(pool))


def same(pool: Any, before: tuple[torch.Tensor, ...]) -> bool:
    """Whether a pool's memory is what it was, bit by bit."""
    return all(
        torch.equal(now.contiguous().view(torch.uint8), then.contiguous().view(torch.uint8))
        for now, then in zip(buffers(pool), before, strict=True)
    )


def config(folder: Path, *, model: str | None = "model", rank: int = 0, ranks: int = 1, **options: Any) -> Any:
    """What SGLang hands to a backend; options are those of the extra configuration."""
    extra = {
        "backend_name": "tenfold", "module_path": "tenfold.serving.sglang", "class_name": "TenfoldStorage",
        "interface_v1": 1, "path": str(folder), "threads": 2,
    }  # fmt: skip
    return HiCacheStorageConfig(
        tp_rank=rank, tp_size=ranks, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
        enable_storage_metrics=False, is_page_first_layout=False, model_name=model, extra_config=extra | options,
    )  # fmt: skip


def storage(folder: Path, pool: Any, **how: Any) -> TenfoldStorage:
    """The backend as SGLang makes it: by its factory, with the pool registered."""
    made = StorageBackendFactory.create_backend("dynamic", config(folder, **how), pool)
    assert isinstance(made, TenfoldStorage)
    made.register_mem_pool_host(pool)
    return made


def slots(*pages: int) -> torch.Tensor:
    """Slots of some pages of a host pool."""
    return torch.cat([torch.arange(page * PAGE, (page + 1) * PAGE) for page in pages])


def page(store: TenfoldStorage, number: int, name: str = "kv") -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of a page of the pool: layers × tokens × columns."""
    pool = store.pool(name)
    keys, values = pool.pages.read(pool.pages.at(number * PAGE))
    return torch.stack(keys).clone(), torch.stack(values).clone()


def sha256_chain(tokens: Any, before: bytes | None, page_size: int | None = None) -> list[str]:
    """SGLang's hashes of pages. Its own are in C++ and want a compiler when they are first used."""
    assert page_size is not None
    listed, keys = list(tokens), []
    for start in range(0, len(listed), page_size):
        part = listed[start : start + page_size]
        before = hashlib.sha256((before or b"") + struct.pack(f"<{len(part)}I", *part)).digest()
        keys.append(before.hex())
    return keys


def one_rank() -> AbstractContextManager[Any]:
    """SGLang's parallel context of a single process."""
    return get_parallel().override(attn_dcp_size=1, attn_dcp_rank=0, tp_rank=0, tp_size=1, pp_rank=0, pp_size=1)


def controller(pool: Any, folder: Path, **options: Any) -> Any:
    """SGLang's controller with its storage threads running, and the backend attached."""
    return _controller(HiCacheController, pool, folder, options)


def hybrid_controller(pools: dict[PoolName, Any], folder: Path, **options: Any) -> Any:
    """Likewise the controller of several pools, which servers use for one pool too."""
    entries = [
        PoolEntry(name, pool, device_pool(), lambda layer: layer, is_primary_index_anchor=name == PoolName.KV)
        for name, pool in pools.items()
    ]
    return _controller(HybridCacheController, HostPoolGroup(entries), folder, options)


def _controller(kind: Callable[..., Any], pool: Any, folder: Path, options: dict[str, Any]) -> Any:
    device = device_pool()
    return kind(
        TokenToKVPoolAllocator(device.size, device.dtype, "cpu", device, False), pool, PAGE, None,
        load_cache_event=threading.Event(), io_backend="direct", storage_backend="dynamic", prefetch_threshold=PAGE,
        model_name="model", storage_backend_extra_config=dict(config(folder, **options).extra_config),
    )  # fmt: skip
