"""Chunks of all formats and dtypes through the serde: near at the rate, equal where nothing may be lost."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from lmcache_objects import buffer, described, fill, key, memory, nmse, parts, same_bytes, serde, there_and_back
from tenfold.serving import RECORD_OVERHEAD

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
KV = [2, 3, 32, 64]
FORMATS = {
    "keys and values": KV,
    "latent rows of MLA": [1, 3, 32, 72],
    "latent rows without their plane": [3, 32, 72],
    "an odd number of columns": [1, 2, 32, 65],
    "one layer": [2, 1, 64, 32],
    "one token of many layers": [2, 40, 1, 64],
}


@pytest.mark.parametrize("dtype", [BF16, F16, F32, E4M3, E5M2], ids=str)
@pytest.mark.parametrize("shape", FORMATS.values(), ids=FORMATS)
def test_lossless_chunks_come_back_bit_by_bit(shape: list[int], dtype: torch.dtype) -> None:
    before, after, size = there_and_back([shape], [dtype], lossless=True, pad=False)
    assert same_bytes(before, after)
    assert size <= before.get_size() + RECORD_OVERHEAD + 9


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize("shape", list(FORMATS.values())[:5], ids=list(FORMATS)[:5])
def test_chunks_are_near_at_the_rate_and_keep_it(shape: list[int], dtype: torch.dtype) -> None:
    errors = []
    for bits in (3, 5, 8):
        before, after, size = there_and_back([shape], [dtype], bits=bits)
        values = parts(before)[0].numel()
        assert size == values * bits // 8
        errors.append(nmse(parts(after)[0], parts(before)[0]))
    assert errors[0] < 0.3 and errors[1] < 0.03 and errors[2] < 0.001 and errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_caches_of_float8(dtype: torch.dtype, as_bytes: bool) -> None:
    """Engines hand them over as what they are, or as bytes with an option that says so."""
    name = str(dtype).removeprefix("torch.")
    how: dict[str, Any] = {"bits": 5} | ({"dtype": name} if as_bytes else {})
    serializer, deserializer = serde(**how)
    stated = torch.uint8 if as_bytes else dtype
    values = fill(memory([KV], [dtype]))
    before, after = memory([KV], [stated]), memory([KV], [stated])
    before.raw_data.copy_(values.raw_data)
    room = buffer(serializer.estimate_serialized_size(described([KV], [stated])))
    size = serializer.serialize(before, room, key())
    assert size == parts(values)[0].numel() * 5 // 8
    deserializer.deserialize(room, after, key())
    found = parts(after)[0].view(dtype).float()
    assert 0 < nmse(found, parts(values)[0].float()) < 0.03


def test_bytes_that_nobody_explains_stay_as_they_are() -> None:
    """Recurrent states, indexers, integers: beside keys and values in one object, or alone."""
    shapes, dtypes = [KV, [7, 5], [3, 33]], [BF16, torch.int32, torch.uint8]
    before, after, size = there_and_back(shapes, dtypes, bits=4)
    assert size == parts(before)[0].numel() // 2 + 7 * 5 * 4 + 3 * 33
    assert torch.equal(parts(after)[1], parts(before)[1]) and torch.equal(parts(after)[2], parts(before)[2])
    assert 0 < nmse(parts(after)[0], parts(before)[0]) < 0.05
    before, after, size = there_and_back([[7, 5]], [torch.int32], bits=4)
    assert same_bytes(before, after) and size == 7 * 5 * 4 + RECORD_OVERHEAD + 9
    before, after, _ = there_and_back([[2, 3, 0, 8]], [BF16], bits=4)
    assert same_bytes(before, after)


def test_several_groups_of_layers_in_one_object() -> None:
    """Models with more than one kind of attention: each group has a shape and a dtype of its own."""
    shapes, dtypes = [KV, [2, 5, 32, 96], [1, 2, 32, 72]], [BF16, F32, F16]
    before, after, size = there_and_back(shapes, dtypes, bits=6)
    assert size == sum(part.numel() for part in parts(before)) * 6 // 8
    for want, found in zip(parts(before), parts(after), strict=True):
        assert 0 < nmse(found, want) < 0.02
    before, after, _ = there_and_back(shapes, dtypes, lossless=True, pad=False)
    assert same_bytes(before, after)


def test_bytes_of_a_chunk_can_be_stated() -> None:
    before, after, size = there_and_back([KV, [4, 4]], [BF16, torch.int32], max_bytes=8192)
    assert size == 8192 and torch.equal(parts(after)[1], parts(before)[1])
    assert 0 < nmse(parts(after)[0], parts(before)[0]) < 0.01


def test_lossless_chunks_of_one_size() -> None:
    before, after, size = there_and_back([KV], [BF16], lossless=True, bits=15)
    assert same_bytes(before, after) and size == parts(before)[0].numel() * 15 // 8


def test_first_tokens_stay_exact() -> None:
    before, after, _ = there_and_back([KV], [BF16], bits=4, exact=2)
    want, found = parts(before)[0], parts(after)[0]
    assert torch.equal(found[:, :, :2], want[:, :, :2]) and not torch.equal(found[:, :, 2:], want[:, :, 2:])
    before, after, _ = there_and_back([KV], [BF16], bits=4, exact=0)
    assert not torch.equal(parts(after)[0][:, :, :1], parts(before)[0][:, :, :1])


def test_keys_are_coarser_by_their_step() -> None:
    errors = {}
    for step in (1.0, 4.0):
        before, after, _ = there_and_back([[2, 2, 128, 64]], [BF16], bits=4, key_step=step)
        want, found = parts(before)[0], parts(after)[0]
        errors[step] = [nmse(found[plane], want[plane]) for plane in (0, 1)]
    assert errors[4.0][0] > 4 * errors[4.0][1] and errors[1.0][0] < 2 * errors[1.0][1]


def test_nothing_is_written_beside_the_object() -> None:
    serializer, deserializer = serde(bits=4)
    before, after = fill(memory([KV], [BF16])), memory([KV], [BF16])
    room = buffer(serializer.estimate_serialized_size(described([KV], [BF16])))
    size = serializer.serialize(before, room, key())
    deserializer.deserialize(room, after, key())
    for held in (room, after):
        assert (held.raw_data[held.get_size() :] == 0xA5).all()
    assert size == room.get_size()


@pytest.mark.parametrize("rate", [{"bits": 5}, {"lossless": True, "bits": 17}], ids=str)
def test_threads_share_a_serde(rate: dict[str, Any]) -> None:
    serializer, deserializer = serde(threads=1, **rate)
    errors: list[float] = []

    def work(seed: int) -> None:
        shape = [2, 2 + seed % 3, 16, 32]
        for number in range(4):
            before, after = fill(memory([shape], [BF16]), seed), memory([shape], [BF16])
            room = buffer(serializer.estimate_serialized_size(described([shape], [BF16])))
            serializer.serialize(before, room, key(number))
            deserializer.deserialize(room, after, key(number))
            errors.append(nmse(parts(after)[0], parts(before)[0]))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 24 and (max(errors) == 0 if "lossless" in rate else 0 < max(errors) < 0.1)
