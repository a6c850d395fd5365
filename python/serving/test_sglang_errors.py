"""What the backend does with damaged pages, pages of others, full and missing folders, settings that cannot work."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import tenfold
import torch
from sglang_pools import PAGE, TenfoldStorage, config, mha, mla, same, slots, snapshot, storage
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolName
from tenfold.serving import StoreError, StoreWarning

KEYS = ["a1", "b2", "c3"]


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.tnkv"))


def stored(folder: Path, **how: Any) -> TenfoldStorage:
    store = storage(folder, mha("page_first"), **how)
    assert all(store.batch_set_v1(KEYS, slots(0, 1, 2)))
    return store


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "other"])
def test_a_damaged_page_is_a_miss_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    store = stored(tmp_path)
    (path,) = [path for path in files(tmp_path) if path == store.pool().store._path("b2")]
    data = bytearray(path.read_bytes())
    if damage == "bit":
        data[len(data) // 2] ^= 4
    path.write_bytes({"bit": data, "cut": data[:-7], "empty": b"", "other": b"not a page at all" * 20}[damage])

    before = snapshot(store.mem_pool_host)
    with pytest.warns(StoreWarning, match="taken as a miss"), caplog.at_level(logging.WARNING, "tenfold"):
        assert store.batch_get_v1(["b2"], slots(5)) == [False]
    assert same(store.mem_pool_host, before)
    assert "page b2 cannot be used" in caplog.text
    # It is gone, so that a prefix ends before it and it is stored again.
    assert store.batch_exists(KEYS) == 1 and len(files(tmp_path)) == 2
    assert store.batch_get_v1(KEYS, slots(5, 6, 7)) == [True, False, True]
    assert store.batch_set_v1(["b2"], slots(1)) == [True] and store.batch_exists(KEYS) == 3


def test_every_flipped_byte_of_a_small_page_is_a_miss(tmp_path: Path) -> None:
    store = storage(tmp_path, mha(layer_num=1, head_num=1, head_dim=16), bits=4)
    assert store.batch_set_v1(["a"], slots(0)) == [True]
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    before = snapshot(store.mem_pool_host)
    for at in range(len(whole)):
        bent = bytearray(whole)
        bent[at] ^= 1 << at % 8
        path.write_bytes(bent)
        with pytest.warns(StoreWarning):
            assert store.batch_get_v1(["a"], slots(3)) == [False]
    assert same(store.mem_pool_host, before)
    path.write_bytes(whole)
    assert store.batch_get_v1(["a"], slots(3)) == [True]


@pytest.mark.parametrize("payload", [b"", b"\x00" * 100, b"page"])
def test_a_whole_record_that_holds_no_page_is_a_miss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    store = stored(tmp_path)
    store.pool().store.put("b2", payload)
    before = snapshot(store.mem_pool_host)
    with caplog.at_level(logging.WARNING, "tenfold"):
        assert store.batch_get_v1(KEYS, slots(5, 6, 7)) == [True, False, True]
    assert "page b2 cannot be used, taken as a miss" in caplog.text and not store.exists("b2")
    # Page 6 of the pool, which was to take it, is as it was.
    assert torch.equal(store.mem_pool_host.kv_buffer[:, 6 * PAGE : 7 * PAGE], before[0][:, 6 * PAGE : 7 * PAGE])


def test_nothing_of_a_page_that_breaks_off_reaches_the_pool(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Layers are decoded one by one; here the first are fine and the last is not."""
    store = stored(tmp_path, lossless=True)
    pool = store.pool()
    bent = bytearray(pool.codec.encode(*pool.pages.read(pool.pages.at(PAGE))))
    bent[-5] ^= 1
    pool.store.put("b2", bent)
    room = pool.codec.shape.empty()
    pool.codec._pages.decode_layer(bent, 0, room[0][0], room[1][0])
    with pytest.raises(tenfold.DataError):
        pool.codec.decode(bent, *(list(part) for part in room))

    before = snapshot(store.mem_pool_host)
    with caplog.at_level(logging.WARNING, "tenfold"):
        assert store.batch_get_v1(["b2"], slots(6)) == [False]
    assert same(store.mem_pool_host, before) and "page b2 cannot be used" in caplog.text


OTHERS: dict[str, dict[str, Any]] = {
    "model": {"model": "another"},
    "revision": {"revision": "2"},
    "rank": {"rank": 1, "ranks": 2},
    "ranks": {"ranks": 2},
    "rate": {"bits": 5},
    "lossless": {"lossless": True},
}


