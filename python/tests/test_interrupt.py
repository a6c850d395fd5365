"""Ctrl-C ends long work, and leaves no file behind."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tenfold

# Sends itself an interrupt while the work is under way: it begins at once and takes seconds.
FRAME = """
import os, signal, sys, threading
import numpy as np
import tenfold

# Whoever runs this in the background may have it ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
x = np.random.default_rng(0).standard_normal((8192, 8192), dtype=np.float32)
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    {work}
except KeyboardInterrupt:
    print("interrupted")
else:
    print("ran to its end")
assert np.array_equal(tenfold.decode(tenfold.encode(x[:64], lossless=True)), x[:64])
"""


@pytest.mark.parametrize(
    "work",
    [
        "tenfold.encode(x, bits=3, effort='best')",
        "tenfold.encode(x, bits=3, effort='best', threads=1)",
        "tenfold.save({'a': x}, sys.argv[1], bits=3, effort='best')",
    ],
)
def test_interrupt(work, tmp_path):
    call = [sys.executable, "-c", FRAME.format(work=work), str(tmp_path / "model.safetensors")]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["interrupted"]
    assert os.listdir(tmp_path) == []


def test_other_handlers_run_meanwhile(tmp_path):
    code = """
    import os, signal, threading, time
    import numpy as np
    import tenfold

    x = np.random.default_rng(0).standard_normal((4096, 4096), dtype=np.float32)
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.perf_counter()))
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    blob = tenfold.encode(x, bits=3, effort="best", threads=1)
    end = time.perf_counter()
    assert seen and seen[0] < end, (seen, end)
    assert tenfold.decode(blob).shape == x.shape
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=120, check=True)


def test_what_progress_raises_ends_the_work(tmp_path, rng):
    state = {f"layers.{i}": rng.standard_normal((512, 4096), dtype=np.float32) for i in range(8)}
    calls = []

    def enough(done, total):
        calls.append(done)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tenfold.save(state, tmp_path / "model.safetensors", bits=3, effort="best", progress=enough)
    assert len(calls) == 1 and os.listdir(tmp_path) == []

