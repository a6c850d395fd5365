"""Pages of the host pool that a CUDA device codes, or the emulator in its place; and what is counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated import COLUMNS, HEADS, LAYERS, each, fit_bases, rows
from sglang_pools import mha, mla, page, same, slots, snapshot, storage
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageExtraInfo
from tenfold.serving import KvPages

SHAPE = {"layer_num": LAYERS, "head_num": HEADS, "head_dim": COLUMNS}
START = HiCacheStorageExtraInfo(prefix_keys=["before"])


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch)


def pool(dtype: torch.dtype = torch.bfloat16) -> Any:
    """A host pool of rows as bases know them."""
    made = mha("page_first", dtype, **SHAPE)
    count = made.kv_buffer.shape[1]
    for side, layers in enumerate(rows(count, 3)):
        both = torch.stack(layers, 1).view(count, LAYERS, HEADS, COLUMNS).to(dtype)
        made.kv_buffer[side].copy_(both.view(made.kv_buffer.dtype))
    return made


def latent_pool() -> Any:
    """The same keys and values as latent rows and their rotary parts."""
    width = HEADS * COLUMNS
    made = mla("page_first", layer_num=LAYERS, kv_lora_rank=width, qk_rope_head_dim=width)
    count = made.kv_buffer.shape[0]
    keys, values = (torch.stack(layers, 1) for layers in rows(count, 3))
    made.kv_buffer.copy_(torch.cat((values, keys), -1).view(made.kv_buffer.shape))
    return made


WIDE = {"rope": f"base=10000,head={HEADS * COLUMNS},pairing=neighbours", "head": HEADS * COLUMNS}
# Pools, the bases that they need, options, and how far what comes back may be off.
POOLS: dict[str, tuple[Any, dict[str, Any], dict[str, Any], float]] = {
    "bfloat16": (pool, {}, {}, 0.01),
    "float16": (lambda: pool(torch.float16), {}, {}, 0.01),
    "float8": (lambda: pool(torch.float8_e4m3fn), {}, {"dtype": "float8_e4m3fn"}, 0.01),
    "latent": (latent_pool, WIDE, {}, 0.01),
}


@pytest.mark.parametrize("kind", POOLS)
def test_there_and_back(kind: str, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, fitted, options, near = POOLS[kind]
    seen: list[str] = []
    encode, decode = KvPages.encode_blocks, KvPages.decode_blocks
    monkeypatch.setattr(KvPages, "_goal", lambda self, values: {"step": 0.05})
    monkeypatch.setattr(KvPages, "encode_blocks", lambda *args: seen.append("encode") or encode(*args))
    monkeypatch.setattr(KvPages, "decode_blocks", lambda *args: seen.append("decode") or decode(*args))
    bases = str(fit_bases(tmp_path, **fitted))
    store = storage(tmp_path / "store", make(), bases=bases, device=str(device), **options)
    seen.clear()
    assert store.batch_set_v1(["a", "b"], slots(0, 1), START) == [True, True]
    assert store.batch_get_v1(["a", "b"], slots(4, 5)) == [True, True]
    assert sorted(seen) == ["decode", "decode", "encode", "encode"]
    for have, want in ((4, 0), (5, 1)):
        for found, before in zip(page(store, have), page(store, want), strict=True):
            assert (found.float() - before.float()).square().mean() < near * before.float().square().mean()


def test_no_memory_on_the_device(device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(KvPages, "encodes_blocks", lambda *_: True)
    monkeypatch.setattr(KvPages, "encode_blocks", refuse)
    monkeypatch.setattr(KvPages, "decode_blocks", refuse)
    store = storage(tmp_path / "store", pool(), bases=str(fit_bases(tmp_path)), device=str(device), lossless=True)
    assert store.batch_set_v1(["a"], slots(0), START) == [True]
    assert store.batch_get_v1(["a"], slots(5)) == [True]
    assert all(torch.equal(found, want) for found, want in zip(page(store, 5), page(store, 0), strict=True))


def test_what_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = storage(tmp_path, mha("page_first"), bits=4)
    raw = store.pool().codec.shape.nbytes
    assert all(store.batch_set_v1(["a", "b"], slots(0, 1)))
    assert store.batch_get_v1(["a", "x"], slots(4, 5)) == [True, False]
    found = store.counts()["kv"]
    assert (found["pages_saved"], found["pages_loaded"]) == (2, 1)
    assert (found["bytes_before"], found["bytes_restored"]) == (2 * raw, raw)
    assert found["ratio"] >= 4 and found["save_pays_below"] > 0 and found["load_pays_below"] > 0
    stats = store.get_stats()
    assert stats.backup_pgs == [2] and stats.prefetch_pgs == [1]
    assert len(stats.backup_bandwidth) == len(stats.prefetch_bandwidth) == 1 and stats.backup_bandwidth[0] > 0
    assert store.get_stats().backup_pgs == []
    # What was stored before counts once.
    assert all(store.batch_set_v1(["a", "b"], slots(0, 1))) and store.counts()["kv"]["pages_saved"] == 2
    with caplog.at_level(logging.INFO, "tenfold"):
        store.close()
    assert "tenfold: pages of kv: pages_saved=2" in caplog.text


def test_a_failed_page_is_not_counted(tmp_path: Path) -> None:
    store = storage(tmp_path, mha("page_first"), bits=4)
    before = snapshot(store.mem_pool_host)
    assert store.batch_get_v1(["x"], slots(4)) == [False] and same(store.mem_pool_host, before)
    # The look at the disk took time, and that is all there is to tell.
    assert store.counts()["kv"].keys() == {"read_seconds", "reload_seconds"}
