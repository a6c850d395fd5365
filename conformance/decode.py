#!/usr/bin/env python3
"""A second decoder of tenfold blobs, written from docs/format.md alone.

    decode.py BLOB OUT     decode one blob to raw little-endian elements
    decode.py --check      decode every golden vector and refuse every golden error

Plain Python, nothing to install. It is meant to be read beside the page, not to be fast.
"""

import json
import math
import pathlib
import struct
import sys
import zlib

MAX_BYTES = 64 << 30
MAX_DIMS = 16
ESCAPE = 128
# id: name, bytes, exponent bits of a float, largest finite number
DTYPES = {
    0: ("bool", 1, 0, 0.0), 1: ("u8", 1, 0, 0.0), 2: ("i8", 1, 0, 0.0), 3: ("u16", 2, 0, 0.0),
    4: ("i16", 2, 0, 0.0), 5: ("u32", 4, 0, 0.0), 6: ("i32", 4, 0, 0.0), 7: ("u64", 8, 0, 0.0),
    8: ("i64", 8, 0, 0.0), 16: ("f8_e4m3", 1, 4, 448.0), 17: ("f8_e5m2", 1, 5, 57344.0),
    18: ("f16", 2, 5, 65504.0), 19: ("bf16", 2, 8, float.fromhex("0x1.FEp127")),
    20: ("f32", 4, 8, float.fromhex("0x1.FFFFFEp127")), 21: ("f64", 8, 11, sys.float_info.max),
}
CODES = {2: (0o5, 0o2), 3: (0o13, 0o04), 4: (0o23, 0o04), 5: (0o45, 0o10), 6: (0o103, 0o024),
         7: (0o235, 0o126), 8: (0o515, 0o362)}


