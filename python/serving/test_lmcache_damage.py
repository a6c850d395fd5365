"""Records that are damaged, cut off, made up or someone else's: refused, and the object is as it was."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import tenfold
import torch
from lmcache_objects import buffer, described, fill, key, memory, parts, same_bytes, serde
from tenfold.serving import RECORD_OVERHEAD, seal
from tenfold.serving.lmcache import ChunkCodec, Options
from tenfold.serving.lmcache._layout import layout
from tenfold.serving.lmcache._serde import _text

BF16 = torch.bfloat16
SHAPE = [2, 2, 16, 32]


def made(shape: list[int] = SHAPE, **options: Any) -> tuple[Any, bytes]:
    """A serializer's object and the record of it."""
    serializer, _ = serde(**({"bits": 6} | options))
    before = fill(memory([shape], [BF16]))
    target = buffer(serializer.estimate_serialized_size(described([shape], [BF16])))
    return before, bytes(target.raw_data[: serializer.serialize(before, target, key())].numpy())


def loaded(record: bytes) -> Any:
    """A buffer that storage has read a record into."""
    held = buffer(len(record))
    held.raw_data[: len(record)] = torch.frombuffer(bytearray(record), dtype=torch.uint8)
    return held


def refused(record: bytes, name: Any = None, shape: list[int] = SHAPE, dtype: torch.dtype = BF16, **options: Any) -> str:
    """That it is refused and nothing is written; why."""
    _, deserializer = serde(**({"bits": 6} | options))
    after = memory([shape], [dtype])
    with pytest.raises(tenfold.DataError) as raised:
        deserializer.deserialize(loaded(record), after, key() if name is None else name)
    assert (after.raw_data == 0xA5).all()
    return str(raised.value)


def test_every_flipped_bit() -> None:
    before, record = made()
    used = len(record.rstrip(b"\0"))
    for at in range(used):
        bent = bytearray(record)
        bent[at] ^= 1 << at % 8
        refused(bytes(bent))
    # What is behind the record is nobody's.
    _, deserializer = serde(bits=6)
    after, again = memory([SHAPE], [BF16]), memory([SHAPE], [BF16])
    deserializer.deserialize(loaded(record), after, key())
    deserializer.deserialize(loaded(record + b"more"), again, key())
    assert same_bytes(after, again) and not same_bytes(after, before)


def test_every_length_that_is_cut_off() -> None:
    _, record = made()
    used = len(record.rstrip(b"\0"))
    for length in (1, 2, RECORD_OVERHEAD - 1, *range(RECORD_OVERHEAD, used, 7), used - 1):
        refused(record[:length])
        # As a file that was not written to its end reads: zero from there on.
        refused(record[:length] + bytes(len(record) - length))


@pytest.mark.parametrize("record", [b"\0" * 400, b"\xff" * 400, b"TNKV" + bytes(396), b"not a record" * 40])
def test_bytes_that_are_no_record(record: bytes) -> None:
    refused(record)


OTHERS: dict[str, dict[str, Any]] = {
    "model": {"name": key(model_name="org/other")},
    "key": {"name": key(2)},
    "rank": {"name": key(kv_rank=0x2000200)},
    "group": {"name": key(object_group_id=1)},
    "salt": {"name": key(cache_salt="tenant")},
    "revision": {"revision": "2026-10-01"},
    "stated model": {"model": "mine"},
    "rate": {"bits": 5},
    "kind of rate": {"bits": 6, "lossless": True},
    "padding": {"pad": False},
    "tokens": {"shape": [2, 2, 8, 64]},
    "layers": {"shape": [2, 4, 16, 16]},
    "planes": {"shape": [1, 4, 16, 32]},
    "dtype": {"dtype": torch.float16},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_records_of_another_identity_or_key(other: dict[str, Any]) -> None:
    _, record = made()
    assert "another" in refused(record, **other)


def test_a_model_that_is_stated_counts_in_place_of_the_key_s() -> None:
    """Servers name one model by different paths; LMCache's key still has to be the same."""
    before, record = made(model="mine", lossless=True, bits=17)
    _, deserializer = serde(model="mine", lossless=True, bits=17)
    after = memory([SHAPE], [BF16])
    deserializer.deserialize(loaded(record), after, key())
    assert same_bytes(before, after)


@pytest.mark.parametrize("payload", ["empty", "no page", "kind", "long", "more", "short", "other page"])
def test_whole_records_that_hold_something_else(payload: str) -> None:
    """None of these come from the serializer; a record that is whole is still not trusted."""
    options = Options.parse({"bits": 6})
    held = layout([SHAPE], [BF16], None)
    identity = ChunkCodec(options)._identity("org/model", held)
    _, record = made()
    length = int.from_bytes(record[40:48], "little")
    page = record[RECORD_OVERHEAD : RECORD_OVERHEAD + length]
    _, other = made([2, 2, 17, 32])
    bent = {
        "empty": b"",
        "no page": page[:9] + bytes(len(page) - 9),
        "kind": b"\7" + page[1:],
        "long": page[:1] + (len(page)).to_bytes(8, "little") + page[9:],
        "more": page + b"\0",
        "short": page[:1] + (20).to_bytes(8, "little") + page[9:29],
        "other page": other[RECORD_OVERHEAD : RECORD_OVERHEAD + int.from_bytes(other[40:48], "little")],
    }[payload]
    refused(seal(identity, _text(key()), bent))
    _, deserializer = serde(bits=6)
    deserializer.deserialize(loaded(seal(identity, _text(key()), page)), memory([SHAPE], [BF16]), key())


def test_what_is_refused_is_told(caplog: pytest.LogCaptureFixture) -> None:
    _, record = made()
    with caplog.at_level(logging.WARNING, "tenfold"):
        refused(record[:100])
    assert "cannot be used, taken as a miss" in caplog.text and key().chunk_hash.hex() in caplog.text


def test_nothing_of_an_object_whose_second_part_is_damaged_is_written() -> None:
    shapes, dtypes = [SHAPE, [2, 3, 16, 32]], [BF16, BF16]
    options = Options.parse({"bits": 6})
    codec = ChunkCodec(options)
    held = layout(shapes, dtypes, None)
    before = fill(memory(shapes, dtypes))
    record = codec.encode("org/model", "k", held, parts(before))
    payload = bytearray(record[RECORD_OVERHEAD : RECORD_OVERHEAD + int.from_bytes(record[40:48], "little")])
    payload[-9] ^= 4
    bent = seal(codec._identity("org/model", held), "k", payload)
    with pytest.raises(tenfold.DataError):
        codec.decode("org/model", "k", held, bent)
    assert len(codec.decode("org/model", "k", held, record)) == 2
