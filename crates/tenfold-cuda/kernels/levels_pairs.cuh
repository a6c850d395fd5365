// Ticks of a tile of pairs: two values of a lane at a time. The twin of the loops of `levels/decode.rs` for pairs.
#pragma once

#include "levels_ticks.cuh"
#include "pairs.cuh"

// What a lane decodes in a tick: words of memory for two elements of so many bytes.
template <u32 BYTES> struct Pair {};
template <> struct Pair<1> { typedef u16 Two; };
template <> struct Pair<2> { typedef u32 Two; };
template <> struct Pair<4> { typedef u64 Two; };
template <> struct Pair<8> { typedef u64 Two; };

// A pair's levels and their quantisers.
struct PairLevels {
    i32 k[2];
    u32 q[2];
};

DEVICE PairLevels pair_levels(const Desc *d, u32 low, u32 symbol, u32 raw) {
    const u32 a = symbol >> 4, b = symbol & 15, minus = raw & 1, then = a ? raw >> 1 & 1 : minus;
    PairLevels p;
    p.k[0] = minus && a ? -(i32)a : (i32)a;
    p.k[1] = then ? -(i32)b : (i32)b;
    p.q[0] = low & 1;
    p.q[1] = pair_second(low, a, d->on_quantiser, d->on_parity);
    return p;
}

// The levels of a pair that has no symbol, where `mine`. All lanes take part.
DEVICE PairLevels pair_escape(const Desc *d, const Tile &t, Coder &c, bool mine, u32 low, u32 symbol, u32 raw) {
    const u32 who = __ballot_sync(ALL_LANES, mine);
    const u32 i = c.escapes + (u32)__popc(who & ((1u << lane_of()) - 1));
    c.escapes += (u32)__popc(who);
    PairLevels p = {{0, 0}, {0, 0}};
    if (!mine) return p;
    if (i >= t.escapes) {
        c.bad = STATUS_ESCAPES;
        return p;
    }
    const u8 *at = t.bytes + t.escapes_at + (u64)i * t.escape_width;
    u32 half[2] = {at[0], 0};
    if (t.escape_width == 1) {
        half[1] = half[0] >> 4;
        half[0] &= 15;
    } else if (t.escape_width == 2) {
        half[1] = at[1];
    } else {
        half[0] |= (u32)at[1] << 8 | (u32)at[2] << 16 | (u32)at[3] << 24;
        half[1] = at[4] | (u32)at[5] << 8 | (u32)at[6] << 16 | (u32)at[7] << 24;
    }
    if (max(half[0], half[1]) > MAX_LEVEL / 2) {
        c.bad = STATUS_LEVEL;
        return p;
    }
    const u32 odd = symbol >> 4 & 1;
    const i32 a = (i32)(2 * half[0] + odd), b = (i32)(2 * half[1] + (symbol & 1));
    p.k[0] = raw & 1 ? -a : a;
    p.k[1] = raw & 2 ? -b : b;
    p.q[0] = low & 1;
    p.q[1] = pair_second(low, odd, d->on_quantiser, d->on_parity);
    return p;
}

// What the tables in shared memory say, if there was room for them, or else those that they are made of.
DEVICE PairFound pair_find(const Work *work, const u8 *tables, u32 cls, u32 low, u32 x) {
    const u32 slot = x & PAIR_MASK;
    if (tables && work->desc.classes == 1) return word_found(((const u32 *)tables)[low * PAIR_SLOTS + slot], x >> PAIR_LOG);
    if (tables) {
        const u8 *of = tables + cls * PAIR_CLASS;
        const u32 near = of[pair_slot(low, slot)];
        return span_found(((const u32 *)(of + PAIR_SPANS))[pair_within(low, near)], near, x, slot);
    }
    const u16 *start = work->start[cls * 4 + low];
    const u32 symbol = pair_owner(start, slot);
    return span_found(pair_span(symbol, start[symbol], pair_start(start, symbol + 1)), pair_near(symbol), x, slot);
}

// Any blob, any window, from tick `step` on; `tables` are those in shared memory, if there was room. `class_of` is asked for the
// first value of each of a lane's pairs, `put` is given the places in 1/64 steps of values that are wanted, in order.
template <class ClassOf, class Put>
DEVICE void pairs_plain(const Work *work, const u8 *tables, const Tile &t, Coder &c, u32 step, ClassOf class_of, Put put) {
    const Desc *d = &work->desc;
    const PairNext next = pair_next(d->on_quantiser, d->on_parity);
    const u32 lane = lane_of(), pairs = (t.values + 1) / 2, end = (t.to + 63) / 64;
    for (; step < end; ++step) {
        const u32 pair = step * 32 + lane, low = c.s & 3;
        const bool active = pair < pairs;
        const PairFound found = pair_find(work, tables, d->classes > 1 && active ? class_of(2 * pair) : 0, low, c.x);
        const u32 symbol = pair_of_near(found.near), y = found.y;
        if (active) c.x = found.rest;
        c.x = fill_up(c.words, c.x, active);
        words_refill(c.words);
        const bool escaped = active && pair_near_escapes(found.near);
        PairLevels p = pair_levels(d, low, symbol, y);
        if (__any_sync(ALL_LANES, escaped)) {
            const PairLevels other = pair_escape(d, t, c, escaped, low, symbol, y);
            if (escaped) p = other;
        }
        if (!active) continue;
        c.s = pair_state(next, c.s, low, found.near);
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            const u32 i = 2 * pair + j;
            if (i >= t.from && i < t.to) put(i, units_of(d->offsets, p.k[j], p.q[j]));
        }
    }
}

