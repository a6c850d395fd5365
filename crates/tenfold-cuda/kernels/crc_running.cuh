// CRC-32 of what a warp writes, kept while it writes: nothing has to be read back.
//
// A section is a head word and content. Lane l writes content words l, l + 32, …, and lane 31 the head, which stands
// 32 words before that lane's first: then every lane advances its sum by 32 words from one word to the next. Tables
// are of four bits and there is one for each lane, so that no two lanes want the same bank.
#pragma once

#include "crc.cuh"

#define RUNNING_TABLE_WORDS (8 * 16 * 32)

// Fills a block's tables, of at least 128 threads; the caller synchronises.
DEVICE void running_fill(u32 *tables) {
    const u32 powers[33] = CRC_POWERS;
    const u32 i = threadIdx.x;
    if (i < 128) {
        const u32 v = crc_multiply((i & 15) << (4 * (i >> 4)), powers[32]);
        // From a place of its own in each row, or all threads would write to one bank.
        for (u32 l = 0; l < 32; ++l) tables[i * 32 + ((l + i) & 31)] = v;
    }
}

// A block's tables, and where the lane's column is in a row of them.
struct Running {
    const u8 *tables;
    u32 column;
};

// All lanes of a warp take part.
DEVICE Running running_open(const u32 *tables) {
    // A compiler that knew the column's bits would put tables together with it instead of with the address, at the
    // price of an instruction each.
    return Running{(const u8 *)tables, __shfl_sync(ALL_LANES, lane_of() * 4, (int)lane_of())};
}

// Takes the next word into a lane's sum.
DEVICE u32 running_next(const Running &r, u32 sum, u32 word) {
    u32 v = word;
    // A row of 32 words is 128 bytes: the nibble moves to bits 7 to 10.
#pragma unroll
    for (u32 n = 0; n < 8; ++n) {
        const u32 row = n < 2 ? sum << (7 - 4 * n) : sum >> (4 * n - 7);
        v ^= *(const u32 *)(r.tables + ((row & 0x780) | r.column) + n * 2048);
    }
    return v;
}

// A lane's sum before the first word of content.
DEVICE u32 running_start(u32 head) { return lane_of() == 31 ? head : 0; }

// x to the power of 32·n; all lanes of a warp take part, each for one bit of n.
OUTLINE u32 running_power(u32 n) {
    const u32 doublings[32] = CRC_DOUBLINGS;
    u32 p = 1u << 31;
#pragma unroll
    for (u32 i = 0; i < 32; ++i)
        if (i == lane_of() && (n >> i & 1)) p = doublings[i];
    for (u32 by = 16; by > 0; by >>= 1) p = crc_multiply(p, __shfl_xor_sync(ALL_LANES, p, (int)by));
    return p;
}

// The checksum after a section of `words` words of content, from that before it and the lanes' sums. Starts at ~0;
// the complement of the last is the CRC. All lanes of a warp take part and get it.
OUTLINE u32 running_end(u32 before, u32 sum, u32 words) {
    const u32 lane = lane_of();
    // Words from the last that the lane took to the section's end; more than 32 where it took none.
    const u32 left = words > lane ? words - (lane + (words - 1 - lane) / 32 * 32) : words + 32 - lane;
    const u32 mine = crc_multiply(sum, crc_power(left));
    return crc_multiply(before, running_power(words + 1)) ^ warp_xor(mine);
}
