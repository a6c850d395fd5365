"""Steps for slots of a fixed size, which follow from the blob before."""

import numpy as np
import pytest
import tenfold
from tenfold import _native


@pytest.mark.parametrize("bits", [1, 2, 5])
@pytest.mark.parametrize("off", [0.8, 1.25])
def test_steps_that_are_off_come_to_fill_the_slot(bits, off):
    values = np.random.default_rng(3).standard_normal(1 << 16, dtype=np.float32)
    room = int(values.size * bits / 8)
    step = tenfold.inspect(tenfold.encode(values, max_bytes=room)).step * off
    sizes, filled = [], []
    for _ in range(8):
        blob = tenfold.encode(values, step=step)
        step, fills = _native.next_slot_step(step, len(blob), values.size, room)
        sizes.append(len(blob) / room)
        filled.append(fills)
    assert not filled[0] and any(filled)
    assert all(0.97 < size < 1.01 for size in sizes[-4:])


def test_a_slot_is_filled_to_the_last_byte_but_no_further_and_not_far_from_it():
    def fills(size):
        return _native.next_slot_step(1.0, size, 8000, 1000)[1]

    assert fills(1000) and fills(950)
    assert not fills(1001) and not fills(940)
