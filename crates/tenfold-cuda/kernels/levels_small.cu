// Levels of small blobs: a warp a tile, with tables of its own.
//
// A page of a KV cache has few values for the tables that it brings, and one tile or two, so that what a multiprocessor does at a time
// depends on how many tables it has room for. Here a table is a byte a slot, which names the entry of a symbol: a quarter of the room
// that `levels_decode.cu` gives it, for one more look-up on the way from state to state. A blob without room, or that is unlike what is
// expected of pages, is left to that kernel.

#include "levels_ticks.cuh"
#include "tiles.cuh"

// Beside a symbol's element: whether its level is odd, raw bits of its class, the symbol, and whether it is an escape.
#define ENTRY_ODD 0x10000u
#define ENTRY_LOW_SHIFT 17
#define ENTRY_SYMBOL_SHIFT 22
#define ENTRY_ESCAPE 0x80000000u
#define ENTRY_RARE (ENTRY_ESCAPE | 31u << ENTRY_LOW_SHIFT)
// Marks the tables of a class with raw bits.
#define TABLE_LOW 0x80000000u

// A blob's tables in shared memory.
struct SmallTables {
    u16 *ring;
    // Entries of a class: of each quantiser's symbols in turn, if there are two.
    uint2 *entries;
    u8 *slots;
    ClassMap map;
};

// A lane's eight symbols of a table: where they start, and where the next lane's do.
struct EightSymbols {
    u32 start[9];
};

DEVICE EightSymbols small_symbols(const u16 *start, u32 log) {
    EightSymbols s;
    const uint4 v = ((const uint4 *)start)[lane_of()];
    const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        s.start[2 * i] = words[i] & 0xffff;
        s.start[2 * i + 1] = words[i] >> 16;
    }
    const u32 next = __shfl_down_sync(ALL_LANES, s.start[0], 1);
    s.start[8] = lane_of() == 31 ? 1u << log : next;
    return s;
}

// Symbols that have slots.
DEVICE u32 small_count(const EightSymbols &s) {
    u32 n = 0;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) n += s.start[i + 1] > s.start[i];
    return n;
}

// Entries of a class: as many for each of its quantisers.
DEVICE u32 small_rows(const Work *work, u32 cls) {
    const Desc *d = &work->desc;
    u32 most = 0;
    for (u32 q = 0; q < d->tables_per_class; ++q)
        most = max(most, warp_sum(small_count(small_symbols(work->start[cls * d->tables_per_class + q], d->log))));
    return most;
}

// Whether a blob is one for this kernel, but for its size.
DEVICE bool small_kind(const Desc *d) {
    const bool mapped = d->classes == 1 || (d->width >= 128 && d->width < 1u << 16);
    return !d->paired && !d->prepared && d->lanes == 32 && d->first == 0 && d->end == d->values && mapped &&
           header_pieces(d) == 0;
}

// Writes the entries of a table's symbols, and for each of its slots whose it is.
DEVICE void small_table(const Item &item, const Work *work, u32 cls, u32 q, uint2 *entries, u8 *slots) {
    const Desc *d = &work->desc;
    const u32 log = d->log, each = d->tables_per_class;
    const EightSymbols s = small_symbols(work->start[cls * each + q], log);
    const u32 mine = small_count(s), count = warp_sum(mine);
    u32 row = warp_before(mine);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        if (s.start[i + 1] <= s.start[i]) continue;
        const u32 symbol = lane_of() * 8 + i;
        const i32 k = (i32)(signed char)symbol;
        u32 v = element<u16>(item.dtype, d->scale, units_of(d->offsets, k, q));
        v |= (u32)d->low[cls] << ENTRY_LOW_SHIFT | symbol << ENTRY_SYMBOL_SHIFT;
        if (k & 1) v |= ENTRY_ODD;
        if (symbol == ESCAPE) v |= ENTRY_ESCAPE;
        entries[row * each + q] = make_uint2(s.start[i] | (s.start[i + 1] - s.start[i]) << 16, v);
        ++row;
    }
    __syncwarp();
    // A lane's share of the slots, from the entry that has the first of them on.
    const u32 share = 1u << (log - 5), first = lane_of() * share;
    const auto start_of = [&](u32 i) { return i < count ? entries[i * each + q].x & 0xffff : 1u << log; };
    u32 low = 0, high = count;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (start_of(middle) <= first) low = middle;
        else high = middle;
    }
    u32 end = start_of(low + 1);
    for (u32 slot = first; slot < first + share; slot += 4) {
        u32 four = 0;
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            if (slot + j >= end) end = start_of(++low + 1);
            four |= low << (8 * j);
        }
        *(u32 *)(slots + slot) = four;
    }
}

