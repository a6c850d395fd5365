"""Chunks that a CUDA device codes, or the emulator in its place: in its own memory, or for the host's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tenfold
import torch
from emulated import COLUMNS, HEADS, LAYERS, each, fit_bases, rows
from lmcache_objects import buffer, described, key, memory, nmse, parts, serde
from tenfold.serving import KvPages
from tenfold.serving.lmcache import _metrics
from tenfold.serving.lmcache._metrics import publish

SHAPE = [2, LAYERS, 64, HEADS * COLUMNS]
BF16 = torch.bfloat16


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Keys as they are cached: LMCache knows no positions."""
    return str(fit_bases(tmp_path_factory.mktemp("bases"), rope="none"))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a device did; it encodes at a goal that every device encodes at."""
    seen: list[str] = []
    encode, decode = KvPages.encode_blocks, KvPages.decode_blocks
    monkeypatch.setattr(KvPages, "_goal", lambda self, values: {"step": 0.05})
    monkeypatch.setattr(KvPages, "encode_blocks", lambda *args: seen.append("encode") or encode(*args))
    monkeypatch.setattr(KvPages, "decode_blocks", lambda *args: seen.append("decode") or decode(*args))
    return seen


def chunk() -> Any:
    held = memory([SHAPE], [BF16])
    keys, values = rows(SHAPE[2], 3)
    parts(held)[0].copy_(torch.stack((torch.stack(keys), torch.stack(values))))
    return held


def sides(device: torch.device, bases: str, **more: Any) -> tuple[Any, Any]:
    how = {"bits": 8, "bases": bases, "exact": 0, "effort": "fast", "device": str(device), "key_step": 1.0}
    return serde(**(how | more))


def record_of(serializer: Any, held: Any) -> Any:
    room = buffer(serializer.estimate_serialized_size(described([SHAPE], [BF16])))
    serializer.serialize(held, room, key())
    return room


def test_there_and_back(device: torch.device, bases: str, done: list[str]) -> None:
    serializer, deserializer = sides(device, bases)
    before, after = chunk(), memory([SHAPE], [BF16])
    record = record_of(serializer, before)
    deserializer.deserialize(record, after, key())
    assert done == ["encode", "decode"]
    assert nmse(parts(after)[0], parts(before)[0]) < 0.01
    # A server without a device reads it too.
    other = memory([SHAPE], [BF16])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tenfold.torch._device, "is_ours", lambda device: False)
        serde(bits=8, bases=bases, exact=0, effort="fast", key_step=1.0)[1].deserialize(record, other, key())
    assert nmse(parts(other)[0], parts(before)[0]) < 0.01 and len(done) == 2


@pytest.mark.parametrize("dtype", [BF16, torch.uint8], ids=str)
def test_latent_rows(device: torch.device, bases: str, done: list[str], dtype: torch.dtype) -> None:
    """The rotary columns at their end are keys; as bfloat16, and as fp8 in bytes."""
    serializer, deserializer = sides(device, bases, rotary=HEADS * COLUMNS, **({"dtype": "float8_e4m3fn"} if dtype != BF16 else {}))
    shape = [1, LAYERS, 64, 2 * HEADS * COLUMNS]
    before, after = memory([shape], [dtype]), memory([shape], [dtype])
    keys, values = (torch.stack(side) for side in rows(64, 3))
    both = torch.cat((values, keys), -1)
    parts(before)[0].copy_(both.unsqueeze(0) if dtype == BF16 else both.to(torch.float8_e4m3fn).view(torch.uint8).unsqueeze(0))
    room = buffer(serializer.estimate_serialized_size(described([shape], [dtype])))
    serializer.serialize(before, room, key())
    deserializer.deserialize(room, after, key())
    assert done == ["encode", "decode"]
    found = [parts(held)[0] if dtype == BF16 else parts(held)[0].view(torch.float8_e4m3fn).float() for held in (after, before)]
    assert nmse(*found) < 0.01
    # Rows that were split otherwise are another's.
    with pytest.raises(tenfold.DataError):
        sides(device, bases, **({"dtype": "float8_e4m3fn"} if dtype != BF16 else {}))[1].deserialize(room, after, key())


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), tenfold.UnsupportedError("not here")], ids=repr)
def test_what_the_device_refuses_the_cpu_codes(
    device: torch.device, bases: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def refuse(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(KvPages, "encodes_blocks", lambda *_: True)
    monkeypatch.setattr(KvPages, "encode_blocks", refuse)
    monkeypatch.setattr(KvPages, "decode_blocks", refuse)
    serializer, deserializer = sides(device, bases)
    before, after = chunk(), memory([SHAPE], [BF16])
    with caplog.at_level(logging.WARNING, "tenfold"):
        deserializer.deserialize(record_of(serializer, before), after, key())
    assert "the CPU codes pages that the device does not" in caplog.text
    assert nmse(parts(after)[0], parts(before)[0]) < 0.01


def test_damage_that_only_the_device_sees(device: torch.device, bases: str, done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    serializer, deserializer = sides(device, bases)
    record = record_of(serializer, chunk())
    decode = KvPages.decode_blocks

    def bent(pages: KvPages, blobs: Any, *args: Any) -> Any:
        damaged = bytearray(blobs[0])
        damaged[len(damaged) // 2] ^= 8
        return decode(pages, [bytes(damaged)], *args)

    monkeypatch.setattr(KvPages, "decode_blocks", bent)
    after = memory([SHAPE], [BF16])
    with pytest.raises(tenfold.DataError):
        deserializer.deserialize(record, after, key())
    assert (after.raw_data == 0xA5).all()


@pytest.mark.parametrize("given", ["gpu", "cuda:99", "mps"])
def test_devices_that_are_not_there(given: str) -> None:
    with pytest.raises((tenfold.ArgumentError, tenfold.UnsupportedError)):
        serde(bits=8, device=given)


def test_what_is_counted() -> None:
    serializer, deserializer = serde(bits=4)
    counts = serializer._codec.counts
    publish(counts)
    deserializer.deserialize(record_of(serializer, chunk()), memory([SHAPE], [BF16]), key())
    found = counts.totals()
    raw = 2 * LAYERS * 64 * HEADS * COLUMNS * 2
    assert found["pages_saved"] == found["pages_loaded"] == 1
    assert found["bytes_before"] == found["bytes_restored"] == raw and found["bytes_stored"] == raw / 4
    assert found["ratio"] == 4 and found["encode_seconds"] > 0 and found["decode_seconds"] > 0
    saved = raw - found["bytes_stored"]
    assert found["save_pays_below"] == pytest.approx(saved / found["encode_seconds"], abs=1)
    assert found["load_pays_below"] > 0
    (observed,) = _metrics._observe("pages_saved")(None)
    assert observed.value >= 1 and _metrics.totals()["bytes_before"] >= raw
