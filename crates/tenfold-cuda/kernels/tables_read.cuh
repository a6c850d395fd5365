// Tables of symbols, from their code in a header to the first slot of every symbol. A warp reads them.
//
// The twin of `entropy/table_code.rs`.
#pragma once

#include "blob.cuh"
#include "header_reader.cuh"

// Bits that are looked at together.
#define CODE_BITS 512

struct TableScratch {
    u32 freq[256];
    u32 weight[128];
    // From each bit of some to the end of the code that would start there, and of two, four and eight codes; 0 where
    // there is none, and behind the last.
    u8 jump[4][CODE_BITS + 32];
};

// A bit string inside a header: where the next bit is, and where the string ends, counted from the blob's start.
struct Bits {
    u64 at, end;
};

// Goes on by n bits.
DEVICE void bits_skip(Reader &r, Bits &b, u64 n) {
    b.at += n;
    reader_check(r, b.at > b.end, STATUS_TABLES);
}

// A table of three numbers, as `Shape::freqs` has it.
DEVICE void shaped(Reader &r, u32 zero, u32 ratio, u32 bend, u32 log, bool halved, TableScratch *s) {
    const u32 total = 1u << log, lane = lane_of();
    if (halved) zero = 0;
    reader_check(r, total < zero + 1, STATUS_TABLES);
    if (r.code) return;
    const u32 side = (total - zero - 1) / 2;
    // Weights have 25 bits at most and ratios 16; all of them together have 31.
    u32 w = 1u << 24, rr = ratio << 8, sum = 0;
#pragma unroll 4
    for (u32 j = 0; j < 128; ++j) {
        if (j == 127) w = 0;
        if (lane == 0) s->weight[j] = w;
        sum += w;
        w = __umulhi(w, rr << 16);
        rr = min(rr * bend >> 7, 0xff00u);
    }
    __syncwarp();
    u32 used = 0;
#pragma unroll 1
    for (u32 j = lane; j < 128; j += 32) {
        const u32 f = (u32)(((u64)s->weight[j] * side + sum / 2) / sum);
        // The last has no weight; where it goes, the escape comes or there is nothing.
        s->freq[halved ? j : j + 1] = f;
        s->freq[255 - j] = f;
        used += 2 * f;
    }
    used = warp_sum(used) + 1;
    __syncwarp();
    // What rounding left over, or took too much, is level zero's.
    const u32 first = halved ? s->freq[0] : 0;
    reader_check(r, first + total < used + 1, STATUS_TABLES);
    __syncwarp();
    if (lane == 0) {
        s->freq[ESCAPE] = 1;
        s->freq[0] = first + total - used;
    }
    __syncwarp();
}

// `count` codes, the frequencies of ranks `low`, …; a rank is turned into a symbol by `flip`. A code tells where the
// next one starts, so one after the other would take long. Instead every bit is taken for a start: how far it is to the
// next, from there to the second, the fourth, the eighth; then one goes from every eighth code to the next alone.
DEVICE void gammas(Reader &r, Bits &b, u32 low, u32 count, u32 flip, TableScratch *s) {
    const u32 lane = lane_of();
#pragma unroll 1
    for (u32 done = 0; done < count && r.code == 0;) {
        const u32 byte = (u32)(b.at >> 3);
        const u32 bits = (u32)min((b.end - b.at + 127) & ~127ull, (u64)CODE_BITS);
        const u32 *words = header_window.words;
        const u32 bit0 = window_reach(byte, CODE_BITS / 8 + 12) * 8 + (u32)(b.at & 7);
#pragma unroll 1
        for (u32 from = lane; from < bits; from += 128) {
#pragma unroll
            for (u32 i = 0; i < 128; i += 32) {
                const u32 at = bit0 + from + i;
                const u32 n = (u32)__ffs((i32)__funnelshift_r(words[at / 32], words[at / 32 + 1], at & 31)) - 1;
                s->jump[0][from + i] = (u8)(n > 15 ? 0 : 2 * n + 1);
            }
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) s->jump[k][bits + lane] = 0;
        __syncwarp();
#pragma unroll 1
        for (u32 k = 0; k < 3; ++k) {
#pragma unroll 1
            for (u32 from = lane; from < bits; from += 128) {
                u32 by[4];
#pragma unroll
                for (u32 i = 0; i < 4; ++i) by[i] = s->jump[k][from + i * 32];
#pragma unroll
                for (u32 i = 0; i < 4; ++i) by[i] += s->jump[k][from + i * 32 + by[i]];
#pragma unroll
                for (u32 i = 0; i < 4; ++i) s->jump[k + 1][from + i * 32] = (u8)by[i];
            }
            __syncwarp();
        }
        // Where every eighth code starts; at most 32 of them are wanted. Past the last bit for those of the next round.
        u32 eighth = bits, at = 0;
#pragma unroll 1
        for (u32 i = 0; i < count - done && at < bits; i += 8) {
            if (lane == i / 8) eighth = at;
            at += s->jump[3][at];
        }
        // Each lane reads a code.
        u32 end = 0, read = 0;
        bool odd = false;
#pragma unroll 1
        for (u32 i = lane; i - lane < count - done; i += 32) {
            u32 p = __shfl_sync(ALL_LANES, eighth, (i32)(i / 8));
            if (i & 4) p += s->jump[2][p];
            if (i & 2) p += s->jump[1][p];
            if (i & 1) p += s->jump[0][p];
            const bool here = i < count - done && p < bits;
            if (here) {
                const u32 next = __funnelshift_r(words[(bit0 + p) / 32], words[(bit0 + p) / 32 + 1], (bit0 + p) & 31);
                const u32 n = ((u32)__ffs((i32)next) - 1) & 15;
                s->freq[(low + done + i) ^ flip] = (1u << n) + (next >> (n + 1) & ((1u << n) - 1)) - 1;
                odd |= s->jump[0][p] == 0;
                end = p + s->jump[0][p];
            }
            read += (u32)__popc(__ballot_sync(ALL_LANES, here));
        }
        for (i32 by = 16; by > 0; by >>= 1) end = max(end, __shfl_xor_sync(ALL_LANES, end, by));
        reader_check(r, read == 0 || __any_sync(ALL_LANES, odd), STATUS_TABLES);
        bits_skip(r, b, end);
        done += read;
        __syncwarp();
    }
}