@pytest.mark.parametrize("other", OTHERS)
def test_pages_of_others_are_not_found(tmp_path: Path, other: str) -> None:
    store = stored(tmp_path, revision="1")
    foreign = storage(tmp_path, mha("page_first"), **({"revision": "1"} | OTHERS[other]))
    assert foreign.batch_exists(KEYS) == 0
    assert foreign.batch_get_v1(KEYS, slots(0, 1, 2)) == [False, False, False]
    # Nor where someone puts them in the place.
    source, target = (one.pool().store._folder for one in (store, foreign))
    shutil.copytree(source, target, dirs_exist_ok=True)
    before = snapshot(foreign.mem_pool_host)
    assert foreign.batch_exists(KEYS) == 3
    with pytest.warns(StoreWarning, match="another model or with other options"):
        assert foreign.batch_get_v1(KEYS, slots(0, 1, 2)) == [False, False, False]
    assert same(foreign.mem_pool_host, before)
    assert store.batch_get_v1(KEYS, slots(0, 1, 2)) == [True, True, True]


@pytest.mark.parametrize("geometry", [{"head_num": 4, "head_dim": 16}, {"layer_num": 2}])
def test_pages_of_other_shapes_are_not_found(tmp_path: Path, geometry: dict[str, Any]) -> None:
    stored(tmp_path)
    assert storage(tmp_path, mha("page_first", **geometry)).batch_exists(KEYS) == 0
    assert storage(tmp_path, mha("page_first", torch.float16)).batch_exists(KEYS) == 0


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="the store has no folder"):
        storage(tmp_path / "file", mha())


def test_a_folder_that_goes_away_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = stored(tmp_path)
    folder = store.pool().store._folder
    shutil.rmtree(folder)
    folder.write_text("in the way")
    with caplog.at_level(logging.WARNING, "tenfold"):
        assert store.batch_set_v1(KEYS, slots(0, 1, 2)) == [False, False, False]
        assert not store.batch_set(["d4"], [store.mem_pool_host.get_data_page(0)])
        assert not store.set("e5", store.mem_pool_host.get_data_page(0))
    assert "3 of 3 pages were not stored" in caplog.text and "1 of 1 pages were not stored" in caplog.text


def test_a_store_that_is_full_keeps_what_was_used_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    page_bytes = storage(tmp_path / "measure", mha()).pool().codec.slot_bytes + 100
    store = storage(tmp_path / "store", mha(), max_store_bytes=4 * page_bytes, threads=1)
    for number in range(8):
        assert store.batch_set_v1([f"k{number}"], slots(number)) == [True]
    there = [number for number in range(8) if store.exists(f"k{number}")]
    assert 7 in there and 0 not in there and 2 <= len(there) <= 4

    small = storage(tmp_path / "small", mha(), max_store_bytes=1000)
    with caplog.at_level(logging.WARNING, "tenfold"):
        assert small.batch_set_v1(KEYS, slots(0, 1, 2)) == [False, False, False]
    assert "has no room in a store of 1000" in caplog.text and small.batch_exists(KEYS) == 0


