// Lossless tiles of 16-bit floats, two a warp: a decoder waits for most of its time, for a slot and then for a word, and a
// second tile fills that wait. It does what `lossless_decode.cu` does to tiles of the usual kind, and leaves the others.

#include "lossless_halves.cuh"

// Where one of the two stands. Positions are in bytes, counted from the 8 bytes that hold the first word.
struct Halves {
    // The lane's share of the first chunk, and how many bytes may be read from there.
    const u8 *words;
    i32 limit;
    // The next word, and where the ring has to be turned.
    u32 at, turn;
    // The lane's share of the chunk after those in the ring; its state.
    uint2 next;
    u32 x;
    // The lane's four stored bytes of both turns of a unit, and where those of the next lie; after the last unit that one
    // once more, so that they can be sent for without asking.
    u32 low[2];
    const u32 *stored;
    u64 *out;
};

// Where a warp's shared memory is: the table, the first tile's ring and the lane's share of it, the bytes of a turn.
struct HalvesNear {
    SharedAt table, ring, mine, bytes;
};

DEVICE uint2 halves_fetch(const Halves &t, u32 chunk) {
    const i32 left = t.limit - (i32)chunk;
    if (left >= 8) return __ldg((const uint2 *)(t.words + chunk));
    return make_uint2(left >= 4 ? __ldg((const u32 *)(t.words + chunk)) : 0, 0);
}

// The first chunk stands behind the ring once more.
DEVICE void halves_put(SharedAt mine, u32 chunk, uint2 v) {
    shared_put(mine + (chunk & HALVES_CHUNK), v);
    if (!(chunk & HALVES_CHUNK)) shared_put(mine + HALVES_RING, v);
}

DEVICE void halves_turn(Halves &t, SharedAt mine) {
    __syncwarp();
    halves_put(mine, t.turn + HALVES_CHUNK, t.next);
    __syncwarp();
    t.turn += HALVES_CHUNK;
    t.next = halves_fetch(t, t.turn + HALVES_CHUNK);
}

DEVICE void halves_open(Halves &t, const Item &item, const TileAt &tile, u64 start, u32 values, SharedAt mine) {
    const u32 lane = lane_of();
    const u8 *first = tile.bytes + halves_words(values);
    t.x = *(const u32 *)(tile.bytes + halves_states(values) + 4 * lane);
    t.at = (u32)((u64)first & 7);
    t.words = first - t.at + lane * 8;
    t.limit = (i32)min((i64)(item.blob + item.blob_len) - (i64)t.words, (i64)1 << 30);
    t.turn = HALVES_CHUNK;
    __syncwarp();
    halves_put(mine, 0, halves_fetch(t, 0));
    halves_put(mine, HALVES_CHUNK, halves_fetch(t, HALVES_CHUNK));
    t.next = halves_fetch(t, 2 * HALVES_CHUNK);
    __syncwarp();
    t.stored = (const u32 *)(tile.bytes + 4) + lane;
    t.low[0] = t.low[1] = 0;
    if (values >= UNIT) {
        t.low[0] = __ldg(t.stored);
        t.low[1] = __ldg(t.stored + TURN / 4);
    }
    t.stored += values >= 2 * UNIT ? UNIT / 4 : 0;
    t.out = (u64 *)((u16 *)item.out + start) + lane;
}

// Four steps of all tiles, step by step, so that what one waits for is sent for before the other waits too. The symbols
// change lanes on the way.
template <u32 K> DEVICE void halves_four(Halves *t, const HalvesNear &near, u32 below) {
    SharedAt at[K];
#pragma unroll
    for (u32 k = 0; k < K; ++k) at[k] = near.ring + k * HALVES_ROOM + (t[k].at & (HALVES_RING - 1));
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
        u32 slot[K], word[K];
        bool low[K];
#pragma unroll
        for (u32 k = 0; k < K; ++k) slot[k] = ordered_u32(plus_quads(t[k].x & ((1u << PLANE_LOG) - 1), near.table));
#pragma unroll
        for (u32 k = 0; k < K; ++k) {
            t[k].x = pop(t[k].x, slot[k], PLANE_LOG);
            low[k] = t[k].x < START;
            const u32 who = __ballot_sync(ALL_LANES, low[k]);
            word[k] = ordered_u16(at[k] + 2 * (u32)__popc(who & below));
            at[k] += 2 * (u32)__popc(who);
        }
#pragma unroll
        for (u32 k = 0; k < K; ++k) {
            shared_put_u8(near.bytes + k * TURN + j * 32 + lane_of(), slot[k] >> 12);
            if (low[k]) t[k].x = t[k].x << 16 | word[k];
        }
    }
#pragma unroll
    for (u32 k = 0; k < K; ++k) t[k].at += (u32)(at[k] - near.ring - k * HALVES_ROOM) - (t[k].at & (HALVES_RING - 1));
}

// Two elements of which each is a byte of both, turned back as floats are.
DEVICE u32 halves_join(u32 low, u32 high, u32 which) {
    const u32 v = __byte_perm(low, high, which);
    return bits_of_two(v >> 1, v << 15, 0x80008000);
}

