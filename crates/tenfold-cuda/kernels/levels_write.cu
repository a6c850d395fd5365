// Tiles at their final place: a warp a tile. Streams are copied from where `levels_pack` left them; low bits, exact
// values and escapes that were too many to keep are found again.

#include "assemble.cuh"
#include "crc_fold.cuh"
#include "levels_tile.cuh"
#include "pack.cuh"
#include "pairs.cuh"

// Words of a warp's staging area for low bits, a ring: 32 leave at a time, and a step adds at most 64.
#define PUT_STAGE 128
#define PUT_BYTES (PUT_STAGE * 4)
// Neighbouring values that a lane takes at a time.
#define PUT_EACH 4

// In shared memory.
struct PutShared {
    LevelsAgain again;
    const u8 *low;
    // A bit a symbol: whether it has slots.
    const u32 *slots;
    // Of the first warp.
    u32 *stages;
    bool any_low, paired;
    u32 on_quantiser, on_parity;
};

// Writes 32 words of the staging area, from word `from` of the bit string on, as far as there are bytes.
DEVICE void put_stage(u32 *stage, u8 *to, u32 from, u32 bytes) {
    __syncwarp();
    const u32 word = from + lane_of(), at = word * 4;
    const u32 v = stage[word % PUT_STAGE];
    for (u32 i = 0; i < 4; ++i)
        if (at + i < bytes) to[at + i] = (u8)(v >> (8 * i));
    stage[word % PUT_STAGE] = 0;
    __syncwarp();
}

// Raw low bits, value after value.
template <class V> OUTLINE void put_low(const LevelsPass &a, const PutShared &c, u64 tile, u8 *to, u32 bytes) {
    const u32 len = levels_len(a.encoding, tile), lane = lane_of();
    LevelsMap map = c.again.map;
    map.jump_rows = 32 * PUT_EACH / map.width;
    map.jump_cols = 32 * PUT_EACH % map.width;
    LevelsPlace place = levels_seek(map, levels_first(a.encoding, tile) + lane * PUT_EACH);
    const typename V::E *data = (const typename V::E *)a.encoding.data + levels_first(a.encoding, tile);
    u32 *stage = c.stages + warp_of() * PUT_STAGE;
    for (u32 i = lane; i < PUT_STAGE; i += 32) stage[i] = 0;
    __syncwarp();
    // Bits so far, and words that have left.
    u32 at = 0, left = 0;
    for (u32 base = 0; base < len; base += 32 * PUT_EACH) {
        u32 n = 0, cls[PUT_EACH];
        u64 v = 0;
        LevelsPlace here = place;
#pragma unroll
        for (u32 j = 0; j < PUT_EACH; ++j) {
            cls[j] = base + lane * PUT_EACH + j < len ? levels_class(map, here) : 0;
            n += c.low[cls[j]];
            if (map.any && ++here.col == map.width) {
                here.col = 0;
                here.scale = levels_row_scale(map, ++here.row);
            }
        }
        levels_next(map, place);
        // Most classes have none.
        if (!__any_sync(ALL_LANES, n)) continue;
        n = 0;
        // All loads are on their way before one is looked at.
        typename V::E x[PUT_EACH];
        u32 code[PUT_EACH];
#pragma unroll
        for (u32 j = 0; j < PUT_EACH; ++j) {
            const u32 i = base + lane * PUT_EACH + j;
            x[j] = i < len ? data[i] : (typename V::E)0;
            code[j] = c.again.trellis && i < len ? a.codes[levels_code(a.encoding, c.again.paired, tile, i)] : 0;
        }
#pragma unroll
        for (u32 j = 0; j < PUT_EACH; ++j) {
            if (base + lane * PUT_EACH + j >= len) continue;
            const u32 low = c.low[cls[j]];
            bool aside;
            const i32 k = c.again.trellis ? levels_decoded<V>(c.again.scale, code[j], x[j]).k
                                          : levels_scalar<V, SEARCH_FULL>(c.again.scale, c.again.thresholds + cls[j] * SCALAR_CLASS, x[j], aside);
            v |= (u64)((u32)k & ((1u << low) - 1)) << n;
            n += low;
        }
        const u32 before = warp_before(n), mine = at + before, by = mine & 31;
        if (n) {
            atomicOr(&stage[mine / 32 % PUT_STAGE], (u32)v << by);
            if (by + n > 32) atomicOr(&stage[(mine / 32 + 1) % PUT_STAGE], (u32)(v >> (32 - by)));
            if (by + n > 64) atomicOr(&stage[(mine / 32 + 2) % PUT_STAGE], (u32)(v >> (64 - by)));
        }
        at += __shfl_sync(ALL_LANES, before + n, 31);
        for (; at / 32 - left >= 32; left += 32) put_stage(stage, to, left, bytes);
    }
    put_stage(stage, to, left, bytes);
    put_stage(stage, to, left + 32, bytes);
}

