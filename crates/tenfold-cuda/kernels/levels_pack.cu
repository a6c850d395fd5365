// Levels to streams: a warp a tile, from the last step to the first, into a slot of the workspace; and how many bytes
// the tile will take.

#include "levels_tile.cuh"
#include "pack.cuh"
#include "pairs.cuh"

// In the table: this symbol is coded as an escape.
#define STREAM_ESCAPES 0x80000000u

struct StreamShared {
    // By table and symbol: a scalar quantiser has one table a class.
    const uint2 *entries;
    const u8 *low;
    u32 log;
    bool any_low, trellis, paired;
    // Feedback of the trellis's first bit.
    u32 on_quantiser, on_parity;
    const float *thresholds;
    LevelsScale scale;
    // Jumps of one step.
    LevelsMap map;
    u16 *ring;
};

// A tile on its way.
struct Stream {
    Pack pack;
    // The last escapes, which end here: the list fills backwards, as the stream does; and how many it holds.
    i32 *list_end;
    u32 list_room;
    // The same in all lanes.
    u32 escapes;
    // What this lane has seen.
    u32 far, low_bits, flags;
};

// Keeps the escapes of one step. All lanes of a warp take part.
DEVICE void stream_escape(Stream &s, bool mine, i32 high) {
    const u32 who = __ballot_sync(ALL_LANES, mine);
    s.escapes += (u32)__popc(who);
    if (!mine) return;
    const u32 after = s.escapes - 1 - (u32)__popc(who & ((1u << lane_of()) - 1));
    if (after < s.list_room) *(s.list_end - 1 - after) = high;
    s.far = max(s.far, (u32)(high < 0 ? -high : high));
}

// Pushes the symbols of one step, by their class and their place among the entries; `level` finds a lane's level, and is seldom
// asked. All lanes of a warp take part.
template <class F> DEVICE void stream_push(const StreamShared &c, Stream &s, u32 cls, u32 index, bool active, F level) {
    const uint2 entry = c.entries[index];
    const bool escaped = active && (entry.x & STREAM_ESCAPES);
    if (__any_sync(ALL_LANES, escaped)) stream_escape(s, escaped, escaped ? level() >> c.low[cls] : 0);
    if (c.any_low && active) s.low_bits += c.low[cls];
    pack_push(s.pack, make_uint2(entry.x & ~STREAM_ESCAPES, entry.y), c.log, active);
}

// Keeps the escaped pairs of one step: halves of magnitudes. All lanes of a warp take part.
DEVICE void stream_escape_pair(Stream &s, bool mine, u32 a, u32 b) {
    const u32 who = __ballot_sync(ALL_LANES, mine);
    s.escapes += (u32)__popc(who);
    if (!mine) return;
    const u32 after = s.escapes - 1 - (u32)__popc(who & ((1u << lane_of()) - 1));
    if (2 * after + 2 <= s.list_room) {
        *(s.list_end - 2 * after - 2) = (i32)(a / 2);
        *(s.list_end - 2 * after - 1) = (i32)(b / 2);
    }
    s.far = max(s.far, max(a, b) / 2);
}

// Pushes the pairs of one step. Codes have class and quantiser of both values; levels beyond the table's are told by `far`, which
// is seldom asked. All lanes of a warp take part.
template <class F> DEVICE void stream_push_pair(const StreamShared &c, Stream &s, u32 first, u32 second, i32 a, i32 b, bool active, F far) {
    // What a trellis has left for steps that a lane does not have means nothing, and must not lead beyond the tables.
    if (!active) {
        first = second = 0;
        a = b = 0;
    }
    const u32 q = first >> 8 & 1;
    const u32 bit = (second >> 8 ^ (q & c.on_quantiser) ^ ((u32)a & c.on_parity)) & 1;
    const u32 table = (first >> 9 & (MAX_CLASSES - 1)) * 4 + bit * 2 + q;
    u32 size_a = (u32)(a < 0 ? -a : a), size_b = (u32)(b < 0 ? -b : b);
    u32 symbol = (size_a << 4 & 0xf0) | (size_b & 15);
    uint2 entry = c.entries[table << 8 | symbol];
    u32 raw = (u32)(a != 0) + (u32)(b != 0), bits = (u32)(a < 0) | (u32)(b < 0) << (a != 0);
    const bool escaped = active && (size_a > 15 || size_b > 15 || pair_escapes(symbol) || (entry.x & 0xffff) == 0);
    if (__any_sync(ALL_LANES, escaped)) {
        if (escaped) {
            far(a, b);
            size_a = (u32)(a < 0 ? -a : a);
            size_b = (u32)(b < 0 ? -b : b);
            // The parity of a level that is not in the table counts too.
            const u32 now = (second >> 8 ^ (q & c.on_quantiser) ^ ((u32)a & c.on_parity)) & 1;
            symbol = PAIR_ESCAPE | (size_a & 1) << 4 | (size_b & 1);
            entry = c.entries[((first >> 9 & (MAX_CLASSES - 1)) * 4 + now * 2 + q) << 8 | symbol];
            raw = PAIR_ESCAPE_BITS;
            bits = (u32)(a < 0) | (u32)(b < 0) << 1;
        }
        stream_escape_pair(s, escaped, size_a, size_b);
    }
    pack_push_pair(s.pack, entry, raw, bits, active);
}

