// Lossless tiles of 16-bit floats, two a warp: a decoder waits for most of its time, for a slot and then for a word, and a
// second tile fills that wait. It does what `lossless_decode.cu` does to tiles of the usual kind, and leaves the others.

#include "crc_window.cuh"
#include "lossless_halves.cuh"

// A slot as this kernel has it: the frequency in bits 20–31, the offset within the symbol in 8–19, and the symbol turned right by
// a bit, as halves of an element want it. A frequency of all slots is 0 here; see `halves_end`.
DEVICE u32 halves_slot(u32 slot) {
    const u32 symbol = slot_symbol(slot);
    return (slot + 1) << 20 | slot >> 20 << 8 | symbol >> 1 | (symbol & 1) << 7;
}

// Takes a symbol's slot off a state: frequency and offset are taken together, and what that is too much is taken off the factor.
DEVICE u32 halves_pop(u32 x, u32 slot) { return (slot >> 20) * ((x >> PLANE_LOG) - (1u << PLANE_LOG)) + (slot >> 8); }

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

// Where a warp's shared memory is: the table, the first tile's ring. A number that a ballot is multiplied by to leave what is
// below this lane; how bytes change lanes.
struct HalvesNear {
    SharedAt table, ring;
    u32 below, pairs, quads;
};

// Which four of 128 neighbours a lane has once bytes have changed lanes.
DEVICE u32 halves_place() { return lane_of() % 4 * 8 + lane_of() / 4; }

DEVICE uint2 halves_fetch(const Halves &t, u32 chunk) {
    uint2 v = make_uint2(0, 0);
    global_pair(v, t.words + chunk, t.limit - (i32)chunk);
    return v;
}

// The first chunk stands behind the ring once more.
DEVICE void halves_put(SharedAt mine, u32 chunk, uint2 v) {
    shared_put(mine + (chunk & HALVES_CHUNK), v);
    if (!(chunk & HALVES_CHUNK)) shared_put(mine + HALVES_RING, v);
}

// Turns the rings of those tiles that it is time for. What is on its way to one is not to be waited for by the other.
template <u32 K> DEVICE void halves_turn(Halves *t, SharedAt ring) {
    bool due[K], any = false;
#pragma unroll
    for (u32 k = 0; k < K; ++k) {
        due[k] = t[k].at >= t[k].turn;
        any |= due[k];
    }
    if (!warp_agrees(any)) return;
    __syncwarp();
#pragma unroll
    for (u32 k = 0; k < K; ++k) {
        due[k] = warp_agrees(due[k]);
        if (due[k]) {
            halves_put(ring + k * HALVES_ROOM + lane_of() * 8, t[k].turn + HALVES_CHUNK, t[k].next);
            t[k].next = make_uint2(0, 0);
        }
    }
    __syncwarp();
#pragma unroll
    for (u32 k = 0; k < K; ++k) {
        if (due[k]) {
            t[k].turn += HALVES_CHUNK;
            const u32 chunk = t[k].turn + HALVES_CHUNK;
            global_pair(t[k].next, t[k].words + chunk, t[k].limit - (i32)chunk);
        }
    }
}

DEVICE void halves_open(Halves &t, const Item &item, const TileAt &tile, u64 start, u32 values, SharedAt mine) {
    const u32 lane = lane_of();
    const u8 *first = tile.bytes + halves_words(values);
    // What it is anyway, see `halves_kind`; but this is waited for here, and not, with all that is sent for there, wherever the loop
    // begins anew.
    t.x = max(START, *(const u32 *)(tile.bytes + halves_states(values) + 4 * lane));
    t.at = (u32)((u64)first & 7);
    t.words = first - t.at + lane * 8;
    t.limit = (i32)min((i64)(item.blob + item.blob_len) - (i64)t.words, (i64)1 << 30);
    t.turn = HALVES_CHUNK;
    __syncwarp();
    halves_put(mine, 0, halves_fetch(t, 0));
    halves_put(mine, HALVES_CHUNK, halves_fetch(t, HALVES_CHUNK));
    t.next = halves_fetch(t, 2 * HALVES_CHUNK);
    __syncwarp();
    t.stored = (const u32 *)(tile.bytes + 4) + halves_place();
    t.low[0] = t.low[1] = 0;
    if (values >= UNIT) {
        t.low[0] = __ldg(t.stored);
        t.low[1] = __ldg(t.stored + TURN / 4);
    }
    t.stored += values >= 2 * UNIT ? UNIT / 4 : 0;
    t.out = (u64 *)((u16 *)item.out + start) + halves_place();
}

