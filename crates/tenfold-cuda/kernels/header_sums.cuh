// What is summed up over a whole header while one warp reads it: its checksum, and the lengths of the tiles.
//
// The header may be damaged while this goes on; nothing is trusted but its length and, once it is known to fit, the
// number of tiles.
#pragma once

#include "blob.cuh"
#include "crc_running.cuh"

// Warps that add up; the first warp of the block reads.
#define SUM_WARPS 7

struct HeaderSums {
    u32 crc_table[CRC_TABLE_WORDS];
    // Of each warp: its share of the checksum, taken together with what is stored, so that all shares make zero; the
    // bytes of its tiles; whether a length is not a multiple of four.
    u32 crc[SUM_WARPS];
    u64 bytes[SUM_WARPS];
    u32 odd[SUM_WARPS];
};

// Fills the tables of the checksum. A warp loads all of them at once, as they come from far, and writes every seventh
// row.
DEVICE void sums_prepare(HeaderSums *s, u32 part) {
    if (lane_of() == 0) {
        s->odd[part] = 0;
        s->bytes[part] = 0;
    }
    u32 v[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) v[i] = crc_nibbles[i * 32 + lane_of()];
#pragma unroll 1
    for (u32 row = part; row < 32; row += SUM_WARPS) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            s->crc_table[(i * 32 + row) * 32 + lane_of()] = __shfl_sync(ALL_LANES, v[i], (i32)row);
    }
}

// A warp's share of the checksum: the exclusive-or of all shares is the checksum.
DEVICE u32 sums_crc(const HeaderSums *s, const u32 *header, u32 words, u32 part) {
    // Putting shares together takes as long as adding up some words: short headers are not shared out.
    const u32 parts = min((words + CRC_PART - 1) / CRC_PART, (u32)SUM_WARPS);
    const u32 each = (words + parts - 1) / parts;
    const u32 begin = min(part * each, words), end = min(begin + each, words);
    if (begin == end) return 0;
    const u32 sum = crc_warp(crc_open(s->crc_table), header + begin, end - begin);
    return end == words ? sum : crc_multiply(sum, running_power(words - end));
}

// The runs of tiles that a warp adds up. The last 32 of them at most, from `kept` on, are with the lanes: where each
// starts, counted from the first.
struct Runs {
    u32 first, end, kept;
    u64 start;
};

DEVICE Runs sums_runs_of(u32 tiles, u32 part) {
    const u32 runs = (tiles + RUN - 1) / RUN, each = (runs + SUM_WARPS - 1) / SUM_WARPS;
    const u32 first = min(part * each, runs);
    return Runs{first, min(first + each, runs), first, 0};
}

// Sums of four numbers over a warp's lanes; lane 8·i gets that of number i. Lanes share the numbers out among them as
// they go, so that it takes little more than one sum.
DEVICE u64 sums_of_four(const u64 v[4]) {
    const bool upper = lane_of() & 16, second = lane_of() & 8;
    u64 a = upper ? v[2] : v[0], b = upper ? v[3] : v[1];
    a += __shfl_xor_sync(ALL_LANES, upper ? v[0] : v[2], 16);
    b += __shfl_xor_sync(ALL_LANES, upper ? v[1] : v[3], 16);
    u64 sum = second ? b : a;
    sum += __shfl_xor_sync(ALL_LANES, second ? a : b, 8);
    for (i32 by = 4; by > 0; by >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, by);
    return sum;
}

// Adds up the lengths in a warp's part of the directory. Where its runs start is left in the workspace, counted from
// its first, but for the last of them, which the lanes keep.
DEVICE Runs sums_directory(HeaderSums *s, const u32 *directory, u32 tiles, u64 *to, u32 part) {
    Runs runs = sums_runs_of(tiles, part);
    const u32 lane = lane_of();
    u64 before = 0;
    u32 bits = 0;
#pragma unroll 1
    for (u32 from = runs.first; from < runs.end; from += 32) {
        if (from > runs.first) to[runs.kept + lane] = runs.start;
        const u32 count = min(runs.end - from, 32u);
        u64 mine = 0;
        // Four runs at a time: eight loads are on their way.
#pragma unroll 1
        for (u32 i = 0; i < count; i += 4) {
            u32 len[8];
            u64 sums[4];
            const u32 at = (from + i) * RUN + lane, last = min(tiles, (from + count) * RUN);
            static_assert(RUN == 64, "two lengths of a run a lane");
#pragma unroll
            for (u32 j = 0; j < 8; ++j) len[j] = at + j * 32 < last ? directory[2 * (at + j * 32)] : 0;
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                bits |= len[2 * j] | len[2 * j + 1];
                sums[j] = (u64)len[2 * j] + len[2 * j + 1];
            }
            const u64 sum = __shfl_sync(ALL_LANES, sums_of_four(sums), (i32)((lane & 3) * 8));
            if (lane / 4 == i / 4) mine = sum;
        }
        runs.kept = from;
        runs.start = before + warp_before(mine);
        before = __shfl_sync(ALL_LANES, runs.start + mine, 31);
    }
    if (__any_sync(ALL_LANES, bits % 4 != 0) && lane == 0) s->odd[part] = 1;
    if (lane == 0) s->bytes[part] = before;
    return runs;
}

// Bytes of the tiles before a warp's first.
DEVICE u64 sums_before(const HeaderSums *s, u32 part) {
    u64 before = 0;
#pragma unroll 1
    for (u32 i = 0; i < part; ++i) before += s->bytes[i];
    return before;
}

// Writes where a warp's runs start, counted from the blob's start.
DEVICE void sums_place(const Runs &runs, u64 at, u64 *to) {
    const u32 lane = lane_of();
#pragma unroll 1
    for (u32 run = runs.first + lane; run < runs.kept; run += 32) to[run] += at;
    if (runs.kept + lane < runs.end) to[runs.kept + lane] = at + runs.start;
}
