// Deltas, the first of two passes: tiles are decoded and held against the tensor, which stays as it is. Places and new values go to the
// workspace, and `delta_write` brings the tensor up to date if nothing is wrong. A warp a tile.
//
// rANS gives a symbol a lane and a tick; what follows from symbols needs sums over all before. So symbols of 256 changes are gathered in
// shared memory, and each lane takes eight that lie side by side: one sum over the lanes serves them all.

#include "crc_fold.cuh"
#include "delta.cuh"
#include "rans.cuh"

static_assert(RING_ROOM + 2 * DELTA_BATCH == DELTA_WARP, "as the launch code reckons");

// A warp's shared memory.
struct DeltaScratch {
    u16 ring[RING_ROOM / 2];
    u8 symbols[DELTA_BATCH], classes[DELTA_BATCH];
};

// A stream of symbols; the lane's state.
struct DeltaStream {
    Words words;
    u32 x, lanes_log;
};

// States are at even addresses only.
DEVICE DeltaStream delta_open(DeltaScratch &scratch, const u8 *at, u32 lanes_log, u64 limit) {
    const u16 *states = (const u16 *)at;
    const u32 lane = lane_of();
    DeltaStream s;
    s.lanes_log = lanes_log;
    s.x = START;
    if (lane < 1u << lanes_log) s.x = states[2 * lane] | (u32)states[2 * lane + 1] << 16;
    s.words = words_open(scratch.ring, (u64)at + (4u << lanes_log), limit);
    return s;
}

// One tick; `table` is that of the lane's symbol.
DEVICE u32 delta_tick(DeltaStream &s, const u8 *table, bool active) {
    u32 symbol = 0, x = s.x;
    if (active) {
        const u32 slot = x & ((1u << DELTA_LOG) - 1), high = x >> DELTA_LOG;
        symbol = table[slot];
        const u32 info = ((const u32 *)(table + (1u << DELTA_LOG)))[symbol];
        x = (info & 0xfff) * high + high + slot - (info >> 16);
    }
    s.x = fill_up(s.words, x, active);
    return symbol;
}

// Symbols of `count` changes, to shared memory; `table_of` is asked by the number of the change. A batch takes a word a change at most.
template <class F> DEVICE void delta_symbols(DeltaStream &s, u8 *to, u32 count, F table_of) {
    const u32 lane = lane_of();
    if (count == DELTA_BATCH && s.lanes_log == 5) {
#pragma unroll
        for (u32 i = 0; i < DELTA_BATCH; i += 32) to[i + lane] = (u8)delta_tick(s, table_of(i + lane), true);
    } else {
        const bool mine = lane < 1u << s.lanes_log;
        for (u32 i = 0; i < count; i += 1u << s.lanes_log) {
            const bool active = mine && i + lane < count;
            const u32 symbol = delta_tick(s, table_of(active ? i + lane : 0), active);
            if (active) to[i + lane] = (u8)symbol;
        }
    }
    words_refill(s.words);
    __syncwarp();
}

// Whether a stream ends as it should, in all lanes.
DEVICE bool delta_ended(const DeltaStream &s, u32 words) {
    return warp_agrees(s.x == START && words_taken(s.words) == words);
}

// A lane's eight symbols.
DEVICE void delta_mine(const u8 *symbols, u32 (&v)[DELTA_EACH]) {
    const uint2 two = ((const uint2 *)symbols)[lane_of()];
#pragma unroll
    for (u32 j = 0; j < DELTA_EACH; ++j) v[j] = (j < 4 ? two.x : two.y) >> (8 * (j & 3)) & 255;
}