// Four steps of all tiles, step by step, so that what one waits for is sent for before the other waits too. Returns each lane's
// symbols, and the last words that it found.
template <u32 K> DEVICE void halves_four(Halves *t, const HalvesNear &near, u32 (&symbols)[K], u32 (&word)[K]) {
    SharedAt at[K];
    u32 slot[4][K];
#pragma unroll
    for (u32 k = 0; k < K; ++k) at[k] = near.ring + k * HALVES_ROOM + (t[k].at & (HALVES_RING - 1));
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
        bool low[K];
#pragma unroll
        for (u32 k = 0; k < K; ++k) slot[j][k] = ordered_u32(plus_quads(t[k].x & ((1u << PLANE_LOG) - 1), near.table));
#pragma unroll
        for (u32 k = 0; k < K; ++k) {
            t[k].x = halves_pop(t[k].x, slot[j][k]);
            low[k] = t[k].x < START;
            const u32 who = __ballot_sync(ALL_LANES, low[k]);
            word[k] = ordered_u16(at[k] + 2 * (u32)__popc(who * near.below));
            at[k] += 2 * (u32)__popc(who);
        }
#pragma unroll
        for (u32 k = 0; k < K; ++k)
            if (low[k]) t[k].x = t[k].x << 16 | word[k];
    }
#pragma unroll
    for (u32 k = 0; k < K; ++k) {
        t[k].at += (u32)(at[k] - near.ring - k * HALVES_ROOM) - (t[k].at & (HALVES_RING - 1));
        symbols[k] = __byte_perm(__byte_perm(slot[0][k], slot[1][k], 0x0040), __byte_perm(slot[2][k], slot[3][k], 0x0040), 0x5410);
    }
}

// Four elements, of which each is a stored byte and a turned symbol.
DEVICE u64 halves_join(u32 low, u32 symbols) {
    const u32 upper = bits_of_two(symbols, low << 7, 0x80808080), lower = bits_of_two(low >> 1, symbols, 0x80808080);
    return __byte_perm(lower, upper, 0x5140) | (u64)__byte_perm(lower, upper, 0x7362) << 32;
}

// So many units of `K` tiles, of which the first has `more` after them. The symbols change lanes: a lane gets those of four
// neighbours and writes eight bytes at a time. Lanes ask each other what all of them know, so that the assembler sees that they
// stay together: it would wait for all that was sent for otherwise.
template <u32 K> DEVICE void halves_units(Halves *t, const HalvesNear &near, u32 units, u32 more) {
    for (u32 left = units; warp_agrees(left > 0); --left) {
#pragma unroll
        for (u32 turn = 0; turn < 2; ++turn) {
            u32 symbols[K], word[K];
            halves_four<K>(t, near, symbols, word);
#pragma unroll
            for (u32 k = 0; k < K; ++k) {
                u32 v = symbols[k];
                v = __byte_perm(v, __shfl_xor_sync(ALL_LANES, v, 1), near.pairs);
                v = __byte_perm(v, __shfl_xor_sync(ALL_LANES, v, 2), near.quads);
                // Not before the last word is there: the assembler would have it earlier, and wait for it. A word has no byte 3.
                const u32 low = (u32)plus_byte(word[k], 3, t[k].low[turn]);
                global_put(t[k].out + turn * (TURN / 4), halves_join(low, v));
            }
            halves_turn<K>(t, near.ring);
        }
        // All at once, after the last ring was turned: loads share a counter, and whoever waits for one waits for all that were sent for
        // before.
#pragma unroll
        for (u32 k = 0; k < K; ++k) {
            t[k].low[0] = global_get(t[k].stored);
            t[k].low[1] = global_get(t[k].stored + TURN / 4);
            t[k].stored += (k == 0 ? left + more : left) > 2 ? UNIT / 4 : 0;
            t[k].out += UNIT / 4;
        }
    }
}

