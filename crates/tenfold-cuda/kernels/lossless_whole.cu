// Elements to lossless tiles at their place in the blob, in one pass: 16-bit floats of which the high bytes are coded and
// the low ones stored. What other kernels do in three passes a warp does here to a tile at a time: it codes the high bytes
// and keeps the low ones in shared memory, learns from the tiles before where the tile begins, and writes it with its
// checksum.

#include "crc_window.cuh"
#include "lossless_encode.cuh"
#include "quotient.cuh"
#include "split.cuh"

// Values of four steps, and of a unit; units that a lane sends for at a time.
#define WHOLE_GROUP 128
#define WHOLE_UNIT (2 * WHOLE_GROUP)
#define WHOLE_AHEAD 8
// Words leave a warp's shared memory in chunks, as in `pack.cuh`; a unit has no more.
#define WHOLE_CHUNK (PACK_RING / 2)
#define WHOLE_RING (PACK_RING * 2)
static_assert(WHOLE_CHUNK == WHOLE_UNIT && WHOLE_WARP >= WHOLE_RING + 4 + 4 * 32, "a ring of two chunks, a head and states");

// Where things are in shared memory: entries, the table of checksums, the warp's words and its low bytes, which have room for
// a head before them, where there are no words by then, and for one with states after them. A number that a
// ballot is multiplied by to leave what is below this lane; how bytes change lanes.
struct WholeNear {
    SharedAt table, nibbles, ring, low;
    u32 below, pairs, quads;
};

// Where a stream stands: the lane's state; the last word in shared memory; the slot, and how much of it is free.
struct WholeStream {
    u32 x;
    SharedAt to;
    u16 *slot;
    u32 free;
    // Whether there was room for all words.
    bool whole;
};

// A symbol as it is pushed: the state from which on a word has to leave, the factor of the quotient, what a quotient is
// multiplied by, and in one word the shift (bits 0–4) and the first slot.
DEVICE uint4 whole_entry(u32 packed) {
    const u32 f = packed & 0xffff, start = packed >> 16 & 0x7fff, other = (1u << PLANE_LOG) - f;
    // With this factor a quotient by one is one too small, which the start makes up for.
    if (f == 1) return make_uint4(1u << 20, ~0u, other | (packed & NO_SLOT), (start + other) << 5);
    const Quotient by = quotient_of(f);
    return make_uint4(f << 20, by.factor, other | (packed & NO_SLOT), start << 5 | by.shift);
}

// Shifts by the lowest five bits of a number.
#ifdef TENFOLD_EMULATOR
DEVICE u32 shift_right(u32 v, u32 by) { return v >> (by & 31); }
#else
DEVICE u32 shift_right(u32 v, u32 by) {
    asm("shf.r.wrap.b32 %0, %0, 0, %1;" : "+r"(v) : "r"(by));
    return v;
}
#endif

// What a push leaves to be stored: the state as it was, whether its low word has to leave, and a bit for each lane whose does.
// It is stored after the next push: a state would have to wait for its store otherwise, and that for counts of bits.
struct WholePush {
    u32 x, who;
    bool full;
};

// Pushes a symbol a lane; lanes that are not `active` stay as they are. All lanes of the warp take part.
DEVICE WholePush whole_push(WholeStream &s, const WholeNear &near, const uint4 &entry, bool active = true) {
    const bool full = active && s.x >= entry.x;
    const WholePush push = {s.x, __ballot_sync(ALL_LANES, full), full};
    const u32 x = full ? s.x >> 16 : s.x;
    const u32 quotient = shift_right(__umulhi(x, entry.y), entry.w);
    const u32 next = x + (entry.w >> 5) + quotient * entry.z;
    if (active) s.x = next;
    return push;
}

// Stores the words of a push.
DEVICE void whole_put(WholeStream &s, const WholeNear &near, const WholePush &push) {
    s.to -= 2 * (u32)__popc(push.who);
    if (push.full) shared_put_u16(s.to + 2 * (u32)__popc(push.who * near.below), push.x);
}

