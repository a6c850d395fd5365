"""Tiles to elements: planes of bytes, levels, levels in pairs."""

import math
import struct

from basics import Bits, Refused, corrupt, f32, require, to_element, up
from dtypes import kind_of
from entropy import ESCAPE, Stream, read_tables, slots

CODES = {2: (0o5, 0o2), 3: (0o13, 0o04), 4: (0o23, 0o04), 5: (0o45, 0o10), 6: (0o103, 0o024),
         7: (0o235, 0o126), 8: (0o515, 0o362)}


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
