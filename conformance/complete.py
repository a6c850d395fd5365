#!/usr/bin/env python3
"""Completes a basis as docs/kv.md says it: vectors for all that the stored ones do not span.

    python3 conformance/complete.py          # all cases of bases.json: prints nothing but a count if they are right

Plain Python, nothing to install. Floats of Python are f64, and no operation is fused.
"""

import json
import math
import struct
import sys
from pathlib import Path

CASES = Path(__file__).with_name("bases.json")


def dot(a, b):
    sums, whole = [0.0] * 8, len(a) // 8 * 8
    for i in range(whole):
        sums[i % 8] += a[i] * b[i]
    rest = 0.0
    for i in range(whole, len(a)):
        rest += a[i] * b[i]
    total = 0.0
    for one in sums:
        total += one
    return total + rest


def reflect(u, k, row):
    """What a reflection of the columns from k on makes of a row."""
    along = dot(u, row[k:])
    return row[:k] + [x - along * v for x, v in zip(row[k:], u)]


def times_factor(row, factor, size):
    out = []
    for block in range(0, len(row), size):
        for c in range(size):
            total = 0.0
            for i in range(c, size):
                total += row[block + i] * factor[block + i][c]
            out.append(total)
    return out


def over_factor(row, factor, size):
    row = list(row)
    for block in range(0, len(row), size):
        for c in reversed(range(size)):
            known = 0.0
            for i in range(c + 1, size):
                known += row[block + i] * factor[block + i][c]
            row[block + c] = (row[block + c] - known) / factor[block + c][c]
    return row


def bf16(value):
    """Rounded to f32, then to bf16; the upper half of the f32's bits."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def complete(vectors, cols, size, factor):
    """The vectors that are missing. `factor` has a row of at most `size` numbers for each column; a size of 0 is no metric."""
    seen = [times_factor(row, factor, size) if size else list(row) for row in vectors]
    reflections = []
    for k in range(len(seen)):
        x = seen[k][k:]
        length = math.sqrt(dot(x, x))
        if length > 0.0:
            x[0] += -length if x[0] < 0.0 else length
            scale = math.sqrt(2.0 / dot(x, x))
            x = [v * scale for v in x]
        reflections.append(x)
        seen[k + 1:] = [reflect(x, k, row) for row in seen[k + 1:]]
    out = []
    for j in range(len(vectors), cols):
        row = [0.0] * cols
        row[j] = 1.0
        for k in reversed(range(len(reflections))):
            row = reflect(reflections[k], k, row)
        out.append([bf16(v) for v in (over_factor(row, factor, size) if size else row)])
    return out


def floats(text, kind):
    data = bytes.fromhex(text)
    if kind == "f32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    words = struct.unpack(f"<{len(data) // 2}H", data)
    return list(struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words))))


def read(case):
    """Vectors, columns, size and factor of a case."""
    cols, size = case["columns"], case["size"]
    entries, packed = floats(case["vectors"], "bf16"), iter(floats(case["factor"], "f32"))
    factor = [[next(packed) for _ in range(c % size + 1)] for c in range(cols)] if size else []
    return [entries[i:i + cols] for i in range(0, len(entries), cols)], cols, size, factor


def main():
    cases = json.loads(CASES.read_text())
    for case in cases:
        found = struct.pack(f"<{len(case['completed']) // 4}H", *(v for row in complete(*read(case)) for v in row)).hex()
        if found != case["completed"]:
            sys.exit(f"{case['name']}: other vectors than expected")
    print(f"{len(cases)} bases completed")


if __name__ == "__main__":
    main()
