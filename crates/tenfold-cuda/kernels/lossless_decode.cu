// Lossless tiles: byte planes back to elements, a warp a tile. The twin of `lossless/decode.rs`.

#include "lossless_halves.cuh"

// One plane of a tile: how it is stored, and where a coder stands in it.
struct Plane {
    u32 mode;
    const u8 *bytes;
    // Number of its table, words of its stream, the lane's state; in place of that four times the byte of a plane that
    // is one throughout.
    u32 table, words, x;
    Words stream;
};

// A byte of the plane, for value `i` of the tile; `slots` are the tables in shared memory, or null. All lanes of the
// warp take part.
DEVICE u32 plane_next(Plane &p, const Work *work, const u32 *slots, u32 i, bool active) {
    if (p.mode == PLANE_CONSTANT) return p.x & 255;
    if (p.mode == PLANE_STORED) return active ? (u32)__ldg(p.bytes + i) : 0;
    u32 slot = 0;
    if (active) {
        const u32 at = p.x & ((1u << PLANE_LOG) - 1);
        slot = slots ? slots[(p.table << PLANE_LOG) + at] : slot_find(work->start[p.table], PLANE_LOG, at);
        p.x = pop(p.x, slot, PLANE_LOG);
    }
    p.x = fill_up(p.stream, p.x, active);
    return slot_symbol(slot);
}

// Reads how a tile's planes are stored. Returns a status.
template <u32 P>
DEVICE u32 planes_read(const Item &item, const Desc *d, const TileAt &tile, u32 values, Plane *planes, u16 *rings) {
    u64 at = 0;
    u32 tables = 0;
#pragma unroll
    for (u32 p = 0; p < P; ++p) {
        const bool table = d->coded >> p & 1;
        if (at + 4 > tile.len) return STATUS_FIELD;
        const u32 head = *(const u32 *)(tile.bytes + at), rest = head >> 8;
        at += 4;
        planes[p].mode = head & 255;
        planes[p].x = rest * 0x01010101u;
        planes[p].bytes = tile.bytes + at;
        planes[p].words = rest;
        planes[p].table = tables;
        u64 len = 0;
        if ((head & 255) == PLANE_CONSTANT && rest < 256) len = 0;
        else if ((head & 255) == PLANE_STORED && rest == 0) len = values;
        else if ((head & 255) == PLANE_CODED && table) len = d->lanes * 4 + (u64)rest * 2;
        else return STATUS_PLANE_MODE;
        const u64 padded = (len + 3) & ~3ull;
        if (at + padded > tile.len) return STATUS_FIELD;
        for (u64 i = len; i < padded; ++i)
            if (tile.bytes[at + i]) return STATUS_PADDING;
        if (planes[p].mode == PLANE_CODED) {
            const u32 lane = lane_of();
            planes[p].x = lane < d->lanes ? *(const u32 *)(tile.bytes + at + 4 * lane) : START;
            planes[p].stream = words_open(rings + p * (RING_ROOM / 2), (u64)tile.bytes + at + 4 * d->lanes, item.blob + item.blob_len);
            if (__any_sync(ALL_LANES, planes[p].x < START)) return STATUS_STATE;
        }
        tables += table;
        at += padded;
    }
    return at == tile.len ? 0 : STATUS_TILE_LEFT;
}

template <class E, u32 P> DEVICE E planes_element(Plane *planes, const Work *work, const u32 *slots, u32 i, bool active, bool rotate) {
    E v = 0;
#pragma unroll
    for (u32 p = 0; p < P; ++p) v |= (E)((E)plane_next(planes[p], work, slots, i, active) << (8 * p));
    return rotate ? (E)(v >> 1 | v << (8 * P - 1)) : v;
}

// Four bytes of a stored plane, of the next four steps, from its ring.
DEVICE u32 plane_stored(Words &w, SharedAt ring, u32 lane) {
    const SharedAt at = ring + (w.at & (RING_BYTES - 1)) + lane;
    const u32 v = shared_u8(at) | shared_u8(at + 32) << 8 | shared_u8(at + 64) << 16 | shared_u8(at + 96) << 24;
    w.at += 128;
    if (w.at / (CHUNK * 2) > w.chunk) words_turn(w);
    return v;
}

// Four steps of a coded plane; see `steps_fast` of the levels for how it is laid out.
DEVICE u32 plane_four(Plane &p, SharedAt slots, SharedAt ring, u32 below) {
    const SharedAt from = ring + (p.stream.at * 2 & (RING_BYTES - 1));
    SharedAt at = from;
    u32 x = p.x, bytes = 0;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
        const u32 slot = shared_u32(slots + (x << 2 & (((1u << PLANE_LOG) - 1) << 2)));
        u32 word;
        x = pop_fill(x, slot, PLANE_LOG, below, at, word);
        bytes |= (slot >> 12 & 255) << (8 * j);
    }
    p.x = x;
    p.stream.at += (u32)(at - from) / 2;
    words_refill(p.stream);
    return bytes;
}

// The element of step j out of four bytes of each plane, rotated back where it is a float.
template <class E, u32 P> DEVICE E planes_join(const u32 *four, u32 j, bool rotate) {
    E v = 0;
    if (P == 2) {
        // Both halves alike, so that a shift turns it.
        const u32 both = __byte_perm(four[0], four[P - 1], j | (4 + j) << 4 | j << 8 | (4 + j) << 12);
        return (E)(rotate ? both >> 1 : both);
    }
#pragma unroll
    for (u32 p = 0; p < P; ++p) v |= (E)((E)(four[p] >> (8 * j) & 255) << (8 * p));
    return rotate ? (E)(v >> 1 | v << (8 * P - 1)) : v;
}

