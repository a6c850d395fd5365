"""The planner's choice from Python is the crate's."""

import math

import pytest

import tenfold
from tenfold import plan

FAST = plan.Way("fast", plan.Cost(1e-4, 1 / 150e6), plan.Cost(1e-4, 1 / 400e6), ratio=6.4, nmse=0.045)
EXACT = plan.Way("exact", plan.Cost(1e-4, 1 / 140e6), plan.Cost(1e-4, 1 / 400e6), ratio=6.4, nmse=0.03)
TOKEN = 576 * 2


@pytest.mark.parametrize("link", ["10Mb/s", "1Gb/s", "100Gb/s", 1e3])
def test_what_fits_into_one_packet_goes_raw(link):
    choice = plan.choose(TOKEN, [FAST], link=link)
    assert (choice.way, choice.reason) == (None, "one-packet")
    assert "one packet" in choice.text and choice.seconds == choice.raw_seconds
    assert plan.choose(1448, [FAST], link="1kb/s").way is None
    assert plan.choose(1449, [FAST], link="1kb/s").way == "fast"


def test_a_slow_link_takes_the_more_exact_of_two_that_are_as_fast():
    assert plan.choose(32 << 20, [FAST, EXACT], link="10Mb/s", chunk=1 << 20).way == "exact"
    assert plan.choose(32 << 20, [FAST], link="10Mb/s", chunk=1 << 20).reason == "fastest"


def test_a_fast_link_takes_raw():
    choice = plan.choose(32 << 20, [FAST, EXACT], link="10Gb/s")
    assert (choice.way, choice.reason) == (None, "not-faster")
    assert plan.choose(32 << 20, link="10Mb/s").reason == "no-way"


def test_without_chunks_nothing_overlaps():
    whole = plan.choose(1 << 20, [FAST], link="10Mb/s")
    alone = (FAST.encode.fixed + FAST.decode.fixed) + (1 << 20) * (FAST.encode.per_byte + FAST.decode.per_byte + 0.8e-6 / 6.4)
    assert whole.seconds == pytest.approx(alone)
    assert plan.choose(1 << 20, [FAST], link="10Mb/s", chunk=1 << 16, cores=(2, 2)).seconds < whole.seconds


def test_latency_is_waited_for_once():
    near, far = (plan.choose(1 << 20, [FAST], link="10Mb/s", latency=seconds) for seconds in (0.0, 0.5))
    assert far.seconds - near.seconds == pytest.approx(0.5)


def test_a_cost_goes_through_both_measurements():
    cost = plan.Cost.fit((1000.0, 2e-5), (1e6, 1e-3 + 1.9e-5))
    assert cost.fixed + 1000 * cost.per_byte == pytest.approx(2e-5)
    assert cost.fixed + 1e6 * cost.per_byte == pytest.approx(1.019e-3)


@pytest.mark.parametrize(
    ("ways", "how"),
    [
        ([FAST], {"link": "fast"}),
        ([FAST], {"link": 0.0}),
        ([FAST], {"link": math.nan}),
        ([FAST], {"link": 1e6, "latency": -1.0}),
        ([plan.Way("w", plan.Cost(0, 1e-9), plan.Cost(0, 1e-9), ratio=0.0)], {"link": 1e6}),
        ([plan.Way("w", plan.Cost(-1, 1e-9), plan.Cost(0, 1e-9), ratio=2.0)], {"link": 1e6}),
        ([plan.Way("w", plan.Cost(0, 1e-9), plan.Cost(0, math.inf), ratio=2.0)], {"link": 1e6}),
    ],
)
def test_numbers_that_cannot_be_are_refused(ways, how):
    with pytest.raises(tenfold.ArgumentError):
        plan.choose(1 << 20, ways, **how)