// Brings the upper chunk to memory, and the lower one to its place.
DEVICE void whole_leave(WholeStream &s, const WholeNear &near) {
    const SharedAt lower = near.ring + lane_of() * 16, upper = lower + WHOLE_CHUNK * 2;
    s.whole &= s.free >= WHOLE_CHUNK;
    __syncwarp();
    if (warp_agrees(s.whole)) {
        s.free -= WHOLE_CHUNK;
        *(uint4 *)(s.slot + s.free + lane_of() * 8) = shared_u128(upper);
    }
    shared_put(upper, shared_u128(lower));
    s.to += WHOLE_CHUNK * 2;
    __syncwarp();
}

// To be called after a unit at most.
DEVICE void whole_flush(WholeStream &s, const WholeNear &near) {
    if (warp_agrees(s.to <= near.ring + WHOLE_CHUNK * 2)) whole_leave(s, near);
}

// What is known of a tile's bytes: bits in which low and high bytes differ from the first value's; see `NO_SLOT`.
struct WholeSeen {
    u32 low, high, marks;
};

// Puts the low bytes of four neighbours into shared memory, and returns the high ones.
DEVICE u32 whole_split(WholeSeen &seen, uint2 v, uint2 first, SharedAt at) {
    const u32 lower = __byte_perm(v.x, v.y, 0x6420), upper = __byte_perm(v.x, v.y, 0x7531);
    const u32 low = bits_of_two(upper >> 7, lower << 1, 0xfefefefe), high = bits_of_two(lower >> 7, upper << 1, 0xfefefefe);
    shared_put(at, low);
    seen.low |= low ^ first.x;
    seen.high |= high ^ first.y;
    return high;
}

// From four neighbours of one step in a lane to four steps of it.
DEVICE u32 whole_turn(u32 v, const WholeNear &near) {
    v = __byte_perm(v, __shfl_xor_sync(ALL_LANES, v, 1), near.pairs);
    return __byte_perm(v, __shfl_xor_sync(ALL_LANES, v, 2), near.quads);
}

// The entries of four steps.
DEVICE void whole_entries(uint4 (&entry)[4], const WholeNear &near, u32 symbols) {
#pragma unroll
    for (u32 j = 0; j < 4; ++j) entry[j] = shared_u128(plus_byte_16(symbols, j, near.table));
}

// Pushes them.
DEVICE void whole_four(WholeStream &s, WholeSeen &seen, const WholeNear &near, const uint4 (&entry)[4]) {
    WholePush last = whole_push(s, near, entry[3]);
#pragma unroll
    for (u32 j = 3; j-- > 0;) {
        const WholePush push = whole_push(s, near, entry[j]);
        whole_put(s, near, last);
        last = push;
    }
    whole_put(s, near, last);
    seen.marks |= entry[0].z | entry[1].z;
    seen.marks |= entry[2].z | entry[3].z;
}

