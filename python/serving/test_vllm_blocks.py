"""Blocks are read as the tokens that a backend stored, and written as it would have stored them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import vllm_setup  # noqa: F401 - before vLLM
import torch
from vllm import _custom_ops as ops
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLAImpl
from vllm_workers import Rows, layers_of

from tenfold import UnsupportedError
from tenfold.serving.vllm._blocks import Blocks
from tenfold.serving.vllm._shape import Shape

COUNT, HEADS = 7, 2


class Packed:
    """The CPU backend: keys and values packed for the instructions that there are."""

    def do_kv_cache_update(self, layer: Any, key: Any, value: Any, cache: Any, slots: Any) -> None:
        blocks, heads, tokens, _ = cache.shape
        keys, values = cache.view(blocks, heads, 2 * tokens, -1).chunk(2, dim=2)
        isa = _get_attn_isa(cache.dtype, tokens, key.shape[-1], "auto")
        how = {"k_scale": 1.0, "v_scale": 1.0, "kv_cache_dtype": "auto"}
        ops.cpu_attn_reshape_and_cache(key, value, keys, values, slots, isa, **how)


class Halved:
    """Does not keep what it is given."""

    def do_kv_cache_update(self, layer: Any, key: Any, value: Any, cache: Any, slots: Any) -> None:
        Rows().do_kv_cache_update(layer, key / 2, value, cache, slots)


class Mixed:
    """Keeps keys twice and no values."""

    def do_kv_cache_update(self, layer: Any, key: Any, value: Any, cache: Any, slots: Any) -> None:
        Rows().do_kv_cache_update(layer, key, key, cache, slots)


class Latent:
    """MLA's backends: a row for each token, the latent before its rotary part. As vLLM's own for CPUs."""

    do_kv_cache_update = CPUMLAImpl.do_kv_cache_update


class Turned(Latent):
    """Keeps the rotary part first."""

    def do_kv_cache_update(self, latent: Any, rotary: Any, cache: Any, slots: Any, dtype: str, scale: Any) -> None:
        cache.flatten(0, 1)[slots] = torch.cat((rotary.squeeze(1), latent), dim=-1)


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    current_platform.import_kernels()


def shape_of(head: int, block: int, dtype: torch.dtype, layers: int = 1) -> Shape:
    names = tuple(f"layer.{number}" for number in range(layers))
    return Shape(names, block, 2 * block, HEADS, head, str(dtype).removeprefix("torch."), 1)


def caches_of(shape: Shape, dtype: torch.dtype, *, by_token: bool = False) -> dict[str, torch.Tensor]:
    made = {}
    for name in shape.layers:
        if by_token:
            cache = torch.zeros(COUNT, shape.block, shape.heads, 2 * shape.head, dtype=dtype).transpose(1, 2)
        else:
            cache = torch.zeros(COUNT, shape.heads, shape.block, 2 * shape.head, dtype=dtype)
        made[name] = cache
    return made


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("impl", "by_token"), [(Packed(), False), (Rows(), False), (Rows(), True)], ids=["packed", "rows", "rows-by-token"]
)
@pytest.mark.parametrize(("head", "block"), [(32, 32), (64, 32), (128, 64), (80, 32)])
def test_tokens_of_a_backend(impl: Any, by_token: bool, dtype: torch.dtype, head: int, block: int) -> None:
    shape = shape_of(head, block, dtype)
    caches = caches_of(shape, dtype, by_token=by_token)
    (cache,) = caches.values()
    blocks = Blocks(shape, caches, layers_of(shape, impl))
    assert not cache.any(), "asking the backend left something behind"
    keys, values = (torch.randn(2 * block, HEADS, head).to(dtype) for _ in range(2))
    ids = [5, 2]
    slots = torch.cat([torch.arange(block) + number * block for number in ids])
    impl.do_kv_cache_update(None, keys, values, cache, slots)
    (raw,) = blocks.read(ids)
    found = blocks.rows(raw)
    assert torch.equal(found[0], keys.flatten(1)) and torch.equal(found[1], values.flatten(1))
    # And back, into a cache that has something else in the other blocks.
    expected = cache.clone()
    cache[ids] = 1
    blocks.write(0, ids, *found)
    assert torch.equal(cache, expected)
    # As pools, which others decode pages into.
    pools = blocks.pools()
    assert (pools is None) == isinstance(impl, Packed)
    if pools is not None:
        for ((pool,), rows) in zip(pools, (keys, values), strict=True):
            assert pool.shape == (COUNT, block, HEADS, head) and pool.data_ptr() < cache.data_ptr() + cache.nbytes
            assert torch.equal(pool[ids].flatten(0, 1), rows)
            pool[ids] = 0
        assert not cache[ids].any()
        cache.copy_(expected)
    # What was read is not the cache's own.
    assert torch.equal(blocks.rows(raw)[0], found[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("impl", [Latent(), Turned()], ids=["latent first", "rotary first"])
@pytest.mark.parametrize("heads", [True, False], ids=["one head", "no heads"])
def test_latent_rows(impl: Any, heads: bool, dtype: torch.dtype) -> None:
    block, rotary, latent = 16, 64, 512
    shape = Shape(("layer.0",), block, 2 * block, 1, rotary, str(dtype).removeprefix("torch."), 1, latent)
    cache = torch.zeros(COUNT, block, latent + rotary, dtype=dtype)
    given = cache.unsqueeze(1) if heads else cache
    blocks = Blocks(shape, {"layer.0": given}, layers_of(shape, impl))
    assert not cache.any(), "asking the backend left something behind"
    assert blocks.page_values == 2 * block * (latent + rotary)
    keys, values = torch.randn(2 * block, 1, rotary).to(dtype), torch.randn(2 * block, latent).to(dtype)
    ids = [5, 2]
    slots = torch.cat([torch.arange(block) + number * block for number in ids])
    impl.do_kv_cache_update(values, keys, cache, slots, "auto", torch.ones(()))
    found = blocks.rows(blocks.read(ids)[0])
    assert torch.equal(found[0], keys.squeeze(1)) and torch.equal(found[1], values)
    expected = cache.clone()
    cache[ids] = 1
    blocks.write(0, ids, *found)
    assert torch.equal(cache, expected)
    pools = blocks.pools()
    assert pools is not None
    for (pool,), rows in zip(pools, (keys.squeeze(1), values), strict=True):
        assert pool.shape == (COUNT, block, 1, rows.shape[1]) and pool.data_ptr() < cache.data_ptr() + cache.nbytes
        assert torch.equal(pool[ids].flatten(2).flatten(0, 1), rows)
    with pytest.raises(UnsupportedError, match="were expected"):
        Blocks(shape, {"layer.0": cache[..., :512]}, layers_of(shape, impl))


def test_layers_are_told_apart() -> None:
    shape = shape_of(32, 32, torch.float32, layers=3)
    caches = caches_of(shape, torch.float32)
    blocks = Blocks(shape, caches, layers_of(shape, Rows()))
    assert blocks.page_bytes == 2 * 3 * 64 * HEADS * 32 * 4
    rows = torch.randn(2, 32, HEADS * 32)
    blocks.write(1, [4], rows[0], rows[1])
    assert [bool(cache.any()) for cache in caches.values()] == [False, True, False]


@pytest.mark.parametrize("impl", [Halved(), Mixed(), object()], ids=["halved", "mixed", "nothing"])
def test_backends_that_keep_something_else(impl: Any) -> None:
    shape = shape_of(32, 32, torch.float32)
    with pytest.raises(UnsupportedError, match="cannot read this backend's cache"):
        Blocks(shape, caches_of(shape, torch.float32), layers_of(shape, impl))


def test_layers_that_do_not_match() -> None:
    shape = shape_of(32, 32, torch.float32, layers=2)
    caches, layers = caches_of(shape, torch.float32), layers_of(shape, Rows())
    with pytest.raises(UnsupportedError, match="caches for 1 layers, 2 are known"):
        Blocks(shape, {"layer.0": caches["layer.0"]}, layers)
    with pytest.raises(UnsupportedError, match=r"layer.1 has blocks of \(2, 32, 32\)"):
        Blocks(shape, caches | {"layer.1": caches["layer.1"][..., :32]}, layers)
    with pytest.raises(UnsupportedError, match="different attention backends"):
        Blocks(shape, caches, layers | {"layer.1": SimpleNamespace(impl=Packed())})
