// Tables of symbols, from their code in a header to the first slot of every symbol, by all warps of a block.
//
// Codes have any length, and tables follow each other without a gap: where one starts is known only when the one before
// it has been read. So a first pass takes every bit for a start and notes how far it is to the next code, to the fourth
// and to the eighth; one warp goes through the tables in steps of eight codes; then each warp reads tables of its own.
//
// The twin of `entropy/table_code.rs`.
#pragma once

#include "blob.cuh"
#include "header_reader.cuh"

// Bits that are looked at together. A table has 2,400 at most: frequencies add up to 4,096.
#define CODE_BITS 4096
// Longest reach of eight codes.
#define CODE_REACH 256
#define TABLE_WARPS 8

// Kinds of tables.
#define TABLE_SHAPED 0
#define TABLE_MEASURED 1
#define TABLE_REPEATED 2

// A table as the first warp finds it.
struct TableRecord {
    u32 kind;
    // Measured: the first rank, how many, the escape's frequency. Shaped: its three numbers. Repeated: which.
    u32 a, b, c;
    // Where every eighth code starts.
    u16 eighth[32];
};

// What a warp needs to make a table.
struct TableScratch {
    u32 freq[256];
    u32 weight[128];
};

struct TablesRead {
    // The bit string in the header: where the next bit is, and where it ends, counted from the blob's start.
    u64 at, end;
    // Tables found so far, and before this round.
    u32 found, before;
    // Whether something is wrong: what the first warp says, which ends the reading, and what the others say.
    u32 bad, odd;
    u32 words[CODE_BITS / 32 + 2];
    // From each bit to the end of the code that would start there, of two and then of eight, and of four; 0 for none.
    u8 one[CODE_BITS + CODE_REACH], eight[CODE_BITS + CODE_REACH], four[CODE_BITS + CODE_REACH];
    TableRecord records[TABLES];
    TableScratch scratch[TABLE_WARPS];
};

// The 32 bits at a place in the words that are at hand.
DEVICE u32 code_bits(const TablesRead *s, u32 at) {
    return __funnelshift_r(s->words[at / 32], s->words[at / 32 + 1], at & 31);
}
DEVICE u32 gamma_zeros(u32 bits) { return (u32)__ffs((i32)bits) - 1; }
DEVICE u32 gamma_value(u32 bits, u32 zeros) {
    return (1u << zeros) + (bits >> (zeros + 1) & ((1u << zeros) - 1)) - 1;
}

// A table of three numbers, as `Shape::freqs` has it; false if there is none such.
DEVICE bool shaped(u32 zero, u32 ratio, u32 bend, u32 log, bool halved, TableScratch *s) {
    const u32 total = 1u << log, lane = lane_of();
    if (halved) zero = 0;
    if (total < zero + 1) return false;
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
    __syncwarp();
    if (lane == 0) {
        s->freq[ESCAPE] = 1;
        s->freq[0] = first + total - used;
    }
    __syncwarp();
    return first + total >= used + 1;
}

// Fetches the bits from `at` on and measures codes; returns how many bits there are. All threads take part.
DEVICE u32 tables_measure(TablesRead *s, const u8 *blob) {
    const u32 word = (u32)(s->at >> 5), skip = (u32)s->at & 31;
    // The string ends before the directory and the checksum, so that there is a word behind its last.
    const u32 bits = (u32)min(s->end - ((u64)word << 5), (u64)CODE_BITS), words = (bits + 31) / 32 + 1;
    const u32 *from = (const u32 *)blob + word;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < CODE_BITS / 32 + 2; i += blockDim.x) s->words[i] = i < words ? from[i] : 0;
    __syncthreads();
    const u32 reach = bits + CODE_REACH;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < reach; i += blockDim.x) {
        const u32 zeros = i < bits ? gamma_zeros(code_bits(s, i)) : 16;
        const u32 len = 2 * zeros + 1;
        s->one[i] = (u8)(zeros > 15 || i + len > bits ? 0 : len);
    }
    __syncthreads();
    // Of two codes, of four, of eight.
    const u8 *by = s->one;
    u8 *to = s->eight;
#pragma unroll 1
    for (u32 round = 0; round < 3; ++round) {
#pragma unroll 2
        for (u32 i = threadIdx.x; i < reach; i += blockDim.x) {
            const u32 first = by[i], second = first ? by[i + first] : 0;
            to[i] = (u8)(second ? first + second : 0);
        }
        __syncthreads();
        by = to;
        to = round == 0 ? s->four : s->eight;
    }
    return skip < bits ? bits : 0;
}

// Goes on by `count` codes from bit `at`; returns 0 if there are not as many.
DEVICE u32 tables_hop(const TablesRead *s, TableRecord *to, u32 at, u32 count) {
    u32 i = 0;
#pragma unroll 1
    for (; i + 8 <= count; i += 8) {
        if (lane_of() == 0) to->eighth[i / 8] = (u16)at;
        const u32 by = s->eight[at];
        if (by == 0) return 0;
        at += by;
    }
    if (i < count && lane_of() == 0) to->eighth[i / 8] = (u16)at;
    if (i + 4 <= count) {
        const u32 by = s->four[at];
        if (by == 0) return 0;
        at += by;
        i += 4;
    }
#pragma unroll 1
    for (; i < count; ++i) {
        const u32 by = s->one[at];
        if (by == 0) return 0;
        at += by;
    }
    return at;
}