class Refused(Exception):
    """A blob that must not be read; `kind` is data, unsupported or limit."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def corrupt(message):
    return Refused("data", message)


def require(condition, message):
    if not condition:
        raise corrupt(message)


def up(n, by=4):
    """The next multiple."""
    return -(-n // by) * by


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        require(n <= len(self.data) - self.at, "a field reaches past the end")
        self.at += n
        return self.data[self.at - n:self.at]

    def u8(self):
        return self.take(1)[0]

    def u32(self):
        return int.from_bytes(self.take(4), "little")

    def varint(self):
        value = 0
        for i in range(10):
            byte = self.u8()
            value |= (byte & 127) << (7 * i)
            if byte < 128:
                require(i == 0 or byte > 0, "a varint is not the shortest")
                require(value < 1 << 64, "a varint is too large")
                return value
        raise corrupt("a varint is too long")


class Bits:
    """A bit string, least significant bit first."""

    def __init__(self, data):
        self.data, self.at, self.length = int.from_bytes(data, "little"), 0, 8 * len(data)

    def take(self, n):
        require(self.at + n <= self.length, "a bit string ends early")
        value = (self.data >> self.at) & ((1 << n) - 1)
        self.at += n
        return value

    def gamma(self):
        n = 0
        while not self.take(1):
            n += 1
            require(n <= 16, "a gamma code is too long")
        return (1 << n) + self.take(n) - 1

    def used_up(self):
        return up(self.at, 8) == self.length


# --- Tables ---------------------------------------------------------------------------------------

def shaped(bits, log, low):
    zero, ratio, bend = bits.take(log + 1), bits.take(8), bits.take(8)
    room = (1 << log) - (0 if low else zero) - 1
    require(room >= 0, "a shape leaves no room")
    side, w, r, weights = room // 2, 1 << 24, ratio * 256, []
    for _ in range(127):
        weights.append(w)
        w, r = (w * r) >> 16, min((r * bend) >> 7, 65280)
    total = sum(weights)
    freqs = [0] * 256
    for j, w in enumerate(weights):
        f = (w * side + total // 2) // total
        freqs[j if low else j + 1] = freqs[255 - j] = f
    freqs[ESCAPE] = 1
    freqs[0] += (1 << log) - sum(freqs)
    require(freqs[0] >= 1, "a shape leaves no room")
    return freqs


def measured(bits, levels):
    freqs = [0] * 256
    if levels:
        freqs[ESCAPE] = bits.gamma()
    low, span = bits.take(8), bits.take(8)
    require(low + span <= 255 and not (levels and low == 0), "range of a table")
    for rank in range(low, low + span + 1):
        freqs[rank ^ 128 if levels else rank] = bits.gamma()
    return freqs


def read_tables(r, log, lows):
    """Tables, one for each entry of `lows`: None for planes, else the low bits of the class."""
    bits = Bits(r.take(r.varint()))
    tables, seen = [], set()
    for low in lows:
        kind = bits.take(2)
        if kind == 0 and low is not None:
            freqs = shaped(bits, log, low)
        elif kind == 1:
            freqs = measured(bits, low is not None)
            if low is not None and max(freqs) == 1 << log:
                seen.add("table of one symbol")
        elif kind == 2:
            require(tables, "the first table repeats none")
            freqs = tables[-1]
        else:
            raise corrupt("unknown kind of table")
        require(sum(freqs) == 1 << log, "a table does not add up")
        tables.append(freqs)
        if low is not None:
            seen.add("table " + ("shaped", "measured", "repeated")[kind] + (" of high parts" if low else ""))
    require(bits.used_up(), "bytes left over after the tables")
    return tables, seen


def slots(freqs):
    """(symbol, frequency, first slot) of every slot."""
    out = []
    for symbol, f in enumerate(freqs):
        out += [(symbol, f, len(out))] * f
    return out


class Stream:
    """Lanes of a rANS stream."""

    def __init__(self, r, lanes, words, log):
        self.log, self.mask, self.lanes = log, (1 << log) - 1, lanes
        self.x = list(struct.unpack(f"<{lanes}I", r.take(4 * lanes)))
        require(min(self.x) >= 1 << 16, "a state is out of range")
        self.words = iter(struct.unpack(f"<{words}H", r.take(2 * words)))

    def symbol(self, lane, table):
        x = self.x[lane]
        slot = x & self.mask
        symbol, f, first = table[slot]
        x = f * (x >> self.log) + slot - first
        if x < 1 << 16:
            word = next(self.words, None)
            require(word is not None, "a tile runs out of words")
            x = x << 16 | word
        self.x[lane] = x
        return symbol

    def finish(self):
        require(all(x == 1 << 16 for x in self.x), "a lane does not end where it started")
        require(next(self.words, None) is None, "words left over")


# --- Blob -----------------------------------------------------------------------------------------

def decode(blob):
    """Returns dtype name, shape, elements, features."""
    if not blob or blob[:4] != b"TNFD"[:len(blob)]:
        raise corrupt("not a blob: magic")
    require(len(blob) >= 12, "truncated")
    version, codec, dtype, dims = blob[4:8]
    if version != 1:
        raise Refused("unsupported", f"version {version}")
    header_len = int.from_bytes(blob[8:12], "little")
    require(header_len >= 16, "header length")
    require(header_len <= len(blob), "truncated")
    check = int.from_bytes(blob[header_len - 4:header_len], "little")
    require(zlib.crc32(blob[:header_len - 4]) == check, "header checksum")
    if dtype not in DTYPES:
        raise Refused("unsupported", f"dtype {dtype}")
    if dims > MAX_DIMS:
        raise Refused("limit", "dimensions")
    r = Reader(blob[:header_len - 4])
    r.at = 12
    shape = [r.varint() for _ in range(dims)]
    size = DTYPES[dtype][1]
    n = math.prod(shape)
    require(n * size < 1 << 63, "size overflows")
    if n * size > MAX_BYTES:
        raise Refused("limit", "bytes")
    steps = Steps(r, codec, DTYPES[dtype], n, shape)
    if codec not in (1, 2):
        raise Refused("unsupported", f"codec {codec}")
    # Behind steps, levels are those of a tensor of working values.
    params = (Planes if codec == 1 else Levels)(r, DTYPES[steps.worked or dtype], n, shape)
    params.worked = steps.worked
    require(not any(r.take(up(r.at) - r.at)), "padding of the header")
    tiles = -(-n // params.tile_values)
    require(len(r.data) - r.at == 8 * tiles, "the directory does not match the tiles")
    directory = [(r.u32(), r.u32()) for _ in range(tiles)]
    need = header_len + sum(length for length, _ in directory)
    require(len(blob) >= need, "truncated")
    require(len(blob) == need, "bytes after the last tile")
    out, at = [], header_len
    for i, (length, sum_) in enumerate(directory):
        tile = blob[at:at + length]
        at += length
        require(zlib.crc32(tile) == sum_, "tile checksum")
        require(length % 4 == 0, "length of a tile")
        start = i * params.tile_values
        out.append(params.tile(Reader(tile), start, min(params.tile_values, n - start)))
    name = "planes" if codec == 1 else "levels"
    seen = params.seen | steps.seen | {f"{name} {DTYPES[dtype][0]}", f"{name} dims {dims}", f"{name} lanes {params.lanes}"}
    seen.add(f"{name} several tiles" if tiles > 1 else f"{name} one tile")
    if n == 0:
        seen.add(f"{name} empty")
    if tiles > 1 and n % params.tile_values:
        seen.add(f"{name} short last tile")
    if tiles and n - (tiles - 1) * params.tile_values < params.lanes:
        seen.add(f"{name} fewer values than lanes")
    data = steps.undo(b"".join(out))
    if steps.worked and "exact finite" in seen:
        seen.add("exact working value")
    return DTYPES[dtype][0], shape, data, seen | kinds_of_elements(name, dtype, data)


class Steps:
    """Preparation steps: read from a header, undone behind the codec."""

    FACTORS = [struct.unpack("<f", bits.to_bytes(4, "little"))[0] for bits in (
        0x3F800000, 0x3F8B95C2, 0x3F9837F0, 0x3FA5FED7, 0x3FB504F3, 0x3FC5672A, 0x3FD744FD, 0x3FEAC0C7)]
    NAMES = {1: "Hadamard", 2: "weights", 4: "kept elements", 5: "means", 6: "DCT", 8: "rotary positions", 9: "delta"}

    def __init__(self, r, codec, dtype, n, shape):
        self.name, self.size, self.exponent, self.largest = dtype
        self.cols = shape[-1] if shape else 1
        self.rows = math.prod(shape[:-1])
        self.kept, self.undone, weighted = [], [], []
        self.seen = set()
        count = r.u8()
        # Rounds to the working precision.
        self.round = (lambda v: v) if self.name == "f64" else f32
        for i in range(count):
            id_ = r.u8()
            if codec != 2 or id_ not in self.NAMES:
                raise Refused("unsupported", f"preparation step {id_}")
            content = Reader(r.take(r.varint()))
            if id_ == 4:
                require(i == 0, "kept elements after another step")
                self.read_kept(content.data, n)
                continue
            if id_ == 9:
                require("delta" not in self.seen, "two delta steps")
            read = {1: self.hadamard, 2: self.weights, 5: self.means, 6: self.dct, 8: self.rope, 9: self.delta}[id_]
            undo = read(content)
            require(content.at == len(content.data), f"bytes behind {self.NAMES[id_]}")
            self.undone.append(undo)
            if id_ == 2:
                weighted.append(("columns", "rows")[content.data[0]])
            else:
                self.seen.add(self.NAMES[id_])
        require(self.exponent or not count, "levels of a dtype that is not a float")
        # The dtype of working values, where there are steps.
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
        half, frequencies = turned // 2, []
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
            for start in range(0, self.cols, head):
                for k, f in enumerate(frequencies):
                    a, b = (start + 2 * k, start + 2 * k + 1) if pairing else (start + k, start + k + half)
                    cos, sin = math.cos(position * f), math.sin(position * f)
                    row[a], row[b] = row[a] * cos - row[b] * sin, row[a] * sin + row[b] * cos
            return row

        return lambda rows: [turn(i, row) for i, row in enumerate(rows)]

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


class Codec:
    """What both codecs begin their parameters with."""

    def geometry(self, r):
        log, steps = r.u8(), r.varint()
        require(log <= 5 and steps > 0 and steps << log <= 1 << 22, "geometry")
        self.lanes, self.tile_values = 1 << log, steps << log


class Planes(Codec):
    def __init__(self, r, dtype, _n, _shape):
        self.name, self.size, self.exponent, _ = dtype
        self.geometry(r)
        coded = r.u8()
        require(coded >> self.size == 0, "a table for a plane that does not exist")
        planes = [p for p in range(self.size) if coded >> p & 1]
        tables, self.seen = read_tables(r, 12, [None] * len(planes))
        self.slots = dict(zip(planes, map(slots, tables)))
        if not coded:
            self.seen.add("planes no table")

    def tile(self, r, _start, count):
        planes = [self.plane(r, p, count) for p in range(self.size)]
        require(r.at == len(r.data), "bytes left over in a tile")
        out = bytearray()
        bits = 8 * self.size
        for element in zip(*planes):
            v = int.from_bytes(bytes(element), "little")
            if self.exponent:
                v = v >> 1 | (v & 1) << (bits - 1)
            out += v.to_bytes(self.size, "little")
        return bytes(out)

    def plane(self, r, p, count):
        head = r.u32()
        mode, rest = head & 255, head >> 8
        if mode == 0 and rest < 256:
            plane = bytes([rest]) * count
        elif mode == 1 and rest == 0:
            plane = r.take(count)
        elif mode == 2 and p in self.slots:
            stream = Stream(r, self.lanes, rest, 12)
            plane = bytes(stream.symbol(i % self.lanes, self.slots[p]) for i in range(count))
            stream.finish()
        else:
            raise corrupt("mode of a plane")
        require(not any(r.take(up(r.at) - r.at)), "padding of a plane")
        self.seen.add("plane " + ("constant", "stored", "coded")[mode])
        return plane


class Levels(Codec):
    def __init__(self, r, dtype, n, shape):
        self.name, self.size, self.exponent, self.largest = dtype
        require(self.exponent, "levels of a dtype that is not a float")
        nu = r.u8()
        if nu != 0 and nu not in CODES:
            raise Refused("unsupported", f"trellis {nu}")
        self.trellis = CODES.get(nu)
        self.geometry(r)
        self.log = r.u8()
        require(8 <= self.log <= 12, "size of the tables")
        wide = self.name == "f64"
        self.scale, = struct.unpack("<d" if wide else "<f", r.take(8 if wide else 4))
        require(math.isfinite(self.scale) and self.scale > 0, "scale")
        stored = r.u8()
        offsets = r.take(stored)
        require(stored <= 8, "number of offsets")
        self.offsets = [0] + [o - 256 * (o > 127) for o in offsets] + [0] * (8 - stored)
        count = r.u8()
        require(1 <= count <= 16, "number of classes")
        self.seen = {f"states {1 << nu}", f"table log {self.log}", f"classes {count}"}
        self.seen.add("offsets " + ("none" if stored == 0 else "all" if stored == 8 else "some"))
        self.class_of = (lambda i: 0) if count == 1 else self.class_map(r, count, n, shape)
        self.low = list(r.take(count))
        require(max(self.low) <= 16, "low bits")
        self.seen.add("low bits " + ("none" if max(self.low) == 0 else
                                     "equal" if min(self.low) == max(self.low) else "by class"))
        if 16 in self.low:
            self.seen.add("low bits 16")
        each = 2 if self.trellis else 1
        tables, seen = read_tables(r, self.log, [low for low in self.low for _ in range(each)])
        self.seen |= seen
        self.slots = [[slots(tables[c * each + q]) for q in range(each)] for c in range(count)]

    def class_map(self, r, count, n, shape):
        width, bits = r.varint(), r.u8()
        require(0 < width <= n, "width of the class map")
        row_bits, col_bits = bits & 15, bits >> 4
        require(row_bits <= 6 and col_bits <= 6, "bits of a scale")
        thresholds = list(r.take(count - 1))
        steps = zip([0] + thresholds, thresholds)
        require(all(a < b for a, b in steps), "thresholds are not increasing")

        def scales(length, bits):
            packed = Bits(r.take(up(length * bits, 8) // 8))
            return [packed.take(bits) for _ in range(length)] if bits else None

        rows, cols = scales(-(-n // width), row_bits), scales(width, col_bits)
        names = {(0, 0): "neither", (1, 0): "rows", (0, 1): "columns", (1, 1): "rows and columns"}
        self.seen.add("classes by " + names[row_bits > 0, col_bits > 0])
        if shape[-1:] != [width]:
            self.seen.add("classes by runs")

        def class_of(i):
            scale = (rows[i // width] if rows else 0) + (cols[i % width] if cols else 0)
            return sum(t <= scale for t in thresholds)

        return class_of

    def tile(self, r, start, count):
        head = r.u32()
        flags, words = head & 255, head >> 8
        require(flags < 16, "unknown flags")
        coded, width = flags & 1, (0, 1, 2, 4)[flags >> 1 & 3]
        require(coded or (width == 0 and words == 0), "a tile of zeros with content")
        stream = Stream(r, self.lanes, words, self.log) if coded else None
        low = Bits(r.take(r.varint()) if coded and any(self.low) else b"")
        escapes = []
        if width:
            stored = r.varint()
            require(stored <= count, "more escapes than values")
            data = r.take(stored * width)
            escapes = [int.from_bytes(data[i:i + width], "little", signed=True)
                       for i in range(0, len(data), width)]
            self.seen.add(f"escapes of {width} byte{'s' if width > 1 else ''}")
        self.seen.add("tile coded" if coded else "tile of zeros")
        if not coded and any(self.low):
            self.seen.add("tile of zeros without low bits")
        out = [bytes(self.size)] * count
        if coded:
            multiples = self.multiples(stream, low, iter(escapes), start, count)
            out = [self.element(m) for m in multiples]
        if flags & 8:
            self.exact(r, out)
            if not coded:
                self.seen.add("exact values among zeros")
        rest = r.take(up(r.at) - r.at)
        require(r.at == len(r.data) and not any(rest), "bytes left over in a tile")
        return b"".join(out)

    def multiples(self, stream, low, escapes, start, count):
        state = [0] * self.lanes
        out = []
        for i in range(count):
            lane, class_ = i % self.lanes, self.class_of(start + i)
            q, b = state[lane] & 1, self.low[class_]
            symbol = stream.symbol(lane, self.slots[class_][q])
            high = symbol - 256 * (symbol > 127)
            if symbol == ESCAPE:
                high = next(escapes, None)
                require(high is not None, "more escapes than stored")
                require(abs(high) <= ((1 << 23) - 1) >> b, "a level is out of range")
            k = (high << b) + low.take(b)
            out.append(2 * k - q * ((k > 0) - (k < 0)))
            if self.trellis:
                h0, h1 = self.trellis
                state[lane] = state[lane] >> 1 ^ (h0 >> 1) * q ^ (h1 >> 1) * (k & 1)
        stream.finish()
        require(next(escapes, None) is None, "escapes left over")
        require(low.used_up(), "low bits left over")
        return out

    def element(self, m):
        u = 64 * m - ((m > 0) - (m < 0)) * self.offsets[min(abs(m), 8)]
        if self.name == "f64":
            y = u * self.scale
        else:
            # A product of two f32 is exact in f64, so there is one rounding.
            y = f32(f32(u) * self.scale)
        return to_element(self.name, self.exponent, max(-self.largest, min(y, self.largest)))

    def exact(self, r, out):
        end = 0
        for _ in range(r.varint()):
            gap, length = r.varint(), r.varint()
            element = r.take(self.size)
            require(length > 0 and end + gap + length <= len(out), "an exact value outside its tile")
            start = end + gap
            end = start + length
            out[start:end] = [element] * length
            kind = kind_of(self.name, int.from_bytes(element, "little"))
            require(not self.worked or kind not in ("NaN", "infinity"), "an exact working value is not finite")
            self.seen.add("exact " + (kind if kind in ("NaN", "infinity") else "finite"))
            if length > 1:
                self.seen.add("exact run")


# --- Floats ---------------------------------------------------------------------------------------

def f32(v):
    """Rounds to f32, infinite where that is too large."""
    try:
        return struct.unpack("<f", struct.pack("<f", v))[0]
    except OverflowError:
        return math.copysign(math.inf, v)


def to_element(name, exponent_bits, y):
    """Bytes of the element nearest to a number within the type's range, ties to even."""
    if name in ("f16", "f32", "f64"):
        return struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[name], y)
    width = 2 if name == "bf16" else 1
    mantissa = 8 * width - 1 - exponent_bits
    bias = (1 << exponent_bits - 1) - 1
    # Counted in the smallest step of the number's binade; Python rounds ties to even.
    exponent = max(math.frexp(y)[1] - 1, 1 - bias) if y else 1 - bias
    steps = round(math.ldexp(abs(y), mantissa - exponent))
    code = (exponent + bias - 1 << mantissa) + steps
    sign = math.copysign(1, y) < 0
    return (code | sign << 8 * width - 1).to_bytes(width, "little")


