// Ticks of a tile of levels: a value a lane. The twin of the loops of `levels/decode.rs`.
#pragma once

#include "class_map.cuh"
#include "dequant.cuh"
#include "levels_bytes.cuh"
#include "rans.cuh"

// Marks the escape among elements of less than 32 bits.
#define LUT_ESCAPE 0x80000000u

// What the tiles of a blob have in common, in shared memory or near it.
struct Near {
    // For each class the table of quantiser 1, if there are two, then that of quantiser 0; null if there is no room.
    const u32 *slots;
    // Elements of quantiser 1, then of quantiser 0, by symbol; see `LUT_ESCAPE`.
    const u32 *lut;
    u16 *ring;
    ClassMap map;
};

// Where a warp stands in a tile.
struct Coder {
    Words words;
    // State of rANS and of the trellis.
    u32 x, s;
    // Escapes taken, bits of `low` taken; trouble of this lane.
    u32 escapes, bad;
    u64 low;
};

// At a tile's start; no lane goes on if one has trouble.
DEVICE Coder coder_open(const Item &item, const Desc *d, const Tile &t, u16 *ring) {
    Coder c;
    c.x = lane_of() < d->lanes ? *(const u32 *)(t.bytes + 4 + 4 * lane_of()) : START;
    c.s = 0;
    c.escapes = 0;
    c.low = 0;
    c.bad = c.x < START ? STATUS_STATE : 0;
    c.words = words_open(ring, (u64)t.bytes + 4 + 4 * d->lanes, item.blob + item.blob_len);
    return c;
}

// At the end of what was wanted: nothing may be left over, if that was all.
DEVICE void coder_close(const Tile &t, Coder &c) {
    if (t.to != t.values) return;
    if (c.x != START || words_taken(c.words) != t.words) c.bad = c.bad ? c.bad : STATUS_WORDS;
    if (c.escapes != t.escapes) c.bad = c.bad ? c.bad : STATUS_ESCAPES;
    if ((c.low + 7) / 8 != t.low_len) c.bad = c.bad ? c.bad : STATUS_LOW_LEFT;
}

// The high part of a level that has no symbol, where `mine`. All lanes take part.
DEVICE i32 escape_next(const Tile &t, Coder &c, bool mine, u32 low_bits, i32 otherwise) {
    const u32 who = __ballot_sync(ALL_LANES, mine);
    const u32 i = c.escapes + (u32)__popc(who & ((1u << lane_of()) - 1));
    c.escapes += (u32)__popc(who);
    if (!mine) return otherwise;
    if (i >= t.escapes) {
        c.bad = STATUS_ESCAPES;
        return 0;
    }
    const u8 *at = t.bytes + t.escapes_at + (u64)i * t.escape_width;
    u32 v = at[0];
    if (t.escape_width == 1) v = (u32)(i32)(signed char)v;
    else {
        v |= (u32)at[1] << 8;
        if (t.escape_width == 2) v = (u32)(i32)(short)v;
        else v |= (u32)at[2] << 16 | (u32)at[3] << 24;
    }
    const i32 high = (i32)v;
    const u32 size = high < 0 ? 0u - (u32)high : (u32)high;
    if (size > (u32)MAX_LEVEL >> low_bits) {
        c.bad = STATUS_LEVEL;
        return 0;
    }
    return high;
}

// Raw bits of this lane's level. All lanes take part.
DEVICE u32 low_next(const Tile &t, Coder &c, u32 bits) {
    const u32 before = warp_before(bits);
    const u64 at = c.low + before, byte = at >> 3;
    c.low += __shfl_sync(ALL_LANES, before + bits, 31);
    u32 v = 0;
    for (u32 i = 0; i < 3; ++i)
        if (byte + i < t.low_len) v |= (u32)t.bytes[t.low_at + byte + i] << (8 * i);
    return v >> (at & 7) & ((1u << bits) - 1);
}

DEVICE u32 next_state(const Desc *d, u32 s, i32 k) {
    return (s >> 1) ^ (s & 1 ? d->on_quantiser : 0) ^ (k & 1 ? d->on_parity : 0);
}

// Which of the tables in shared memory a class's quantiser has.
DEVICE u32 slots_at(const Desc *d, u32 cls, u32 q) { return cls * d->tables_per_class + (d->tables_per_class - 1) - q; }