// Codes the high bytes of a tile, from its end, and puts the low ones into shared memory.
DEVICE void whole_code(WholeStream &s, WholeSeen &seen, const WholeNear &near, const u16 *data, u32 values) {
    const u32 lane = lane_of(), units = values / WHOLE_UNIT;
    const u32 one = split_element(data[0], true);
    const uint2 first = make_uint2((one & 255) * 0x01010101u, (one >> 8) * 0x01010101u);
    // 1. What is less than a unit.
    for (u32 from = (values + 31) / 32 * 32; warp_agrees(from > units * WHOLE_UNIT);) {
        from -= 32;
        const u32 i = from + lane;
        const bool active = i < values;
        const u32 v = active ? split_element(data[i], true) : one;
        const uint4 entry = shared_u128(plus_byte_16(v, 1, near.table));
        shared_put_u8(near.low + i, active ? v : 0);
        seen.low |= (v ^ one) & 255;
        seen.high |= (v ^ one) >> 8;
        seen.marks |= entry.z;
        whole_put(s, near, whole_push(s, near, entry, active));
    }
    whole_flush(s, near);
    if (warp_agrees(units == 0)) return;
    // 2. All others, units of two groups. A lane gets four neighbours of step l mod 4; then bytes change lanes, which makes them four
    // steps of it. While a unit is pushed the one before it comes closer: its entries come once those of the same registers are done
    // with, and the elements of the next are on their way.
    const u32 place = lane % 4 * 8 + lane / 4;
    const uint2 *at = (const uint2 *)data + (u64)(units - 1) * (WHOLE_UNIT / 4) + place;
    SharedAt to = near.low + (units - 1) * WHOLE_UNIT + place * 4;
    uint2 next[2] = {__ldg(at), __ldg(at + WHOLE_GROUP / 4)};
    u32 a = whole_split(seen, next[0], first, to), b = whole_split(seen, next[1], first, to + WHOLE_GROUP);
    uint4 upper[4], lower[4];
    whole_entries(lower, near, whole_turn(a, near));
    whole_entries(upper, near, whole_turn(b, near));
    if (units > 1) at -= WHOLE_UNIT / 4;
    if (units > 1) to -= WHOLE_UNIT;
    next[0] = __ldg(at);
    next[1] = __ldg(at + WHOLE_GROUP / 4);
#pragma unroll 1
    for (u32 left = units; warp_agrees(left > 0); --left) {
        // Below the first unit there is none, and it comes again.
        a = whole_split(seen, next[0], first, to);
        b = whole_split(seen, next[1], first, to + WHOLE_GROUP);
        if (left > 2) at -= WHOLE_UNIT / 4;
        if (left > 2) to -= WHOLE_UNIT;
        next[0] = __ldg(at);
        next[1] = __ldg(at + WHOLE_GROUP / 4);
        // Each lane sends for a line.
        if (left % WHOLE_AHEAD == 0)
            fetch_soon((const u8 *)data + ((left - WHOLE_AHEAD) * (WHOLE_UNIT * 2)) - WHOLE_AHEAD * WHOLE_UNIT * 2 + lane * 128, (i32)left - WHOLE_AHEAD);
        b = whole_turn(b, near);
        whole_four(s, seen, near, upper);
        whole_entries(upper, near, b);
        a = whole_turn(a, near);
        whole_four(s, seen, near, lower);
        whole_flush(s, near);
        whole_entries(lower, near, a);
    }
}

// Where a tile is among those before it: `ends` has for each its own length, or the sum up to its end.
#define ENDS_LENGTH (1ull << 62)
#define ENDS_SUM (1ull << 63)

// Lengths of all tiles before this one, of `len` bytes. Tiles are taken in order, so those before it are done or at work,
// and it is not waited for what waits itself. All lanes of the warp take part.
DEVICE u64 whole_before(volatile u64 *ends, u64 tile, u64 len) {
    const u32 lane = lane_of();
    if (lane == 0) ends[tile] = len | (tile == 0 ? ENDS_SUM : ENDS_LENGTH);
    u64 before = 0;
    for (u64 to = tile; to > 0;) {
        const u64 v = lane < to ? ends[to - 1 - lane] : ENDS_SUM;
        const u32 sums = __ballot_sync(ALL_LANES, v >= ENDS_SUM), unknown = __ballot_sync(ALL_LANES, v == 0);
        const u32 last = sums ? (u32)__ffs((int)sums) - 1 : 31;
        if (unknown & ((2u << last) - 1)) {
            wait_briefly();
            continue;
        }
        before += warp_sum(lane <= last ? v & (ENDS_LENGTH - 1) : 0);
        if (sums) break;
        to -= 32;
    }
    if (lane == 0 && tile > 0) ends[tile] = (before + len) | ENDS_SUM;
    return before;
}

// A tile as it is written: words of low bytes and states, both in shared memory or none, and words in a slot; the heads of
// both planes, words that shared memory has, and all words.
struct WholeTile {
    u32 heads[2], lows, states, count, near, words;
    const u16 *from;
};

// Two words of the slot, the last of which may be one alone.
DEVICE u32 whole_pair(const WholeTile &t, u32 k) {
    const u32 *pair = (const u32 *)((u64)t.from & ~3ull) + k;
    const bool odd = (u64)t.from & 2, single = 2 * k + 1 == t.count;
    const u32 v = __funnelshift_r(pair[0], odd && !single ? pair[1] : 0, odd ? 16 : 0);
    return single ? v & 0xffff : v;
}

