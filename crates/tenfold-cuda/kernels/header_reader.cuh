// Reads bytes, numbers and bits of a header, which a warp fetches piece by piece. Nothing is trusted: what reaches past
// the end is told and read as zero.
//
// The twin of `blob/bytes.rs`.
#pragma once

#include "base.cuh"

// Bytes of a header that a warp has at hand.
#define WINDOW 512

// Reads a header. All lanes of the warp do the same, so that they can fetch the next piece together. Everything in
// registers: whoever takes it by reference is inlined.
struct Reader {
    const u8 *base;
    u32 at, end, window;
    u8 *bytes;
    u32 code;
};

#define NO_WINDOW 0x80000000u

DEVICE void reader_fail(Reader &r, u32 code) {
    if (r.code == 0) r.code = code;
}

OUTLINE void window_fetch(const u8 *base, u32 window, u32 end, u8 *bytes) {
    // Headers end at a multiple of four.
    const u32 *from = (const u32 *)(base + window);
    const u32 words = (end - window) / 4, lane = lane_of();
    u32 v[WINDOW / 128];
#pragma unroll
    for (u32 i = 0; i < WINDOW / 128; ++i) v[i] = lane + i * 32 < words ? from[lane + i * 32] : 0;
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < WINDOW / 128; ++i) ((u32 *)bytes)[lane + i * 32] = v[i];
    __syncwarp();
}

DEVICE void reader_fetch(Reader &r) {
    r.window = r.at & ~3u;
    window_fetch(r.base, r.window, r.end, r.bytes);
}

DEVICE u32 reader_byte(Reader &r) {
    if (r.at >= r.end) {
        reader_fail(r, STATUS_FIELD);
        return 0;
    }
    if (r.at - r.window >= WINDOW) reader_fetch(r);
    return r.bytes[r.at++ - r.window];
}

DEVICE u32 reader_u32(Reader &r) {
    u32 v = 0;
#pragma unroll 1
    for (u32 i = 0; i < 32; i += 8) v |= reader_byte(r) << i;
    return v;
}

DEVICE u64 reader_varint(Reader &r) {
    u64 v = 0;
#pragma unroll 1
    for (u32 shift = 0; shift < 64; shift += 7) {
        const u32 b = reader_byte(r);
        if (r.code) return 0;
        if ((shift == 63 && b > 1) || (shift > 0 && b == 0)) break;
        v |= (u64)(b & 0x7f) << shift;
        if (b < 0x80) return v;
    }
    reader_fail(r, STATUS_VARINT);
    return 0;
}

// Skips bytes and returns where they start.
DEVICE u32 reader_take(Reader &r, u64 n) {
    const u32 at = r.at;
    if (n > r.end - r.at) {
        reader_fail(r, STATUS_FIELD);
        return at;
    }
    r.at += (u32)n;
    return at;
}

// A bit string inside a header: where the next bit is, and where the string ends, counted from the blob's start.
struct Bits {
    u64 at, end;
};

// The next 32 bits, whatever they are.
DEVICE u32 bits_peek(Reader &r, const Bits &b) {
    const u32 byte = (u32)(b.at >> 3);
    if (byte - r.window > WINDOW - 8) {
        r.at = byte;
        reader_fetch(r);
    }
    const u32 *words = (const u32 *)r.bytes + ((byte - r.window) >> 2);
    return __funnelshift_r(words[0], words[1], (u32)(b.at & 31));
}

// Goes on by n bits; false, and the reason is told, if there are fewer.
DEVICE bool bits_skip(Reader &r, Bits &b, u32 n) {
    b.at += n;
    if (b.at > b.end) reader_fail(r, STATUS_TABLES);
    return b.at <= b.end;
}

// n < 32 bits.
DEVICE u32 bits_take(Reader &r, Bits &b, u32 n) {
    const u32 v = bits_peek(r, b) & ((1u << n) - 1);
    return bits_skip(r, b, n) ? v : 0;
}

DEVICE u32 bits_gamma(Reader &r, Bits &b) {
    const u32 next = bits_peek(r, b);
    const u32 n = (u32)__ffs((i32)next) - 1;
    if (n > 15) {
        reader_fail(r, STATUS_TABLES);
        return 0;
    }
    if (!bits_skip(r, b, 2 * n + 1)) return 0;
    return (1u << n) + (next >> (n + 1) & ((1u << n) - 1)) - 1;
}