// What becomes of a pair: the elements that a table has for it, or those of its units.
template <class E> struct PairElements {
    // Bytes of the table's entries.
    static const u32 ENTRY = sizeof(E) < 4 ? 4 : 8;
    // Whether columns have numbers, and whether the values of a group are made elements all together.
    static const bool COLUMNS = false, TOGETHER = false;
    typedef typename Pair<sizeof(E)>::Two Two;
    // Fetched first, and made elements of when it is there.
    METHOD uint2 fetch(SharedAt at) const { return sizeof(E) < 4 ? make_uint2(ordered_u32(at), 0) : ordered_u64(at); }
    METHOD Two of_table(uint2 v, u32) const { return sizeof(E) < 4 ? (Two)v.x : (Two)(v.x | (u64)v.y << 32); }
    template <bool WHOLE, class Put> METHOD void of_tables(const uint2 *, Put) const {}
    METHOD Two of_units(const Item &item, const Desc *d, i32 first, i32 second, u32) const {
        return (Two)element<E>(item.dtype, d->scale, first) | (Two)element<E>(item.dtype, d->scale, second) << (8 * sizeof(E) & 63);
    }
    METHOD void go_on() {}
};

// Where the tables of pairs are, behind those of elements.
#define PAIRS_TABLES(entry) (4096 * (entry))

// Entry `i` of such a table: by the near symbol within its class and two raw bits.
template <class E> DEVICE void pair_entry(const Desc *d, u32 dtype, u32 *to, u32 i) {
    const PairLevels p = pair_levels(d, i >> 10, pair_of_near(i >> 2 & 255), i & 3);
    u32 v = 0;
#pragma unroll 1
    for (u32 j = 0; j < 2; ++j) {
        const u32 e = (u32)element<E>(dtype, d->scale, units_of(d->offsets, j ? p.k[1] : p.k[0], j ? p.q[1] : p.q[0]));
        if (sizeof(E) < 4) v |= e << 8 * sizeof(E) * j;
        else to[2 * i + j] = e;
    }
    if (sizeof(E) < 4) to[i] = v;
}

// All of them; the threads of a block take part.
template <class E> DEVICE void pair_entries(const Desc *d, u32 dtype, u32 *to) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < 4096; i += blockDim.x) pair_entry<E>(d, dtype, to, i);
}

// The escapes of a group, over what was stored; entries of its ticks are two a word.
template <class E, class As>
OUTLINE void pairs_escaped(const Item &item, const Desc *d, As as, const Tile &t, Coder &c, typename As::Two *out, u32 first,
                           u32 second) {
#pragma unroll 1
    for (u32 j = 0; j < GROUP; ++j, out += 32) {
        const u32 entry = (j < 2 ? first : second) >> 16 * (j & 1) & 0xffff, symbol = entry >> 2 & 255;
        const bool mine = pair_near_escapes(symbol);
        if (!__any_sync(ALL_LANES, mine)) continue;
        const PairLevels p = pair_escape(d, t, c, mine, entry >> 10, pair_of_near(symbol), entry & 3);
        if (mine) *out = as.of_units(item, d, units_of(d->offsets, p.k[0], p.q[0]), units_of(d->offsets, p.k[1], p.q[1]), j);
    }
}

// The most groups between two looks at the ring, which has the words of so many.
#define PAIR_GROUPS 2
static_assert(PAIR_GROUPS * GROUP * 32 <= CHUNK, "");