// Word `i` of a tile; zero beyond its end.
DEVICE u32 whole_word(const WholeTile &t, const WholeNear &near, u32 i) {
    u32 v = 0;
    if (i < t.near) v = shared_u32(near.low + 4 * i - 4);
    else if (i < t.words) v = whole_pair(t, i - t.near);
    return v;
}

// Bytes of the high plane in place of a stream's words.
DEVICE void whole_store(u32 *slot, const u16 *data, u32 values) {
    for (u32 k = lane_of(); k < (values + 3) / 4; k += 32) {
        const Quad<2> q = quad_gather<u16>(data + 4 * (u64)k, min(4u, values - 4 * k));
        slot[k] = quad_plane(q, 1, true);
    }
}

// Writes a tile and returns its checksum.
DEVICE u32 whole_write(const WholeTile &t, const WholeNear &near, u32 *out) {
    const u32 lane = lane_of(), skip = window_skip(t.words);
    Window w;
    window_open(w, t.words);
    // The lane's word of the next row; those before the first are far beyond the end.
    u32 at = lane - skip * 32;
    const auto plain = [&](u32 row, u32 v) {
        global_put(out + at + row * 32, v);
        return v;
    };
#pragma unroll 1
    for (; warp_agrees(w.rows > 0); at += FOLD_ROWS * 32) {
        const u32 first = at - lane, last = first + FOLD_ROWS * 32 - 1;
        if (warp_agrees(first - 1 < t.near && last < t.near)) {
            const SharedAt from = near.low + 4 * at - 4;
            window_take(w, [&](u32 row) { return shared_u32(from + row * 128); }, plain);
        } else if (warp_agrees(first >= t.near && first <= last && last + 1 < t.words)) {
            const u32 *pair = (const u32 *)((u64)t.from & ~3ull) + (at - t.near);
            const u32 shift = (u64)t.from & 2 ? 16 : 0;
            window_take(w, [&](u32 row) { return __funnelshift_r(pair[row * 32], pair[row * 32 + 1], shift); }, plain);
        } else {
            const auto load = [&](u32 row) { return whole_word(t, near, at + row * 32); };
            window_take(w, load, [&](u32 row, u32 v) {
                const u32 i = at + row * 32;
                if (i < t.words) out[i] = v;
                return i == 0 ? ~v : v;
            });
        }
    }
    u32 rest = 0;
    if (at < t.words) out[at] = rest = whole_word(t, near, at);
    return window_close(w, near.nibbles, t.words, rest);
}

DEVICE void whole_tile(const LosslessArgs &a, const WholeNear &near, u16 *slot, u64 tile) {
    const u32 lane = lane_of();
    const u64 start = tile * a.tile_values;
    const u32 values = (u32)min(a.tile_values, a.values - start);
    const u16 *data = (const u16 *)a.data + start;

    // 1. The stream. Other lanes may still be reading what the tile before left in shared memory.
    __syncwarp();
    WholeStream s = {START, near.ring + WHOLE_RING, slot, a.slot_words, true};
    WholeSeen seen = {0, 0, 0};
    whole_code(s, seen, near, data, values);

    // 2. Whichever form takes fewest bytes.
    const u32 left = (u32)(near.ring + WHOLE_RING - s.to) / 2, count = a.slot_words - s.free + left;
    const bool low = __any_sync(ALL_LANES, seen.low != 0);
    WholeTile t = {{PLANE_STORED, PLANE_STORED}, (values + 3) / 4, 0, 0, 0, 0, slot};
    bool missed = __any_sync(ALL_LANES, seen.marks >= NO_SLOT);
    if (!low) {
        t.heads[0] = PLANE_CONSTANT | (split_element(data[0], true) & 255) << 8;
        t.lows = 0;
    } else if (a.tabled->constant & 1) {
        missed = true;
    }
    if (!__any_sync(ALL_LANES, seen.high != 0)) {
        t.heads[1] = PLANE_CONSTANT | split_element(data[0], true) >> 8 << 8;
    } else if (warp_agrees(s.whole && 32 * 4 + count * 2 < values)) {
        t.heads[1] = PLANE_CODED | count << 8;
        t.states = 32;
        t.count = count;
        t.from = slot + (a.slot_words - count);
        if (warp_agrees(left > 0)) whole_leave(s, near);
    } else {
        t.count = (values + 3) / 4 * 2;
        whole_store((u32 *)slot, data, values);
    }
    t.near = 2 + t.lows + t.states;
    t.words = t.near + (t.count + 1) / 2;
    __syncwarp();
    if (lane == 0) shared_put(near.low - 4, t.heads[0]);
    if (lane == 0) shared_put(near.low + t.lows * 4, t.heads[1]);
    shared_put(near.low + t.lows * 4 + 4 + 4 * lane, s.x);
    __syncwarp();

    // 3. Its place.
    const u64 directory = assemble_directory(a.assembly), header = directory + 8 * a.assembly.tiles + 4;
    volatile Tabled *tabled = a.tabled;
    if (lane == 0 && missed && !a.again) {
        tabled->missed = 1;
        __threadfence();
    }
    const u64 at = header + whole_before(a.ends + (a.again ? a.assembly.tiles : 0), tile, t.words * 4), end = at + t.words * 4;
    __threadfence();
    // What has to be done again is not written, and says nothing of the blob's size.
    if (__any_sync(ALL_LANES, !a.again && tabled->missed)) return;
    if (tile + 1 == a.assembly.tiles && lane == 0) {
        if (end > a.assembly.out_len) report(a.assembly.status, STATUS_BUFFER, 0, end);
        else a.assembly.status->size = end;
    }
    if (warp_agrees(end > a.assembly.out_len)) return;

    // 4. What it holds.
    const u32 sum = whole_write(t, near, (u32 *)(a.assembly.out + at));
    if (lane == 0) ((u32 *)(a.assembly.out + directory))[2 * tile] = t.words * 4;
    if (lane == 0) assemble_checksum(a.assembly, tile, sum);
}