// Groups of four steps that all 32 lanes have; 0 where a tile has fewer lanes.
DEVICE u32 stream_whole(u32 lanes, u32 len) { return lanes == 32 ? len / 128 : 0; }

// Groups that some lane has.
DEVICE u32 stream_groups(const StreamShared &c, u32 lanes, u32 len) {
    return c.paired ? (len + 127) / 128 : ((len + lanes - 1) / lanes + 3) / 4;
}

// Levels that a trellis has left as codes: groups `from` − 1 down to `to`. WHOLE: every lane has all of their steps.
template <class V, bool WHOLE>
DEVICE void stream_codes_groups(const LevelsPass &a, const StreamShared &c, u64 tile, u32 from, u32 to, Stream &s) {
    if (from <= to) return;
    const u32 lanes = WHOLE ? 32 : a.encoding.lanes, lane = lane_of();
    const u32 ticks = levels_steps(a.encoding, tile, lane, c.paired);
    const uint2 *codes = (const uint2 *)a.codes + levels_codes(a.encoding, tile) + lane + (u64)(from - 1) * lanes;
    const typename V::E *data =
        (const typename V::E *)a.encoding.data + levels_first(a.encoding, tile) + (c.paired ? 2 * lane : lane);
    uint2 next = WHOLE || ticks > (from - 1) * 4 ? *codes : make_uint2(0, 0);
    for (u32 group = from; group-- > to;) {
        const uint2 now = next;
        codes -= lanes;
        if (group > to && (WHOLE || ticks)) next = *codes;
        if (c.paired) {
#pragma unroll
            for (u32 j = 4; j > 0; j -= 2) {
                const u32 two = j > 2 ? now.y : now.x, first = two & 0xffff, second = two >> 16, step = group * 4 + j - 2;
                // The symbol of a level beyond all has another parity than some of them.
                stream_push_pair(c, s, first, second, (i32)(signed char)first, (i32)(signed char)second,
                                 WHOLE || step < ticks, [&](i32 &a, i32 &b) {
                                     const typename V::E *of = data + levels_offset(lanes, step, true);
                                     a = levels_decoded<V>(c.scale, first, of[0]).k;
                                     b = levels_decoded<V>(c.scale, second, of[1]).k;
                                 });
            }
            pack_flush(s.pack);
            continue;
        }
#pragma unroll
        for (u32 j = 4; j-- > 0;) {
            const u32 code = (j & 2 ? now.y : now.x) >> (16 * (j & 1)) & 0xffff, step = group * 4 + j;
            stream_push(c, s, code >> 9 & (MAX_CLASSES - 1), code & LEVELS_INDEX, WHOLE || step < ticks, [&]() {
                return levels_decoded<V>(c.scale, code, data[(u64)step * lanes]).k;
            });
        }
        pack_flush(s.pack);
    }
}

template <class V> DEVICE void stream_codes(const LevelsPass &a, const StreamShared &c, u64 tile, Stream &s) {
    const u32 lanes = a.encoding.lanes, len = levels_len(a.encoding, tile);
    const u32 groups = stream_groups(c, lanes, len), whole = stream_whole(lanes, len);
    stream_codes_groups<V, false>(a, c, tile, groups, whole, s);
    stream_codes_groups<V, true>(a, c, tile, whole, 0, s);
}

