"""Stages whose work is Python's: order, window, errors, cancellation, the timeline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import CancelledError

import pytest
import tenfold
from tenfold._stages import Stage, Stop, Timeline, run


class Item:
    """Something whose life can be watched."""

    def __init__(self, number):
        self.number = number


def test_the_sink_gets_items_in_the_order_of_the_source():
    kept = []
    late = threading.Event()

    def work(number):
        # The first is the last to be done of those that are under way.
        if number == 0:
            assert late.wait(60)
        elif number == 7:
            late.set()
        return number, 1

    run(range(100), [Stage("work", work, 4)], ("keep", lambda number: kept.append(number) or 1), window=8)
    assert kept == list(range(100))


@pytest.mark.parametrize("window", [1, 3, 8])
def test_no_more_items_than_the_window_are_alive(window):
    alive, most, lock = weakref.WeakSet(), [0], threading.Lock()

    def source():
        for number in range(200):
            item = Item(number)
            with lock:
                alive.add(item)
                most[0] = max(most[0], len(alive))
            yield item
            del item

    def passed(item):
        return item, 1

    run(source(), [Stage("a", passed, 3), Stage("b", passed, 3)], ("c", lambda item: 1), window=window)
    # Beyond the window there is the one that the source has made and holds until there is room.
    assert 1 <= most[0] <= window + 1 and not alive


@pytest.mark.parametrize("failing", ["source", "first", "second", "sink"])
@pytest.mark.parametrize("kind", [ValueError, tenfold.DataError, KeyboardInterrupt, StopIteration, SystemExit])
def test_what_a_stage_raises_ends_all_of_them_and_is_raised(failing, kind):
    if failing == "source" and kind is StopIteration:
        pytest.skip("the end of a source")
    error = kind("item 50")
    done = []

    def fail(where, number):
        if where == failing and number == 50:
            raise error

    class Source:
        number = -1

        def __iter__(self):
            return self

        def __next__(self):
            self.number += 1
            fail("source", self.number)
            return self.number

    def stage(name):
        def work(number):
            fail(name, number)
            return number, 1

        return Stage(name, work, 3)

    def keep(number):
        fail("sink", number)
        done.append(number)
        return 1

    with pytest.raises(kind) as raised:
        run(Source(), [stage("first"), stage("second")], ("sink", keep), window=6)
    assert raised.value is error
    assert done == list(range(len(done))) and len(done) <= 57


@pytest.mark.parametrize("given", [None, 3, ("two", "three"), (1, -1), (1, 2, 3)])
def test_a_stage_that_does_not_say_how_many_bytes(given):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        run(range(100), [Stage("work", lambda number: given)], ("keep", lambda number: 0), window=2)


def test_arguments():
    def nothing(number):
        return number, 0

    with pytest.raises(tenfold.ArgumentError, match="at least one item is under way, not 0"):
        run([], [], ("keep", lambda number: 0), window=0)
    with pytest.raises(tenfold.ArgumentError, match="stage decode has at least one worker, not 0"):
        run([], [Stage("decode", nothing, 0)], ("keep", lambda number: 0), window=1)
    with pytest.raises(TypeError, match="not iterable"):
        run(3, [], ("keep", lambda number: 0), window=1)
    assert len(run([], [Stage("work", nothing)], ("keep", lambda number: 0), window=1)) == 0


def test_stages_work_at_the_same_time():
    """Each item meets one of the other stage; stages that took turns would wait for ever."""
    meet = threading.Barrier(2, timeout=60)

    def first(number):
        if number > 0:
            meet.wait()
        return number, 1

    def second(number):
        if number < 19:
            meet.wait()
        return number, 1

    run(range(20), [Stage("first", first), Stage("second", second)], ("keep", lambda number: 1), window=4)


def test_a_stop_ends_a_pipeline_without_end():
    stop = Stop()

    def forever():
        number = 0
        while True:
            yield number
            number += 1

    def work(number):
        if number == 100:
            stop.stop()
        return number, 1

    assert not stop.is_stopped
    with pytest.raises(CancelledError, match="the pipeline was stopped"):
        run(forever(), [Stage("work", work, 2)], ("keep", lambda number: 1), window=4, stop=stop)
    assert stop.is_stopped


def test_an_interrupt():
    code = """
import itertools, os, signal
from tenfold._stages import Stage, run

signal.signal(signal.SIGINT, signal.default_int_handler)

def work(number):
    if number == 100:
        os.kill(os.getpid(), signal.SIGINT)
    return number, 1

try:
    run(itertools.count(), [Stage("work", work, 2)], ("keep", lambda number: 1), window=4)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["interrupted"]), done.stderr


def test_a_forked_process_has_stages_too():
    def total():
        kept = []
        run(range(50), [Stage("work", lambda number: (number, 1), 2)], ("keep", lambda number: kept.append(number) or 1), window=4)
        return sum(kept)

    assert total() == 1225
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if total() == 1225 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_trace(tmp_path):
    timeline = run(range(10), [Stage("read", lambda n: (n, 100), 2), Stage("decode", lambda n: (n, 400), 2)], ("settle", lambda n: 0), window=4)
    path = tmp_path / "trace.json"
    timeline.write_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"read", "decode", "settle"}
    assert sum(event["args"]["bytes"] for event in events if event.get("cat") == "decode") == 4000
    summary = timeline.summary()
    assert {stage["stage"]: (stage["items"], stage["bytes"]) for stage in summary["stages"]} == {
        "read": (10, 1000), "decode": (10, 4000), "settle": (10, 0)
    }  # fmt: skip
    assert 0 <= summary["overlap"] <= 1 and summary["seconds"] > 0
    # Several runs may share a timeline, and one may have no room for any.
    run(range(5), [], ("again", lambda n: 0), window=1, timeline=timeline)
    assert len(timeline) == 35
    closed = run(range(5), [], ("keep", lambda n: 0), window=1, timeline=Timeline(room=0))
    assert len(closed) == 0 and closed.summary()["stages"] == []
    with pytest.raises(tenfold.NotFoundError, match="missing"):
        timeline.write_trace(tmp_path / "missing" / "trace.json")