// Whole steps of 32 lanes, four at a time; returns how many were done. Stored planes come through rings too: their
// bytes would otherwise be waited for, step by step.
template <class E, u32 P> DEVICE u32 planes_fast(const Item &item, Plane *planes, const u32 *slots, u16 *rings, E *out, u32 values, bool rotate) {
    const u32 lane = lane_of(), below = (1u << lane) - 1, ticks = values / 128 * 4;
#pragma unroll
    for (u32 p = 0; p < P; ++p) {
        if (planes[p].mode != PLANE_STORED) continue;
        planes[p].stream = words_open(rings + p * (RING_ROOM / 2), (u64)planes[p].bytes, item.blob + item.blob_len);
        // Bytes, not words.
        planes[p].stream.at *= 2;
    }
    out += lane;
    for (u32 step = 0; step < ticks; step += 4) {
        u32 four[P];
#pragma unroll
        for (u32 p = 0; p < P; ++p) {
            if (planes[p].mode == PLANE_CODED)
                four[p] = plane_four(planes[p], shared_at(slots) + (planes[p].table << (PLANE_LOG + 2)), planes[p].stream.ring, below);
            else if (planes[p].mode == PLANE_STORED)
                four[p] = plane_stored(planes[p].stream, planes[p].stream.ring, lane);
            else four[p] = planes[p].x;
        }
#pragma unroll
        for (u32 j = 0; j < 4; ++j) global_put(out + j * 32, planes_join<E, P>(four, j, rotate));
        out += 128;
    }
    return ticks;
}

template <class E> DEVICE void decode_planes_tile(const Item &item, const Work *work, const u32 *slots, u16 *rings, u64 number, Status *status) {
    const u32 P = sizeof(E);
    const Desc *d = &work->desc;
    const u32 lane = lane_of(), lanes = d->lanes;
    const TileAt tile = tile_at(item, work, number);
    const u64 start = number * d->tile_values;
    const u32 values = (u32)min(d->tile_values, d->values - start);
    const u32 from = (u32)(max(d->first, start) - start), to = (u32)(min(d->end, start + values) - start);
    Plane planes[P];
    const u32 code = planes_read<P>(item, d, tile, values, planes, rings);
    if (code) {
        if (lane == 0) report(status, code);
        return;
    }
    const bool rotate = is_float(d->dtype);
    E *out = (E *)item.out;
    u32 step = 0;
    if (from == 0 && to == values && lanes == 32 && slots)
        step = planes_fast<E, P>(item, planes, slots, rings, out + (start - d->first), values, rotate);
    for (; (u64)step * lanes < to; ++step) {
        const u32 i = step * lanes + lane;
        const bool active = lane < lanes && i < values;
        const E v = planes_element<E, P>(planes, work, slots, i, active, rotate);
        if (active && i >= from && i < to) out[start + i - d->first] = v;
#pragma unroll
        for (u32 p = 0; p < P; ++p)
            if (planes[p].mode == PLANE_CODED) words_refill(planes[p].stream);
    }
    if (to != values) return;
#pragma unroll
    for (u32 p = 0; p < P; ++p)
        if (planes[p].mode == PLANE_CODED && (planes[p].x != START || words_taken(planes[p].stream) != planes[p].words))
            report(status, STATUS_WORDS);
}

template <class E> DEVICE void decode_planes(const TilesArgs &a) {
    DYNAMIC_SHARED(memory);
    __shared__ __align__(16) u16 near[256];
    const Share &share = share_open(a, CODEC_PLANES, sizeof(E), [&](const Item &item, const Work *work) {
        if (sizeof(E) != 2 || !halves_suit(item, &work->desc, a.shared)) return PART_ALL;
        return work->rest ? PART_REST : PART_NONE;
    });
    if (share.empty) return;
    const Item &item = share.item;
    const Work *work = share.work;
    const Desc *d = &work->desc;

    // Shared memory: tables if they fit beside the rings of one warp; then rings, one a plane, for as many warps as
    // there is room.
    const u32 ring = (u32)sizeof(E) * RING_ROOM, tables = (d->tables << PLANE_LOG) * 4;
    u32 *slots = (u64)tables + ring <= a.shared ? (u32 *)memory : nullptr;
    const u32 used = slots ? tables : 0;
    const u32 warps = min(blockDim.x / 32, (a.shared - used) / ring);
    if (slots) slots_fill(slots, work->start, d->tables, PLANE_LOG, near, 1, [](u32 t) { return t; });
    __syncthreads();
    u16 *rings = (u16 *)(memory + used + warp_of() * ring);
    share_tiles<1>(share, warps, [&](u64 tile, u64) {
        if (sizeof(E) == 2 && share.rest && halves_kind(tile_at(item, work, tile), halves_values(d, tile))) return;
        decode_planes_tile<E>(item, work, slots, rings, tile, share.status);
    });
}

KERNEL(DECODE_THREADS) lossless_decode_1(const GRID_CONSTANT TilesArgs a) { decode_planes<u8>(a); }
KERNEL(DECODE_THREADS) lossless_decode_2(const GRID_CONSTANT TilesArgs a) { decode_planes<u16>(a); }
KERNEL(DECODE_THREADS) lossless_decode_4(const GRID_CONSTANT TilesArgs a) { decode_planes<u32>(a); }
KERNEL(DECODE_THREADS) lossless_decode_8(const GRID_CONSTANT TilesArgs a) { decode_planes<u64>(a); }
