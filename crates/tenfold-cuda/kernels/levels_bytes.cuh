// What the bytes of a tile of levels say. The twin of the reading side of `levels/decode.rs`.
#pragma once

#include "blob.cuh"

// Bytes of a tile, all lanes alike.
struct Bytes {
    const u8 *base;
    u64 at, end;
    u32 code;
};

DEVICE u32 bytes_next(Bytes &b) {
    if (b.at >= b.end) {
        b.code = b.code ? b.code : STATUS_FIELD;
        return 0;
    }
    return b.base[b.at++];
}

DEVICE u64 bytes_varint(Bytes &b) {
    u64 v = 0;
#pragma unroll 1
    for (u32 shift = 0; shift < 64; shift += 7) {
        const u32 c = bytes_next(b);
        if (b.code) return 0;
        if ((shift == 63 && c > 1) || (shift > 0 && c == 0)) break;
        v |= (u64)(c & 0x7f) << shift;
        if (c < 0x80) return v;
    }
    b.code = b.code ? b.code : STATUS_VARINT;
    return 0;
}

DEVICE u64 bytes_take(Bytes &b, u64 n) {
    const u64 at = b.at;
    if (n > b.end - b.at) b.code = b.code ? b.code : STATUS_FIELD;
    else b.at += n;
    return at;
}

// Only padding to a multiple of four may follow.
DEVICE void bytes_end(Bytes &b) {
    u32 any = b.end - b.at > 3;
    for (u64 i = b.at; i < b.end && !any; ++i) any |= b.base[i];
    if (any && !b.code) b.code = STATUS_TILE_LEFT;
}

// One tile: where its values go and what its bytes are.
struct Tile {
    const u8 *bytes;
    u32 len;
    // First value, number of values, and those wanted.
    u64 start;
    u32 values, from, to;
    bool coded, exact;
    u32 words, escapes, escape_width;
    u64 low_at, low_len, escapes_at, exact_at;
};

DEVICE u32 tile_read(const Desc *d, Tile &t) {
    Bytes b = {t.bytes, 0, t.len, 0};
    if (t.len < 4) return STATUS_FIELD;
    const u32 head = *(const u32 *)t.bytes;
    b.at = 4;
    const u32 flags = head & 255, code = flags >> TILE_ESCAPES_SHIFT & 3;
    t.words = head >> 8;
    t.coded = flags & TILE_CODED;
    t.exact = flags & TILE_EXACT;
    if (flags >> 4) return STATUS_TILE_FLAGS;
    if (!t.coded && (code || t.words)) return STATUS_TILE_ZEROS;
    if (t.coded) bytes_take(b, d->lanes * 4 + (u64)t.words * 2);
    t.low_len = 0;
    t.low_at = 0;
    if (t.coded && d->any_low) {
        t.low_len = bytes_varint(b);
        t.low_at = bytes_take(b, t.low_len);
    }
    t.escapes = 0;
    t.escape_width = 0;
    t.escapes_at = 0;
    if (code) {
        t.escape_width = d->paired && code == 3 ? 8 : 1u << (code - 1);
        const u64 n = bytes_varint(b);
        if (b.code) return b.code;
        if (n > (d->paired ? (t.values + 1) / 2 : t.values)) return STATUS_ESCAPES;
        t.escapes = (u32)n;
        t.escapes_at = bytes_take(b, n * t.escape_width);
    }
    t.exact_at = b.at;
    if (!t.exact) bytes_end(b);
    return b.code;
}

// Tile `number` of a blob, and what of it is wanted. All lanes of a warp take part; returns what is wrong with it.
DEVICE u32 tile_open(const Item &item, const Work *work, u64 number, Tile &t) {
    const Desc *d = &work->desc;
    const TileAt at = tile_at(item, work, number);
    t.bytes = at.bytes;
    t.len = at.len;
    t.start = number * d->tile_values;
    t.values = (u32)min(d->tile_values, d->values - t.start);
    t.from = (u32)(max(d->first, t.start) - t.start);
    t.to = (u32)(min(d->end, t.start + t.values) - t.start);
    return tile_read(d, t);
}

// The same; whether there is nothing wrong with it, and otherwise tells what is.
DEVICE bool tile_begin(const Item &item, const Work *work, u64 number, Tile &t, Status *status) {
    const u32 code = tile_open(item, work, number, t);
    if (code && lane_of() == 0) report(status, code);
    return code == 0;
}

// Values stored as they were, as elements of `size` bytes: `put` is told from where to where each run reaches among the
// values wanted, and its bits, which `allowed` has let pass. All lanes alike.
template <class Allowed, class Put> DEVICE u32 exact_runs(const Tile &t, u32 size, Allowed allowed, Put put) {
    Bytes b = {t.bytes, t.exact_at, t.len, 0};
    const u64 runs = bytes_varint(b);
    u64 end = 0;
    for (u64 r = 0; r < runs && !b.code; ++r) {
        const u64 gap = bytes_varint(b), len = bytes_varint(b);
        u64 bits = 0;
#pragma unroll 1
        for (u32 i = 0; i < size; ++i) bits |= (u64)bytes_next(b) << (8 * i);
        if (b.code) break;
        const u64 room = t.values - end;
        if (len == 0 || gap > room || len > room - gap) return STATUS_EXACT_RUN;
        if (!allowed(bits)) return STATUS_EXACT_FINITE;
        const u64 start = end + gap;
        end = start + len;
        put(max(start, (u64)t.from), min(end, (u64)t.to), bits);
    }
    if (!b.code) bytes_end(b);
    return b.code;
}
