"""Settings and engines that are refused, and what they are told."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_engines import engine, model_folder, transfer
import torch
from transformers import DeepseekV3Config
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVQuantMode,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

import tenfold.serving.vllm
from tenfold import ArgumentError, DtypeError, UnsupportedError
from tenfold.serving.vllm import Options
from tenfold.serving.vllm._codec import pages_of
from tenfold.serving.vllm._identity import identity_of, revision_of
from tenfold.serving.vllm._shape import shape_of

pytestmark = pytest.mark.filterwarnings("default")


MODULES = ["", *(f".{module.name}" for module in pkgutil.iter_modules(tenfold.serving.vllm.__path__))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(f"tenfold.serving.vllm{name}")
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert failed == 0


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({}, ArgumentError, "needs path"),
        ({"path": ""}, ArgumentError, "path of kv_connector_extra_config is empty"),
        ({"path": "x", "bit": 3, "zip": 1}, ArgumentError, "has no bit, zip; it takes bases, bits, "),
        ({"path": 3}, DtypeError, "path of kv_connector_extra_config is a folder, not 3"),
        ({"path": "x", "bits": True}, DtypeError, "bits of kv_connector_extra_config is a number, not True"),
        ({"path": "x", "lossless": 1}, DtypeError, "lossless of kv_connector_extra_config is true or false, not 1"),
        ({"path": "x", "rope": "none"}, ArgumentError, "not 'none'"),
        ({"path": "x", "bases": "b", "rope": {"head": 64, "base": 1e4}}, ArgumentError, "bases have rotary positions"),
        ({"path": "x", "load": "layer"}, ArgumentError, "load of .* is \"whole\" or \"layers\", not 'layer'"),
        ({"path": "x", "load": True}, DtypeError, "load of kv_connector_extra_config is text, not True"),
        ({"path": "x", "trace": ""}, ArgumentError, "trace of kv_connector_extra_config names a file, not ''"),
        ({"path": "x", "trace": 3}, DtypeError, "trace of kv_connector_extra_config is a path, not 3"),
        ({"path": "x", "threads": -1}, ArgumentError, "threads of kv_connector_extra_config is at least 0, not -1"),
        ({"path": "x", "page_tokens": 0}, ArgumentError, "page_tokens of .* is at least 1, not 0"),
        ({"path": "x", "max_store_bytes": 0}, ArgumentError, "max_store_bytes of .* is at least 1"),
    ],
)
def test_settings(given: dict[str, Any], kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        Options.parse(given)


OPTIONS = Options.parse({"path": "x"})
SPEC = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What vLLM makes of its arguments."""
    model = model_folder(tmp_path_factory.mktemp("model"))
    how = transfer({"path": "x"})
    return EngineArgs(model=str(model), skip_tokenizer_init=True, kv_transfer_config=how).create_engine_config()


def cache_of(*specs: Any) -> Any:
    groups = [KVCacheGroupSpec(["layer.0", "layer.1"], spec) for spec in specs]
    return KVCacheConfig(num_blocks=10, kv_cache_tensors=[], kv_cache_groups=groups)


def test_what_is_taken(config: Any) -> None:
    found = shape_of(config, cache_of(SPEC), OPTIONS)
    assert (found.block, found.page, found.blocks, found.columns, found.dtype) == (16, 64, 4, (128, 128), "bfloat16")
    assert shape_of(config, cache_of(replace(SPEC, block_size=128)), OPTIONS).page == 128
    assert shape_of(config, cache_of(replace(SPEC, block_size=48)), OPTIONS).page == 96
    assert shape_of(config, cache_of(SPEC), Options("x", page_tokens=32)).blocks == 2