// Whole ticks of pairs, groups at a time up to `end`. Whether a symbol was an escape is asked once a group; its parities are the
// symbol's, so that states need not wait for its levels, which then overwrite what the table had.
template <class E, class Tables, class Map, class As>
DEVICE void pairs_grouped(const Item &item, const Desc *d, const Desc *halved, const Near &near, As as, const Tile &t, Coder &c,
                         u32 end) {
    typedef typename As::Two Two;
    const bool together = As::TOGETHER || (As::COLUMNS && Map::WHOLE);
    const u32 groups = As::ENTRY == 4 ? Tables::GROUPS : 1, below = (1u << lane_of()) - 1;
    const PairNext next = pair_next(d->on_quantiser, d->on_parity);
    const SharedAt lut = shared_at(near.lut), tables = lut + PAIRS_TABLES(As::ENTRY), ring = c.words.ring;
    Map map(item, halved, near.map, tables, t.start / 2 + lane_of());
    Two *out = (Two *)((E *)item.out + (t.start - d->first)) + lane_of();
    u32 x = c.x, s = c.s, word_at = c.words.at, chunk = c.words.chunk;
    uint4 coming = c.words.next;
    for (u32 left = end / (groups * GROUP); left > 0; --left) {
#pragma unroll
        for (u32 group = 0; group < groups; ++group) {
            const SharedAt from = ring + (word_at * 2 & (RING_BYTES - 1));
            SharedAt at = from;
            u32 marks = 0, entry[GROUP], last = 0;
            uint2 elements[GROUP];
            map.look_ahead();
            // Look-ups follow each other from one state to the next; everything else is done while one is on its way.
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j) {
                const u32 low = s & 3;
                const PairFound found = Tables::find(map.table(j), low, x);
                s = pair_state(next, s, low, found.near);
                x = found.rest;
                entry[j] = 4 * pair_within(low, found.near) + (found.y & 3);
                elements[j] = as.fetch(lut + entry[j] * As::ENTRY);
                const bool runs_low = x < START;
                const u32 who = __ballot_sync(ALL_LANES, runs_low);
                const u32 before = ordered_count(who & below);
                const u32 word = ordered_u16(at + 2 * before);
                at += 2 * ordered_count(who);
                x = runs_low ? x << 16 | word : x;
                last = word;
                marks = Tables::gather(marks, found.mark);
                if (j == 1) map.half_way();
            }
            // All at once, after the last word, so that none is waited for by itself.
            out = not_before(out, last);
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j)
                if (!together) global_put(out + j * 32, as.of_table(elements[j], j));
            if (together) as.template of_tables<Map::WHOLE>(elements, [&](u32 j, Two v) { global_put(out + j * 32, v); });
            if (__any_sync(ALL_LANES, Tables::any(marks)))
                pairs_escaped<E>(item, d, as, t, c, out, entry[0] | entry[1] << 16, entry[2] | entry[3] << 16);
            map.go_on();
            as.go_on();
            out += GROUP * 32;
            word_at += (u32)(at - from) / 2;
        }
        // What only a refill needs stays where it is.
        if (word_at / CHUNK > chunk) {
            Words w = c.words;
            w.chunk = chunk;
            w.next = coming;
            words_turn(w);
            chunk = w.chunk;
            coming = w.next;
        }
    }
    c.x = x;
    c.s = s;
    c.words.at = word_at;
    c.words.chunk = chunk;
    c.words.next = coming;
}

// The same with the map that the blob has.
template <class E, class As>
DEVICE void pairs_mapped(const Item &item, const Desc *d, const Desc *halved, const Near &near, As as, const Tile &t, Coder &c,
                         u32 end) {
    switch (near.map.kind) {
    case MAP_ONE: pairs_grouped<E, WordTables, OneClass>(item, d, halved, near, as, t, c, end); break;
    case MAP_PHASES: pairs_grouped<E, SpanTables, PhasesMap>(item, d, halved, near, as, t, c, end); break;
    case MAP_ALIGNED: pairs_grouped<E, SpanTables, AlignedMap>(item, d, halved, near, as, t, c, end); break;
    default: pairs_grouped<E, SpanTables, AnyMap>(item, d, halved, near, as, t, c, end);
    }
}

// Ticks of a tile that can be taken in groups: two elements of `size` bytes must lie where a word of both may.
DEVICE u32 pairs_in_groups(const Item &item, const Desc *d, const Near &near, const Tile &t, u32 size) {
    const bool grouped = t.from == 0 && t.to == t.values && (d->first & 1) == 0 && (item.out & (2 * size - 1)) == 0;
    const u32 ticks = PAIR_GROUPS * GROUP;
    return grouped && near.map.kind != MAP_NONE ? t.values / (64 * ticks) * ticks : 0;
}

// What a header says with every pair taken for one value, for class maps.
DEVICE void pairs_halve(Desc *to, const Desc *d) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < sizeof(Desc) / 4; i += blockDim.x) ((u32 *)to)[i] = ((const u32 *)d)[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        to->width = d->width / 2;
        to->tile_values = d->tile_values / 2;
        to->ticks = d->ticks / 2;
        to->apart = 2;
        // A class's tables take as much room as this.
        static_assert(PAIR_CLASS == 3 << 10 << 2, "");
        to->tables_per_class = 3;
        to->log = 10;
    }
    __syncthreads();
}
