"""Tables of symbols, and streams of them."""

import struct

from basics import Bits, corrupt, require

ESCAPE = 128


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