def set_in(name: str, value: Any) -> Callable[[Any], None]:
    def change(config: Any) -> None:
        *owners, last = name.split(".")
        for owner in owners:
            config = getattr(config, owner)
        object.__setattr__(config, last, value)

    return change


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        (set_in("kv_transfer_config.kv_load_failure_policy", "fail"), ArgumentError, 'load_failure_policy="recompute"'),
        (set_in("parallel_config.pipeline_parallel_size", 2), UnsupportedError, "pipeline_parallel_size must be 1"),
        (set_in("parallel_config.decode_context_parallel_size", 2), UnsupportedError, "decode_context.* must be 1"),
        (set_in("speculative_config", object()), UnsupportedError, "speculative decoding"),
        (set_in("weight_transfer_config", object()), UnsupportedError, "weights that change while the engine runs"),
        (set_in("cache_config.prefix_caching_hash_algo", "xxhash"), UnsupportedError, "caching_hash_algo to sha256"),
    ],
)
def test_engines(config: Any, change: Callable[[Any], None], kind: type[Exception], told: str) -> None:
    changed = copy(config)
    for part in ("kv_transfer_config", "parallel_config", "cache_config"):
        setattr(changed, part, copy(getattr(config, part)))
    change(changed)
    with pytest.raises(kind, match=told):
        shape_of(changed, cache_of(SPEC), OPTIONS)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (set_in("scheduler_config.async_scheduling", True), "async_scheduling to False"),
        (lambda config: setattr(type(config), "use_v2_model_runner", True), "VLLM_USE_V2_MODEL_RUNNER=0"),
    ],
    ids=["asynchronous", "second runner"],
)
def test_engines_that_hand_out_what_a_damaged_page_gave(config: Any, change: Callable[[Any], None], told: str) -> None:
    """With load="layers" alone; else requests are not scheduled before their pages were found whole."""
    changed = copy(config)
    changed.__class__ = type("Changed", (type(config),), {"use_v2_model_runner": False})
    changed.scheduler_config = copy(config.scheduler_config)
    changed.scheduler_config.async_scheduling = False
    by_layer = Options.parse({"path": "x", "load": "layers"})
    assert shape_of(changed, cache_of(SPEC), by_layer).page == 64
    change(changed)
    with pytest.raises(ArgumentError, match=told):
        shape_of(changed, cache_of(SPEC), by_layer)
    assert shape_of(changed, cache_of(SPEC), OPTIONS).page == 64


def test_graphs() -> None:
    """A graph of the whole model waits for no layer, so vLLM is asked for graphs of its pieces."""
    needs = tenfold.serving.vllm.TenfoldConnector.requires_piecewise_for_cudagraph
    assert needs({"path": "x", "load": "layers"})
    assert not needs({"path": "x", "load": "whole"}) and not needs({"path": "x"})


WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.bfloat16, sliding_window=128)
LATENT = MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=576, dtype=torch.bfloat16)