// Copies a stream, four loads of a lane at once. All lanes of a warp take part.
DEVICE void put_words(u32 *to, const u16 *from, u32 words) {
    const u32 pairs = (words + 1) / 2;
    u32 i = lane_of();
    for (; i + 96 < pairs; i += 128) {
        u32 v[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) v[j] = pack_pair(from, words, i + 32 * j);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) to[i + 32 * j] = v[j];
    }
    for (; i < pairs; i += 32) to[i] = pack_pair(from, words, i);
}

DEVICE void put_escape(u8 *to, u32 width, i32 high) {
    for (u32 i = 0; i < width; ++i) to[i] = (u8)((u32)high >> (8 * i));
}

DEVICE void put_escaped_pair(u8 *to, u32 width, u32 a, u32 b) {
    if (width == 1) *to = (u8)(a | b << 4);
    else {
        put_escape(to, width / 2, (i32)a);
        put_escape(to + width / 2, width / 2, (i32)b);
    }
}

// Escaped pairs, one after the other.
template <class V>
OUTLINE void put_escaped_pairs(const LevelsPass &a, const PutShared &c, u64 tile, u8 *to, u32 width, u32 count) {
    const u32 len = levels_len(a.encoding, tile), lane = lane_of();
    if (2 * count <= a.escape_room) {
        const i32 *list = a.escapes + (tile + 1) * a.escape_room - 2 * count;
        for (u32 i = lane; i < count; i += 32) put_escaped_pair(to + (u64)i * width, width, (u32)list[2 * i], (u32)list[2 * i + 1]);
        return;
    }
    // Quantisers follow from the states, and those from the levels.
    const bool trellis = c.again.trellis;
    u32 done = 0;
    for (u32 base = 0; base < len; base += 64) {
        bool mine = false;
        u32 size[2] = {0, 0};
        if (base + 2 * lane < len) {
            const LevelsPlace place = levels_seek(c.again.map, levels_first(a.encoding, tile) + base + 2 * lane);
            const LevelsValue<V> first = levels_fetch<V>(a, c.again, tile, base + 2 * lane, place);
            const LevelsValue<V> second = levels_fetch<V>(a, c.again, tile, base + 2 * lane + 1, place);
            const u32 q = trellis ? first.set & 1 : 0, then = trellis ? second.set & 1 : 0;
            const u32 bit = (then ^ (q & c.on_quantiser) ^ ((u32)first.k & c.on_parity)) & 1;
            size[0] = (u32)(first.k < 0 ? -first.k : first.k);
            size[1] = (u32)(second.k < 0 ? -second.k : second.k);
            const u32 symbol = (size[0] << 4 & 0xf0) | (size[1] & 15);
            const u16 *start = a.pairs + (first.set / 2 * 4 + bit * 2 + q) * 256;
            mine = size[0] > 15 || size[1] > 15 || pair_escapes(symbol) || pair_start(start, symbol + 1) == start[symbol];
        }
        const u32 who = __ballot_sync(ALL_LANES, mine);
        const u32 at = done + (u32)__popc(who & ((1u << lane) - 1));
        if (mine && at < count) put_escaped_pair(to + (u64)at * width, width, size[0] / 2, size[1] / 2);
        done += (u32)__popc(who);
    }
}

// Escapes, value after value.
template <class V>
OUTLINE void put_escapes(const LevelsPass &a, const PutShared &c, u64 tile, u8 *to, u32 width, u32 count) {
    const u32 len = levels_len(a.encoding, tile), lane = lane_of();
    if (count <= a.escape_room) {
        const i32 *list = a.escapes + (tile + 1) * a.escape_room - count;
        for (u32 i = lane; i < count; i += 32) put_escape(to + (u64)i * width, width, list[i]);
        return;
    }
    LevelsPlace place = levels_seek(c.again.map, levels_first(a.encoding, tile) + lane);
    u32 done = 0;
    for (u32 base = 0; base < len; base += 32) {
        bool mine = false;
        i32 high = 0;
        if (base + lane < len) {
            const LevelsValue<V> v = levels_fetch<V>(a, c.again, tile, base + lane, place);
            high = v.k >> c.low[v.set / 2];
            const u32 symbol = levels_symbol(high);
            mine = symbol == ESCAPE || !(c.slots[v.set * 8 + symbol / 32] >> (symbol & 31) & 1);
        }
        levels_next(c.again.map, place);
        const u32 who = __ballot_sync(ALL_LANES, mine);
        const u32 at = done + (u32)__popc(who & ((1u << lane) - 1));
        if (mine && at < count) put_escape(to + (u64)at * width, width, high);
        done += (u32)__popc(who);
    }
}