// What a warp knows of its tile.
template <class E> struct DeltaWork {
    const DeltaItem &item;
    const DeltaTile tile;
    const u8 *bytes, *tables, *class_of;
    DeltaScratch &scratch;
    // Raw bits that were taken, from the tile's start; where the tile ends.
    u32 raw, limit;

    METHOD u32 count(u32 from) const { return min((u32)DELTA_BATCH, tile.changes - from); }
    // Changes of this lane in a batch of `count`.
    METHOD u32 own(u32 count) const {
        const u32 before = lane_of() * DELTA_EACH;
        return count > before ? min(count - before, (u32)DELTA_EACH) : 0;
    }
    METHOD u64 slot(u32 from) const { return tile.first + from + lane_of() * DELTA_EACH; }

    // Places and old values, to the workspace, and the sum over them. Returns a status.
    METHOD u32 places(u64 &sum) {
        const E *base = (const E *)item.to + tile.start;
        const u8 *table = tables + tile.gap_table * DELTA_TABLE;
        DeltaStream s = delta_open(scratch, bytes + 28, item.lanes_log, item.blob + item.blob_len);
        if (__any_sync(ALL_LANES, s.x < START)) return STATUS_STATE;
        // The batch before: its old values are on their way while the next symbols are decoded.
        u32 place[DELTA_EACH], held = 0, next = 0;
        E old[DELTA_EACH];
        u64 at = 0;
        sum = 0;
        const auto settle = [&] {
            if (held == 0) return;
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j)
                if (j < held) sum += delta_mix(place[j], old[j]);
            delta_put(item.places + at, place);
            delta_put((E *)item.values + at, old);
        };
        for (u32 from = 0; from < tile.changes; from += DELTA_BATCH) {
            const u32 count = this->count(from), mine = own(count);
            delta_symbols(s, scratch.symbols, count, [&](u32) { return table; });
            settle();
            u32 token[DELTA_EACH], open = 0, sizes = 0;
            delta_mine(scratch.symbols, token);
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j)
                if (j < mine) open += gap_open(token[j]);
            u32 bit = warp_before(open);
            const u32 opened = __shfl_sync(ALL_LANES, bit + open, 31);
            bit += raw;
            if (opened > limit - raw) return STATUS_DELTA_END;
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) {
                u32 low = 0;
                const u32 more = j < mine ? gap_open(token[j]) : 0;
                delta_take(low, (const u32 *)bytes, bit, more, limit);
                bit += more;
                // From the start of the lane's share: a value each, and those between.
                if (j < mine) sizes += min(gap_high(token[j]) + low, 1u << 22);
                place[j] = sizes;
                sizes += j < mine;
            }
            const u32 start = next + warp_before(sizes);
            next = __shfl_sync(ALL_LANES, start + sizes, 31);
            bool outside = false;
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) {
                place[j] = j < mine ? place[j] + start : 0;
                outside |= place[j] >= tile.values;
            }
            if (__any_sync(ALL_LANES, outside)) return STATUS_DELTA_PLACE;
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) old[j] = j < mine ? __ldg(base + place[j]) : (E)0;
            held = mine;
            at = slot(from);
            raw += opened;
            __syncwarp();
        }
        settle();
        sum = warp_sum(sum);
        return delta_ended(s, tile.gap_words) ? 0 : STATUS_WORDS;
    }

    // New values, to where the old ones are in the workspace, and the sum over them. Returns a status.
    METHOD u32 values(u64 &sum) {
        typedef typename DeltaNumber<E>::type N;
        const Telling<E> telling{tile.way, item.floats != 0};
        const u8 *table = tables + tile.value_table * DELTA_TABLE;
        const u32 before = 28 + (4u << item.lanes_log) + 2 * tile.gap_words;
        DeltaStream s = delta_open(scratch, bytes + before, item.lanes_log, item.blob + item.blob_len);
        if (__any_sync(ALL_LANES, s.x < START)) return STATUS_STATE;
        E old[DELTA_EACH], later[DELTA_EACH];
        sum = 0;
        const auto fetch = [&](u32 from, E(&to)[DELTA_EACH]) {
            if (from < tile.changes && own(this->count(from)) > 0) delta_get((const E *)item.values + slot(from), to);
        };
#pragma unroll
        for (u32 j = 0; j < DELTA_EACH; ++j) later[j] = 0;
        fetch(0, later);
        for (u32 from = 0; from < tile.changes; from += DELTA_BATCH) {
            const u32 count = this->count(from), mine = own(count);
            u32 place[DELTA_EACH], symbol[DELTA_EACH], open = 0;
            u8 classes[DELTA_EACH];
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) {
                old[j] = later[j];
                classes[j] = class_of[(u32)(old[j] >> item.key_low) & item.key_mask];
            }
            delta_put(scratch.classes + lane_of() * DELTA_EACH, classes);
            fetch(from + DELTA_BATCH, later);
            if (mine > 0) delta_get((const u32 *)item.places + slot(from), place);
            __syncwarp();
            delta_symbols(s, scratch.symbols, count,
                          [&](u32 i) { return table + (u32)scratch.classes[i] * DELTA_TABLE; });
            delta_mine(scratch.symbols, symbol);
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j)
                if (j < mine) open += telling.open(symbol[j]);
            u32 bit = warp_before(open);
            const u32 opened = __shfl_sync(ALL_LANES, bit + open, 31);
            bit += raw;
            if (opened > limit - raw) return STATUS_DELTA_END;
            bool bad = false;
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) {
                if (j >= mine) continue;
                const u32 more = telling.open(symbol[j]);
                N low = 0;
                delta_take(low, (const u32 *)bytes, bit, more, limit);
                bit += more;
                bad |= !telling.join(old[j], symbol[j], low, old[j]);
                sum += delta_mix(place[j], old[j]);
            }
            if (__any_sync(ALL_LANES, bad)) return STATUS_DELTA_VALUE;
            if (mine > 0) delta_put((E *)item.values + slot(from), old);
            raw += opened;
        }
        sum = warp_sum(sum);
        return delta_ended(s, tile.value_words) ? 0 : STATUS_WORDS;
    }

    // What is left behind the raw bits: up to three bytes of zeros.
    METHOD u32 rest() const {
        const u32 used = (raw + 7) / 8;
        if (tile.len - used > 3) return STATUS_TILE_LEFT;
        for (u32 i = used; i < tile.len; ++i)
            if (bytes[i]) return STATUS_TILE_LEFT;
        return 0;
    }

    // Says what is wrong, or what the tile of the tensor is.
    METHOD void run(u32 number) {
        u64 sum;
        u32 code = places(sum);
        if (code == 0) {
            if (lane_of() == 0) delta_judge(item, tile, number, sum);
            if (sum != tile.before) return;
            __syncwarp();
            code = values(sum);
            if (code == 0) code = rest();
            if (code == 0 && sum != tile.after) code = STATUS_DELTA_RESULT;
        }
        if (code && lane_of() == 0) delta_report(item.status, code);
    }
};

