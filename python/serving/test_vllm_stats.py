"""What a connector counts, and which blocks it says a step writes to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_engines import BLOCK, PAGE, engine, model_folder, prompt

from tenfold.serving import FileStore, Identity
from tenfold.serving._stats import Counts, Report, describe
from tenfold.serving.vllm import Stats

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def test_counts_of_an_engine(model: Path, tmp_path: Path) -> None:
    with engine(model, {"path": str(tmp_path), "bits": 4}) as one:
        asked = [prompt(200)]
        one.answers(asked)
        one.forget()
        one.answers(asked)
        shown = one.counts()
        found = one.worker._counts.totals()
    # vLLM rounds seconds to whole ones where a program asks for them.
    assert {name: value for name, value in shown.items() if name.startswith(("pages", "bytes"))}.items() <= found.items()
    raw = 3 * 2 * 3 * PAGE * 64 * 4  # pages, sides, layers, tokens, columns, bytes
    assert found["pages_saved"] == found["pages_loaded"] == 3
    assert found["bytes_before"] == found["bytes_restored"] == raw
    assert 0 < found["bytes_stored"] == found["bytes_loaded"] <= raw / 8
    assert 0 < found["encode_seconds"] <= found["save_seconds"] and 0 < found["decode_seconds"]
    shown = Stats(data=found).reduce()
    assert shown["ratio"] == found["ratio"] >= 8
    assert shown["save_pays_below"] == pytest.approx((raw - found["bytes_stored"]) / found["encode_seconds"], rel=1e-3)
    assert shown["load_pays_below"] == pytest.approx((raw - found["bytes_loaded"]) / found["decode_seconds"], rel=1e-3)


def test_a_step_says_what_it_writes_to_before_it_does(model: Path, tmp_path: Path) -> None:
    """Pages are read from blocks while the engine goes on, so every write to a block must be announced."""
    with engine(model, {"path": str(tmp_path), "lossless": True}) as one:
        heard: list[tuple[str, Any]] = []
        worker = one.worker

        def listening(name: str) -> None:
            call = getattr(worker, name)

            def instead(plan: Any, **how: Any) -> Any:
                heard.append((name, plan))
                return call(plan, **how)

            setattr(worker, name, instead)

        for name in ("before_writes", "load", "save"):
            listening(name)
        one.answers([prompt(200)], 40)
    announced: set[int] = set()
    last = None
    for name, plan in heard:
        if name == "before_writes":
            last = plan
            announced |= plan.overwritten
        else:
            assert plan is last, "a step that did not say what it writes to"
    saved = {block for name, plan in heard if name == "save" for page in plan.saves for block in page.blocks}
    assert saved and saved <= announced
    # Each token of a prompt and of its answer, but for the last, has its place.
    assert len(announced) == -(-239 // BLOCK)
    steps = [plan.writes for name, plan in heard if name == "before_writes" and plan.writes]
    assert len(steps[0]) == -(-200 // BLOCK) and all(len(writes) == 1 for writes in steps[1:])


def test_threads_that_code_at_the_same_time_count_once() -> None:
    counts = Counts()
    ready = threading.Barrier(3)

    def work() -> None:
        with counts.encoding():
            ready.wait(10)
            time.sleep(0.1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(10)
    time.sleep(0.05)
    first = counts.take()["encode_seconds"]
    assert first >= 0.05, "time counts while it passes"
    for thread in threads:
        thread.join()
    assert first + counts.take()["encode_seconds"] < 0.19
    assert counts.take() == {} and counts.totals()["encode_seconds"] >= 0.1


def test_a_line_in_a_log() -> None:
    said: list[str] = []

    class Log:
        def info(self, text: str, *args: Any) -> None:
            said.append(text % args)

    counts = Counts()
    report, late = (Report(Log(), counts, every) for every in (0.0, 60.0))  # type: ignore[arg-type]
    counts.saved(4000, 1000, encode_seconds=0.5)
    late.remind()
    assert not said
    report.remind()
    assert said == ["tenfold: pages_saved=1 bytes_before=4000 bytes_stored=1000 encode_seconds=0.500 ratio=4.000 save_pays_below=6000"]
    assert describe({}) == "nothing was stored or loaded so far"


_WRITER = """
import sys
from tenfold.serving import FileStore, Identity
store = FileStore(sys.argv[1], Identity("model"))
print("ready", flush=True)
for number in range(10**9):
    store.put(f"key {number % 50}", bytes([number % 256]) * 200_000)
"""


def test_processes_that_are_killed_while_they_store(tmp_path: Path) -> None:
    """Two of them on one folder: what is there is whole, and what they did not finish goes away."""
    identity = Identity("model")
    for _ in range(3):
        writers = [subprocess.Popen([sys.executable, "-c", _WRITER, tmp_path], stdout=subprocess.PIPE) for _ in range(2)]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline()
        time.sleep(0.2)
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.communicate()
    store = FileStore(tmp_path, identity)
    found = [store.get(f"key {number}") for number in range(50)]
    whole = [page for page in found if page is not None]
    assert whole and all(len(page) == 200_000 and len(set(page.tolist())) == 1 for page in whole)
    # One that was cut off long ago, and one that another process may be at.
    folder = next(tmp_path.glob("*/*"))
    old, new = folder / "unfinished-old", folder / "unfinished-new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    FileStore(tmp_path, identity)
    assert not old.exists() and new.exists()
