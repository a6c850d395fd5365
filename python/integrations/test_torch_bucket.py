"""Slots of gradients, and residuals: what needs no other rank."""

from __future__ import annotations

import pytest
import tenfold
import torch
from tenfold.torch.distributed._bucket import GROUP, BucketCodec
from tenfold.torch.distributed._exchange import cut
from tenfold.torch.distributed._feedback import Residuals


def _through(values: torch.Tensor, bits: float) -> tuple[torch.Tensor, int]:
    codec = BucketCodec(bits, "fast", 1)
    slot = torch.zeros(codec.room(values.numel()), dtype=torch.uint8)
    codec.fill(values, slot, "key")
    return codec.read(slot, torch.empty_like(values)), slot.numel()


@pytest.mark.parametrize("bits", [0.8, 1.4, 2.6, 8.0])
def test_slots_keep_to_the_rate(bits: float) -> None:
    generator = torch.Generator().manual_seed(1)
    for count, above in ((5000, 4), (70_001, 2)):
        values = torch.randn(count, generator=generator)
        back, size = _through(values, bits)
        assert size <= count * bits / 8
        # Against the bound of Gaussian numbers; a factor of 4 is a bit.
        assert (values - back).square().mean() < above * 4**-bits


def test_errors_are_in_proportion_to_the_neighbours() -> None:
    values = torch.randn(64 * GROUP)
    sizes = torch.logspace(-12, 2, 64).repeat_interleave(GROUP)
    back, _ = _through(values * sizes, 3.0)
    errors = ((back / sizes - values).square()).view(64, GROUP).mean(1)
    assert errors.max() < 0.1


def test_the_room_is_used_as_training_goes_on() -> None:
    codec = BucketCodec(2.6, "fast", 1)
    generator = torch.Generator().manual_seed(1)
    slot = torch.zeros(codec.room(50_000), dtype=torch.uint8)
    # Of gradients that change slowly, then suddenly: tails, zeros, nothing at all.
    for step in range(30):
        values = torch.randn(50_000, generator=generator) ** (3 if step > 20 else 1)
        if step == 25:
            values[::2] = 0
        if step == 27:
            values.zero_()
        codec.fill(values, slot, "key")
        back = codec.read(slot, torch.empty_like(values))
        used = int(slot[:8].view(torch.int64)) / slot.numel()
        if 1 <= step <= 20:
            assert 0.96 < used
        error = (values - back).square().mean() / values.square().mean().clamp_min(1e-9)
        assert error < (0.06 if step <= 20 else 0.25)


def test_values_that_are_all_alike_are_sent() -> None:
    codec = BucketCodec(0.8, "fast", 1)
    slot = torch.zeros(codec.room(50_000), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        values = torch.randn(50_000, generator=generator).sign() * (1 + 0.01 * torch.randn(50_000, generator=generator))
        codec.fill(values, slot, "key")
        back = codec.read(slot, torch.empty_like(values))
        assert (values - back).square().mean() < 0.9


def test_zeros_and_tiny_numbers() -> None:
    assert (_through(torch.zeros(5000), 0.8)[0] == 0).all()
    values = torch.randn(5000) * 1e-30
    assert (_through(values, 4.0)[0].double() - values.double()).norm() < 0.2 * values.double().norm()
    values[:GROUP] = 0
    assert (_through(values, 4.0)[0][:GROUP] == 0).all()


def test_what_is_not_finite_stays() -> None:
    values = torch.randn(20_000)
    values[7], values[3000], values[9000] = torch.nan, torch.inf, -torch.inf
    back, _ = _through(values, 2.6)
    assert back[7].isnan() and back[3000] == torch.inf and back[9000] == -torch.inf
    assert back.isfinite().sum() == 19_997
    assert _through(torch.full((20_000,), torch.nan), 0.8)[0].isnan().all()
    # More than there is room for: nothing is left of the bucket.
    values[::2] = torch.inf
    assert _through(values, 0.8)[0].isnan().all()


def test_damaged_slots_are_refused() -> None:
    codec = BucketCodec(2.6, "fast", 1)
    values = torch.randn(5000)
    slot = torch.zeros(codec.room(5000), dtype=torch.uint8)
    codec.fill(values, slot, "key")
    for length in (0, -2, slot.numel(), 1 << 40):
        bent = slot.clone()
        bent[:8].view(torch.int64).fill_(length)
        with pytest.raises(tenfold.DataError, match="another rank"):
            codec.read(bent, torch.empty(5000))
    bent = slot.clone()
    bent[200] ^= 1
    with pytest.raises(tenfold.DataError):
        codec.read(bent, torch.empty(5000))


def test_options_are_checked() -> None:
    for bits in (0.0, 33.0, float("nan")):
        with pytest.raises(tenfold.ArgumentError, match="bits"):
            BucketCodec(bits, "fast", 0)
    with pytest.raises(tenfold.ArgumentError):
        BucketCodec(2.6, "hasty", 0)


def test_parts_are_about_the_same() -> None:
    for values in (4096 * 3, 100_001, 123_456_789):
        for world in (1, 2, 3, 8):
            sizes = cut(values, world)
            assert sum(sizes) == values and len(sizes) == world
            assert max(sizes) - min(sizes) < 2 * GROUP
            assert all(size % GROUP == 0 for size in sizes[:-1])


def test_residuals_follow_their_parameters() -> None:
    kept = Residuals()
    first = kept.view(["a", "b", "c"], [2, 3, 1], torch.device("cpu"))
    first += torch.arange(6.0)
    assert kept.view(["a", "b", "c"], [2, 3, 1], torch.device("cpu")) is first
    # Buckets are built anew: in another order, with others.
    assert kept.view(["c", "d"], [1, 2], torch.device("cpu")).tolist() == [5, 0, 0]
    assert kept.view(["b", "a"], [3, 2], torch.device("cpu")).tolist() == [2, 3, 4, 0, 1]
    assert {name: r.tolist() for name, r in kept.by_name().items()} == {
        "a": [0, 1], "b": [2, 3, 4], "c": [5], "d": [0, 0]
    }  # fmt: skip
    kept.scale_(2)
    assert kept.by_name()["b"].tolist() == [4, 6, 8]
    # A parameter of another size begins again.
    assert kept.view(["a"], [4], torch.device("cpu")).tolist() == [0, 0, 0, 0]