def latent_config(config: Any, ranks: int = 1, **columns: int) -> Any:
    """An engine of a model with latent attention, in shares for so many workers."""
    changed = copy(config)
    model = DeepseekV3Config(rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    for name, count in ({"kv_lora_rank": 512, "qk_rope_head_dim": 64} | columns).items():
        setattr(model, name, count)
    changed.model_config = SimpleNamespace(**{**vars(config.model_config), "use_mla": True, "uses_mrope": False, "hf_text_config": model})
    changed.parallel_config = copy(config.parallel_config)
    changed.parallel_config.tensor_parallel_size = ranks
    return changed


def test_latent_rows_are_split(config: Any) -> None:
    shape = shape_of(latent_config(config), cache_of(LATENT), OPTIONS)
    assert (shape.heads, shape.head, shape.latent, shape.columns) == (1, 64, 512, (64, 512))
    # Every rank has all of them, so bases are for all.
    both = latent_config(config, ranks=2)
    assert shape_of(both, cache_of(LATENT), Options("x", bases="model.basis")).ranks == 2
    pages = pages_of(latent_config(config), shape, OPTIONS)
    keys, values = ([torch.randn(64, count).bfloat16() for _ in shape.layers] for count in shape.columns)
    page = pages.encode(keys, values, 64)
    found = [[torch.empty_like(layer) for layer in side] for side in (keys, values)]
    pages.decode(page, *found)
    assert all((a - b).square().mean() < 0.05 for one, other in zip(found, (keys, values)) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("spec", "columns", "told"),
    [
        (SPEC, {}, "not caches of FullAttentionSpec"),
        (LATENT, {"qk_rope_head_dim": 32}, "speaks of 512 and 32 rotary ones"),
        (LATENT, {"kv_lora_rank": 0}, "speaks of 0 and 64 rotary ones"),
        (replace(LATENT, dtype=torch.uint8), {}, "quantised"),
        (replace(LATENT, state_content_bytes=656), {}, "none packed with scales"),
    ],
)
def test_latent_rows_of_other_kinds(config: Any, spec: Any, columns: dict[str, int], told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        shape_of(latent_config(config, **columns), cache_of(spec), OPTIONS)


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        ((SPEC, WINDOW), "the model keeps 2 kinds of cache"),
        ((WINDOW,), "not caches of SlidingWindowSpec"),
        ((LATENT,), "not caches of MLAAttentionSpec"),
        ((replace(SPEC, sliding_window=128),), "see a window of tokens"),
        ((replace(SPEC, attention_chunk_size=128),), "see a window of tokens"),
        ((replace(SPEC, non_causal=True),), "see a window of tokens, or later ones"),
        ((replace(SPEC, dtype=torch.uint8),), r"quantised \(uint8\) already: set kv_cache_dtype to auto"),
        ((replace(SPEC, kv_quant_mode=KVQuantMode.FP8_PER_TENSOR),), "quantised"),
        ((replace(SPEC, head_size_v=128),), "keys and values of one width"),
    ],
)
def test_caches(config: Any, specs: tuple[Any, ...], told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        shape_of(config, cache_of(*specs), OPTIONS)


def test_settings_and_caches_that_do_not_go_together(config: Any) -> None:
    with pytest.raises(ArgumentError, match="page_tokens is a multiple of vLLM's block size, 16; 40 is none"):
        shape_of(config, cache_of(SPEC), Options("x", page_tokens=40))
    ranks = copy(config)
    ranks.parallel_config = copy(config.parallel_config)
    ranks.parallel_config.tensor_parallel_size = 2
    with pytest.raises(UnsupportedError, match="a tensor-parallel rank has some of them"):
        shape_of(ranks, cache_of(SPEC), Options("x", bases="model.basis"))


def test_what_makes_another_identity(config: Any) -> None:
    def digest(spec: Any = SPEC, rank: int = 0, changed: Any = config, **settings: Any) -> str:
        options = Options.parse({"path": "x", "revision": "1", **settings})
        shape = shape_of(changed, cache_of(spec), options)
        return identity_of(changed, shape, options, pages_of(changed, shape, options), rank).digest

    ranks, turned = copy(config), copy(config)
    ranks.parallel_config = copy(config.parallel_config)
    ranks.parallel_config.tensor_parallel_size = 2
    turned.model_config = copy(config.model_config)
    turned.model_config.hf_config = deepcopy(config.model_config.hf_config)
    turned.model_config.hf_config.rope_parameters["rope_theta"] = 5e5
    found = [
        digest(),
        digest(revision="2"),
        digest(model="another"),
        digest(bits=3),
        digest(lossless=True),
        digest(max_bytes=1000),
        digest(exact=2),
        digest(page_tokens=128),
        digest(replace(SPEC, block_size=32)),
        digest(replace(SPEC, dtype=torch.float16)),
        digest(replace(SPEC, num_kv_heads=4)),
        digest(changed=ranks),
        digest(changed=ranks, rank=1),
        digest(changed=turned),
    ]
    assert len(set(found)) == len(found)
    # Where it lies, and how much of it there is, is nothing to the bytes.
    assert digest(path="y", threads=3, trace="t.json", max_store_bytes=10, max_pending_bytes=10, effort="best", bits=4) == digest()


def test_a_model_of_the_hub_has_a_revision(config: Any) -> None:
    model = SimpleNamespace(model="someone/something", revision=None, hf_config=SimpleNamespace(_commit_hash=None))
    with pytest.raises(ArgumentError, match="state revision in kv_connector_extra_config"):
        revision_of(model, OPTIONS)
    assert revision_of(model, Options("x", revision="7")) == "7"
    known = deepcopy(model)
    known.hf_config._commit_hash = "c0ffee"
    assert revision_of(known, OPTIONS) == "c0ffee"
    known.revision = "v2"
    assert revision_of(known, OPTIONS) == "v2"


@pytest.mark.parametrize(
    ("store", "settings", "told"),
    [
        ({"path": "x", "colour": 1}, {}, "has no colour"),
        ({"path": "x", "lossless": True, "bits": 4}, {}, "one of bits, max_bytes and lossless"),
        ({"path": "x"}, {"kv_cache_dtype": "fp8", "dtype": "bfloat16"}, "quantised"),
    ],
)
def test_an_engine_does_not_start(tmp_path: Path, store: dict[str, Any], settings: dict[str, Any], told: str) -> None:
    model = model_folder(tmp_path)
    with pytest.raises((ArgumentError, UnsupportedError), match=told), engine(model, store, **settings):
        pass


def test_a_window_does_not_start(tmp_path: Path) -> None:
    model = model_folder(tmp_path, window=64)
    with pytest.raises(UnsupportedError, match="full attention only"), engine(model, {"path": str(tmp_path / "store")}):
        pass
