"""What the plug-ins of serving engines share: identities, records, the store, pages."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
import tenfold
from tenfold.serving import RECORD_OVERHEAD, FileStore, Identity, KvPages, StoreError, StoreWarning, open_record, seal

HERE = Identity("model", "1", "float32", layout="layers=2")


def test_identities_differ_in_every_part() -> None:
    parts = {"model": "m", "revision": "r", "dtype": "d", "basis": "b", "layout": "l"}
    digests = {Identity(**parts).digest}
    digests |= {Identity(**(parts | {name: "other"})).digest for name in parts}
    # The end of one part is not the start of the next.
    digests |= {Identity("mr", "", "d", "b", "l").digest, Identity("m", "rd", "", "b", "l").digest}
    assert len(digests) == 8
    with pytest.raises(tenfold.ArgumentError, match="name"):
        Identity("")


def test_a_record_is_read_by_its_owner_only() -> None:
    record = seal(HERE, "key", b"payload")
    assert len(record) == RECORD_OVERHEAD + 7
    assert open_record(HERE, "key", record) == b"payload"
    assert open_record(HERE, "key", record + b"more") == b"payload"
    with pytest.raises(tenfold.DataError, match="another model"):
        open_record(Identity("model", "2", "float32", layout="layers=2"), "key", record)
    with pytest.raises(tenfold.DataError, match="another key"):
        open_record(HERE, "other", record)


def test_every_flipped_bit_and_every_cut_of_a_record_is_seen() -> None:
    record = seal(HERE, "key", bytes(range(40)))
    for at in range(len(record)):
        with pytest.raises(tenfold.DataError):
            open_record(HERE, "key", record[:at])
        for bit in range(8):
            bent = bytearray(record)
            bent[at] ^= 1 << bit
            if 5 <= at < 8:  # reserved, and under the digest
                with pytest.raises(tenfold.DataError, match="damaged"):
                    open_record(HERE, "key", bent)
            with pytest.raises(tenfold.DataError):
                open_record(HERE, "key", bent)


def test_a_store_keeps_what_it_was_given(tmp_path: Path) -> None:
    store = FileStore(tmp_path, HERE)
    assert store.get("a") is None and not store.contains("a")
    store.put("a", b"one")
    store.put("a", b"two")
    store.put("../../b", b"three")
    again = FileStore(tmp_path, HERE)
    assert again.get("a") == b"two" and again.get("../../b") == b"three"
    assert FileStore(tmp_path, Identity("other")).get("a") is None
    again.remove("a")
    again.remove("a")
    assert not again.contains("a") and again.contains("../../b")
    again.clear()
    assert not again.contains("../../b")
    assert all(path.is_dir() for path in tmp_path.rglob("*"))


def test_a_damaged_record_is_a_miss_and_said(tmp_path: Path) -> None:
    store = FileStore(tmp_path, HERE)
    for number, damage in enumerate((lambda b: b[:-1], lambda b: b[:3], lambda b: b"", lambda b: b[:-1] + bytes([b[-1] ^ 1]))):
        key = str(number)
        store.put(key, b"payload")
        (path,) = tmp_path.rglob("*.tnkv")
        path.write_bytes(damage(path.read_bytes()))
        with pytest.warns(StoreWarning, match="taken as a miss"):
            assert store.get(key) is None
        assert not path.exists()


def test_a_store_that_fails_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="no folder"):
        FileStore(tmp_path / "file", HERE)
    store = FileStore(tmp_path / "store", HERE)
    # A file where the record's folder should be.
    store.put("a", b"")
    (path,) = tmp_path.rglob("*.tnkv")
    store.clear()
    path.parent.rmdir()
    path.parent.write_bytes(b"")
    with pytest.raises(StoreError, match="not stored"):
        store.put("a", b"payload")
    with pytest.raises(StoreError, match="no room"):
        FileStore(tmp_path / "small", HERE, max_bytes=100).put("a", bytes(101))


def test_those_not_read_for_longest_go(tmp_path: Path) -> None:
    size = 1000 + RECORD_OVERHEAD
    store = FileStore(tmp_path, HERE, max_bytes=10 * size)
    for number in range(10):
        store.put(str(number), bytes(1000))
        (path,) = (p for p in tmp_path.rglob("*.tnkv") if p.stat().st_mtime > 1000 + number)
        os.utime(path, (number, number))
    assert store.get("0") is not None
    store.put("new", bytes(1000))
    left = [key for key in (*map(str, range(10)), "new") if store.contains(key)]
    assert left[0] == "0" and left[-1] == "new" and "1" not in left and 8 <= len(left) <= 10
    assert sum(p.stat().st_size for p in tmp_path.rglob("*.tnkv")) <= 10 * size


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = FileStore(tmp_path, HERE, max_bytes=20_000)
    wrong: list[str] = []

    def work(thread: int) -> None:
        for number in range(60):
            key = str(number % 7)
            store.put(key, key.encode() * 500)
            got = store.get(str((number + thread) % 7))
            if got is not None and bytes(got) != str((number + thread) % 7).encode() * 500:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _kv(tokens: int = 32, layers: int = 2) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(1)
    draw = lambda: [rng.standard_normal((tokens, 64), dtype=np.float32) for _ in range(layers)]  # noqa: E731
    return draw(), draw()


@pytest.mark.parametrize("how", [{}, {"bits": 2.5}, {"max_bytes": 5000}, {"lossless": True}])
def test_pages_keep_to_their_bytes(how: dict[str, float]) -> None:
    pages = KvPages(2, **how)  # type: ignore[arg-type]
    keys, values = _kv()
    page = pages.encode(keys, values, 0)
    assert len(page) <= pages.max_bytes(32, 64, "float32")
    out = [np.empty((32, 64), np.float32) for _ in range(4)]
    pages.decode(page, out[:2], out[2:])
    for was, became in zip((*keys, *values), out, strict=True):
        # The first token of a context is exact at every rate.
        assert np.array_equal(was[0], became[0])
        if "lossless" in how:
            assert np.array_equal(was, became)
        else:
            assert 0 < np.mean((was - became) ** 2) < 0.35


def test_no_lossless_page_takes_more_than_its_bound() -> None:
    pages = KvPages(2, lossless=True)
    rng = np.random.default_rng(2)
    for tokens in (1, 5, 64):
        noise = [rng.integers(0, 2**32, (tokens, 48), np.uint32).view(np.float32) for _ in range(4)]
        assert len(pages.encode(noise[:2], noise[2:])) <= pages.max_bytes(tokens, 48, "float32")


def test_pages_refuse_what_cannot_work() -> None:
    with pytest.raises(tenfold.ArgumentError, match="one of"):
        KvPages(2, bits=2, lossless=True)
    with pytest.raises(tenfold.ArgumentError, match="bits"):
        KvPages(2, bits=0)
    pages = KvPages(2)
    keys, values = _kv()
    page = pages.encode(keys, values)
    out = [np.empty((16, 64), np.float32) for _ in range(4)]
    with pytest.raises(tenfold.DataError, match="32 tokens"):
        pages.decode(page, out[:2], out[2:])
    with pytest.raises(tenfold.ArgumentError, match="2 layers"):
        pages.decode(page, out[:1], out[1:])
    nan = [np.full((32, 64), np.nan, np.float32)] * 2
    with pytest.raises(tenfold.LimitError):
        KvPages(2, bits=0.01).encode(nan, nan)


@pytest.mark.parametrize("group", [2, 3, 5, 9])
@pytest.mark.parametrize("heads", [False, True])
def test_layers_that_are_coded_together(group: int, heads: bool) -> None:
    rng = np.random.default_rng(group)
    keys = [rng.standard_normal((32, 2, 24), dtype=np.float32) for _ in range(5)]
    values = [rng.standard_normal((32, 2, 8), dtype=np.float32) for _ in range(5)]
    if not heads:
        keys, values = [key.reshape(32, 48) for key in keys], [value.reshape(32, 16) for value in values]
    pages = KvPages(5, lossless=True, group=group)
    page = pages.encode(keys, values, 0)
    assert pages.layers == 5 and len(page) <= pages.max_bytes(32, 32, "float32")
    found = [np.zeros((32, 48), np.float32) for _ in range(5)], [np.zeros((32, 16), np.float32) for _ in range(5)]
    pages.decode(page, *found)
    for layer in range(5):
        key, value = np.zeros((32, 48), np.float32), np.zeros((32, 16), np.float32)
        pages.decode_layer(page, layer, key, value)
        for got in (found[0][layer], key):
            assert np.array_equal(got, keys[layer].reshape(32, 48))
        for got in (found[1][layer], value):
            assert np.array_equal(got, values[layer].reshape(32, 16))
    with pytest.raises(tenfold.ArgumentError, match="0 to 4"):
        pages.decode_layer(page, 5, key, value)
    with pytest.raises(tenfold.Error):
        KvPages(5, lossless=True, group=1).decode(page, *found)
    with pytest.raises(tenfold.DataError, match="32 tokens"):
        pages.decode(page, *([np.zeros((8, 48), np.float32)] * 5, [np.zeros((8, 16), np.float32)] * 5))


def test_keys_have_a_step_of_their_own() -> None:
    rng = np.random.default_rng(3)
    rows = [rng.standard_normal((64, 64), dtype=np.float32) for _ in range(2)]
    errors = []
    for step in (1.0, 3.0):
        pages = KvPages(2, bits=4, key_step=step)
        found = [[np.zeros((64, 64), np.float32) for _ in range(2)] for _ in range(2)]
        pages.decode(pages.encode(rows, rows), *found)
        errors.append([float(np.square(np.stack(side) - np.stack(rows)).mean()) for side in found])
    assert errors[1][0] > 4 * errors[1][1] and errors[0][0] < 1.5 * errors[0][1]
    for wrong in ({"group": 0}, {"key_step": 0.0}, {"key_step": float("nan")}):
        with pytest.raises(tenfold.ArgumentError, match=next(iter(wrong))):
            KvPages(2, **wrong)  # type: ignore[arg-type]
