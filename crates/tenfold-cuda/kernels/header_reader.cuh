// Reads bytes and numbers of a header, which a warp fetches piece by piece. Nothing is trusted: what reaches past the
// end is noted, and the first trouble is the one that counts.
//
// A header is read once, by code that is not in any cache yet: few instructions count for more than quick ones. So
// what is called from many places is a function, and fields next to each other come from one look.
//
// The twin of `blob/bytes.rs`.
#pragma once

#include "base.cuh"

// Bytes of a header that the warp has at hand.
#define WINDOW 512

struct HeaderWindow {
    const u8 *blob;
    // Where the window starts, and where what may be fetched ends: multiples of four.
    u32 from, end;
    u32 words[WINDOW / 4 + 4];
};

__shared__ HeaderWindow header_window;

// The transforms behind which values are wanted.
__shared__ OpenBasis open_basis;

// Where the reader is, and what was wrong first. All lanes of the warp have the same.
struct Reader {
    u32 at, end;
    u32 code, detail;
    u64 size;
};

DEVICE void reader_check(Reader &r, bool bad, u32 code) {
    if (bad && r.code == 0) r.code = code;
}

// The same, with more to say: a number that was found, or bytes.
DEVICE void reader_detail(Reader &r, bool bad, u32 code, u32 detail) {
    if (bad && r.code == 0) r.detail = detail;
    reader_check(r, bad, code);
}

DEVICE void reader_size(Reader &r, bool bad, u32 code, u64 size) {
    if (bad && r.code == 0) r.size = size;
    reader_check(r, bad, code);
}

// Fetches the window from a multiple of four on.
OUTLINE void window_fetch(u32 from) {
    const u32 *at = (const u32 *)(header_window.blob + from);
    const u32 words = (header_window.end - from) / 4, lane = lane_of();
    u32 v[WINDOW / 128];
#pragma unroll
    for (u32 i = 0; i < WINDOW / 128; ++i) v[i] = lane + i * 32 < words ? at[lane + i * 32] : 0;
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < WINDOW / 128; ++i) header_window.words[lane + i * 32] = v[i];
    if (lane == 0) header_window.from = from;
    __syncwarp();
}

// Sees to it that `bytes` bytes from `at` on are in the window; `at` is not past the end. Returns where they are in it.
DEVICE u32 window_reach(u32 at, u32 bytes) {
    if (at - header_window.from > WINDOW - bytes) window_fetch(at & ~3u);
    return at - header_window.from;
}

// The next eight bytes, whatever they are.
OUTLINE u64 window_peek(u32 at) {
    const u32 offset = window_reach(at, 8);
    const u32 *words = header_window.words + offset / 4;
    const u32 middle = words[1], shift = offset % 4 * 8;
    const u64 high = __funnelshift_r(middle, words[2], shift);
    return high << 32 | __funnelshift_r(words[0], middle, shift);
}

DEVICE u64 reader_peek(const Reader &r) { return window_peek(r.at); }

// Goes on by n bytes, if there are as many, and returns where they start.
DEVICE u32 reader_take(Reader &r, u64 n) {
    const u32 at = r.at;
    const bool there = n <= r.end - at;
    reader_check(r, !there, STATUS_FIELD);
    if (there) r.at += (u32)n;
    return at;
}

DEVICE u32 reader_byte(Reader &r) {
    const u32 v = (u32)reader_peek(r) & 0xff;
    reader_take(r, 1);
    return v;
}

struct Varint {
    u64 value;
    u32 at, code;
};

OUTLINE Varint window_varint(u32 at, u32 end) {
    u64 next = window_peek(at), v = 0;
#pragma unroll 1
    for (u32 shift = 0; shift < 64; shift += 7) {
        if (at >= end) return Varint{0, at, STATUS_FIELD};
        const u32 b = (u32)next & 0xff;
        ++at;
        next = shift == 49 ? window_peek(at) : next >> 8;
        if ((shift == 63 && b > 1) || (shift > 0 && b == 0)) break;
        v |= (u64)(b & 0x7f) << shift;
        if (b < 0x80) return Varint{v, at, 0};
    }
    return Varint{0, at, STATUS_VARINT};
}

DEVICE u64 reader_varint(Reader &r) {
    const Varint v = window_varint(r.at, r.end);
    reader_check(r, v.code != 0, v.code);
    r.at = v.at;
    return v.value;
}