template <class V>
DEVICE void put_tile(const LevelsWrite &w, const PutShared &c, u64 tile) {
    const LevelsPass &a = w.pass;
    const u32 lane = lane_of(), lanes = a.encoding.lanes;
    const LevelsTile t = a.tiles[tile];
    u8 *out = (u8 *)a.encoding.out + a.starts[tile];
    const u32 len = a.lengths[tile];
    const bool coded = t.flags & LEVELS_CODED, exact = t.flags & LEVELS_ASIDE;
    const u32 code = coded && t.escapes ? levels_escape_code(t.far, c.paired) : 0;
    u32 at = 4;
    if (lane == 0)
        *(u32 *)out = (coded ? TILE_CODED | t.words << 8 : 0) | code << TILE_ESCAPES_SHIFT | (exact ? TILE_EXACT : 0);
    if (coded) {
        if (lane < lanes) ((u32 *)out)[1 + lane] = a.states[tile * MAX_LANES + lane];
        at += 4 * lanes;
        put_words((u32 *)(out + at), a.words + (tile + 1) * a.slot_words - t.words, t.words);
        at += 2 * t.words;
        __syncwarp();
        if (c.any_low) {
            const u32 bytes = (t.low_bits + 7) / 8;
            if (lane == 0) levels_put_varint(out + at, bytes);
            at += levels_varint(bytes);
            put_low<V>(a, c, tile, out + at, bytes);
            at += bytes;
        }
        if (code) {
            const u32 width = levels_escape_width(code, c.paired);
            if (lane == 0) levels_put_varint(out + at, t.escapes);
            at += levels_varint(t.escapes);
            if (c.paired) put_escaped_pairs<V>(a, c, tile, out + at, width, t.escapes);
            else put_escapes<V>(a, c, tile, out + at, width, t.escapes);
            at += t.escapes * width;
        }
    }
    if (exact) {
        u8 *to = out + at;
        if (lane == 0) levels_put_varint(to, t.exact_runs);
        levels_exact<V>(a, c.again, tile, to + levels_varint(t.exact_runs));
        at += t.exact_bytes;
    }
    __syncwarp();
    if (at + lane < len) out[at + lane] = 0;
    __syncwarp();
    const u32 crc = crc_fold_fresh((const u32 *)out, len / 4);
    if (lane == 0) assemble_checksum(w.assembly, tile, crc);
}

// Dynamic shared memory: staging areas, slots, low bits, classes of sums, thresholds.
static_assert(LEVELS_SETS * 8 * 4 + MAX_CLASSES + LEVELS_MAP_BYTES + MAX_CLASSES * SCALAR_CLASS * 4 <= WRITE_SHARED, "as the launch code reckons");
static_assert(PUT_BYTES <= WRITE_WARP_SHARED, "as the launch code reckons");

template <class V> DEVICE void put_all(const LevelsWrite &w, u8 *memory) {
    __shared__ PutShared c;
    const LevelsPass &a = w.pass;
    const Plan *plan = a.plan;
    if (levels_over(a)) return;
    const u32 warps = blockDim.x / 32;
    u32 *slots = (u32 *)(memory + warps * PUT_BYTES);
    u8 *low = (u8 *)(slots + LEVELS_SETS * 8), *sums = low + MAX_CLASSES;
    float *thresholds = (float *)(sums + LEVELS_MAP_BYTES);
    const LevelsScale scale = levels_scale(plan);
    const LevelsMap map = levels_map(plan, 32, sums);
    const bool trellis = plan->nu != 0;
    if (threadIdx.x == 0)
        c = PutShared{{map, scale, thresholds, trellis, plan->paired != 0}, low,          slots,           (u32 *)memory,
                      plan->any_low != 0, plan->paired != 0, plan->on_quantiser, plan->on_parity};
    if (!trellis) scalar_thresholds(thresholds, plan);
    if (threadIdx.x < MAX_CLASSES) low[threadIdx.x] = plan->low[threadIdx.x];
    for (u32 i = threadIdx.x; i < plan->classes * 2 * 256; i += blockDim.x) {
        const u32 bits = __ballot_sync(ALL_LANES, a.freq[i] != 0);
        if (lane_of() == 0) slots[i / 32] = bits;
    }
    __syncthreads();
    for (u64 tile = (u64)warp_of() * gridDim.x + blockIdx.x; tile < a.encoding.tiles; tile += (u64)gridDim.x * warps)
        put_tile<V>(w, c, tile);
}

KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_write_f8_e4m3(const GRID_CONSTANT LevelsWrite a) RUNS(put_all<LevelsE4m3>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_write_f8_e5m2(const GRID_CONSTANT LevelsWrite a) RUNS(put_all<LevelsE5m2>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_write_f16(const GRID_CONSTANT LevelsWrite a) RUNS(put_all<LevelsF16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_write_bf16(const GRID_CONSTANT LevelsWrite a) RUNS(put_all<LevelsBf16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_write_f32(const GRID_CONSTANT LevelsWrite a) RUNS(put_all<LevelsF32>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_write_f64(const GRID_CONSTANT LevelsWrite a) RUNS(put_all<LevelsF64>)