// The class of a value in a row and a column of the map, found in the header.
DEVICE u32 class_at(const Item &item, const Desc *d, u64 row, u64 col) {
    const u8 *blob = (const u8 *)item.blob;
    return d->class_of_sum[scale_at(blob + d->rows_at, d->rows_len, d->row_bits, row) +
                           scale_at(blob + d->cols_at, d->cols_len, d->col_bits, col)];
}

// Any blob, any window, from `step` on: one value at a time, everything looked up where it lies. `class_of` is asked for
// each of a lane's values, `put` is given the places in 1/64 steps of those that are wanted.
template <class ClassOf, class Put>
DEVICE void steps_plain(const Work *work, const u32 *slots, const Tile &t, Coder &c, u32 step, ClassOf class_of, Put put) {
    const Desc *d = &work->desc;
    const u32 lanes = d->lanes, lane = lane_of(), end = (t.to + lanes - 1) / lanes;
    for (; step < end; ++step) {
        const u32 i = step * lanes + lane;
        const bool active = lane < lanes && i < t.values;
        u32 cls = 0;
        if (d->classes > 1 && active) cls = class_of(i);
        const u32 q = c.s & 1, set = cls * d->tables_per_class + q;
        u32 slot = 0;
        if (active) {
            const u32 at = c.x & ((1u << d->log) - 1);
            slot = slots ? slots[(slots_at(d, cls, q) << d->log) + at] : slot_find(work->start[set], d->log, at);
            c.x = pop(c.x, slot, d->log);
        }
        c.x = fill_up(c.words, c.x, active);
        words_refill(c.words);
        const u32 bits = active ? d->low[cls] : 0;
        i32 k = slot_level(slot);
        const bool escaped = active && slot_symbol(slot) == ESCAPE;
        if (__any_sync(ALL_LANES, escaped)) k = escape_next(t, c, escaped, bits, k);
        if (d->any_low) k = (i32)((u32)k << bits | low_next(t, c, bits));
        if (active) {
            c.s = next_state(d, c.s, k);
            if (i >= t.from && i < t.to) put(i, units_of(d->offsets, k, q));
        }
    }
}

// Values stored as they were, over what the levels gave.
template <class E> DEVICE u32 put_exact(const Item &item, const Desc *d, const Tile &t) {
    E *out = (E *)item.out;
    const auto any = [](u64) { return true; };
    return exact_runs(t, size_of(d->dtype), any, [&](u64 from, u64 to, u64 bits) {
        const E v = sizeof(E) == 8 ? (E)bits : (E)convert(d->dtype, item.dtype, (u32)bits);
        for (u64 i = from + lane_of(); i < to; i += 32) out[t.start + i - d->first] = v;
    });
}

// Where a lane's values of steps from `step` on go.
template <class E> DEVICE E *out_at(const Item &item, const Desc *d, const Tile &t, u32 step) {
    return (E *)item.out + (t.start + (u64)step * 32 + lane_of() - d->first);
}

// What becomes of a value: the element that a table has, or that of its units. Another has a table of working values, and
// goes on to the columns of each group.
template <class E> struct AsElement {
    // Whether the table marks the escape, and whether the values of a group are made elements all together.
    static const bool MARKED = sizeof(E) < 4, TOGETHER = false;
    METHOD E of_table(u32 v, u32) const { return (E)v; }
    template <bool WHOLE, class Put> METHOD void of_tables(const u32 *, Put) const {}
    METHOD E of_units(const Item &item, const Desc *d, i32 units, u32) const { return element<E>(item.dtype, d->scale, units); }
    METHOD void go_on() {}
};

