"""Deltas: what changed between two versions of a tensor."""

import math

from basics import Bits, Refused, require, up
from blake3 import blake3
from dtypes import DTYPES
from entropy import Stream, read_tables, slots
from tiles import Codec

LOG = 12
MASK = (1 << 64) - 1


def fingerprint(dtype, shape, data):
    head = bytes([dtype, len(shape)]) + b"".join(d.to_bytes(8, "little") for d in shape)
    return blake3(head + data)[:16]


def total(places, values):
    """The sum that a tile states over values at their places."""
    out = 0
    for place, v in zip(places, values):
        x = (v + (place + 1) * 0x9E3779B97F4A7C15) & MASK
        for _ in range(2):
            x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & MASK
        out += x ^ x >> 32
    return out & MASK


def number(token, d, s, bits):
    """The number of a token, its raw bits taken from a string."""
    if token < 1 << d:
        return token
    lead, behind = d + (token - (1 << d) >> s), token - (1 << d) & (1 << s) - 1
    require(lead < 64, "a number does not exist")
    return (1 << s | behind) << (lead - s) | bits.take(lead - s)


class Delta(Codec):
    """A delta's parameters."""

    def __init__(self, r, dtype, shape):
        self.id, self.shape = dtype, shape
        self.name, self.size, self.exponent, _ = DTYPES[dtype]
        self.bits = 8 * self.size
        self.base, flags = r.take(16), r.u8()
        self.seen = {f"delta {self.name}", f"delta dims {len(shape)}"}
        self.tile_values, self.result = None, self.base
        if flags == 0:
            self.seen.add("delta of nothing")
            return
        require(flags & 1 and 1 < flags < 16, "flags of a delta")
        self.result = r.take(16)
        self.geometry(r)
        gaps, classes = r.u8(), r.u8()
        require(1 <= gaps <= 8 and 1 <= classes <= 16, "number of a delta's tables")
        self.thresholds = list(r.take(classes - 1))
        require(0 not in self.thresholds and self.thresholds == sorted(set(self.thresholds)), "classes of a delta")
        ways = [way for way in range(3) if flags >> 1 + way & 1]
        tables, _ = read_tables(r, LOG, [None] * (gaps + len(ways) * classes))
        tables = [slots(table) for table in tables]
        self.gaps, rest = tables[:gaps], tables[gaps:]
        self.ways = {way: rest[i * classes:(i + 1) * classes] for i, way in enumerate(ways)}
        self.seen |= {f"delta lanes {self.lanes}", f"delta gap tables {'1' if gaps == 1 else 'several'}"}
        self.seen.add(f"delta classes {'1' if classes == 1 else 'several'}")

    def tile(self, r, base, count):
        """Changes of a tile: places and values, or nothing if it has them already."""
        if not r.data:
            self.seen.add("delta tile unchanged")
            return []
        head, before, after = r.u32(), r.take(8), r.take(8)
        changes, gap, way = head & 0xFFFFFF, head >> 24 & 15, head >> 28
        require(gap < len(self.gaps) and way in self.ways, "a table that is not there")
        require(0 < changes <= count, "changes of a tile")
        self.seen.add(f"delta way {way}")
        words = r.u32(), r.u32()
        gaps, values = (Stream(r, self.lanes, n, LOG) for n in words)
        bits = Bits(r.take(len(r.data) - r.at))
        places, at = [], 0
        for i in range(changes):
            at += number(gaps.symbol(i % self.lanes, self.gaps[gap]), 4, 3, bits)
            require(at < count, "a change outside of its tile")
            places.append(at)
            at += 1
        gaps.finish()
        old = [int.from_bytes(base[p * self.size:][:self.size], "little") for p in places]
        found = total(places, old).to_bytes(8, "little")
        if found != before:
            if found == after:
                return []
            raise Refused("caller", "another base")
        new = []
        for i, value in enumerate(old):
            symbol = values.symbol(i % self.lanes, self.ways[way][self.class_of(value)])
            new.append(self.value(way, value, symbol, bits))
        values.finish()
        require(up(up(bits.at, 8) // 8 + r.at - bits.length // 8) == r.at, "bytes left over in a tile")
        require(not bits.data >> up(bits.at, 8), "padding of a tile")
        require(total(places, new).to_bytes(8, "little") == after, "new values are not what the tile says")
        return list(zip(places, new))

    def class_of(self, value):
        if not self.exponent:
            return 0
        field = value >> self.bits - 1 - self.exponent & (1 << self.exponent) - 1
        key = field >> max(self.exponent - 8, 0)
        return sum(t <= key for t in self.thresholds)

    def value(self, way, old, symbol, bits):
        n = self.bits
        if way == 2:
            v = symbol << n - 8 | bits.take(n - 8)
            return v >> 1 | (v & 1) << n - 1 if self.exponent else v
        told = number(symbol >> 1, *((2, 1) if n == 64 else (3, 2)), bits)
        require(told >> n == 0, "a number does not exist")
        flips = symbol & 1
        require(self.exponent or not flips, "a sign that is not there")
        width = n - 1 if self.exponent else n
        sign, magnitude = old >> width, old & (1 << width) - 1
        magnitude = magnitude ^ told if way else magnitude + (-(told + 1 >> 1) if told & 1 else told >> 1)
        if self.exponent:
            require(0 <= magnitude < 1 << width, "a number leaves its range")
        return (magnitude & (1 << width) - 1) | (sign ^ flips) << width


def apply(params, tiles, data):
    """The bytes of the result; refuses another base."""
    found = fingerprint(params.id, params.shape, data)
    out, size = bytearray(data), params.size
    values = math.prod(params.shape)
    for i, (r, start) in enumerate(tiles):
        count = min(params.tile_values, values - start)
        for place, value in params.tile(r, data[start * size:(start + count) * size], count):
            out[(start + place) * size:(start + place + 1) * size] = value.to_bytes(size, "little")
    if found not in (params.base, params.result):
        raise Refused("caller", "another base")
    require(fingerprint(params.id, params.shape, bytes(out)) == params.result, "the result is another")
    return bytes(out)