// So many units of `K` tiles, of which the first has `more` after them. A lane gets the coded bytes of four neighbours and writes
// eight bytes at a time.
template <u32 K> DEVICE void halves_units(Halves *t, const HalvesNear &near, u32 units, u32 more) {
    const u32 lane = lane_of(), below = (1u << lane) - 1;
    for (u32 left = units; left > 0; --left) {
#pragma unroll
        for (u32 turn = 0; turn < 2; ++turn) {
            halves_four<K>(t, near, below);
            __syncwarp();
#pragma unroll
            for (u32 k = 0; k < K; ++k) {
                const u32 high = shared_u32(near.bytes + k * TURN + lane * 4), low = t[k].low[turn];
                global_put(t[k].out + turn * (TURN / 4), halves_join(low, high, 0x5140) | (u64)halves_join(low, high, 0x7362) << 32);
            }
            __syncwarp();
            bool turns = false;
#pragma unroll
            for (u32 k = 0; k < K; ++k) turns |= t[k].at >= t[k].turn;
            if (turns) {
#pragma unroll
                for (u32 k = 0; k < K; ++k)
                    if (t[k].at >= t[k].turn) halves_turn(t[k], near.mine + k * HALVES_ROOM);
            }
            // Not before the branch: sent for earlier, they would need registers of their own, and a wait to be moved.
#pragma unroll
            for (u32 k = 0; k < K; ++k) t[k].low[turn] = global_get(t[k].stored + turn * (TURN / 4));
        }
#pragma unroll
        for (u32 k = 0; k < K; ++k) {
            t[k].stored += (k == 0 ? left + more : left) > 2 ? UNIT / 4 : 0;
            t[k].out += UNIT / 4;
        }
    }
}

// What is less than a unit, of the second tile if `k` says so; then whether all words were taken.
DEVICE void halves_end(Halves &t, const HalvesNear &near, u32 k, const Share &share, const TileAt &tile, u64 start, u32 values) {
    const u32 lane = lane_of(), below = (1u << lane) - 1;
    const SharedAt ring = near.ring + k * HALVES_ROOM;
#pragma unroll 1
    for (u32 i = values / UNIT * UNIT + lane; i - lane < values; i += 32) {
        const bool active = i < values;
        u32 symbol = 0;
        if (active) {
            const u32 slot = shared_u32(plus_quads(t.x & ((1u << PLANE_LOG) - 1), near.table));
            t.x = pop(t.x, slot, PLANE_LOG);
            symbol = slot_symbol(slot);
        }
        const bool low = active && t.x < START;
        const u32 who = __ballot_sync(ALL_LANES, low);
        const u32 word = shared_u16(ring + ((t.at + 2 * (u32)__popc(who & below)) & (HALVES_RING - 1)));
        if (low) t.x = t.x << 16 | word;
        t.at += 2 * (u32)__popc(who);
        if (t.at >= t.turn) halves_turn(t, near.mine + k * HALVES_ROOM);
        if (active) global_put((u16 *)share.item.out + start + i, (u16)halves_join(tile.bytes[4 + i], symbol, 0x4040));
    }
    const u32 words = halves_words(values), end = ((u32)(u64)(tile.bytes + words) & 7) + (halves_head(tile, values) >> 8) * 2;
    if (t.x != START || t.at != end) report(share.status, STATUS_WORDS);
}

// One tile, or two of which the second is no longer than the first.
template <u32 K> DEVICE void halves_decode(const Share &share, const HalvesNear &near, u64 a, u64 b) {
    const Desc *d = &share.work->desc;
    Halves t[K];
    u32 values[K];
#pragma unroll
    for (u32 k = 0; k < K; ++k) {
        const u64 number = k ? b : a;
        values[k] = halves_values(d, number);
        halves_open(t[k], share.item, tile_at(share.item, share.work, number), number * d->tile_values, values[k],
                    near.mine + k * HALVES_ROOM);
    }
    const u32 units = values[K - 1] / UNIT, more = values[0] / UNIT - units;
    halves_units<K>(t, near, units, more);
    if (K > 1 && more > 0) halves_units<1>(t, near, more, 0);
#pragma unroll
    for (u32 k = 0; k < K; ++k) {
        const u64 number = k ? b : a;
        halves_end(t[k], near, k, share, tile_at(share.item, share.work, number), number * d->tile_values, halves_values(d, number));
    }
}

KERNEL(DECODE_THREADS) lossless_halves(const GRID_CONSTANT TilesArgs a) {
    DYNAMIC_SHARED(memory);
    __shared__ __align__(16) u16 starts[256];
    const Share &share = share_open(a, CODEC_PLANES, 2, [&](const Item &item, const Work *work) {
        return halves_suit(item, &work->desc, a.shared) ? PART_ALL : PART_NONE;
    });
    if (share.empty) return;
    const Desc *d = &share.work->desc;
    slots_fill((u32 *)memory, share.work->start, d->tables, PLANE_LOG, starts, 1, [](u32 t) { return t; });
    __syncthreads();
    const u32 tables = halves_tables(d), warps = min(blockDim.x / 32, (a.shared - tables) / HALVES_WARP);
    HalvesNear near;
    near.table = shared_at(memory) + ((d->coded & 1) << (PLANE_LOG + 2));
    near.ring = shared_at(memory) + tables + warp_of() * HALVES_WARP;
    near.mine = near.ring + lane_of() * 8;
    near.bytes = near.ring + 2 * HALVES_ROOM;
    share_tiles<2>(share, warps, [&](u64 one, u64 two) {
        const bool is_two = two < d->end_tile && halves_kind(tile_at(share.item, share.work, two), halves_values(d, two));
        const bool is_one = halves_kind(tile_at(share.item, share.work, one), halves_values(d, one));
        if (is_one && is_two) halves_decode<2>(share, near, one, two);
        else if (is_one || is_two) halves_decode<1>(share, near, is_one ? one : two, 0);
        if ((!is_one || (!is_two && two < d->end_tile)) && lane_of() == 0) work_of(share.item)->rest = 1;
    });
}