// Lays a blob's tables out and fills them; false if they take more than `room`, or no more than an earlier launch had.
DEVICE bool small_open(const Item &item, const Work *work, u8 *memory, u32 room, u32 above, SmallTables &near) {
    const Desc *d = &work->desc;
    u32 rows = 0;
    for (u32 cls = 0; cls < d->classes; ++cls) rows += small_rows(work, cls);
    const u32 width = d->classes > 1 && d->col_bits ? (u32)d->width : 0;
    const u32 entries_at = RING_ROOM + SUMS * 4 + ((width + 15) & ~15u), slots_at = entries_at + rows * d->tables_per_class * 8;
    const u64 need = (u64)slots_at + ((u64)d->tables << d->log);
    if (need > room || (above && need <= above)) return false;

    u32 *base = (u32 *)(memory + RING_ROOM);
    near.ring = (u16 *)memory;
    near.entries = (uint2 *)(memory + entries_at);
    near.slots = memory + slots_at;
    near.map.base = base;
    near.map.cols = memory + RING_ROOM + SUMS * 4;
    const bool aligned = d->width % 128 == 0 && d->tile_values % 128 == 0;
    near.map.kind = d->classes == 1 ? MAP_ONE : aligned ? MAP_ALIGNED : MAP_ANY;
    if (d->classes > 1) map_columns(memory + RING_ROOM + SUMS * 4, item, d, aligned);
    if (lane_of() == 0) map_rows_open(item, d, base, 0);
    u32 row = 0;
    for (u32 cls = 0; cls < d->classes; ++cls) {
        const u32 table = cls * d->tables_per_class << d->log, entry = row * d->tables_per_class;
        // By sums of scales: a class's slots, and above them its entries.
        for (u32 i = lane_of(); i < SUMS; i += 32)
            if (d->class_of_sum[i] == cls) base[i] = table | entry << 16 | (d->low[cls] ? TABLE_LOW : 0);
        for (u32 q = 0; q < d->tables_per_class; ++q)
            small_table(item, work, cls, q, near.entries + entry, near.slots + table + (q << d->log));
        row += small_rows(work, cls);
    }
    __syncwarp();
    return true;
}

// A blob of one class.
struct SmallOne {
    u32 now[GROUP];
    METHOD SmallOne(const Item &, const Desc *d, const ClassMap &, SharedAt, u64) {
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) now[j] = d->low[0] ? TABLE_LOW : 0;
    }
    METHOD void look_ahead() {}
    METHOD void half_way() {}
    METHOD void go_on() {}
};

// Takes the symbol of a table off a state; what it comes to.
template <bool TRELLIS> DEVICE uint2 small_pop(SharedAt slots, SharedAt entries, u32 table, u32 log, u32 q, u32 &x) {
    const u32 slot = x & ((1u << log) - 1);
    const u32 at = (table & 0xffff) + slot + (TRELLIS ? q << log : 0);
    const u32 symbol = shared_u8(slots + at);
    const uint2 entry = shared_u64(entries + (table >> 16 & 0x7fff) * 8 + (TRELLIS ? symbol * 16 + q * 8 : symbol * 8));
    x = (entry.x >> 16) * (x >> log) + slot - (entry.x & 0xffff);
    return entry;
}

