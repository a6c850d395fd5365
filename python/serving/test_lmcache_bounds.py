"""The size that LMCache reserves is never exceeded, whatever a chunk holds; what does not fit is not stored, and told."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
import tenfold
import torch
from lmcache_objects import buffer, described, fill, key, memory, parts, same_bytes, serde

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.uint8]
RATES: list[dict[str, Any]] = [
    {"bits": 2},
    {"bits": 4.3},
    {"bits": 16},
    {"max_bytes": 3000},
    {"lossless": True, "pad": False},
    {"lossless": True, "bits": 20},
    {"lossless": True, "max_bytes": 20_000, "pad": False},
]


def contents(held: Any, kind: str, seed: int) -> None:
    """Normal rows, or something that codecs have trouble with."""
    fill(held, seed)
    for tensor in parts(held):
        if not tensor.dtype.is_floating_point:
            continue
        plain = tensor.view(torch.uint8).flatten()
        if kind == "any bits":
            plain.copy_(torch.randint(0, 256, plain.shape, generator=torch.Generator().manual_seed(seed)))
        elif kind == "zero":
            plain.zero_()
        elif kind == "nan":
            tensor.copy_(torch.full(tensor.shape, torch.nan).to(tensor.dtype))


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_no_record_is_longer_than_estimated(rate: dict[str, Any]) -> None:
    serializer, deserializer = serde(**rate)
    draw = random.Random(3)
    stored = 0
    for seed in range(24):
        shapes, dtypes = [], []
        for _ in range(draw.choice((1, 1, 1, 2))):
            planes = draw.choice(([2], [2], [1], []))
            shapes.append([*planes, draw.randint(1, 5), draw.randint(1, 40), draw.randint(1, 70)])
            dtypes.append(draw.choice(DTYPES))
        room = serializer.estimate_serialized_size(described(shapes, dtypes))
        before, after, target = memory(shapes, dtypes), memory(shapes, dtypes), buffer(room)
        contents(before, draw.choice(("normal", "any bits", "zero", "nan")), seed)
        try:
            size = serializer.serialize(before, target, key(seed))
        except tenfold.LimitError:
            continue
        stored += 1
        assert size <= room and (size == room or not rate.get("pad", True))
        assert (target.raw_data[room:] == 0xA5).all()
        deserializer.deserialize(target, after, key(seed))
        if "lossless" in rate:
            assert same_bytes(before, after)
    assert stored >= (24 if rate == {"lossless": True, "pad": False} else 6)


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
def test_a_chunk_that_is_nan_all_over(dtype: torch.dtype) -> None:
    """All alike, it takes few bytes."""
    serializer, deserializer = serde(bits=4)
    shape = [2, 3, 32, 64]
    before, after = memory([shape], [dtype]), memory([shape], [dtype])
    contents(before, "nan", 1)
    target = buffer(serializer.estimate_serialized_size(described([shape], [dtype])))
    serializer.serialize(before, target, key())
    deserializer.deserialize(target, after, key())
    assert parts(after)[0].float().isnan().all()


def test_what_does_not_fit_is_told_and_nothing_is_written(caplog: pytest.LogCaptureFixture) -> None:
    serializer, _ = serde(bits=4)
    shape = [2, 3, 32, 64]
    before = memory([shape], [torch.bfloat16])
    # NaNs of all kinds, which a lossy page keeps as they are and a lossless one cannot shrink.
    bits = torch.randint(0, 128, before.raw_data.shape, dtype=torch.uint8) | 0x81
    bits[1::2] = torch.randint(0, 2, bits[1::2].shape, dtype=torch.uint8) * 128 + 127
    before.raw_data.copy_(bits)
    target = buffer(serializer.estimate_serialized_size(described([shape], [torch.bfloat16])))
    with caplog.at_level(logging.WARNING, "tenfold"), pytest.raises(tenfold.LimitError):
        serializer.serialize(before, target, key())
    assert "is not stored" in caplog.text and (target.raw_data == 0xA5).all()
    # With room for all bits there is no such chunk.
    roomy, _ = serde(bits=17)
    target = buffer(roomy.estimate_serialized_size(described([shape], [torch.bfloat16])))
    assert roomy.serialize(before, target, key()) == target.get_size()


@pytest.mark.parametrize("rate", [{"max_bytes": 40}, {"bits": 0.01}, {"lossless": True, "bits": 3}], ids=str)
def test_rates_that_hold_no_chunk(rate: dict[str, Any]) -> None:
    serializer, _ = serde(**rate)
    shape = [2, 3, 32, 64]
    target = buffer(max(serializer.estimate_serialized_size(described([shape], [torch.bfloat16])), 1))
    with pytest.raises(tenfold.LimitError):
        serializer.serialize(fill(memory([shape], [torch.bfloat16])), target, key())


def test_a_buffer_that_is_too_small_is_left_alone() -> None:
    """LMCache sizes the buffers of a call by its first object."""
    serializer, _ = serde(bits=4)
    shape = [2, 3, 32, 64]
    target = buffer(serializer.estimate_serialized_size(described([shape], [torch.bfloat16])) - 1)
    with pytest.raises(tenfold.LimitError, match="the buffer has"):
        serializer.serialize(fill(memory([shape], [torch.bfloat16])), target, key())
    assert (target.raw_data == 0xA5).all()