def kind_of(name, bits):
    """What is special about an element, if anything."""
    size, exponent_bits, _ = next(d[1:] for d in DTYPES.values() if d[0] == name)
    mantissa = 8 * size - 1 - exponent_bits
    magnitude = bits & ((1 << 8 * size - 1) - 1)
    top = ((1 << exponent_bits) - 1) << mantissa
    infinity = magnitude + 1 if name == "f8_e4m3" else top
    nan = magnitude == 0x7F if name == "f8_e4m3" else magnitude > top
    if nan:
        return "NaN"
    if magnitude == infinity:
        return "infinity"
    if magnitude == 0:
        return "negative zero" if bits else None
    if magnitude < 1 << mantissa:
        return "denormal"
    return "largest" if magnitude == (0x7E if name == "f8_e4m3" else top - 1) else None


def kinds_of_elements(codec, dtype, data):
    name, size, exponent_bits, _ = DTYPES[dtype]
    if not exponent_bits:
        return set()
    elements = {data[i:i + size] for i in range(0, len(data), size)}
    kinds = {kind_of(name, int.from_bytes(e, "little")) for e in elements}
    return {f"{codec} {name} {kind}" for kind in kinds if kind}


# --- Check ----------------------------------------------------------------------------------------

def near(name, data, expected):
    """Whether elements agree as format.md asks: within a part of the largest, and a rounding to the dtype."""
    size, exponent_bits = next(d[1:3] for d in DTYPES.values() if d[0] == name)
    one, other = ([real(name, d[i:i + size]) for i in range(0, len(d), size)] for d in (data, expected))
    most = max(abs(v) for v in other if math.isfinite(v))
    part, rounding = 2.0 ** (-40 if name == "f64" else -18), 2.0 ** (exponent_bits - 8 * size + 1)
    same = lambda a, b: a == b or abs(a - b) <= 4 * part * most + rounding * max(abs(b), most * part)
    odd = lambda i: not math.isfinite(other[i])
    return len(one) == len(other) and all(
        data[i * size:][:size] == expected[i * size:][:size] if odd(i) else same(one[i], other[i]) for i in range(len(one)))