// A value with raw bits, or without a symbol. All lanes take part.
DEVICE u16 small_rare(const Item &item, const Desc *d, const Tile &t, Coder &c, u32 entry, u32 q, i32 &k) {
    const bool escaped = (i32)entry < 0;
    const u32 bits = entry >> ENTRY_LOW_SHIFT & 31;
    k = (i32)(signed char)(entry >> ENTRY_SYMBOL_SHIFT);
    if (__any_sync(ALL_LANES, escaped)) k = escape_next(t, c, escaped, bits, k);
    if (__any_sync(ALL_LANES, bits != 0)) k = (i32)((u32)k << bits | low_next(t, c, bits));
    return escaped || bits ? element<u16>(item.dtype, d->scale, units_of(d->offsets, k, q)) : (u16)entry;
}

// Groups of steps; returns where it stopped: at `end`, or with a trellis, whose state depends on whole levels, at a group with raw bits or
// an escape in it. A scalar quantiser goes on: only what is put away depends on them.
template <bool TRELLIS, class Map>
DEVICE u32 small_fast(const Item &item, const Desc *d, const SmallTables &near, Map &map, const Tile &t, Coder &c, u32 step, u32 end) {
    const u32 log = d->log, below = (1u << lane_of()) - 1, on_quantiser = d->on_quantiser, on_parity = d->on_parity;
    const SharedAt slots = shared_at(near.slots), entries = shared_at(near.entries), ring = c.words.ring;
    const bool any_low = d->any_low != 0;
    u16 *out = out_at<u16>(item, d, t, step);
    u32 x = c.x, s = c.s;
    Words w = c.words;
    for (; step < end; step += GROUP) {
        const u32 x_before = x, s_before = s;
        const SharedAt from = ring + (w.at * 2 & (RING_BYTES - 1));
        SharedAt at = from;
        u32 rare = 0, elements[GROUP], word = 0;
        map.look_ahead();
        if (TRELLIS && any_low && __any_sync(ALL_LANES, (i32)(map.now[0] | map.now[1] | map.now[2] | map.now[3]) < 0)) {
            map.half_way();
            break;
        }
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) {
            const u32 q = TRELLIS ? s & 1 : 0;
            const uint2 entry = small_pop<TRELLIS>(slots, entries, map.now[j], log, q, x);
            x = fill_near(x, below, at, word);
            elements[j] = entry.y;
            rare |= entry.y & (TRELLIS ? ENTRY_ESCAPE : ENTRY_RARE);
            if (TRELLIS) s = (s >> 1) ^ (q ? on_quantiser : 0) ^ (entry.y & ENTRY_ODD ? on_parity : 0);
            if (j == 1) map.half_way();
        }
        if (__any_sync(ALL_LANES, rare != 0)) {
            if (TRELLIS) {
                x = x_before;
                s = s_before;
                break;
            }
            i32 k;
#pragma unroll 1
            for (u32 j = 0; j < GROUP; ++j) {
                const u32 entry = j < 2 ? (j == 0 ? elements[0] : elements[1]) : j == 2 ? elements[2] : elements[3];
                global_put(out + j * 32, small_rare(item, d, t, c, entry, 0, k));
            }
        } else {
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j) global_put(out + j * 32, (u16)elements[j]);
        }
        map.go_on();
        out += GROUP * 32;
        w.at += (u32)(at - from) / 2;
        words_refill(w);
    }
    c.x = x;
    c.s = s;
    c.words = w;
    return step;
}

