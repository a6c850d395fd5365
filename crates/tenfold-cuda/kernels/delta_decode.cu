// Deltas, the first of two passes: tiles are decoded and held against the tensor, which stays as it is. Places and new values go to the
// workspace, and `delta_write` brings the tensor up to date if nothing is wrong. A warp a tile.
//
// rANS gives a symbol a lane and a tick; what follows from symbols needs sums over all before. So symbols of 256 changes are gathered in
// shared memory, and each lane takes eight that lie side by side: one sum over the lanes serves them all.

#include "crc_fold.cuh"
#include "delta.cuh"
#include "rans.cuh"

static_assert(RING_ROOM + DELTA_BATCH + 4 * DELTA_FETCHED == DELTA_WARP, "as the launch code reckons");
static_assert(DELTA_FETCHED % 32 == 0, "some words a lane");

// A warp's shared memory.
struct DeltaScratch {
    u16 ring[RING_ROOM / 2];
    // Symbols of a batch; before one is decoded, the class of its old value.
    u8 symbols[DELTA_BATCH];
    // Raw bits of a batch, if they are not more than usual.
    u32 raw[DELTA_FETCHED];
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

// What a symbol leaves of a state; `span` is the symbol's.
DEVICE u32 delta_pop(u32 x, u32 slot, u32 span) {
    const u32 high = x >> DELTA_LOG;
    return (span & 0xfff) * high + high + slot - (span >> 16);
}

// Symbols of `count` changes, to shared memory. The table of each is `table_of` bytes behind `tables`, which are in shared memory if they are
// near. A batch takes a word a change at most.
template <class F> DEVICE void delta_symbols(DeltaStream &s, u8 *to, u32 count, const u8 *tables, bool near, F table_of) {
    const u32 lane = lane_of(), mask = (1u << DELTA_LOG) - 1;
    if (near && count == DELTA_BATCH && s.lanes_log == 5) {
        // Most batches.
        const SharedAt first = shared_at(tables);
#pragma unroll
        for (u32 i = 0; i < DELTA_BATCH; i += 32) {
            const SharedAt table = first + table_of(i + lane);
            const u32 slot = s.x & mask, symbol = shared_u8(table + slot);
            s.x = fill_up(s.words, delta_pop(s.x, slot, shared_u32(table + (1u << DELTA_LOG) + 4 * symbol)));
            to[i + lane] = (u8)symbol;
        }
    } else {
        const bool mine = lane < 1u << s.lanes_log;
#pragma unroll 1
        for (u32 i = 0; i < count; i += 1u << s.lanes_log) {
            const bool active = mine && i + lane < count;
            u32 x = s.x;
            if (active) {
                const u8 *table = tables + table_of(i + lane);
                const u32 slot = x & mask, symbol = table[slot];
                x = delta_pop(x, slot, ((const u32 *)(table + (1u << DELTA_LOG)))[symbol]);
                to[i + lane] = (u8)symbol;
            }
            s.x = fill_up(s.words, x, active);
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

// Changes of a lane in a batch of `count`.
DEVICE u32 delta_own(u32 count) {
    const u32 before = lane_of() * DELTA_EACH;
    return count > before ? min(count - before, (u32)DELTA_EACH) : 0;
}

// What a warp knows of its tile.
template <class E> struct DeltaWork {
    typedef typename DeltaNumber<E>::type N;
    const DeltaItem &item;
    const DeltaTile tile;
    const u8 *bytes, *tables;
    // Whether tables are in shared memory; the class of each key, which is there always.
    const bool near;
    const SharedAt class_of;
    DeltaScratch &scratch;
    // Raw bits that were taken, from the tile's start; where the tile ends.
    u32 raw, limit;

    METHOD u64 slot(u32 from) const { return tile.first + from + lane_of() * DELTA_EACH; }
    METHOD u32 count(u32 from) const { return min((u32)DELTA_BATCH, tile.changes - from); }

    // Raw bits that the next batch begins with, on their way while its symbols are decoded.
    struct Fetched {
        u32 word[DELTA_FETCHED / 32];
    };
    METHOD Fetched fetch_raw() const {
        const FarWords words{(const u32 *)bytes, limit / 32};
        Fetched f;
#pragma unroll
        for (u32 i = 0; i < DELTA_FETCHED / 32; ++i) f.word[i] = words[raw / 32 + i * 32 + lane_of()];
        return f;
    }

    // Raw bits of a batch, of which the lane's changes leave `open`, to `v`; false where the tile has fewer.
    template <class V> METHOD bool take(V (&v)[DELTA_EACH], const u32 (&open)[DELTA_EACH], const Fetched &fetched) {
        u32 all = 0;
#pragma unroll
        for (u32 j = 0; j < DELTA_EACH; ++j) all += open[j];
#pragma unroll
        for (u32 i = 0; i < DELTA_FETCHED / 32; ++i) scratch.raw[i * 32 + lane_of()] = fetched.word[i];
        const u32 before = warp_before(all), opened = __shfl_sync(ALL_LANES, before + all, 31);
        if (opened > limit - raw) return false;
        __syncwarp();
        if (raw % 32 + opened <= 32 * DELTA_FETCHED) delta_raw(v, NearWords{shared_at(scratch.raw), DELTA_FETCHED}, raw % 32 + before, open, all);
        else delta_raw(v, FarWords{(const u32 *)bytes, limit / 32}, raw + before, open, all);
        __syncwarp();
        raw += opened;
        return true;
    }

    // Places and old values, to the workspace, and the sum over them. Returns a status.
    METHOD u32 places(u64 &sum) {
        const E *base = (const E *)item.to + tile.start;
        const u32 table = tile.gap_table * DELTA_TABLE;
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
#pragma unroll 1
        for (u32 from = 0; from < tile.changes; from += DELTA_BATCH) {
            const u32 count = this->count(from), mine = delta_own(count);
            const Fetched fetched = fetch_raw();
            delta_symbols(s, scratch.symbols, count, tables, near, [&](u32) { return table; });
            settle();
            u32 token[DELTA_EACH], open[DELTA_EACH], low[DELTA_EACH], sizes = 0;
            delta_mine(scratch.symbols, token);
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) open[j] = j < mine ? gap_open(token[j]) : 0;
            if (!take(low, open, fetched)) return STATUS_DELTA_END;
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) {
                // From the start of the lane's share: a value each, and those between.
                if (j < mine) sizes += min(gap_high(token[j]) + low[j], 1u << 22);
                place[j] = sizes;
                sizes += j < mine;
            }
            const u32 start = next + warp_before(sizes);
            next = __shfl_sync(ALL_LANES, start + sizes, 31);
            // Places increase: if the last is inside, all are. 256 gaps of 2^22 behind a good place stay below 2^31.
            if (next > tile.values) return STATUS_DELTA_PLACE;
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) {
                place[j] = j < mine ? place[j] + start : 0;
                old[j] = j < mine ? __ldg(base + place[j]) : (E)0;
            }
            held = mine;
            at = slot(from);
        }
        settle();
        sum = warp_sum(sum);
        return delta_ended(s, tile.gap_words) ? 0 : STATUS_WORDS;
    }

    // Old values of a batch, if the lane has some.
    METHOD void fetch(u32 from, E (&to)[DELTA_EACH]) const {
        if (from < tile.changes && delta_own(count(from)) > 0) delta_get((const E *)item.values + slot(from), to);
    }

    // New values, to where the old ones are in the workspace, and the sum over them. Returns a status.
    METHOD u32 values(u64 &sum) {
        const u32 before = 28 + (4u << item.lanes_log) + 2 * tile.gap_words, table = tile.value_table * DELTA_TABLE;
        DeltaStream s = delta_open(scratch, bytes + before, item.lanes_log, item.blob + item.blob_len);
        if (__any_sync(ALL_LANES, s.x < START)) return STATUS_STATE;
        const Telling<E> telling{tile.way, item.floats != 0};
        E later[DELTA_EACH];
#pragma unroll
        for (u32 j = 0; j < DELTA_EACH; ++j) later[j] = 0;
        fetch(0, later);
        sum = 0;
#pragma unroll 1
        for (u32 from = 0; from < tile.changes; from += DELTA_BATCH) {
            const u32 count = this->count(from), mine = delta_own(count);
            u32 place[DELTA_EACH], symbol[DELTA_EACH], open[DELTA_EACH];
            N low[DELTA_EACH];
            E old[DELTA_EACH];
            u8 classes[DELTA_EACH];
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) {
                old[j] = later[j];
                classes[j] = (u8)shared_u8(class_of + ((u32)(old[j] >> item.key_low) & item.key_mask));
            }
            delta_put(scratch.symbols + lane_of() * DELTA_EACH, classes);
            // On their way while symbols are decoded: what this batch needs then, and old values of the next.
            const Fetched fetched = fetch_raw();
            fetch(from + DELTA_BATCH, later);
            if (mine > 0) delta_get((const u32 *)item.places + slot(from), place);
            __syncwarp();
            delta_symbols(s, scratch.symbols, count, tables, near, [&](u32 i) { return table + (u32)scratch.symbols[i] * DELTA_TABLE; });
            delta_mine(scratch.symbols, symbol);
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) open[j] = j < mine ? telling.open(symbol[j]) : 0;
            if (!take(low, open, fetched)) return STATUS_DELTA_END;
            bool bad = false;
#pragma unroll
            for (u32 j = 0; j < DELTA_EACH; ++j) {
                if (j >= mine) continue;
                bad |= !telling.join(old[j], symbol[j], low[j], old[j]);
                sum += delta_mix(place[j], old[j]);
            }
            if (__any_sync(ALL_LANES, bad)) return STATUS_DELTA_VALUE;
            if (mine > 0) delta_put((E *)item.values + slot(from), old);
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

// Tiles of a delta, dealt to warps of `parts` blocks. Checksums are dealt from the other end, so that warps without a tile take them.
template <class E> DEVICE void delta_tiles(const DeltaItem &item, u32 part, u32 parts, const u8 *near, bool fit, DeltaScratch &scratch) {
    const u8 *tables = fit ? near + DELTA_CLASSES : item.tables + DELTA_CLASSES;
    const u32 warps = DELTA_THREADS / 32, warp = warp_of();
    for (u32 round = 0; part + round * parts < item.tile_count; round += warps) {
        const u32 mine = part + (round + warp) * parts, sum = part + (round + warps - 1 - warp) * parts;
        if (mine < item.tile_count) {
            const DeltaTile &tile = item.tiles[mine];
            const u8 *at = (const u8 *)item.blob + tile.at;
            const u32 raw = 8 * (28 + (8u << item.lanes_log) + 2 * (tile.gap_words + tile.value_words));
            DeltaWork<E>{item, tile, at, tables, fit, shared_at(near), scratch, raw, 8 * tile.len}.run(mine);
        }
        if (sum < item.tile_count) {
            const DeltaTile &tile = item.tiles[sum];
            const u32 found = crc_fold((const u32 *)(item.blob + tile.at), tile.len / 4);
            if (found != tile.crc && lane_of() == 0) delta_report(item.status, STATUS_TILE_CHECKSUM);
        }
    }
}

template <class E> DEVICE void delta_decode(const DeltaArgs &a) {
    DYNAMIC_SHARED(memory);
    const u32 which = delta_item(a, [](const DeltaItem &item) { return item.decode0; });
    const DeltaItem &item = a.items[which];
    const u32 next = which + 1 < a.count ? a.items[which + 1].decode0 : a.blocks;
    const u32 part = blockIdx.x - item.decode0, parts = next - item.decode0;

    // Shared memory: a part for each warp, then classes and tables, if there is room for them.
    u8 *near = memory + DELTA_THREADS / 32 * DELTA_WARP;
    const bool fit = item.table_count <= a.room;
    const u32 bytes = DELTA_CLASSES + (fit ? item.table_count * DELTA_TABLE : 0);
    for (u32 i = threadIdx.x; i < bytes / 16; i += DELTA_THREADS) ((uint4 *)near)[i] = ((const uint4 *)item.tables)[i];
    __syncthreads();
    DeltaScratch &scratch = ((DeltaScratch *)memory)[warp_of()];
    delta_tiles<E>(item, part, parts, near, fit, scratch);
}

// Two blocks a multiprocessor.
KERNEL(DELTA_THREADS, 2) delta_decode_1(const GRID_CONSTANT DeltaArgs a) { delta_decode<u8>(a); }
KERNEL(DELTA_THREADS, 2) delta_decode_2(const GRID_CONSTANT DeltaArgs a) { delta_decode<u16>(a); }
KERNEL(DELTA_THREADS, 2) delta_decode_4(const GRID_CONSTANT DeltaArgs a) { delta_decode<u32>(a); }
KERNEL(DELTA_THREADS, 2) delta_decode_8(const GRID_CONSTANT DeltaArgs a) { delta_decode<u64>(a); }