// Levels of a scalar quantiser, found a second time: groups `from` − 1 down to `to`.
template <class V, u32 MODE, bool WHOLE>
DEVICE void stream_scalar_groups(const LevelsPass &a, const StreamShared &c, u64 tile, u32 from, u32 to, Stream &s) {
    typedef typename V::E E;
    if (from <= to) return;
    const u32 lanes = WHOLE ? 32 : a.encoding.lanes, lane = lane_of();
    const bool paired = c.paired;
    const u32 ticks = levels_steps(a.encoding, tile, lane, paired);
    const u64 first = levels_first(a.encoding, tile) + (paired ? 2 * lane : lane);
    const E *data = (const E *)a.encoding.data + first + (u64)(from - 1) * 4 * lanes;
    const u32 last = WHOLE ? from * 4 : min(ticks, from * 4);
    LevelsPlace place = levels_seek(c.map, first + levels_offset(lanes, last ? last - 1 : 0, paired));
    E next[4];
#pragma unroll
    for (u32 j = 0; j < 4; ++j)
        next[j] = WHOLE || (from - 1) * 4 + j < ticks ? data[levels_offset(lanes, j, paired)] : (E)0;
    u32 any = 0;
    bool left = false;
    for (u32 group = from; group-- > to;) {
        E now[4];
        data -= 4 * lanes;
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            now[j] = next[j];
            // All of them are there: only the last group is short, and lanes without values stay without.
            if (group > to && (WHOLE || ticks)) next[j] = data[levels_offset(lanes, j, paired)];
        }
        if (paired) {
#pragma unroll
            for (u32 j = 4; j > 0; j -= 2) {
                const bool active = WHOLE || group * 4 + j - 2 < ticks;
                u32 cls = 0;
                i32 k[2] = {0, 0};
                if (active) {
                    cls = levels_class(c.map, place);
                    levels_back(c.map, place);
#pragma unroll
                    for (u32 i = 0; i < 2; ++i) {
                        bool aside;
                        k[i] = levels_scalar<V, MODE>(c.scale, c.thresholds + cls * SCALAR_CLASS, now[j - 2 + i], aside);
                        any |= (u32)k[i];
                        left |= aside;
                    }
                }
                stream_push_pair(c, s, cls << 9, cls << 9, k[0], k[1], active, [](i32 &, i32 &) {});
            }
            pack_flush(s.pack);
            continue;
        }
#pragma unroll
        for (u32 j = 4; j-- > 0;) {
            const bool active = WHOLE || group * 4 + j < ticks;
            u32 cls = 0, index = 0;
            i32 k = 0;
            if (active) {
                cls = levels_class(c.map, place);
                levels_back(c.map, place);
                bool aside;
                k = levels_scalar<V, MODE>(c.scale, c.thresholds + cls * SCALAR_CLASS, now[j], aside);
                index = cls << 8 | levels_symbol(MODE == SEARCH_FULL ? k >> c.low[cls] : k);
                any |= (u32)k;
                left |= aside;
            }
            stream_push(c, s, cls, index, active, [&]() { return k; });
        }
        pack_flush(s.pack);
    }
    s.flags |= (any ? LEVELS_CODED : 0) | (left ? LEVELS_ASIDE : 0);
}

template <class V, u32 MODE>
DEVICE void stream_scalar(const LevelsPass &a, StreamShared c, u64 tile, Stream &s) {
    if (MODE != SEARCH_FULL) {
        c.map.any = MODE == SEARCH_MAPPED;
        c.any_low = false;
    }
    const u32 lanes = a.encoding.lanes, len = levels_len(a.encoding, tile);
    const u32 groups = stream_groups(c, lanes, len), whole = stream_whole(lanes, len);
    stream_scalar_groups<V, MODE, false>(a, c, tile, groups, whole, s);
    stream_scalar_groups<V, MODE, true>(a, c, tile, whole, 0, s);
}

template <class V>
DEVICE void stream_tile(const LevelsPass &a, const StreamShared &c, const LevelsAgain &again, u64 tile) {
    const u32 lane = lane_of();
    Stream s;
    s.pack = pack_open(c.ring, a.words + tile * a.slot_words, a.slot_words);
    s.list_end = a.escapes + (tile + 1) * a.escape_room;
    s.list_room = a.escape_room;
    s.escapes = s.far = s.low_bits = 0;
    s.flags = 0;
    if (!c.trellis) {
        if (c.scale.bounded || c.any_low) stream_scalar<V, SEARCH_FULL>(a, c, tile, s);
        else if (c.map.any) stream_scalar<V, SEARCH_MAPPED>(a, c, tile, s);
        else stream_scalar<V, SEARCH_BARE>(a, c, tile, s);
        s.flags = levels_flags(s.flags & LEVELS_CODED, s.flags & LEVELS_ASIDE);
    } else {
        s.flags = a.tiles[tile].flags;
        __syncwarp();
        if (s.flags & LEVELS_CODED) stream_codes<V>(a, c, tile, s);
    }
    pack_close(s.pack);
    LevelsTile t;
    t.flags = s.flags;
    t.words = a.slot_words - s.pack.top;
    t.escapes = s.escapes;
    t.far = s.far;
    for (int by = 16; by > 0; by >>= 1) t.far = max(t.far, __shfl_xor_sync(ALL_LANES, t.far, by));
    t.low_bits = warp_sum(s.low_bits);
    LevelsRuns exact = {0, 0};
    if (t.flags & LEVELS_ASIDE) exact = levels_exact<V>(a, again, tile, 0);
    t.exact_runs = exact.runs;
    t.exact_bytes = exact.bytes;
    t.spare = 0;
    if (lane < a.encoding.lanes) a.states[tile * MAX_LANES + lane] = s.pack.x;
    if (lane == 0) {
        a.tiles[tile] = t;
        a.lengths[tile] = levels_bytes(t, a.encoding.lanes, c.any_low, c.paired);
    }
}