KERNEL(WHOLE_THREADS) lossless_whole_tiles(const LosslessArgs a) {
    DYNAMIC_SHARED(memory);
    if (lossless_done(a) || !lossless_whole(a) || a.assembly.status->code) return;
    uint4 *entries = (uint4 *)memory;
    u32 *nibbles = (u32 *)(memory + 256 * sizeof(uint4));
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) entries[i] = whole_entry(a.entries[256 + i].x);
    for (u32 i = threadIdx.x; i < 128; i += blockDim.x) nibbles[i] = crc_nibbles[i];
    // The header, but for its checksum and those of tiles.
    const u64 directory = assemble_directory(a.assembly), header = directory + 8 * a.assembly.tiles + 4;
    if (blockIdx.x == 0 && header <= a.assembly.out_len) {
        u32 *out = (u32 *)a.assembly.out;
        for (u64 i = threadIdx.x; i < directory / 4; i += blockDim.x) out[i] = i == 2 ? (u32)header : a.assembly.staged[i];
    }
    __syncthreads();

    const u32 lane = lane_of(), warps = blockDim.x / 32, each = WHOLE_WARP + (u32)a.tile_values;
    WholeNear near;
    near.table = shared_at(entries);
    near.nibbles = shared_at(nibbles);
    near.ring = shared_at(memory) + WHOLE_SHARED + warp_of() * each;
    near.low = near.ring + WHOLE_RING;
    // By way of the warp: the compiler would work them out anew in every step.
    near.below = __shfl_sync(ALL_LANES, lane ? 1u << (32 - lane) : 0, (int)lane);
    near.pairs = __shfl_sync(ALL_LANES, lane & 1 ? 0x3715 : 0x6240, (int)lane);
    near.quads = __shfl_sync(ALL_LANES, lane & 2 ? 0x3276 : 0x5410, (int)lane);
    // Slots of warps, not of tiles, stay in the cache; where there are few tiles there are as few slots.
    const bool own = gridDim.x * warps <= 2 * a.assembly.tiles;
    for (;;) {
        u32 tile = lane == 0 ? atomicAdd(&a.tabled->taken[a.again], 1u) : 0;
        tile = __shfl_sync(ALL_LANES, tile, 0);
        if (tile >= a.assembly.tiles) return;
        const u64 number = own ? blockIdx.x * warps + warp_of() : tile;
        whole_tile(a, near, (u16 *)(a.slots + number * a.slot_bytes + SLOT_STATES), tile);
    }
}