template <class E> DEVICE void delta_decode(const DeltaArgs &a) {
    DYNAMIC_SHARED(memory);
    const u32 which = delta_item(a, [](const DeltaItem &item) { return item.decode0; });
    const DeltaItem &item = a.items[which];
    const u32 next = which + 1 < a.count ? a.items[which + 1].decode0 : a.blocks;
    const u32 part = blockIdx.x - item.decode0, parts = next - item.decode0;

    // Shared memory: a part for each warp, then classes and tables, if there is room for them.
    u8 *near = memory + DELTA_THREADS / 32 * DELTA_WARP;
    const u32 bytes = item.table_count <= a.room ? DELTA_CLASSES + item.table_count * DELTA_TABLE : DELTA_CLASSES;
    for (u32 i = threadIdx.x; i < bytes / 16; i += DELTA_THREADS) ((uint4 *)near)[i] = ((const uint4 *)item.tables)[i];
    __syncthreads();
    const u8 *tables = (item.table_count <= a.room ? near : item.tables) + DELTA_CLASSES;

    // Tiles are dealt to warps, and checksums from the other end, so that warps without a tile take them.
    const u32 warps = DELTA_THREADS / 32, warp = warp_of();
    DeltaScratch &scratch = ((DeltaScratch *)memory)[warp];
    for (u32 round = 0; part + round * parts < item.tile_count; round += warps) {
        const u32 mine = part + (round + warp) * parts, sum = part + (round + warps - 1 - warp) * parts;
        if (mine < item.tile_count) {
            const DeltaTile &tile = item.tiles[mine];
            const u8 *at = (const u8 *)item.blob + tile.at;
            const u32 raw = 8 * (28 + (8u << item.lanes_log) + 2 * (tile.gap_words + tile.value_words));
            DeltaWork<E>{item, tile, at, tables, near, scratch, raw, 8 * tile.len}.run(mine);
        }
        if (sum < item.tile_count) {
            const DeltaTile &tile = item.tiles[sum];
            const u32 found = crc_fold((const u32 *)(item.blob + tile.at), tile.len / 4);
            if (found != tile.crc && lane_of() == 0) delta_report(item.status, STATUS_TILE_CHECKSUM);
        }
    }
}

KERNEL(DELTA_THREADS) delta_decode_1(const GRID_CONSTANT DeltaArgs a) { delta_decode<u8>(a); }
KERNEL(DELTA_THREADS) delta_decode_2(const GRID_CONSTANT DeltaArgs a) { delta_decode<u16>(a); }
KERNEL(DELTA_THREADS) delta_decode_4(const GRID_CONSTANT DeltaArgs a) { delta_decode<u32>(a); }
KERNEL(DELTA_THREADS) delta_decode_8(const GRID_CONSTANT DeltaArgs a) { delta_decode<u64>(a); }