// Whole steps of 32 lanes without low bits, a group at a time from `step` on; returns where it stopped: at `end`, or at
// a group with an escape in it, whose tables the map still has.
//
// Everything here is about the length of the chain from one state to the next and about the number of instructions:
// the trellis's state is kept with its bits reversed, so that the quantiser is the sign; tables of quantiser 1 lie
// before those of quantiser 0, so that a mask made of the sign picks one; whether a symbol was an escape is asked once
// a group.
template <class E, class Map, class As>
DEVICE u32 steps_fast(const Item &item, const Desc *d, const Near &near, Map &map, As &as, const Tile &t, Coder &c, u32 step,
                      u32 end) {
    const u32 log = d->log, mask = ((1u << log) - 1) << 2, below = (1u << lane_of()) - 1;
    const u32 on_quantiser = __brev(d->on_quantiser), on_parity = __brev(d->on_parity);
    const SharedAt lut = shared_at(near.lut) + 1024, ring = c.words.ring;
    E *out = out_at<E>(item, d, t, step);
    u32 x = c.x, s = __brev(c.s);
    Words w = c.words;
    for (; step < end; step += GROUP) {
        const u32 x_before = x, s_before = s;
        const SharedAt from = ring + (w.at * 2 & (RING_BYTES - 1));
        SharedAt at = from;
        u32 escaped = 0, elements[GROUP], word = 0;
        map.look_ahead();
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) {
            const u32 q = (u32)((i32)s >> 31);
            const u32 slot = shared_u32((x << 2 & mask) | (map.table(j) + (i32)(q & ~(mask | 3))));
            elements[j] = ordered_u32(lut + (i32)((slot >> 10 & 0x3fc) | (q & ~0x3ffu)));
            x = pop_fill(x, slot, log, below, at, word);
            if (!As::MARKED) escaped |= (u32)(slot_symbol(slot) == ESCAPE) << 31;
            s = s << 1 ^ (q & on_quantiser) ^ ((u32)((i32)(slot << 19) >> 31) & on_parity);
            if (j == 1) map.half_way();
        }
        // All at once, after the last word, so that none is waited for by itself.
        out = not_before(out, word);
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) {
            if (As::MARKED) escaped |= elements[j];
            if (!As::TOGETHER) global_put(out + j * 32, as.of_table(elements[j], j));
        }
        if (As::TOGETHER) as.template of_tables<Map::WHOLE>(elements, [&](u32 j, E v) { global_put(out + j * 32, v); });
        if (__any_sync(ALL_LANES, (i32)escaped < 0)) {
            x = x_before;
            s = s_before;
            break;
        }
        map.go_on();
        as.go_on();
        out += GROUP * 32;
        w.at += (u32)(at - from) / 2;
        words_refill(w);
    }
    c.x = x;
    c.s = __brev(s);
    c.words = w;
    return step;
}

// The group that `steps_fast` stopped at, over what it wrote.
template <class E, class Map, class As>
DEVICE void steps_escaped(const Item &item, const Desc *d, const Map &map, const As &as, const Tile &t, Coder &c, u32 step) {
    const u32 log = d->log;
    E *out = out_at<E>(item, d, t, step);
#pragma unroll
    for (u32 j = 0; j < GROUP; ++j) {
        const u32 q = c.s & 1;
        const u32 slot = shared_u32(map.table(j) + ((c.x & ((1u << log) - 1)) << 2) - (q << (log + 2)));
        c.x = fill_up(c.words, pop(c.x, slot, log));
        const bool escaped = slot_symbol(slot) == ESCAPE;
        const i32 k = escape_next(t, c, escaped, 0, slot_level(slot));
        c.s = next_state(d, c.s, k);
        out[j * 32] = as.of_units(item, d, units_of(d->offsets, k, q), j);
    }
    words_refill(c.words);
}

// Groups up to step `end`, which is a multiple of theirs.
template <class E, class Map, class As>
DEVICE void steps_grouped(const Item &item, const Desc *d, const Near &near, As as, const Tile &t, Coder &c, u32 end) {
    const SharedAt slots = shared_at(near.slots) + (d->tables_per_class - 1) * (4 << d->log);
    Map map(item, d, near.map, slots, t.start + lane_of());
    for (u32 step = 0; step < end;) {
        step = steps_fast<E>(item, d, near, map, as, t, c, step, end);
        if (step == end) break;
        steps_escaped<E>(item, d, map, as, t, c, step);
        map.go_on();
        as.go_on();
        step += GROUP;
    }
}

// The same with the map that the blob has.
template <class E, class As>
DEVICE void steps_mapped(const Item &item, const Desc *d, const Near &near, As as, const Tile &t, Coder &c, u32 end) {
    switch (near.map.kind) {
    case MAP_ONE: steps_grouped<E, OneClass>(item, d, near, as, t, c, end); break;
    case MAP_PHASES: steps_grouped<E, PhasesMap>(item, d, near, as, t, c, end); break;
    case MAP_ALIGNED: steps_grouped<E, AlignedMap>(item, d, near, as, t, c, end); break;
    default: steps_grouped<E, AnyMap>(item, d, near, as, t, c, end);
    }
}

// Steps of a tile that can be taken in groups.
DEVICE u32 steps_in_groups(const Desc *d, const Near &near, const Tile &t) {
    const bool grouped = t.from == 0 && t.to == t.values && d->lanes == 32 && !d->any_low;
    return grouped && near.map.kind != MAP_NONE ? t.values / (32 * GROUP) * GROUP : 0;
}
