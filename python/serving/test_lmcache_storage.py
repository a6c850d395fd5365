"""The serde in LMCache's own storage manager: memory, controllers, wrapper and adapter for files, as a server has them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import tenfold
import torch
from lmcache_objects import adapter, buffer, described, files, fill, key, load, memory, nmse, storage, store, until
from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor, get_registered_serde_types
from tenfold.serving.lmcache import Adapter

SHAPES, DTYPES = [[2, 3, 32, 64]], [torch.bfloat16]
KEYS = [key(number) for number in range(1, 5)]


def kept(folder: Path, **options: Any) -> list[list[torch.Tensor]]:
    """Stores four objects and waits until their files are there; what they held."""
    with storage(adapter(folder, **options)) as manager:
        held = store(manager, KEYS, SHAPES, DTYPES)
        until(lambda: len(files(folder)) == len(KEYS))
    return held


def test_chunks_go_to_files_and_another_server_finds_them(tmp_path: Path) -> None:
    held = kept(tmp_path, bits=5)
    assert all(path.stat().st_size == 2 * 3 * 32 * 64 * 5 // 8 for path in files(tmp_path))
    with storage(adapter(tmp_path, bits=5)) as manager:
        found = load(manager, [*KEYS, key(9)], SHAPES, DTYPES)
    assert len(found) == 4
    for got, want in zip(found, held, strict=True):
        assert 0 < nmse(got[0], want[0]) < 0.02
    # The same folder at another rate, or for other weights: nothing is there.
    for other in ({"bits": 6}, {"bits": 5, "revision": "new"}):
        with storage(adapter(tmp_path, **other)) as manager:
            assert load(manager, KEYS, SHAPES, DTYPES) == []


def test_lossless_chunks_of_one_size(tmp_path: Path) -> None:
    held = kept(tmp_path, lossless=True, bits=15)
    with storage(adapter(tmp_path, lossless=True, bits=15)) as manager:
        found = load(manager, KEYS, SHAPES, DTYPES)
    assert all(torch.equal(got[0], want[0]) for got, want in zip(found, held, strict=True)) and len(found) == 4


@pytest.mark.parametrize("damage", ["bit", "zeros", "cut", "swapped"])
def test_a_damaged_chunk_is_a_miss(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    kept(tmp_path, bits=5)
    paths = files(tmp_path)
    data = bytearray(paths[1].read_bytes())
    if damage == "bit":
        data[len(data) // 2] ^= 8
    elif damage == "zeros":
        data[2000:] = bytes(len(data) - 2000)
    elif damage == "cut":
        data = data[:-3]
    else:
        data = bytearray(paths[2].read_bytes())
    paths[1].write_bytes(data)
    with caplog.at_level(logging.WARNING, "tenfold"), storage(adapter(tmp_path, bits=5)) as manager:
        found = load(manager, KEYS, SHAPES, DTYPES)
        # All or nothing is LMCache's way where a serde fails; a file of another size it finds by itself, and keeps the rest.
        assert len(found) == (1 if damage == "cut" else 0)
        assert load(manager, KEYS[:1], SHAPES, DTYPES) != []
        # Nothing of the call stays in memory.
        if damage != "cut":
            assert load(manager, [KEYS[1]], SHAPES, DTYPES) == []
    assert ("taken as a miss" in caplog.text) == (damage != "cut")


def test_a_chunk_that_does_not_fit_is_not_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tenfold"), storage(adapter(tmp_path, lossless=True, bits=3)) as manager:
        held = store(manager, KEYS, SHAPES, DTYPES)
        until(lambda: "is not stored" in caplog.text)
        # LMCache's memory has them all the same.
        assert torch.equal(load(manager, KEYS, SHAPES, DTYPES)[0][0], held[0][0])
    assert files(tmp_path) == []
    with storage(adapter(tmp_path, lossless=True, bits=3)) as manager:
        assert load(manager, KEYS, SHAPES, DTYPES) == []


def test_the_plug_in_brings_the_serde_along(tmp_path: Path) -> None:
    plain = adapter(tmp_path, bits=5)
    plugin = {
        "type": "plugin",
        "module_path": "tenfold.serving.lmcache",
        "class_name": "Adapter",
        "adapter_params": {"type": "fs", "base_path": str(tmp_path)},
        "serde": plain["serde"],
    }
    with storage(plugin) as manager:
        store(manager, KEYS, SHAPES, DTYPES)
        until(lambda: len(files(tmp_path)) == 4)
        assert type(manager.l2_adapters()[0][1].inner_adapter).__name__ == "FSL2Adapter"
    with storage(plain) as manager:
        assert len(load(manager, KEYS, SHAPES, DTYPES)) == 4


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"base_path": "x"}, "need a"),
        ({"type": "plugin"}, "need a"),
        ({"type": "fs", "base_path": "x", "serde": {"type": "tenfold"}}, "beside adapter_params"),
    ],
    ids=str,
)
def test_parameters_of_the_plug_in_that_cannot_work(params: dict[str, Any], why: str) -> None:
    with pytest.raises(tenfold.ArgumentError, match=why):
        Adapter(params)


def test_wrong_options_stop_the_server(tmp_path: Path) -> None:
    assert "tenfold" in get_registered_serde_types()
    with pytest.raises(tenfold.ArgumentError, match="unknown options"):
        create_serde_processor(SerdeConfig("tenfold", {"bit": 4}))
    with pytest.raises(tenfold.ArgumentError, match="not both"), storage(adapter(tmp_path, bits=4, max_bytes=1000)):
        pass


def test_an_asynchronous_processor_with_several_workers() -> None:
    processor = create_serde_processor(SerdeConfig("tenfold", {"bits": 4, "max_workers": 2, "threads": 1}))
    try:
        size = processor.estimate_serialized_size(described(SHAPES, DTYPES))
        before = [fill(memory(SHAPES, DTYPES), seed) for seed in range(4)]
        rooms, after = [buffer(size) for _ in KEYS], [memory(SHAPES, DTYPES) for _ in KEYS]
        tasks = [processor.submit_serialize(before[n : n + 2], rooms[n : n + 2], KEYS[n : n + 2]) for n in (0, 2)]
        assert [until(lambda task=task: processor.query_serialize_result(task)) for task in tasks] == [True, True]
        task = processor.submit_deserialize(rooms, after, KEYS)
        assert until(lambda: processor.query_deserialize_result(task)) is True
        for got, want in zip(after, before, strict=True):
            assert 0 < nmse(got.get_tensor(0), want.get_tensor(0)) < 0.05
    finally:
        processor.close()
