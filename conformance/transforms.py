"""Transforms of docs/format.md: read from a header, undone behind the codec."""

import math
import struct

from basics import Reader, Refused, f32, require, to_element


class Transforms:
    """Transforms: read from a header, undone behind the codec."""

    FACTORS = [struct.unpack("<f", bits.to_bytes(4, "little"))[0] for bits in (
        0x3F800000, 0x3F8B95C2, 0x3F9837F0, 0x3FA5FED7, 0x3FB504F3, 0x3FC5672A, 0x3FD744FD, 0x3FEAC0C7)]
    NAMES = {1: "Hadamard", 2: "weights", 4: "kept elements", 5: "means", 6: "DCT", 7: "basis", 8: "rotary positions", 9: "delta",
             10: "transposed"}

    def __init__(self, r, codec, dtype, n, shape):
        self.name, self.size, self.exponent, self.largest = dtype
        self.cols = shape[-1] if shape else 1
        self.rows = math.prod(shape[:-1])
        self.kept, self.undone, weighted = [], [], []
        # Scales of columns, if a basis that knows them is the last step; whether it is.
        self.scales, self.ends_in_basis = None, False
        self.seen = set()
        count = r.u8()
        # Rounds to the working precision.
        self.round = (lambda v: v) if self.name == "f64" else f32
        for i in range(count):
            id_ = r.u8()
            if codec not in (2, 5) or id_ not in self.NAMES:
                raise Refused("unsupported", f"preparation step {id_}")
            content = Reader(r.take(r.varint()))
            if id_ == 4:
                require(i == 0, "kept elements after another step")
                self.read_kept(content.data, n)
                continue
            if id_ == 9:
                require("delta" not in self.seen, "two delta steps")
            read = {1: self.hadamard, 2: self.weights, 5: self.means, 6: self.dct, 7: self.basis, 8: self.rope, 9: self.delta,
                    10: self.transposed}[id_]
            self.ends_in_basis = id_ == 7
            undo = read(content)
            require(content.at == len(content.data), f"bytes behind {self.NAMES[id_]}")
            self.undone.append(undo)
            if id_ == 2:
                weighted.append(("columns", "rows")[content.data[0]])
            else:
                self.seen.add(self.NAMES[id_])
        require(self.exponent or not count, "levels of a dtype that is not a float")
        # The dtype of working values, where there are transforms.
        self.worked = (21 if self.name == "f64" else 20) if count else None
        if weighted:
            self.seen.add("weights of " + ", then of ".join(weighted))
        if self.kept:
            self.seen |= {"kept elements"} | {"kept run" for _, length, _ in self.kept if length > 1}

    def weights(self, r):
        axis = r.u8()
        require(axis < 2, "axis of weights")
        stored = r.take(self.rows if axis else self.cols)
        factors = [self.factor(b - 256 * (b > 127)) for b in stored]
        # A product of two f32 is exact in f64, so there is one rounding.
        times = lambda i, row: [self.round(v * (factors[i] if axis else factors[j])) for j, v in enumerate(row)]
        return lambda rows: [times(i, row) for i, row in enumerate(rows)]

    @classmethod
    def factor(cls, w):
        octaves, eighth = divmod(-w, 8)
        return math.ldexp(cls.FACTORS[eighth], octaves)

    def means(self, r):
        width = r.u8()
        require(width in (2, 4), "width of means")
        stored = r.take(width * self.cols)
        # A bf16 is the upper half of an f32.
        means = [struct.unpack("<f", bytes(4 - width) + stored[i:i + width])[0] for i in range(0, len(stored), width)]
        require(all(map(math.isfinite, means)), "a mean is not finite")
        return lambda rows: [[self.round(v + m) for v, m in zip(row, means)] for row in rows]

    def delta(self, r):
        group = r.varint()
        require(2 <= group <= 4096, "group of delta")

        def undo(rows):
            out = []
            for i, row in enumerate(rows):
                out.append(row if i % group == 0 else [self.round(a + b) for a, b in zip(row, out[-1])])
            return out

        return undo

    def transposed(self, r):
        require(not self.undone, "a transposition after another step")
        self.rows, self.cols = self.cols, self.rows
        return lambda rows: zip(*rows)

    @staticmethod
    def blocks(row, log2):
        at = 0
        while at < len(row):
            n = min(1 << log2, 1 << (len(row) - at).bit_length() - 1)
            yield row[at:at + n]
            at += n

    def hadamard(self, r):
        log2, seed = r.u8(), r.u32()
        require(1 <= log2 <= 14, "block of Hadamard")
        signs, x = [], seed
        for _ in range(self.cols):
            x = (x * 1664525 + 1013904223) % (1 << 32)
            signs.append(-1 if seed and x >> 31 else 1)

        def turn(v):
            n = len(v)
            return [sum(-a if (i & j).bit_count() & 1 else a for j, a in enumerate(v)) / math.sqrt(n) for i in range(n)]

        return lambda rows: [[a * s for a, s in zip((a for b in self.blocks(row, log2) for a in turn(b)), signs)]
                             for row in rows]

    def dct(self, r):
        log2 = r.u8()
        require(2 <= log2 <= 5, "block of DCT")

        def turn(v):
            n = len(v)
            entry = lambda k, i: math.sqrt((2 if k else 1) / n) * math.cos(math.pi * (2 * i + 1) * k / (2 * n))
            return [sum(entry(k, i) * a for k, a in enumerate(v)) for i in range(n)]

        return lambda rows: [[a for b in self.blocks(row, log2) for a in turn(b)] for row in rows]

    def rope(self, r):
        f64 = lambda: struct.unpack("<d", r.take(8))[0]
        pairing, head, turned, base, scaling = r.u8(), r.varint(), r.varint(), f64(), r.u8()
        require(pairing < 2 and 0 < turned <= head <= 65536 and turned % 2 == 0 and self.cols % head == 0, "heads")
        require(math.isfinite(base) and base > 1 and scaling < 3, "base or scaling")
        numbers = [f64() for _ in range((0, 1, 4)[scaling])]
        require(all(math.isfinite(v) and v > 0 for v in numbers), "numbers of scaling")
        require(scaling < 2 or numbers[1] < numbers[2], "numbers of scaling")
        kind, first = r.u8(), r.varint()
        require(kind < 2, "kind of positions")
        listed = [r.varint() for _ in range(first)] if kind else [first]
        require(listed and max(listed) <= 1 << 32, "positions")
        half, frequencies, cols = turned // 2, [], self.cols
        for k in range(half):
            f = base ** (-2 * k / turned)
            if scaling == 1:
                f /= numbers[0]
            elif scaling == 2:
                factor, low, high, original = numbers
                m = max(0.0, min(1.0, (original * f / math.tau - low) / (high - low)))
                f *= (1 - m) / factor + m
            frequencies.append(f)

        def turn(i, row):
            row, position = list(row), listed[i % len(listed)] if kind else first + i
            for start in range(0, cols, head):
                for k, f in enumerate(frequencies):
                    a, b = (start + 2 * k, start + 2 * k + 1) if pairing else (start + k, start + k + half)
                    cos, sin = math.cos(position * f), math.sin(position * f)
                    row[a], row[b] = row[a] * cos - row[b] * sin, row[a] * sin + row[b] * cos
            return row

        return lambda rows: [turn(i, row) for i, row in enumerate(rows)]

    def basis(self, r):
        require("transposed" not in self.seen, "a basis behind a transposition")
        kind, rank = r.u8(), r.varint()
        require(kind < 2 and 0 < rank <= self.cols, "kind or rank of a basis")
        if kind == 0:
            name = r.take(16)
            require(r.at == len(r.data), "bytes behind a basis")
            raise Refused("caller", f"basis {name.hex()} is not here")
        means = [v for v, in struct.iter_unpack("<f", r.take(4 * self.cols))]
        scaled = r.u8()
        require(scaled < 2, "scales of a basis")
        self.scales = list(r.take(rank)) if scaled else None
        require(not self.scales or max(self.scales) < 64, "scales of a basis")
        stored = r.take(2 * rank * self.cols)
        entries = [struct.unpack("<f", bytes(2) + stored[i:i + 2])[0] for i in range(0, len(stored), 2)]
        require(all(map(math.isfinite, means + entries)), "a number of a basis is not finite")
        vectors = [entries[k * self.cols:(k + 1) * self.cols] for k in range(rank)]
        if self.scales:
            self.seen.add("basis with scales")
        if rank < self.cols:
            self.seen.add("basis of fewer vectors than columns")
        self.cols = rank
        columns = list(zip(*vectors))
        line = lambda row: [m + sum(c * v for c, v in zip(row, column)) for m, column in zip(means, columns)]
        return lambda rows: [line(row) for row in rows]

    def read_kept(self, content, n):
        room = max(self.size, 4)
        require(content and len(content) % (12 + room) == 0, "length of kept elements")
        end = 0
        for at in range(0, len(content), 12 + room):
            start = int.from_bytes(content[at:at + 8], "little")
            length = int.from_bytes(content[at + 8:at + 12], "little")
            element = content[at + 12:at + 12 + room]
            require(length > 0 and start >= end and start + length <= n, "a run of kept elements")
            require(not any(element[self.size:]), "bytes behind a kept element")
            end = start + length
            self.kept.append((start, length, element[:self.size]))

    def undo(self, data):
        if not self.worked:
            return data
        values = [v for v, in struct.iter_unpack("<d" if self.worked == 21 else "<f", data)]
        rows = [values[i:i + self.cols] for i in range(0, len(values), self.cols)]
        for undo in reversed(self.undone):
            rows = undo(rows)
        limit = lambda v: max(-self.largest, min(v, self.largest))
        out = [to_element(self.name, self.exponent, limit(v)) for row in rows for v in row]
        for start, length, element in self.kept:
            out[start:start + length] = [element] * length
        return b"".join(out)