// What is less than a unit, of the second tile if `k` says so; then whether all words were taken, of which there are none where
// a symbol has all slots.
DEVICE void halves_end(Halves &t, const HalvesNear &near, u32 k, const Share &share, const TileAt &tile, u64 start, u32 values) {
    const u32 lane = lane_of();
    const SharedAt ring = near.ring + k * HALVES_ROOM;
#pragma unroll 1
    for (u32 from = values / UNIT * UNIT; warp_agrees(from < values); from += 32) {
        const u32 i = from + lane;
        const bool active = i < values;
        u32 slot = 0;
        if (active) {
            slot = shared_u32(plus_quads(t.x & ((1u << PLANE_LOG) - 1), near.table));
            t.x = halves_pop(t.x, slot);
        }
        const bool low = active && t.x < START;
        const u32 who = __ballot_sync(ALL_LANES, low);
        const u32 word = shared_u16(ring + ((t.at + 2 * (u32)__popc(who * near.below)) & (HALVES_RING - 1)));
        if (low) t.x = t.x << 16 | word;
        t.at += 2 * (u32)__popc(who);
        halves_turn<1>(&t, ring);
        if (active) global_put((u16 *)share.item.out + start + i, (u16)halves_join(tile.bytes[4 + i], slot));
    }
    const u32 words = halves_words(values), end = ((u32)(u64)(tile.bytes + words) & 7) + (halves_head(tile, values) >> 8) * 2;
    if (t.x != START || t.at != end || shared_u32(near.table) >> 20 == 0) report(share.status, STATUS_WORDS);
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
        halves_open(t[k], share.item, halves_at(share.item, share.work, number), number * d->tile_values, values[k],
                    near.ring + k * HALVES_ROOM + lane_of() * 8);
    }
    const u32 units = values[K - 1] / UNIT, more = values[0] / UNIT - units;
    halves_units<K>(t, near, units, more);
    if (K > 1 && warp_agrees(more > 0)) halves_units<1>(t, near, more, 0);
#pragma unroll
    for (u32 k = 0; k < K; ++k) {
        const u64 number = k ? b : a;
        halves_end(t[k], near, k, share, halves_at(share.item, share.work, number), number * d->tile_values, halves_values(d, number));
    }
}

// The table of checksums, in shared memory; where slots begin while their table is made.
DEVICE u32 *halves_nibbles() {
    __shared__ __align__(16) u32 nibbles[128];
    return nibbles;
}

// Whether a tile is what its checksum says. A row's words are sent for with seven others; lines of the next 32 rows come closer
// meanwhile.
DEVICE bool halves_check(const Share &share, u64 number) {
    const TileAt tile = halves_at(share.item, share.work, number);
    const u32 lane = lane_of(), words = tile.len / 4, skip = window_skip(words);
    const u32 *at = (const u32 *)tile.bytes + lane - skip * 32;
    Window w;
    window_open(w, words);
    if (warp_agrees(w.rows > 0)) {
        const auto load = [&](u32 row) { return row >= skip ? __ldg(at + row * 32) : 0; };
        window_take(w, load, [&](u32 row, u32 v) { return row == skip && lane == 0 ? ~v : v; });
    }
#pragma unroll 1
    for (; warp_agrees(w.rows > 0);) {
        at += FOLD_ROWS * 32;
        fetch_soon(at - lane + FOLD_ROWS * 32 + lane * 32, (i32)(w.rows - FOLD_ROWS) * 128 - (i32)lane * 128);
        window_take(w, [&](u32 row) { return __ldg(at + row * 32); }, [](u32, u32 v) { return v; });
    }
    const u32 last = words / 32 * 32 + lane, rest = last < words ? ((const u32 *)tile.bytes)[last] : 0;
    return window_close(w, shared_at(halves_nibbles()), words, rest) == tile.crc;
}