// Dynamic shared memory: rings, low bits, classes of sums, entries, thresholds; the last two as far as there are classes.
static_assert(PAIR_CLASSES * 4 <= LEVELS_SETS, "entries of pairs have the room of those of levels");
static_assert(MAX_CLASSES + LEVELS_MAP_BYTES == PACK_FIXED && 256 * 8 + SCALAR_CLASS * 4 == PACK_CLASS, "as the launch code reckons");
static_assert(PACK_FIXED + MAX_CLASSES * SCALAR_CLASS * 4 + LEVELS_SETS * 256 * 8 <= PACK_SHARED, "as the launch code reckons");

template <class V> DEVICE void stream_all(const LevelsPass &a, u8 *memory) {
    __shared__ LevelsAgain again;
    const Plan *plan = a.plan;
    if (levels_over(a)) return;
    const u32 warps = blockDim.x / 32;
    u8 *low = memory + warps * PACK_RING_BYTES, *sums = low + MAX_CLASSES;
    uint2 *entries = (uint2 *)(sums + LEVELS_MAP_BYTES);
    const u32 of_class = plan->paired ? 4 : plan->nu ? 2 : 1;
    float *thresholds = (float *)(entries + plan->classes * of_class * 256);
    StreamShared c;
    c.map = levels_map(plan, levels_jump(a.encoding, plan), sums);
    c.paired = plan->paired != 0;
    c.on_quantiser = plan->on_quantiser;
    c.on_parity = plan->on_parity;
    c.scale = levels_scale(plan);
    c.trellis = plan->nu != 0;
    c.thresholds = thresholds;
    const LevelsMap neighbours = levels_map(plan, 32, sums);
    if (threadIdx.x == 0) again = LevelsAgain{neighbours, c.scale, thresholds, c.trellis, c.paired};
    if (!c.trellis) scalar_thresholds(thresholds, plan);
    if (threadIdx.x < MAX_CLASSES) low[threadIdx.x] = plan->low[threadIdx.x];
    for (u32 i = threadIdx.x; c.paired && i < plan->classes * 4 * 256; i += blockDim.x) {
        const u16 *start = a.pairs + (i & ~255u);
        const u32 f = pair_start(start, i % 256 + 1) - start[i % 256];
        entries[i] = f ? pack_entry(f, start[i % 256]) : make_uint2(0, 0);
    }
    for (u32 table = warp_of(); !c.paired && table < plan->classes * of_class; table += warps) {
        // A scalar quantiser has the even sets alone.
        const u32 *freq = a.freq + table * (2 / of_class) * 256;
        pack_fill(entries + table * 256, freq);
        for (u32 i = lane_of(); i < 256; i += 32)
            if (i == ESCAPE || freq[i] == 0) entries[table * 256 + i].x |= STREAM_ESCAPES;
    }
    __syncthreads();
    c.entries = entries;
    c.low = low;
    c.log = plan->log;
    c.any_low = plan->any_low != 0;
    c.ring = (u16 *)(memory + warp_of() * PACK_RING_BYTES);
    // Few tiles are spread over many blocks.
    for (u64 tile = (u64)warp_of() * gridDim.x + blockIdx.x; tile < a.encoding.tiles; tile += (u64)gridDim.x * warps)
        stream_tile<V>(a, c, again, tile);
}

KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_pack_f8_e4m3(const GRID_CONSTANT LevelsPass a) RUNS(stream_all<LevelsE4m3>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_pack_f8_e5m2(const GRID_CONSTANT LevelsPass a) RUNS(stream_all<LevelsE5m2>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_pack_f16(const GRID_CONSTANT LevelsPass a) RUNS(stream_all<LevelsF16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_pack_bf16(const GRID_CONSTANT LevelsPass a) RUNS(stream_all<LevelsBf16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_pack_f32(const GRID_CONSTANT LevelsPass a) RUNS(stream_all<LevelsF32>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_pack_f64(const GRID_CONSTANT LevelsPass a) RUNS(stream_all<LevelsF64>)
