"""Slots: pages of a fixed size, which a compressed host pool is cut into."""

from __future__ import annotations

from pathlib import Path

import pytest
import tenfold
import torch
from sglang_pools import PAGE, mha, slots, storage
from tenfold.serving.sglang import PageShape, SlotCodec

SHAPE = PageShape(layers=4, tokens=32, key_columns=64, value_columns=48, dtype=torch.bfloat16)


def noise() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    torch.manual_seed(5)
    keys, values = SHAPE.empty()
    return list(keys.copy_(torch.randn(keys.shape))), list(values.copy_(torch.randn(values.shape)))


@pytest.mark.parametrize("rate", [{"bits": 4.0}, {"bits": 2.5}, {"max_bytes": 5000}, {"lossless": True}, {}])
def test_slots_are_of_one_size_and_give_their_layers_one_by_one(rate: dict[str, float]) -> None:
    codec = SlotCodec(SHAPE, **rate)  # type: ignore[arg-type]
    values_of_a_page = 4 * 32 * (64 + 48)
    if "lossless" not in rate:
        assert codec.slot_bytes == rate.get("max_bytes", int(values_of_a_page * rate.get("bits", 4.0) / 8))
    assert codec.slot_bytes_per_token == codec.slot_bytes / 32
    keys, values = noise()
    slot = codec.compress(keys, values, positions=0)
    assert len(slot) == codec.slot_bytes

    whole = SHAPE.empty()
    codec.decode(codec.encode(keys, values, positions=0), *(list(part) for part in whole))
    for layer in (3, 0, 2, 1):
        key, value = torch.empty_like(keys[layer]), torch.empty_like(values[layer])
        codec.decompress_layer(slot, layer, key, value)
        assert torch.equal(key, whole[0][layer]) and torch.equal(value, whole[1][layer])
        if "lossless" in rate:
            assert torch.equal(key, keys[layer]) and torch.equal(value, values[layer])
        else:
            # The first token of a text stays exact.
            assert torch.equal(key[0], keys[layer][0])
            assert (key - keys[layer]).float().square().mean() < 0.2


def test_no_page_takes_more_than_its_slot() -> None:
    keys, values = noise()
    for size in range(3000, 3400, 37):
        codec = SlotCodec(SHAPE, max_bytes=size)
        # Encoders leave a few bytes, so that one with too high a limit would not fail here.
        assert codec._pages.describe() == f"max_bytes={size - 4}"
        assert len(codec.compress(keys, values)) == codec.slot_bytes == size


def test_lossless_slots_hold_what_does_not_shrink() -> None:
    codec = SlotCodec(SHAPE, lossless=True)
    torch.manual_seed(2)
    keys, values = (
        list(torch.randint(-(1 << 15), 1 << 15, part.shape, dtype=torch.int16).view(torch.bfloat16)) for part in SHAPE.empty()
    )
    slot = codec.compress(keys, values)
    assert len(slot) == codec.slot_bytes >= SHAPE.nbytes
    key, value = torch.empty_like(keys[1]), torch.empty_like(values[1])
    codec.decompress_layer(slot, 1, key, value)
    assert torch.equal(key.view(torch.int16), keys[1].view(torch.int16))
    assert torch.equal(value.view(torch.int16), values[1].view(torch.int16))


def test_positions_are_one_or_all() -> None:
    codec = SlotCodec(SHAPE, bits=4)
    keys, values = noise()
    assert codec.compress(keys, values, list(range(32))) == codec.compress(keys, values, 0)
    assert codec.compress(keys, values, range(64, 96)) == codec.compress(keys, values, 64)
    with pytest.raises(tenfold.ArgumentError, match="31 positions for 32 tokens"):
        codec.compress(keys, values, range(31))
    with pytest.raises(tenfold.ArgumentError, match="follow each other"):
        codec.compress(keys, values, [0] * 32)


def test_slots_without_a_whole_page_are_refused() -> None:
    codec = SlotCodec(SHAPE, bits=4)
    keys, values = noise()
    slot = codec.compress(keys, values)
    key, value = torch.empty_like(keys[0]), torch.empty_like(values[0])
    with pytest.raises(tenfold.DataError, match="holds no page"):
        codec.decompress_layer(bytes(codec.slot_bytes), 0, key, value)
    with pytest.raises(tenfold.DataError, match="a slot has"):
        codec.decompress_layer(slot[:-1], 0, key, value)
    with pytest.raises(tenfold.DataError, match="holds no page"):
        codec.decompress_layer(b"\xff" * 4 + slot[4:], 0, key, value)
    for at in range(0, 4 + int.from_bytes(slot[:4], "little"), 97):
        bent = bytearray(slot)
        bent[at] ^= 16
        with pytest.raises(tenfold.Error):
            for layer in range(4):
                codec.decompress_layer(bent, layer, key, value)


def test_tensors_of_another_shape_are_refused() -> None:
    codec = SlotCodec(SHAPE, bits=4)
    keys, values = noise()
    with pytest.raises(tenfold.ArgumentError, match="keys of 4 layers are needed, 3 were given"):
        codec.encode(keys[:3], values)
    with pytest.raises(tenfold.ArgumentError, match="values of a layer are 32 × 48"):
        codec.encode(keys, keys)
    with pytest.raises(tenfold.ArgumentError, match="of torch.float32"):
        codec.encode([key.float() for key in keys], values)
    with pytest.raises(tenfold.ArgumentError, match="keys of a layer"):
        codec.decompress_layer(codec.compress(keys, values), 0, values[0], values[0])
    with pytest.raises(tenfold.ArgumentError, match="one at least"):
        PageShape(0, 32, 64, 64, torch.bfloat16)
    with pytest.raises(tenfold.ArgumentError, match="floats"):
        PageShape(1, 32, 64, 64, torch.uint8)


def test_the_storage_keeps_the_pages_of_these_slots(tmp_path: Path) -> None:
    """So that a compressed host pool could hand its slots on."""
    store = storage(tmp_path, mha(), bits=4)
    pool = store.pool()
    assert store.batch_set_v1(["a"], slots(2)) == [True]
    page = pool.store.get("a")
    slot = pool.codec.compress(*pool.pages.read(pool.pages.at(2 * PAGE)))
    assert page is not None and slot[4 : 4 + len(page)] == page and not any(slot[4 + len(page) :])