// Made for each tile: registers that would keep it are better used while tiles are checked.
DEVICE HalvesNear halves_near(const Desc *d, SharedAt memory) {
    const u32 lane = lane_of();
    HalvesNear near;
    near.table = memory + ((d->coded & 1) << (PLANE_LOG + 2));
    near.ring = memory + halves_tables(d) + warp_of() * HALVES_WARP;
    // By way of the warp: the compiler would work them out anew in every step.
    near.below = __shfl_sync(ALL_LANES, lane ? 1u << (32 - lane) : 0, (int)lane);
    near.pairs = __shfl_sync(ALL_LANES, lane & 1 ? 0x3715 : 0x6240, (int)lane);
    near.quads = __shfl_sync(ALL_LANES, lane & 2 ? 0x3276 : 0x5410, (int)lane);
    return near;
}

// Two tiles, or one. What is of another kind is left.
DEVICE void halves_two(const Share &share, SharedAt memory, u64 one, u64 two) {
    const Desc *d = &share.work->desc;
    const HalvesNear near = halves_near(d, memory);
    const bool is_two = warp_agrees(two < d->end_tile) && halves_kind(halves_at(share.item, share.work, two), halves_values(d, two));
    const bool is_one = halves_kind(halves_at(share.item, share.work, one), halves_values(d, one));
    if (warp_agrees(is_one && is_two)) halves_decode<2>(share, near, one, two);
    else if (warp_agrees(is_one || is_two)) halves_decode<1>(share, near, is_one ? one : two, 0);
    if ((!is_one || (!is_two && two < d->end_tile)) && lane_of() == 0) work_of(share.item)->rest = 1;
}

// Deals tiles to warps as `share_tiles` does; whether all that were checked are sound. Nothing is called here, and no lane does
// anything again and again alone: after that the assembler no longer sees that lanes are together.
DEVICE bool halves_tiles(const Share &share, SharedAt memory, u32 warps) {
    const u32 warp = warp_of();
    bool sound = true;
    const auto tile_of = [&](u32 i) { return share.work->desc.first_tile + share.place.part + (u64)i * share.place.parts; };
    const auto is_tile = [&](u32 i) { return warp_agrees(tile_of(i) < share.work->desc.end_tile); };
#pragma unroll 1
    for (u32 round = 0; is_tile(round * warps); round += 2) {
#pragma unroll 1
        for (u32 half = 0; half < 2; ++half) {
            if (warp_agrees((warp + half) % 2 == 0)) {
                const u32 i = round * warps + warp;
                if (is_tile(i)) halves_two(share, memory, tile_of(i), tile_of(i + warps));
            } else if (warp_agrees(share.check)) {
#pragma unroll 1
                for (u32 i = round * warps + warps - 1 - warp; warp_agrees(i < (round + 2) * warps) && is_tile(i); i += warps)
                    sound &= halves_check(share, tile_of(i));
            }
        }
    }
    return sound;
}

KERNEL(DECODE_THREADS) lossless_halves(const GRID_CONSTANT TilesArgs a) {
    DYNAMIC_SHARED(memory);
    const Share &share = share_open(a, CODEC_PLANES, 2, [&](const Item &item, const Work *work) {
        return halves_suit(item, &work->desc, a.shared) ? PART_ALL : PART_NONE;
    });
    if (share.empty) return;
    const Desc *d = &share.work->desc;
    slots_fill((u32 *)memory, share.work->start, d->tables, PLANE_LOG, (u16 *)halves_nibbles(), 1, [](u32 t) { return t; });
    __syncthreads();
    for (u32 i = threadIdx.x; i < 128; i += blockDim.x) halves_nibbles()[i] = crc_nibbles[i];
    const u32 tables = halves_tables(d), warps = min(blockDim.x / 32, (a.shared - tables) / HALVES_WARP), lane = lane_of();
    for (u32 i = threadIdx.x; i < tables / 4; i += blockDim.x) ((u32 *)memory)[i] = halves_slot(((u32 *)memory)[i]);
    __syncthreads();
    if (warp_agrees(warp_of() < warps)) {
        const bool sound = halves_tiles(share, shared_at(memory), warps);
        if (!sound && lane == 0) overrule(share.status, STATUS_TILE_CHECKSUM);
        share_pieces(share, warps);
    }
}