// Goes through the tables that end within `bits` bits. The first warp.
DEVICE void tables_walk(TablesRead *s, u32 bits, u32 tables, u32 log, bool levels, u32 &last) {
    const u32 before = s->found, start = (u32)s->at & 31;
    u32 found = before, at = start;
    bool bad = false;
#pragma unroll 1
    for (; found < tables && at < bits; ++found) {
        TableRecord *to = s->records + found;
        // What stands before the frequencies has 49 bits at most.
        const u64 next = (u64)code_bits(s, min(at + 32, (u32)CODE_BITS)) << 32 | code_bits(s, at);
        const u32 kind = (u32)next & 3;
        u32 a = last, b = 0, c = 0, end = at + 2;
        if (kind == TABLE_MEASURED) {
            u32 used = 2;
            if (levels) {
                const u32 zeros = gamma_zeros((u32)(next >> 2) | 1u << 16);
                c = gamma_value((u32)(next >> 2), zeros) & 0xffff;
                used += 2 * zeros + 1;
                bad |= zeros > 15;
            }
            a = (u32)(next >> used) & 0xff;
            b = ((u32)(next >> (used + 8)) & 0xff) + 1;
            bad |= a + b > 256 || (levels && a == 0);
            end = at + used + 16;
            end = end <= bits ? tables_hop(s, to, end, min(b, 256 - a)) : 0;
        } else if (kind == TABLE_SHAPED) {
            a = (u32)(next >> 2) & ((2u << log) - 1);
            b = (u32)(next >> (log + 3)) & 0xff;
            c = (u32)(next >> (log + 11)) & 0xff;
            end = at + 19 + log;
            bad |= !levels;
        } else {
            bad |= kind != TABLE_REPEATED || found == 0;
        }
        if (end == 0 || end > bits) break;
        if (lane_of() == 0) {
            to->kind = kind;
            to->a = a;
            to->b = b;
            to->c = c;
        }
        if (kind != TABLE_REPEATED) last = found;
        at = end;
    }
    __syncwarp();
    if (lane_of() == 0) {
        s->before = before;
        s->found = found;
        s->at += at - start;
        if (bad || found == before) s->bad = 1;
    }
}

// Makes a table; false if its frequencies do not add up. A warp.
DEVICE bool table_make(const TablesRead *s, const TableRecord *r, u16 *to, u32 log, bool levels, bool halved, TableScratch *t) {
    const u32 lane = lane_of();
    bool right = true;
    if (r->kind == TABLE_SHAPED) right = shaped(r->a, r->b, r->c, log, halved, t);
    else {
        __syncwarp();
#pragma unroll 1
        for (u32 i = lane; i < 256; i += 32) t->freq[i] = 0;
        __syncwarp();
#pragma unroll 1
        for (u32 i = lane; i < r->b; i += 32) {
            u32 at = r->eighth[i / 8];
#pragma unroll 1
            for (u32 k = i & 7; k > 0; --k) at += s->one[at];
            const u32 bits = code_bits(s, at);
            t->freq[(r->a + i) ^ (levels ? 0x80 : 0)] = gamma_value(bits, gamma_zeros(bits) & 15);
        }
        __syncwarp();
        if (levels && lane == 0) t->freq[ESCAPE] = r->c;
        __syncwarp();
    }
    // Eight symbols a lane.
    u32 freq[8], sum = 0;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) sum += freq[i] = t->freq[lane * 8 + i];
    u32 start = warp_before(sum);
    right = right && __shfl_sync(ALL_LANES, start + sum, 31) == 1u << log;
    u32 *words = (u32 *)to + lane * 4;
#pragma unroll
    for (u32 i = 0; i < 8; i += 2) {
        words[i / 2] = (start & 0xffff) | (start + freq[i]) << 16;
        start += freq[i] + freq[i + 1];
    }
    return right;
}

// Finds where the tables are. The first warp.
DEVICE void tables_open(Reader &r, TablesRead *s) {
    const u64 len = reader_varint(r);
    const u64 at = reader_take(r, len);
    if (lane_of() == 0) {
        s->at = at * 8;
        s->end = (at + len) * 8;
        s->found = 0;
        s->bad = s->odd = 0;
    }
    __syncwarp();
}

// Reads all tables and leaves the first slot of every symbol. All threads of the block take part, and synchronise
// before they ask whether all is right.
DEVICE void tables_read(TablesRead *s, const u8 *blob, Work *work, const Desc *d) {
    const bool levels = d->codec == CODEC_LEVELS;
    const u32 tables = d->tables, log = d->table_log, per_class = d->tables_per_class;
    u32 last = 0;
    while (s->found < tables && !s->bad) {
        const u32 bits = tables_measure(s, blob);
        if (warp_of() == 0) tables_walk(s, bits, tables, log, levels, last);
        __syncthreads();
        if (s->bad) break;
        bool right = true;
#pragma unroll 1
        for (u32 t = s->before + warp_of(); t < s->found; t += TABLE_WARPS) {
            const TableRecord *r = s->records + t;
            const bool halved = levels && d->low[t >> (per_class - 1)] > 0;
            if (r->kind != TABLE_REPEATED)
                right &= table_make(s, r, work->start[t], log, levels, halved, s->scratch + warp_of());
        }
        if (!right && lane_of() == 0) s->odd = 1;
        __syncthreads();
    }
    if (s->bad) return;
    // A table that comes again.
#pragma unroll 1
    for (u32 t = warp_of(); t < tables; t += TABLE_WARPS) {
        const TableRecord *r = s->records + t;
        if (r->kind == TABLE_REPEATED)
#pragma unroll 1
            for (u32 i = lane_of(); i < 128; i += 32) ((u32 *)work->start[t])[i] = ((const u32 *)work->start[r->a])[i];
    }
    if (threadIdx.x == 0 && (s->at + 7) / 8 != s->end / 8) s->odd = 1;
}
