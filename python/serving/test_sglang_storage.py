"""Pages of SGLang's host pools through the backend that its factory makes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import tenfold
import torch
from sglang_pools import (
    HEADS, LAYERS, LAYOUTS, PAGE, WIDTH, config, mha, mla, page, same, slots, snapshot, storage,
)  # fmt: skip
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageExtraInfo
from tenfold import _native
from tenfold.serving.sglang import TenfoldStorage

KEYS = ["a1", "b2", "c3"]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(11)


def kept(folder: Path) -> int:
    """Bytes of all files of a store."""
    return sum(path.stat().st_size for path in folder.rglob("*.tnkv"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lossless_pages_come_back_bit_by_bit(tmp_path: Path, layout: str) -> None:
    pool = mha(layout)
    saved = storage(tmp_path, pool, lossless=True)
    assert saved.batch_set_v1(KEYS, slots(1, 3, 4)) == [True, True, True]
    want = [page(saved, number) for number in (1, 3, 4)]
    saved.close()

    other = mha(layout)
    before = snapshot(other)
    loaded = storage(tmp_path, other, lossless=True)
    rest = [page(loaded, number) for number in (0, 1, 3, 4, 5, 8)]
    assert loaded.batch_get_v1(KEYS, slots(2, 6, 7)) == [True, True, True]
    for number, (keys, values) in zip((2, 6, 7), want, strict=True):
        got = page(loaded, number)
        assert torch.equal(got[0], keys) and torch.equal(got[1], values)
    # Nothing else was touched.
    for number, (keys, values) in zip((0, 1, 3, 4, 5, 8), rest, strict=True):
        assert torch.equal(page(loaded, number)[0], keys) and torch.equal(page(loaded, number)[1], values)
    assert not same(other, before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keys_and_values_are_those_of_the_tokens(tmp_path: Path, layout: str) -> None:
    """Columns of a token in a layer, whatever the layout: what SGLang itself says lies at that slot."""
    pool = mha(layout)
    keys, values = page(storage(tmp_path, pool), 2)
    token = 2 * PAGE + 5
    for layer in range(LAYERS):
        if layout == "layer_first":
            rows = pool.kv_buffer[:, layer, token]
        elif layout == "page_first":
            rows = pool.kv_buffer[:, token, layer]
        elif layout == "page_first_direct":
            rows = pool.kv_buffer[:, 2, layer, 5]
        elif layout == "page_head":
            rows = pool.kv_buffer[:, 2, :, 5, layer]
        else:
            rows = pool.kv_buffer[2, 0, layer, :, 5]
        assert torch.equal(keys[layer, 5], rows[0].flatten()) and torch.equal(values[layer, 5], rows[1].flatten())


def test_layouts_share_their_pages(tmp_path: Path) -> None:
    saved = storage(tmp_path, mha("page_head"), lossless=True)
    saved.batch_set_v1(["a"], slots(1))
    for layout in LAYOUTS:
        loaded = storage(tmp_path, mha(layout), lossless=True)
        assert loaded.batch_get_v1(["a"], slots(3)) == [True]
        assert all(torch.equal(got, want) for got, want in zip(page(loaded, 3), page(saved, 1), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
def test_lossy_pages_keep_to_their_bytes_and_to_their_error(tmp_path: Path, layout: str, dtype: torch.dtype) -> None:
    saved = storage(tmp_path, mha(layout, dtype), bits=5)
    assert all(saved.batch_set_v1(KEYS, slots(0, 1, 2)))
    loaded = storage(tmp_path, mha(layout, dtype), bits=5)
    assert all(loaded.batch_get_v1(KEYS, slots(4, 5, 6)))
    for number in range(3):
        for got, want in zip(page(loaded, 4 + number), page(saved, number), strict=True):
            assert 0 < (got - want).float().square().mean() < 0.01 * want.float().square().mean()
    values = 2 * LAYERS * PAGE * HEADS * WIDTH
    codec = saved.pool().codec
    assert codec.slot_bytes == values * 5 // 8
    assert 0.9 * 3 * codec.slot_bytes < kept(tmp_path) < 3 * (codec.slot_bytes + 64)


def test_max_bytes_is_for_a_page(tmp_path: Path) -> None:
    saved = storage(tmp_path, mha(), max_bytes=3000)
    assert saved.pool().codec.slot_bytes == 3000
    assert all(saved.batch_set_v1(KEYS, slots(0, 1, 2)))
    assert kept(tmp_path) < 3 * (3000 + 64)
    assert all(storage(tmp_path, mha(), max_bytes=3000).batch_get_v1(KEYS, slots(4, 5, 6)))


@pytest.mark.parametrize("layout", LAYOUTS[:4])
def test_flat_pages_are_the_same_pages(tmp_path: Path, layout: str) -> None:
    """Without interface_v1 SGLang copies pages out of the pool and back itself."""
    pool = mha(layout)
    saved = storage(tmp_path, pool, lossless=True)
    assert saved.batch_set(KEYS[:2], [pool.get_data_page(PAGE), pool.get_data_page(2 * PAGE)])
    assert saved.set(KEYS[2], pool.get_data_page(3 * PAGE))

    loaded = storage(tmp_path, mha(layout), lossless=True)
    rooms = [pool.get_dummy_flat_data_page() for _ in KEYS]
    got = loaded.batch_get([*KEYS[:2], "missing"], rooms)
    assert got[0] is rooms[0] and torch.equal(got[0], pool.get_data_page(PAGE))
    assert torch.equal(got[1], pool.get_data_page(2 * PAGE)) and got[2] is None
    assert torch.equal(loaded.get(KEYS[2]), pool.get_data_page(3 * PAGE))
    # The pages of the other interface.
    assert loaded.batch_get_v1(KEYS, slots(0, 1, 2)) == [True, True, True]
    assert all(torch.equal(a, b) for a, b in zip(page(loaded, 0), page(saved, 1), strict=True))


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct", "page_unified"])
def test_latent_rows(tmp_path: Path, layout: str) -> None:
    pool = mla(layout)
    saved = storage(tmp_path, pool, lossless=True, rank=0, ranks=4)
    assert all(saved.batch_set_v1(KEYS, slots(0, 1, 2)))
    keys, values = page(saved, 1)
    assert keys.shape == (LAYERS, PAGE, 16) and values.shape == (LAYERS, PAGE, 64)

    # All ranks have the same rows, and only the first stores them.
    loaded = storage(tmp_path, mla(layout), lossless=True, rank=3, ranks=4)
    assert all(loaded.batch_get_v1(KEYS, slots(4, 5, 6)))
    got = page(loaded, 5)
    assert torch.equal(got[0], keys) and torch.equal(got[1], values)
    if layout != "page_unified":
        assert torch.equal(loaded.get(KEYS[1]), pool.get_data_page(PAGE))


def test_lossy_latent_rows(tmp_path: Path) -> None:
    saved = storage(tmp_path, mla("page_first"), bits=5)
    assert saved.pool().codec.slot_bytes == LAYERS * PAGE * 80 * 5 // 8
    assert all(saved.batch_set_v1(KEYS, slots(0, 1, 2)))
    loaded = storage(tmp_path, mla("page_first"), bits=5)
    assert all(loaded.batch_get_v1(KEYS, slots(4, 5, 6)))
    for got, want in zip(page(loaded, 5), page(saved, 1), strict=True):
        assert 0 < (got - want).float().square().mean() < 0.02 * want.float().square().mean()


@pytest.mark.parametrize("layout", ["page_first", "page_first_direct"])
def test_keys_wider_than_values(tmp_path: Path, layout: str) -> None:
    saved = storage(tmp_path, mha(layout, v_head_dim=16), lossless=True)
    assert all(saved.batch_set_v1(KEYS, slots(0, 1, 2)))
    loaded = storage(tmp_path, mha(layout, v_head_dim=16), lossless=True)
    assert all(loaded.batch_get_v1(KEYS, slots(4, 5, 6)))
    want, got = page(saved, 2), page(loaded, 6)
    assert want[1].shape == (LAYERS, PAGE, HEADS * 16)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("rate", [{"lossless": True}, {"bits": 4}])
def test_float8_caches(tmp_path: Path, rate: dict[str, Any]) -> None:
    """SGLang keeps them as bytes, so the dtype has to be stated."""
    how = rate | {"dtype": "float8_e4m3fn"}
    saved = storage(tmp_path, mha("page_first", torch.float8_e4m3fn), **how)
    assert all(saved.batch_set_v1(KEYS, slots(0, 1, 2)))
    loaded = storage(tmp_path, mha("page_first", torch.float8_e4m3fn), **how)
    assert all(loaded.batch_get_v1(KEYS, slots(4, 5, 6)))
    for got, want in zip(page(loaded, 4), page(saved, 0), strict=True):
        assert got.dtype == torch.float8_e4m3fn
        error = (got.float() - want.float()).square().mean() / want.float().square().mean()
        assert error == 0 if "lossless" in rate else 0 < error < 0.02


def test_a_prefix_ends_where_a_page_is_missing(tmp_path: Path) -> None:
    saved = storage(tmp_path, mha(), bits=4)
    assert saved.batch_exists(KEYS) == 0 and not saved.exists("a1")
    saved.batch_set_v1(["a1", "c3"], slots(0, 2))
    assert saved.exists("a1") and not saved.exists("b2") and saved.exists("c3")
    assert saved.batch_exists(KEYS) == 1
    assert saved.batch_get_v1(KEYS, slots(4, 5, 6)) == [True, False, True]
    saved.batch_set_v1(["b2"], slots(1))
    assert storage(tmp_path, mha(), bits=4).batch_exists([*KEYS, "d4"]) == 3
    assert saved.batch_exists([]) == 0 and saved.batch_get_v1([], slots(0)[:0]) == []


def test_a_page_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    pool = mha()
    saved = storage(tmp_path, pool, lossless=True)
    saved.batch_set_v1(["a"], slots(0))
    (path,) = tmp_path.rglob("*.tnkv")
    before = path.stat().st_mtime_ns
    assert saved.batch_set_v1(["a"], slots(0)) == [True]
    assert path.stat().st_mtime_ns == before


def test_clear_takes_the_pages_of_this_model_only(tmp_path: Path) -> None:
    first, second = storage(tmp_path, mha(), model="one"), storage(tmp_path, mha(), model="two")
    first.batch_set_v1(KEYS, slots(0, 1, 2))
    second.batch_set_v1(KEYS, slots(0, 1, 2))
    first.clear()
    assert first.batch_exists(KEYS) == 0 and second.batch_exists(KEYS) == 3


def test_the_first_token_stays_exact_where_positions_are_known(tmp_path: Path) -> None:
    saved = storage(tmp_path, mha(), bits=3)
    saved.batch_set_v1(["a", "b"], slots(0, 1), HiCacheStorageExtraInfo(prefix_keys=[]))
    saved.batch_set_v1(["c"], slots(2), HiCacheStorageExtraInfo(prefix_keys=["a", "b"]))
    want = [page(saved, number)[0] for number in range(3)]
    assert all(saved.batch_get_v1(["a", "b", "c"], slots(4, 5, 6)))
    got = [page(saved, 4 + number)[0] for number in range(3)]
    exact = [torch.equal(a[:, 0], b[:, 0]) for a, b in zip(got, want, strict=True)]
    assert exact == [True, False, False]


def test_bases_need_positions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    basis = fitted(tmp_path)
    pool = mha("page_first")
    correlated(pool)
    plain = storage(tmp_path / "plain", pool, bits=2.5)
    saved = storage(tmp_path / "store", pool, bits=2.5, bases=str(basis).replace("rank0", "rank{tp_rank}"))
    assert saved.pool().identity.basis and not plain.pool().identity.basis
    # Bases of other columns are refused at once.
    with pytest.raises(tenfold.ArgumentError):
        storage(tmp_path / "store", mha("page_first", head_num=4), bits=2.5, bases=str(basis))
    with pytest.raises(tenfold.ArgumentError, match="the model has 2"):
        storage(tmp_path / "store", mha("page_first", layer_num=2), bits=2.5, bases=str(basis))
    with caplog.at_level(logging.WARNING, "tenfold"):
        assert saved.batch_set_v1(KEYS, slots(0, 1, 2)) == [False, False, False]
    assert "3 of 3 pages were not stored" in caplog.text and "hicache_storage_pass_prefix_keys" in caplog.text

    info = HiCacheStorageExtraInfo(prefix_keys=["before"])
    errors = []
    for store in (plain, saved):
        assert all(store.batch_set_v1(KEYS, slots(0, 1, 2), info))
        assert all(store.batch_get_v1(KEYS, slots(4, 5, 6)))
        pages = [torch.cat([torch.cat(page(store, first + number)) for number in range(3)]) for first in (0, 4)]
        errors.append(float((pages[1] - pages[0]).float().square().sum()))
    assert errors[1] < 0.5 * errors[0]


def correlated(pool: Any) -> None:
    """Columns that move together, as a model's do."""
    torch.manual_seed(3)
    mix = torch.randn(4, WIDTH)
    for part in pool.kv_buffer:
        part.copy_(torch.randn(*part.shape[:-1], 4) @ mix + 0.05 * torch.randn(part.shape))


def fitted(folder: Path) -> Path:
    """A file of bases for pages of :func:`correlated` pools."""
    from safetensors.torch import save_file

    pool = mha("layer_first")
    correlated(pool)
    rows = {}
    for layer in range(LAYERS):
        for kind, part in zip("kv", pool.kv_buffer, strict=True):
            rows[f"layers.{layer}.{kind}"] = part[layer].flatten(1).contiguous()
    save_file(rows, folder / "captured.safetensors")
    out = folder / "rank0.basis"
    command = ["tenfold", "basis", "fit", str(folder / "captured.safetensors"), "--out", str(out)]
    assert _native.main([*command, "--rope", f"base=10000,head={WIDTH},pairing=halves", "--context", "1024"]) == 0
    return out


def test_the_factory_finds_the_class_and_the_injector_of_failures_wraps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang.srt.mem_cache.storage import StorageBackendFactory

    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "1.0")
    pool = mha()
    wrapped = StorageBackendFactory.create_backend("dynamic", config(tmp_path), pool)
    assert not isinstance(wrapped, TenfoldStorage)
    wrapped.register_mem_pool_host(pool)
    assert wrapped.batch_set_v1(KEYS, slots(0, 1, 2)) == [False, False, False]
    wrapped.close()
