"""Prefetches on stages: what is wrong with a page stays its own, memory follows the window, a timeline says what happened when."""

from __future__ import annotations

import json
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import tenfold
import torch
from sglang_pools import PAGE, TenfoldStorage, config, mha, slots, storage
from tenfold.serving import StoreWarning

KEYS = [f"key {number}" for number in range(14)]
BAD, GONE = 5, 11


def stored(folder: Path, **how: Any) -> TenfoldStorage:
    """The backend, with pages of noise in its folder, and a pool of zeros."""
    store = storage(folder, mha("page_first"), lossless=True, **how)
    assert all(store.batch_set_v1(KEYS, slots(*range(len(KEYS)))))
    return store


def test_one_damaged_page_and_one_that_is_gone_among_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = stored(tmp_path)
    pool = store.mem_pool_host.kv_buffer
    want = pool.clone()
    pool.zero_()
    path = store.pool().store._path(KEYS[BAD])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    store.pool().store.remove(KEYS[GONE])
    with pytest.warns(StoreWarning, match="taken as a miss and removed"):
        found = store.batch_get_v1(KEYS, slots(*range(len(KEYS))))
    assert found == [number not in (BAD, GONE) for number in range(len(KEYS))]
    assert f"page {KEYS[BAD]} cannot be used" in caplog.text
    for number in range(len(KEYS)):
        have, wanted = (one[:, number * PAGE : (number + 1) * PAGE] for one in (pool, want))
        assert torch.equal(have, wanted) if found[number] else not have.any()
    store.close()


def test_memory_follows_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(tmp_path)
    store._reloads._window = 3
    files, lock, alive, most = store.pool().store, threading.Lock(), [0], [0]
    get = files.get

    def counted(more: int) -> None:
        with lock:
            alive[0] += more
            most[0] = max(most[0], alive[0])

    def found(key: str) -> memoryview:
        payload = get(key)
        assert payload is not None
        counted(1)
        weakref.finalize(payload, counted, -1)
        return payload

    monkeypatch.setattr(files, "get", found)
    assert all(store.batch_get_v1(KEYS, slots(*range(len(KEYS)))))
    store.close()
    assert 1 <= most[0] <= 3 and alive == [0]


def test_a_trace_and_the_overlap(tmp_path: Path) -> None:
    store = stored(tmp_path / "store", trace=str(tmp_path / "reload.json"))
    assert all(store.batch_get_v1(KEYS, slots(*range(len(KEYS)))))
    store.close()
    counts = store.counts()["kv"]
    assert 0 < counts["read_seconds"] <= counts["reload_seconds"] <= counts["read_seconds"] + counts["decode_seconds"]
    assert 0 <= counts["load_overlap"] <= 1
    events = json.loads((tmp_path / "reload.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"read", "decode", "settle"}
    sizes = {name: sum(event["args"]["bytes"] for event in events if event.get("cat") == name) for name in ("read", "decode")}
    assert sizes == {"read": counts["bytes_loaded"], "decode": counts["bytes_restored"]}


@pytest.mark.parametrize(("given", "told"), [("", "names a file, not ''"), (3, "trace .* cannot be 3"), ("missing/reload.json", "a folder that exists")])
def test_traces_that_are_refused(tmp_path: Path, given: Any, told: str) -> None:
    with pytest.raises(tenfold.ArgumentError, match=told):
        TenfoldStorage(config(tmp_path, trace=given))


def test_an_error_that_nobody_expects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised as it was, and the next call is as good as any."""
    store = stored(tmp_path)
    get, error = store.pool().store.get, RuntimeError("an error of ours")

    def fail(key: str) -> Any:
        if key == KEYS[2]:
            raise error
        return get(key)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError) as raised:
        patch.setattr(store.pool().store, "get", fail)
        store.batch_get_v1(KEYS, slots(*range(len(KEYS))))
    assert raised.value is error
    assert all(store.batch_get_v1(KEYS, slots(*range(len(KEYS)))))
    store.close()