def real(name, element):
    """The number that an element is."""
    if name in ("f16", "f32", "f64"):
        return struct.unpack({"f16": "<e", "f32": "<f", "f64": "<d"}[name], element)[0]
    if name == "bf16":
        return struct.unpack("<f", bytes(2) + element)[0]
    raise ValueError(f"no vector of {name} is compared loosely")


def check(root):
    faults = []
    index = json.loads((root / "index.json").read_text())
    for entry in index:
        try:
            dtype, shape, data, seen = decode((root / entry["file"]).read_bytes())
        except Refused as error:
            faults.append(f"{entry['name']}: refused: {error}")
            continue
        expected = (root / entry["expected"]).read_bytes()
        # Steps that round differently from one implementation to the next.
        loose = seen & {"Hadamard", "DCT", "rotary positions"}
        if data != expected and not (loose and near(dtype, data, expected)):
            faults.append(f"{entry['name']}: different elements")
        if (dtype, shape) != (entry["dtype"], entry["shape"]):
            faults.append(f"{entry['name']}: {dtype} {shape}")
        if sorted(seen) != sorted(entry["features"]):
            faults.append(f"{entry['name']}: features {sorted(seen ^ set(entry['features']))}")
    errors = json.loads((root / "errors" / "errors.json").read_text())
    for entry in errors:
        try:
            decode((root / "errors" / entry["file"]).read_bytes())
            faults.append(f"{entry['name']}: not refused")
        except Refused as error:
            if error.kind != entry["kind"]:
                faults.append(f"{entry['name']}: {error.kind} ({error}), not {entry['kind']}")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(index)} vectors and {len(errors)} errors, {len(faults)} faults")
    return 1 if faults or not index or not errors else 0


def main():
    if sys.argv[1:] == ["--check"]:
        return check(pathlib.Path(__file__).resolve().parent / "v1")
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        pathlib.Path(sys.argv[2]).write_bytes(decode(pathlib.Path(sys.argv[1]).read_bytes())[2])
    except Refused as error:
        print(f"{sys.argv[1]}: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