def test_a_page_that_does_not_fit_its_bytes_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = storage(tmp_path, mha(dtype=torch.float32), bits=2)
    # No numbers, each with bits of its own: they are kept as they are.
    bits = torch.randint(1, 1 << 22, store.mem_pool_host.kv_buffer[:, :, :PAGE].shape, dtype=torch.int32)
    store.mem_pool_host.kv_buffer[:, :, :PAGE] = (bits | 0x7FC00000).view(torch.float32)
    with caplog.at_level(logging.WARNING, "tenfold"):
        assert store.batch_set_v1(["nan", "fine"], slots(0, 1)) == [False, True]
    assert "1 of 2 pages were not stored" in caplog.text and not store.exists("nan")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"bites": 4}, "unknown options of the tenfold backend: bites; there are path"),
    ({"path": ""}, "needs a folder"),
    ({"path": 3}, "option path"),
    ({"bits": "4"}, "option bits"),
    ({"bits": True}, "option bits"),
    ({"max_bytes": 1.5}, "option max_bytes"),
    ({"lossless": 1}, "option lossless"),
    ({"bits": None}, "option bits"),
    ({"threads": -1}, "option threads"),
    ({"dtype": "int8"}, "option dtype"),
    ({"bits": 4, "lossless": True}, "one of bits"),
    ({"bits": 0}, "bits are above 0"),
    ({"bits": 0.001}, "no room for a page"),
    ({"max_bytes": 0}, "number of bytes"),
    ({"max_store_bytes": 0}, "number of bytes"),
    ({"effort": "most"}, "most"),
    ({"dtype": "float16"}, "leave it out"),
    ({"model": None}, "served-model-name"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_options_that_cannot_work_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(tenfold.ArgumentError, match=message):
        storage(tmp_path, mha(), **options)


def test_bytes_that_no_page_fits_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(tenfold.LimitError):
        storage(tmp_path, mha(), max_bytes=20)
    with pytest.raises(tenfold.NotFoundError):
        storage(tmp_path, mha(), bases=str(tmp_path / "none.basis"))


def test_options_of_sglang_pass(tmp_path: Path) -> None:
    assert storage(tmp_path, mha(), prefetch_threshold=64, hicache_storage_pass_prefix_keys=True, allocator="shm")


def test_what_is_not_stored_is_refused_by_name(tmp_path: Path) -> None:
    made = TenfoldStorage(config(tmp_path))
    with pytest.raises(tenfold.ArgumentError, match="no host pool kv was registered"):
        made.exists("a")
    with pytest.raises(tenfold.UnsupportedError, match="not of object"):
        made.register_mem_pool_host(object())
    made.register_mem_pool_host(mha())
    with pytest.raises(tenfold.UnsupportedError, match="not of SimpleNamespace"):
        from types import SimpleNamespace

        made.register_mem_host_pool_v2(SimpleNamespace(), PoolName.MAMBA)
    with pytest.raises(tenfold.ArgumentError, match="no host pool mamba"):
        made.pool(PoolName.MAMBA)
    with pytest.raises(tenfold.UnsupportedError, match="whole latent rows"):
        storage(tmp_path, mla_packed())
    with pytest.raises(tenfold.ArgumentError, match="the pool keeps bytes"):
        storage(tmp_path, mha(dtype=torch.float8_e4m3fn))
    with pytest.raises(tenfold.ArgumentError, match="not \\['extra'\\]"):
        TenfoldStorage(config(tmp_path), {"extra": 1})


def mla_packed() -> Any:
    pool = mla()
    # As a float8 cache with scales in its rows.
    pool.kv_cache_dim = 96
    return pool


def test_parallel_settings_that_cut_pages_are_refused(tmp_path: Path) -> None:
    common = {"pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "enable_storage_metrics": False}
    common |= {"is_page_first_layout": False, "model_name": "model", "extra_config": {"path": str(tmp_path)}}
    for how in (
        {"is_mla_model": False, "tp_rank": 0, "tp_size": 1, "should_split_heads": True, "tp_lcm_size": 2},
        {"is_mla_model": True, "tp_rank": 0, "tp_size": 2, "dcp_size": 2, "dcp_rank": 0, "logical_page_size": 32},
    ):
        with pytest.raises(tenfold.UnsupportedError, match="no DCP, no tp_lcm_size"):
            TenfoldStorage(HiCacheStorageConfig(**common, **how))


def test_slots_that_are_no_pages_are_refused(tmp_path: Path) -> None:
    store = storage(tmp_path, mha())
    with pytest.raises(tenfold.ArgumentError, match="2 pages have 32 slots, 16 were given"):
        store.batch_set_v1(["a", "b"], slots(0))
    with pytest.raises(tenfold.ArgumentError, match="follow each other"):
        store.batch_get_v1(["a"], slots(0).flip(0))
    with pytest.raises(tenfold.ArgumentError, match="from a multiple of its tokens on"):
        store.batch_set_v1(["a"], slots(0) + 3)
    with pytest.raises(tenfold.ArgumentError, match="as many pages"):
        store.batch_set(["a"], [])
    with pytest.raises(tenfold.ArgumentError, match="is a tensor"):
        store.set("a", b"bytes")
    with pytest.raises(tenfold.ArgumentError, match="a page has"):
        store.set("a", torch.zeros(7, dtype=torch.bfloat16))
    asymmetric = storage(tmp_path, mha("page_first", v_head_dim=16))
    with pytest.raises(tenfold.UnsupportedError, match="interface_v1"):
        asymmetric.set("a", torch.zeros(7, dtype=torch.bfloat16))


def test_a_failed_flat_page_is_none_and_its_room_is_as_it_was(tmp_path: Path) -> None:
    store = stored(tmp_path)
    store.pool().store.put("b2", b"no page")
    room = torch.full_like(store.mem_pool_host.get_dummy_flat_data_page(), 7.0)
    assert store.get("b2", room) is None
    assert bool((room == 7.0).all())
