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

from basics import Bits, Reader, Refused, corrupt, f32, require, to_element, up
from transforms import Transforms

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

def decode(blob, layer=False):
    """Returns dtype name, shape, elements, features; of a layer if it is one."""
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
    require(not layer or codec in (1, 2, 5), "codec of a layer")
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
    transforms = Transforms(r, codec, DTYPES[dtype], n, shape)
    if codec == 4:
        return layers(blob, r, header_len, dtype, shape)
    if codec not in CODECS:
        raise Refused("unsupported", f"codec {codec}")
    # Behind transforms, levels are those of a tensor of working values.
    n, coded = transforms.rows * transforms.cols, shape[:-1] + [transforms.cols] if shape else shape
    known = transforms.scales if transforms.ends_in_basis else None
    name, reader = CODECS[codec]
    params = reader(r, DTYPES[transforms.worked or dtype], n, coded, known)
    params.worked = transforms.worked
    tiles = -(-n // params.tile_values)
    out = []
    for i, tile in enumerate(read_tiles(blob, r, header_len, tiles)):
        start = i * params.tile_values
        out.append(params.tile(Reader(tile), start, min(params.tile_values, n - start)))
    seen = params.seen | transforms.seen | {f"{name} {DTYPES[dtype][0]}", f"{name} dims {dims}", f"{name} lanes {params.lanes}"}
    seen.add(f"{name} several tiles" if tiles > 1 else f"{name} one tile")
    if n == 0:
        seen.add(f"{name} empty")
    if tiles > 1 and n % params.tile_values:
        seen.add(f"{name} short last tile")
    if tiles and n - (tiles - 1) * params.tile_values < params.lanes:
        seen.add(f"{name} fewer values than lanes")
    data = transforms.undo(b"".join(out))
    if transforms.worked and "exact finite" in seen:
        seen.add("exact working value")
    return DTYPES[dtype][0], shape, data, seen | kinds_of_elements(name, dtype, data)


def read_tiles(blob, r, header_len, tiles):
    """The tiles of a blob, from the directory on."""
    require(not any(r.take(up(r.at) - r.at)), "padding of the header")
    require(len(r.data) - r.at == 8 * tiles, "the directory does not match the tiles")
    directory = [(r.u32(), r.u32()) for _ in range(tiles)]
    need = header_len + sum(length for length, _ in directory)
    require(len(blob) >= need, "truncated")
    require(len(blob) == need, "bytes after the last tile")
    at = header_len
    for length, sum_ in directory:
        tile = blob[at:at + length]
        at += length
        require(zlib.crc32(tile) == sum_, "tile checksum")
        require(length % 4 == 0, "length of a tile")
        yield tile


# --- Layers ---------------------------------------------------------------------------------------

def layers(blob, r, header_len, dtype, shape):
    name, size, exponent, largest = DTYPES[dtype]
    count = r.u8()
    require(exponent, "layers of a dtype that is not a float")
    require(2 <= count <= 8, "number of layers")
    wide = name == "f64"
    seen = {f"layers {name}", f"layers dims {len(shape)}", f"layers {count}"}
    sums = None
    for tile in read_tiles(blob, r, header_len, count):
        if tile[:4] != b"TNFD":
            raise corrupt("a layer is not a blob")
        of, its_shape, data, its = decode(tile, True)
        require(of == ("f64" if wide else "f32"), "dtype of a layer")
        require(its_shape == shape, "shape of a layer")
        seen.add(f"layer of {CODECS[tile[5]][0]}")
        if its & {"weights of columns", "weights of rows", "means", "delta", "kept elements"}:
            seen.add("layer with steps")
        width = 8 if wide else 4
        next_ = [data[i:i + width] for i in range(0, len(data), width)]
        sums = next_ if sums is None else [joined(a, b, wide) for a, b in zip(sums, next_)]
    if not sums:
        seen.add("layers empty")
    data = b"".join(narrowed(s, name, size, exponent, largest, wide) for s in sums)
    return name, shape, data, seen | kinds_of_elements("layers", dtype, data)


def number(element, wide):
    return struct.unpack("<d" if wide else "<f", element)[0]


def joined(a, b, wide):
    """The bytes of a sum so far and the next layer."""
    x, y = number(a, wide), number(b, wide)
    if not math.isfinite(x):
        return a
    if not math.isfinite(y):
        return b
    top = sys.float_info.max if wide else DTYPES[20][3]
    # A sum of two f32 in f64 is rounded to f32 as the exact sum would be.
    total = max(-top, min(x + y if wide else f32(x + y), top))
    return struct.pack("<d" if wide else "<f", total)


def narrowed(s, name, size, exponent, largest, wide):
    """The element of a sum."""
    if name in ("f32", "f64"):
        return s
    v = number(s, wide)
    if math.isfinite(v):
        return to_element(name, exponent, max(-largest, min(v, largest)))
    bits = int.from_bytes(s, "little")
    sign = bits >> 31 << 8 * size - 1
    if name == "f8_e4m3":
        return (sign | (0x7F if math.isnan(v) else 0x7E)).to_bytes(1, "little")
    mantissa = 8 * size - 1 - exponent
    kept = (bits & 0x7FFFFF) >> 23 - mantissa
    if math.isnan(v) and not kept:
        kept = 1 << mantissa - 1
    return (sign | (1 << exponent) - 1 << mantissa | kept).to_bytes(size, "little")


class Codec:
    """What both codecs begin their parameters with."""

    def geometry(self, r):
        log, ticks = r.u8(), r.varint()
        require(log <= 5 and ticks > 0 and ticks << log <= 1 << 22, "geometry")
        self.lanes, self.tile_values = 1 << log, ticks << log


class Planes(Codec):
    def __init__(self, r, dtype, _n, _shape, _known):
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
    MOST_LOW = 16
    WIDTHS = (0, 1, 2, 4)
    LOG = None

    def __init__(self, r, dtype, n, shape, known):
        self.known = known
        self.name, self.size, self.exponent, self.largest = dtype
        require(self.exponent, "levels of a dtype that is not a float")
        nu = r.u8()
        if nu != 0 and nu not in CODES:
            raise Refused("unsupported", f"trellis {nu}")
        self.trellis = CODES.get(nu)
        self.geometry(r)
        self.check_geometry()
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
        require(max(self.low) <= self.MOST_LOW, "low bits")
        self.seen.add("low bits " + ("none" if max(self.low) == 0 else
                                     "equal" if min(self.low) == max(self.low) else "by class"))
        if 16 in self.low:
            self.seen.add("low bits 16")
        each = 2 if self.trellis else 1
        tables, seen = read_tables(r, self.log, [low for low in self.low for _ in range(each)])
        self.seen |= seen
        self.slots = [self.class_slots(tables[c * each:c * each + each]) for c in range(count)]

    def check_geometry(self):
        pass

    def class_slots(self, tables):
        return [slots(freqs) for freqs in tables]

    def class_map(self, r, count, n, shape):
        width, bits = r.varint(), r.u8()
        require(0 < width <= n, "width of the class map")
        row_bits, col_bits = bits & 15, bits >> 4
        by_basis = col_bits == 15 and self.known is not None and len(self.known) == width
        require(row_bits <= 6 and (col_bits <= 6 or by_basis), "bits of a scale")
        thresholds = list(r.take(count - 1))
        steps = zip([0] + thresholds, thresholds)
        require(all(a < b for a, b in steps), "thresholds are not increasing")

        def scales(length, bits):
            if bits == 15:
                return self.known
            packed = Bits(r.take(up(length * bits, 8) // 8))
            return [packed.take(bits) for _ in range(length)] if bits else None

        rows, cols = scales(-(-n // width), row_bits), scales(width, col_bits)
        names = {(0, 0): "neither", (1, 0): "rows", (0, 1): "columns", (1, 1): "rows and columns"}
        self.seen.add("classes by " + names[row_bits > 0, col_bits > 0])
        if by_basis:
            self.seen.add("classes by basis")
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
        coded, width = flags & 1, self.WIDTHS[flags >> 1 & 3]
        require(coded or (width == 0 and words == 0), "a tile of zeros with content")
        stream = Stream(r, self.lanes, words, self.LOG or self.log) if coded else None
        low = Bits(r.take(r.varint()) if coded and any(self.low) else b"")
        escapes = []
        if width:
            stored = r.varint()
            require(stored <= self.most_escapes(count), "more escapes than values")
            data = r.take(stored * width)
            escapes = [self.escape(data[i:i + width]) for i in range(0, len(data), width)]
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

    def most_escapes(self, count):
        return count

    def escape(self, data):
        return int.from_bytes(data, "little", signed=True)

    def next_state(self, state, k):
        if not self.trellis:
            return 0
        h0, h1 = self.trellis
        return state >> 1 ^ (h0 >> 1) * (state & 1) ^ (h1 >> 1) * (k & 1)

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
            out.append(multiple(k, q))
            state[lane] = self.next_state(state[lane], k)
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


def multiple(k, q):
    return 2 * k - q * ((k > 0) - (k < 0))


class Pairs(Levels):
    """Levels that are coded two at a time."""

    MOST_LOW = 0
    WIDTHS = (0, 1, 2, 8)
    LOG = 11

    def check_geometry(self):
        require(self.lanes == 32 and self.tile_values % 64 == 0, "geometry")

    def class_slots(self, tables):
        return [slots(self.pair_table(tables, low)) for low in range(4)]

    def pair_table(self, tables, low):
        def folded(freqs):
            return [freqs[0]] + [freqs[a] + freqs[-a] for a in range(1, 128)]

        def parities(g):
            odd = sum(g[1::2])
            return [(1 << self.log) - odd, odd]

        quantisers = [folded(freqs) for freqs in tables] * (3 - len(tables))
        first, unit = quantisers[low & 1], 1 << 2 * self.log - 11
        weights = [0] * 256
        left = {}
        for p in range(2):
            second = quantisers[self.next_state(low, p) & 1]
            for q in range(2):
                left[p, q] = parities(first)[p] * parities(second)[q]
            for a in range(p, 16, 2):
                for c in range(16):
                    w = first[a] * second[c]
                    if w >= unit // 4 and min(a, c) < 14:
                        weights[16 * a + c] = max(w, unit + unit // 4)
                        left[p, c % 2] -= w
        for (p, q), w in left.items():
            weights[238 + 16 * p + q] = max(w, unit + unit // 4)
        sums = [0]
        for w in weights:
            sums.append(sums[-1] + w)
        starts = [(c << 11) // sums[-1] for c in sums]
        return [b - a for a, b in zip(starts, starts[1:])]

    def most_escapes(self, count):
        return (count + 1) // 2

    def escape(self, data):
        if len(data) == 1:
            return data[0] & 15, data[0] >> 4
        half = len(data) // 2
        return int.from_bytes(data[:half], "little"), int.from_bytes(data[half:], "little")

    def multiples(self, stream, low, escapes, start, count):
        state = [0] * 32
        out = []
        for pair in range((count + 1) // 2):
            lane, class_ = pair % 32, self.class_of(start + 2 * pair)
            s = state[lane]
            symbol, y = self.symbol(stream, lane, self.slots[class_][s & 3])
            a, c = symbol >> 4, symbol & 15
            if symbol & 0xEE == 0xEE:
                halves = next(escapes, None)
                require(halves is not None, "more escapes than stored")
                a, c = 2 * halves[0] + (a & 1), 2 * halves[1] + (c & 1)
                require(max(a, c) < 1 << 23, "a level is out of range")
                signs = y & 1, y >> 1 & 1
                self.seen.add("pair escaped")
            else:
                signs = y & 1, (y >> 1 if a else y) & 1
            for k, negative in zip((a, c), signs):
                k = -k if negative else k
                out.append(multiple(k, s & 1))
                s = self.next_state(s, k)
            state[lane] = s
        stream.finish()
        require(next(escapes, None) is None, "escapes left over")
        if count % 2:
            self.seen.add("pair of one value")
        return out[:count]

    def symbol(self, stream, lane, table):
        """A symbol and the number whose lowest bits are raw."""
        x = stream.x[lane]
        slot = x & 2047
        symbol, f, first = table[slot]
        y = f * (x >> 11) + slot - first
        raw = 3 if symbol & 0xEE == 0xEE else (symbol >> 4 > 0) + (symbol & 15 > 0)
        x = y >> raw
        if x < 1 << 16:
            word = next(stream.words, None)
            require(word is not None, "a tile runs out of words")
            x = x << 16 | word
        stream.x[lane] = x
        return symbol, y


CODECS = {1: ("planes", Planes), 2: ("levels", Levels), 5: ("pairs", Pairs)}


# --- Floats ---------------------------------------------------------------------------------------

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
        loose = seen & {"Hadamard", "DCT", "rotary positions", "basis"}
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
