"""Memory is read and written in place, and the interpreter is free meanwhile."""

import resource
import subprocess
import sys
import threading
import time

import numpy as np

import tenfold


def test_out_is_written_in_place(normal):
    blob = tenfold.encode(normal, bits=3)
    room = np.zeros((130, 256), np.float32)
    address = room.ctypes.data
    got = tenfold.decode(blob, out=room[1:129])
    assert np.shares_memory(got, room) and room.ctypes.data == address
    assert np.array_equal(room[1:129], tenfold.decode(blob)) and not room[0].any() and not room[129].any()
    raw = np.zeros(normal.nbytes, np.uint8)
    tenfold.decode(blob, out=raw)
    assert np.array_equal(raw.view(np.float32).reshape(normal.shape), tenfold.decode(blob))


def test_large_buffers_are_not_copied():
    # A process of its own: the peak of this one is past.
    code = """
import numpy as np, resource, tenfold
x = np.zeros((64, 1 << 20), np.float32)
x[:] = 1
blob = tenfold.encode(x[:1, :4096].copy(), lossless=True)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
tenfold.encode(x.view(np.uint32), lossless=True, threads=1)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    # The tensor has 256 MiB; its blob is tiny.
    assert float(done.stdout) < 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def test_the_interpreter_runs_meanwhile(rng):
    x = rng.standard_normal((512, 2048), dtype=np.float32)
    codec = tenfold.Codec(bits=3, effort="best", threads=1)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    blob = codec.encode(x)
    end = time.perf_counter()
    stop.set()
    ticker.join()
    # A held lock would leave no tick but those at the ends.
    during = sum(start + 0.01 < t < end - 0.01 for t in ticks)
    assert during > 5, (during, end - start)

    results = [None] * 2

    def work(i):
        results[i] = codec.decode(blob)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(results[0], results[1])


def test_inputs_live_as_long_as_they_are_needed(tmp_path):
    codec = tenfold.Codec(lossless=True)
    for i in range(50):
        blob = codec.encode(np.full((64, 64), i, np.float32))
        assert (codec.decode(bytearray(blob)) == i).all()


def test_forked_processes_do_not_hang():
    code = """
import os, numpy as np, tenfold
x = np.random.default_rng(0).standard_normal((512, 1024), dtype=np.float32)
blob = tenfold.encode(x, bits=3)
tenfold.decode(blob, threads=2)
child = os.fork()
if child == 0:
    same = tenfold.encode(x, bits=3) == blob and np.array_equal(tenfold.decode(blob), tenfold.decode(blob, threads=2))
    os._exit(0 if same else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60, check=True)
