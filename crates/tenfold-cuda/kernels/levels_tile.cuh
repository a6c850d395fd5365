// One tile of levels after they are known: its values in order, for what is not the stream (low bits, escapes, exact
// values), and the bytes that all of it takes.
#pragma once

#include "levels.cuh"
#include "trellis.cuh"

// What is needed to find levels again. A block keeps one in shared memory, for functions that are called.
struct LevelsAgain {
    // Jumps of 32 values: neighbouring values are the lanes of a warp here, whatever the tile's lanes.
    LevelsMap map;
    LevelsScale scale;
    const float *thresholds;
    bool trellis, paired;
};

// A value as it was quantised.
template <class V> struct LevelsValue {
    typename V::E x;
    // Class · 2 + quantiser.
    u32 set;
    i32 k;
    bool aside;
};

// Level of a trellis from its code.
template <class V>
DEVICE LevelsValue<V> levels_decoded(const LevelsScale &scale, u32 code, typename V::E x) {
    bool aside;
    const float u = levels_u<V>(scale, x, aside);
    i32 k = 0;
    if (!(code & LEVELS_ZERO)) {
        k = trellis_nearest(u, code >> 8 & 1, code & LEVELS_ODD ? 1 : 0);
        if (u < 0.0f) k = -k;
    }
    return LevelsValue<V>{x, code >> 8 & (LEVELS_SETS - 1), k, (code & LEVELS_EXACT) != 0};
}

// Where a trellis has left the code of value i of a tile. Of a pair both values are a lane's.
DEVICE u64 levels_code(const Encoding &encoding, bool paired, u64 tile, u32 i) {
    const u32 each = paired ? 2 : 1, lane = i / each % encoding.lanes;
    const u32 step = i / each / encoding.lanes * each + i % each;
    return (levels_codes(encoding, tile) + (u64)(step / 4) * encoding.lanes + lane) * 4 + step % 4;
}

// Value i of a tile; `place` is its place in the map.
template <class V>
DEVICE LevelsValue<V> levels_fetch(const LevelsPass &a, const LevelsAgain &g, u64 tile, u32 i, const LevelsPlace &place) {
    const Encoding &encoding = a.encoding;
    const typename V::E x = ((const typename V::E *)encoding.data)[levels_first(encoding, tile) + i];
    if (g.trellis) return levels_decoded<V>(g.scale, a.codes[levels_code(encoding, g.paired, tile, i)], x);
    LevelsValue<V> v;
    const u32 cls = levels_class(g.map, place);
    v.x = x;
    v.set = cls * 2;
    v.k = levels_scalar<V, SEARCH_FULL>(g.scale, g.thresholds + cls * SCALAR_CLASS, x, v.aside);
    return v;
}

DEVICE u32 levels_varint(u64 v) {
    u32 n = 1;
    for (; v >= 0x80; v >>= 7) ++n;
    return n;
}

// Writes a varint and returns the byte after it; one thread.
DEVICE u8 *levels_put_varint(u8 *to, u64 v) {
    for (; v >= 0x80; v >>= 7) *to++ = (u8)(v | 0x80);
    *to++ = (u8)v;
    return to;
}

// Runs of equal values that are stored exactly, and the bytes that they take; with `to` they are written as well, by
// lane 0. Run after run: such values are rare. All lanes of a warp take part.
struct LevelsRuns {
    u32 runs, bytes;
};

template <class V>
OUTLINE LevelsRuns levels_exact(const LevelsPass &a, const LevelsAgain &shared, u64 tile, u8 *to) {
    typedef typename V::E E;
    const LevelsAgain g = shared;
    const u32 len = levels_len(a.encoding, tile), lane = lane_of();
    LevelsPlace place = levels_seek(g.map, levels_first(a.encoding, tile) + lane);
    LevelsRuns found = {0, 0};
    // The run that is open, and the end of the one before it.
    u32 start = 0, count = 0, end = 0;
    E same = 0;
    for (u32 base = 0; base < len + 32; base += 32) {
        bool aside = false;
        E x = 0;
        if (base + lane < len) {
            const LevelsValue<V> v = levels_fetch<V>(a, g, tile, base + lane, place);
            aside = v.aside;
            x = v.x;
        }
        levels_next(g.map, place);
        const u32 who = __ballot_sync(ALL_LANES, aside);
        // Nothing but more of the open run.
        if (__all_sync(ALL_LANES, aside && count && start + count == base && x == same)) {
            count += 32;
            continue;
        }
        // The round after the last value closes the last run.
        const bool last = base >= len;
        for (u32 left = who; left || (last && count);) {
            const u32 bit = left ? (u32)__ffs((int)left) - 1 : 0;
            const E next = __shfl_sync(ALL_LANES, (u64)x, (int)bit);
            left &= left - 1;
            if (count && !last && start + count == base + bit && next == same) {
                ++count;
                continue;
            }
            if (count) {
                ++found.runs;
                found.bytes += levels_varint(start - end) + levels_varint(count) + (u32)sizeof(E);
                if (to && lane == 0) {
                    to = levels_put_varint(to, start - end);
                    to = levels_put_varint(to, count);
                    for (u32 i = 0; i < sizeof(E); ++i) *to++ = (u8)((u64)same >> (8 * i));
                }
                end = start + count;
            }
            start = base + bit;
            count = last ? 0 : 1;
            same = next;
        }
    }
    found.bytes += levels_varint(found.runs);
    return found;
}

// Bytes of an escaped level, or of an escaped pair: the flags' two bits are this code.
DEVICE u32 levels_escape_code(u32 far, bool paired) {
    if (paired) return far < 16 ? 1 : far < 256 ? 2 : 3;
    return far < 1u << 7 ? 1 : far < 1u << 15 ? 2 : 3;
}
DEVICE u32 levels_escape_width(u32 code, bool paired) { return paired && code == 3 ? 8 : 1u << (code - 1); }

// Bytes of a tile.
DEVICE u32 levels_bytes(const LevelsTile &t, u32 lanes, bool any_low, bool paired) {
    u32 bytes = 4;
    if (t.flags & LEVELS_CODED) {
        const u32 low = (t.low_bits + 7) / 8;
        bytes += 4 * lanes + 2 * t.words;
        if (any_low) bytes += levels_varint(low) + low;
        if (t.escapes) bytes += levels_varint(t.escapes) + t.escapes * levels_escape_width(levels_escape_code(t.far, paired), paired);
    }
    if (t.flags & LEVELS_ASIDE) bytes += t.exact_bytes;
    return (bytes + 3) & ~3u;
}