// The group that `small_fast` stopped at.
template <class Map>
DEVICE void small_escaped(const Item &item, const Desc *d, const SmallTables &near, const Map &map, const Tile &t, Coder &c, u32 step) {
    u16 *out = out_at<u16>(item, d, t, step);
#pragma unroll
    for (u32 j = 0; j < GROUP; ++j) {
        const u32 q = c.s & 1;
        const uint2 entry = small_pop<true>(shared_at(near.slots), shared_at(near.entries), map.now[j], d->log, q, c.x);
        c.x = fill_up(c.words, c.x);
        i32 k;
        out[j * 32] = small_rare(item, d, t, c, entry.y, q, k);
        c.s = next_state(d, c.s, k);
    }
    words_refill(c.words);
}

template <bool TRELLIS, class Map>
DEVICE void small_groups(const Item &item, const Desc *d, const SmallTables &near, const Tile &t, Coder &c, u32 end) {
    Map map(item, d, near.map, 0, t.start + lane_of());
    for (u32 step = 0; step < end; step += GROUP) {
        step = small_fast<TRELLIS>(item, d, near, map, t, c, step, end);
        if (step == end) break;
        if (TRELLIS) small_escaped(item, d, near, map, t, c, step);
        map.go_on();
    }
}

template <bool TRELLIS>
DEVICE void small_mapped(const Item &item, const Desc *d, const SmallTables &near, const Tile &t, Coder &c, u32 end) {
    switch (near.map.kind) {
    case MAP_ONE: small_groups<TRELLIS, SmallOne>(item, d, near, t, c, end); break;
    case MAP_ALIGNED: small_groups<TRELLIS, AlignedMap>(item, d, near, t, c, end); break;
    default: small_groups<TRELLIS, AnyMap>(item, d, near, t, c, end);
    }
}

DEVICE void small_tile(const Item &item, const Work *work, const SmallTables &near, u64 number, Status *status) {
    const Desc *d = &work->desc;
    Tile t;
    if (!tile_begin(item, work, number, t, status)) return;
    if (!t.coded) {
        u16 *out = (u16 *)item.out + t.start;
        for (u32 i = lane_of(); i < t.values; i += 32) out[i] = 0;
    } else {
        Coder c = coder_open(item, d, t, near.ring);
        if (__any_sync(ALL_LANES, c.bad)) {
            if (c.bad) report(status, c.bad);
            return;
        }
        const u32 done = t.values / (32 * GROUP) * GROUP;
        if (d->tables_per_class > 1) small_mapped<true>(item, d, near, t, c, done);
        else small_mapped<false>(item, d, near, t, c, done);
        const auto class_of = [&](u32 i) {
            const u64 at = t.start + i, row = at / d->width;
            return class_at(item, d, row, at - row * d->width);
        };
        u16 *out = (u16 *)item.out;
        steps_plain(work, nullptr, t, c, done, class_of, [&](u32 i, i32 units) {
            out[t.start + i] = element<u16>(item.dtype, d->scale, units);
        });
        coder_close(t, c);
        if (c.bad) report(status, c.bad);
    }
    __syncwarp();
    if (t.exact) {
        const u32 code = put_exact<u16>(item, d, t);
        if (code && lane_of() == 0) report(status, code);
        __syncwarp();
    }
}

KERNEL(SMALL_THREADS) levels_small(const GRID_CONSTANT TilesArgs a) {
    DYNAMIC_SHARED(memory);
    const auto place = [&] { return Place{blockIdx.x / a.small, blockIdx.x % a.small, a.small}; };
    const Share &share = share_open_at(a, place, CODEC_LEVELS, 2, [](const Item &, const Work *work) {
        return small_kind(&work->desc) ? PART_ALL : PART_NONE;
    });
    if (share.empty) return;
    const Work *work = share.work;
    SmallTables near;
    if (!small_open(share.item, work, memory, a.shared, a.above, near)) return;
    if (share.place.part == 0 && lane_of() == 0) work_of(share.item)->small = 1;
    for (u64 tile = share.place.part; tile < work->desc.end_tile; tile += share.place.parts) {
        small_tile(share.item, work, near, tile, share.status);
        if (share.check) tile_check(share, tile);
    }
}
