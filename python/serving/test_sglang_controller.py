"""Backup and prefetch by SGLang's own controllers and their threads, from host pool to folder to another host pool.

What lies between a GPU and the host pool is not here: those copies are kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sglang_pools
import torch
from sglang_pools import PAGE, controller, hybrid_controller, mha, mla, page, same, sha256_chain, slots, snapshot
from sglang.srt.mem_cache import utils
from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from tenfold.serving import StoreWarning

TOKENS = list(range(100, 100 + 4 * PAGE))
WAIT = 60


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.manual_seed(13)
    monkeypatch.setattr(utils, "get_native_hash", sha256_chain)
    with sglang_pools.one_rank():
        yield


@pytest.fixture
def attached(request: pytest.FixtureRequest) -> Any:
    """Makes controllers that are detached at the end."""

    def make(kind: Any, *args: Any, **options: Any) -> Any:
        made = kind(*args, **options)
        request.addfinalizer(made.detach_storage_backend)
        return made

    return make


def back_up(control: Any, indices: torch.Tensor, prefix: list[str] | None = None, **more: Any) -> int:
    """Tokens that the controller takes for stored."""
    control.write_storage(indices, TOKENS, hash_value=sha256_chain(TOKENS, None, PAGE), prefix_keys=prefix, **more)
    return int(control.ack_backup_queue.get(timeout=WAIT).completed_tokens)


def prefetch(control: Any, request: Any, **more: Any) -> tuple[int, int, torch.Tensor]:
    """Tokens that the query found, tokens that were loaded, and their slots."""
    control.prefetch(request, TOKENS, **more)
    operation = control.prefetch_hit_queue.get(timeout=WAIT)
    found = int(operation.storage_hit_count)
    operation.host_indices = control.mem_pool_host.alloc(found)
    control.prefetch_buffer.put(operation)
    loaded = 0
    while True:
        ack = control.ack_prefetch_queue.get(timeout=WAIT)
        if ack.completed_tokens is not None:
            loaded = ack.completed_tokens
        if ack.completed_req:
            return found, loaded, operation.host_indices


@pytest.mark.parametrize("interface", [1, 0])
@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct", "page_head"])
def test_a_prefix_goes_to_the_folder_and_comes_back(tmp_path: Path, attached: Any, layout: str, interface: int) -> None:
    how = {"lossless": True, "interface_v1": interface}
    first = attached(controller, mha(layout), tmp_path, **how)
    indices = first.mem_pool_host.alloc(len(TOKENS))
    assert back_up(first, indices) == len(TOKENS)

    second = attached(controller, mha(layout), tmp_path, **how)
    second.mem_pool_host.alloc(PAGE)
    found, loaded, at = prefetch(second, "request")
    assert (found, loaded) == (len(TOKENS), len(TOKENS)) and int(at[0]) == PAGE
    for number in range(4):
        want = page(first.storage_backend, int(indices[number * PAGE]) // PAGE)
        got = page(second.storage_backend, int(at[number * PAGE]) // PAGE)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_a_prefix_that_was_stored_before_is_found_in_part(tmp_path: Path, attached: Any) -> None:
    control = attached(controller, mha(), tmp_path, bits=4)
    back_up(control, control.mem_pool_host.alloc(len(TOKENS)))
    keys = sha256_chain(TOKENS, None, PAGE)
    control.storage_backend.pool().store.remove(keys[2])
    found, loaded, _ = prefetch(control, "request")
    assert (found, loaded) == (2 * PAGE, 2 * PAGE)


@pytest.mark.parametrize("interface", [1, 0])
def test_a_damaged_page_ends_what_is_loaded(
    tmp_path: Path, attached: Any, caplog: pytest.LogCaptureFixture, interface: int
) -> None:
    control = attached(controller, mha("page_first"), tmp_path, bits=4, interface_v1=interface)
    back_up(control, control.mem_pool_host.alloc(len(TOKENS)))
    keys = sha256_chain(TOKENS, None, PAGE)
    path = control.storage_backend.pool().store._path(keys[2])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = snapshot(control.mem_pool_host)
    with pytest.warns(StoreWarning, match="damaged"), caplog.at_level(logging.WARNING):
        found, loaded, at = prefetch(control, "request")
    # The query sees a file; the page itself is a miss, and what follows it is not used.
    assert (found, loaded) == (4 * PAGE, 2 * PAGE)
    assert f"page {keys[2]} cannot be used" in caplog.text and "failed to retrieve page" in caplog.text
    missed = slice(int(at[2 * PAGE]), int(at[2 * PAGE]) + PAGE)
    assert torch.equal(control.mem_pool_host.kv_buffer[:, missed], before[0][:, missed])


def test_a_backup_that_fails_counts_for_nothing(tmp_path: Path, attached: Any, caplog: pytest.LogCaptureFixture) -> None:
    control = attached(controller, mha(), tmp_path, bits=4, max_store_bytes=100)
    with caplog.at_level(logging.WARNING):
        assert back_up(control, control.mem_pool_host.alloc(len(TOKENS))) == 0
    assert "4 of 4 pages were not stored" in caplog.text and "Write page to storage: 4 pages failed" in caplog.text


def test_options_that_cannot_work_fail_the_attach(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown options of the tenfold backend: rate"):
        controller(mha(), tmp_path, rate=3)


def test_latent_rows_of_a_model(tmp_path: Path, attached: Any) -> None:
    first = attached(controller, mla("page_first"), tmp_path, lossless=True)
    indices = first.mem_pool_host.alloc(len(TOKENS))
    assert back_up(first, indices) == len(TOKENS)
    second = attached(controller, mla("page_first"), tmp_path, lossless=True)
    found, loaded, at = prefetch(second, "request")
    assert found == loaded == len(TOKENS)
    assert torch.equal(second.mem_pool_host.kv_buffer[at], first.mem_pool_host.kv_buffer[indices])


def test_the_controller_of_servers(tmp_path: Path, attached: Any) -> None:
    """With positions, as servers pass them if they are told to: only the first token of the text stays exact."""
    first = attached(hybrid_controller, {PoolName.KV: mha("page_first")}, tmp_path, bits=4)
    indices = first.mem_pool_host.alloc(len(TOKENS))
    assert back_up(first, indices, prefix=[]) == len(TOKENS)
    second = attached(hybrid_controller, {PoolName.KV: mha("page_first")}, tmp_path, bits=4)
    found, loaded, at = prefetch(second, CacheRequestHandle("request", 0), prefix_keys=[])
    assert found == loaded == len(TOKENS)
    exact = []
    for number in range(4):
        want = page(first.storage_backend, int(indices[number * PAGE]) // PAGE)
        got = page(second.storage_backend, int(at[number * PAGE]) // PAGE)
        error = torch.cat([(a - b).float().flatten() for a, b in zip(got, want, strict=True)]).square().mean()
        # What is exact is paid for by the rest of its page, here one token of sixteen.
        assert 0 < error < (0.06 if number == 0 else 0.02)
        exact.append(torch.equal(got[0][:, 0], want[0][:, 0]))
    assert exact == [True, False, False, False]


def test_a_second_pool_with_a_sliding_window(tmp_path: Path, attached: Any) -> None:
    """Layers with a window keep the end of a prefix only, in a pool and in files of their own."""
    pools = {PoolName.KV: mha("page_first"), PoolName.SWA: mha("page_first", layer_num=2)}
    first = attached(hybrid_controller, pools, tmp_path, lossless=True)
    keys = sha256_chain(TOKENS, None, PAGE)
    indices, window = first.mem_pool_host.alloc(len(TOKENS)), slots(6, 7)
    saved = PoolTransfer(PoolName.SWA, window, keys=keys[2:], hit_policy=PoolHitPolicy.TRAILING_PAGES)
    assert back_up(first, indices, extra_pools=[saved]) == len(TOKENS)

    others = {PoolName.KV: mha("page_first"), PoolName.SWA: mha("page_first", layer_num=2)}
    second = attached(hybrid_controller, others, tmp_path, lossless=True)
    wanted = PoolTransfer(PoolName.SWA, slots(1, 2), keys=keys[2:], hit_policy=PoolHitPolicy.TRAILING_PAGES)
    found, loaded, at = prefetch(second, CacheRequestHandle("request", 0), extra_pools=[wanted])
    assert found == loaded == len(TOKENS)
    for number in range(4):
        want = page(first.storage_backend, int(indices[number * PAGE]) // PAGE)
        got = page(second.storage_backend, int(at[number * PAGE]) // PAGE)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    for to, source in ((1, 6), (2, 7)):
        want, got = page(first.storage_backend, source, "swa"), page(second.storage_backend, to, "swa")
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))

    # Without the window's last page no longer prefix can be restored than before it, and there nothing is kept.
    backend = second.storage_backend
    assert backend.batch_exists_v2(keys, [wanted]).restorable_prefix_pages == [4]
    backend.pool("swa").store.remove(keys[3])
    hit = backend.batch_exists_v2(keys, [wanted])
    assert (hit.kv_hit_pages, hit.restorable_prefix_pages) == (0, []) and hit.extra_pool_hit_pages == {PoolName.KV: 4}
    before = snapshot(others[PoolName.SWA])
    again = PoolTransfer(PoolName.SWA, slots(3), keys=keys[3:])
    assert backend.batch_get_v2([again]) == {PoolName.SWA: [False]} and same(others[PoolName.SWA], before)


def test_pools_side_by_side_take_bits_or_lossless(tmp_path: Path) -> None:
    pools = {PoolName.KV: mha(), PoolName.SWA: mha(layer_num=2)}
    with pytest.raises(ValueError, match="state bits or lossless"):
        hybrid_controller(pools, tmp_path, max_bytes=5000)
