// Tables of symbols, from their code in a header to the first slot of every symbol.
//
// The twin of `entropy/table_code.rs`.
#pragma once

#include "blob.cuh"
#include "crc.cuh"
#include "header_reader.cuh"

// A table of three numbers, as `Shape::freqs` has it; `weight` is room for 127 numbers.
DEVICE void shaped(Reader &r, Bits &b, u32 log, bool halved, u32 *freq, u64 *weight) {
    const u32 stored = bits_take(r, b, log + 1);
    const u32 ratio = bits_take(r, b, 8), bend = bits_take(r, b, 8);
    if (r.code) return;
    const u64 total = 1ull << log, zero = halved ? 0 : stored;
    if (total < zero + 1) return reader_fail(r, STATUS_TABLES);
    const u64 side = (total - zero - 1) / 2;
    u64 w = 1ull << 24, rr = (u64)ratio << 8, sum = 0;
    for (u32 j = 0; j < 127; ++j) {
        if (lane_of() == 0) weight[j] = w;
        sum += w;
        w = (w * rr) >> 16;
        rr = (rr * bend) >> 7;
        rr = rr < 0xff00 ? rr : 0xff00;
    }
    __syncwarp();
    u32 used = 0;
    for (u32 i = lane_of(); i < 256; i += 32) freq[i] = 0;
    __syncwarp();
    for (u32 j = lane_of(); j < 127; j += 32) {
        const u32 f = (u32)((weight[j] * side + sum / 2) / sum);
        freq[halved ? j : j + 1] = f;
        freq[255 - j] = f;
        used += 2 * f;
    }
    used = warp_sum(used) + 1;
    __syncwarp();
    // What rounding left over, or took too much, is level zero's.
    const i64 centre = (i64)freq[0] + (i64)total - (i64)used;
    if (centre < 1) return reader_fail(r, STATUS_TABLES);
    __syncwarp();
    if (lane_of() == 0) {
        freq[ESCAPE] = 1;
        freq[0] = (u32)centre;
    }
    __syncwarp();
}

// `count` codes, the frequencies of ranks `low`, …; a rank is turned into a symbol by `flip`. Every lane reads the code
// that would start at its own bit; the warp then only has to go from one start to the next.
DEVICE void gammas(Reader &r, Bits &b, u32 low, u32 count, u32 flip, u32 *freq) {
    const u32 lane = lane_of();
    for (u32 done = 0; done < count;) {
        const u32 byte = (u32)(b.at >> 3);
        if (byte - r.window > WINDOW - 12) {
            r.at = byte;
            reader_fetch(r);
        }
        const u32 bit = (u32)(b.at - ((u64)r.window << 3)) + lane;
        const u32 *words = (const u32 *)r.bytes + (bit >> 5);
        const u32 next = __funnelshift_r(words[0], words[1], bit & 31);
        const u32 n = (u32)__ffs((i32)next) - 1;
        const u32 len = n > 15 ? 0 : 2 * n + 1;
        u32 mine = 256, at = 0;
        do {
            if (lane == at) mine = done;
            const u32 by = __shfl_sync(ALL_LANES, len, (i32)at);
            if (by == 0) return reader_fail(r, STATUS_TABLES);
            at += by;
        } while (++done < count && at < 32);
        if (mine < 256) freq[(low + mine) ^ flip] = (1u << n) + (next >> (n + 1) & ((1u << n) - 1)) - 1;
        if (!bits_skip(r, b, at)) return;
    }
}

// A table of counted frequencies.
DEVICE void measured(Reader &r, Bits &b, bool levels, u32 *freq) {
    __syncwarp();
    for (u32 i = lane_of(); i < 256; i += 32) freq[i] = 0;
    __syncwarp();
    u32 escape = 0;
    if (levels) escape = bits_gamma(r, b) & 0xffff;
    const u32 low = bits_take(r, b, 8), high = low + bits_take(r, b, 8);
    if (r.code) return;
    if (high > 255 || (levels && low == 0)) return reader_fail(r, STATUS_TABLES);
    gammas(r, b, low, high + 1 - low, levels ? 0x80 : 0, freq);
    if (levels && lane_of() == 0) freq[ESCAPE] = escape;
    __syncwarp();
}

// Shared memory of `blob_open`'s reading warp.
struct Scratch {
    u8 window[WINDOW + 8];
    u64 weight[128];
    u32 freq[256];
    u32 crc[CRC_TABLE_WORDS];
};

// Reads tables one after the other and leaves the first slot of every symbol. `low` says which classes have low
// bits; null for planes.
DEVICE void read_tables(Reader &r, Work *work, Scratch *s, u32 tables, u32 log, const u8 *low, u32 per_class) {
    const u64 len = reader_varint(r);
    const u64 at = reader_take(r, len);
    if (r.code) return;
    Bits b = {at * 8, (at + len) * 8};
    for (u32 t = 0; t < tables && r.code == 0; ++t) {
        const u32 kind = bits_take(r, b, 2);
        if (r.code) return;
        if (kind == 0 && low) shaped(r, b, log, low[t / per_class] > 0, s->freq, s->weight);
        else if (kind == 1) measured(r, b, low != nullptr, s->freq);
        else if (kind != 2 || t == 0) reader_fail(r, STATUS_TABLES);
        if (r.code) return;
        // Eight symbols a lane.
        u32 sum = 0;
        for (u32 i = 0; i < 8; ++i) sum += s->freq[lane_of() * 8 + i];
        u32 start = warp_before(sum);
        if (warp_sum(sum) != 1u << log) return reader_fail(r, STATUS_TABLES);
        for (u32 i = 0; i < 8; ++i) {
            work->start[t][lane_of() * 8 + i] = (u16)start;
            start += s->freq[lane_of() * 8 + i];
        }
        __syncwarp();
    }
    if ((b.at + 7) / 8 != at + len) reader_fail(r, STATUS_TABLES);
    r.at = at + len;
}