// The next table.
DEVICE void read_table(Reader &r, Bits &b, u32 log, bool first, bool levels, bool halved, TableScratch *s) {
    // What stands before the frequencies has 49 bits at most; there are 57.
    u64 next = window_peek((u32)(b.at >> 3)) >> (b.at & 7);
    const u32 kind = (u32)next & 3;
    next >>= 2;
    // The table before this one again; or a kind that there is not.
    reader_check(r, kind == 3 || (kind == 2 && first) || (kind == 0 && !levels), STATUS_TABLES);
    bits_skip(r, b, kind == 0 ? 19 + log : 2);
    if (r.code || kind == 2) return;
    if (kind == 0) {
        const u32 stored = (u32)next & ((2u << log) - 1);
        next >>= log + 1;
        return shaped(r, stored, (u32)next & 0xff, (u32)next >> 8 & 0xff, log, halved, s);
    }
    uint4 *freq = (uint4 *)s->freq + lane_of() * 2;
    freq[0] = freq[1] = make_uint4(0, 0, 0, 0);
    u32 escape = 0;
    if (levels) {
        const u32 n = (u32)__ffs((i32)(u32)next) - 1;
        reader_check(r, n > 15, STATUS_TABLES);
        if (r.code) return;
        escape = (1u << n) + ((u32)next >> (n + 1) & ((1u << n) - 1)) - 1;
        next >>= 2 * n + 1;
        bits_skip(r, b, 2 * n + 1);
    }
    const u32 low = (u32)next & 0xff, high = low + ((u32)next >> 8 & 0xff);
    bits_skip(r, b, 16);
    reader_check(r, high > 255 || (levels && low == 0), STATUS_TABLES);
    __syncwarp();
    if (r.code) return;
    gammas(r, b, low, high + 1 - low, levels ? 0x80 : 0, s);
    if (levels && lane_of() == 0) s->freq[ESCAPE] = escape;
    __syncwarp();
}

// First slots of four symbols.
DEVICE uint2 table_starts(u32 start, uint4 freq) {
    const u32 second = start + freq.x, third = second + freq.y, fourth = third + freq.z;
    return make_uint2((start & 0xffff) | second << 16, (third & 0xffff) | fourth << 16);
}

// Reads all tables and leaves the first slot of every symbol.
DEVICE void read_tables(Reader &r, Work *work, const Desc *d, TableScratch *s) {
    const u64 len = reader_varint(r);
    const u64 at = reader_take(r, len);
    const bool levels = d->codec == CODEC_LEVELS;
    const u32 tables = d->tables, log = d->table_log, per_class = d->tables_per_class;
    Bits b = {at * 8, (at + len) * 8};
#pragma unroll 1
    for (u32 t = 0; t < tables && r.code == 0; ++t) {
        const bool halved = levels && d->low[t >> (per_class - 1)] > 0;
        read_table(r, b, log, t == 0, levels, halved, s);
        // Eight symbols a lane.
        const uint4 *freq = (const uint4 *)s->freq + lane_of() * 2;
        const uint4 f = freq[0], g = freq[1];
        const u32 four = f.x + f.y + f.z + f.w, sum = four + g.x + g.y + g.z + g.w;
        const u32 start = warp_before(sum);
        reader_check(r, __shfl_sync(ALL_LANES, start + sum, 31) != 1u << log, STATUS_TABLES);
        uint2 *to = (uint2 *)work->start[t] + lane_of() * 2;
        to[0] = table_starts(start, f);
        to[1] = table_starts(start + four, g);
        __syncwarp();
    }
    reader_check(r, (b.at + 7) / 8 != at + len, STATUS_TABLES);
    if (r.code == 0) r.at = (u32)(at + len);
}
