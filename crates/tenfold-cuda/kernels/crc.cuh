// CRC-32 by a warp. Lane l takes words l, l + 32, …, so that a warp reads whole lines; its sum is advanced by 32
// words with eight look-ups, and at the end by what is left to the end of the message. Tables are of four bits, and
// there is one for each lane, so that no two lanes want the same bank.
#pragma once

#include "base.cuh"

#define CRC_TABLE_WORDS (8 * 16 * 32)

STORED u32 crc_nibbles[128] = CRC_NIBBLES;
STORED u32 crc_powers[33] = CRC_POWERS;
STORED u32 crc_parts[16] = CRC_PARTS;
STORED u32 crc_sixteens[16] = CRC_SIXTEENS;

// Product modulo the CRC's polynomial; lowest coefficients in the top bits.
DEVICE u32 crc_product(u32 a, u32 b) {
    u32 product = 0;
#pragma unroll
    for (int bit = 31; bit >= 0; --bit) {
        product ^= (0u - (b >> bit & 1)) & a;
        a = (a >> 1) ^ ((0u - (a & 1)) & CRC_POLYNOMIAL);
    }
    return product;
}
OUTLINE u32 crc_multiply(u32 a, u32 b) { return crc_product(a, b); }

// Fills a block's tables; the caller synchronises. Four loads are on their way at a time: they come from far.
DEVICE void crc_fill(u32 *tables) {
    for (u32 i = threadIdx.x; i < CRC_TABLE_WORDS; i += 4 * blockDim.x) {
        u32 v[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) v[j] = crc_nibbles[(i + j * blockDim.x) >> 5 & 127];
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            if (i + j * blockDim.x < CRC_TABLE_WORDS) tables[i + j * blockDim.x] = v[j];
    }
}

// A block's tables, and where the lane's column is in a row of them.
struct Crc {
    const u8 *tables;
    u32 column;
};

// All lanes of a warp take part.
DEVICE Crc crc_open(const u32 *tables) {
    // A compiler that knew the column's bits would put tables together with it instead of with the address, at the
    // price of an instruction each.
    return Crc{(const u8 *)tables, __shfl_sync(ALL_LANES, lane_of() * 4, (int)lane_of())};
}

// Takes the next word into a lane's sum.
DEVICE u32 crc_next(const Crc &c, u32 sum, u32 word) {
    u32 v = word;
    // A row of 32 words is 128 bytes: the nibble moves to bits 7 to 10.
#pragma unroll
    for (u32 n = 0; n < 8; ++n) {
        const u32 row = n < 2 ? sum << (7 - 4 * n) : sum >> (4 * n - 7);
        v ^= *(const u32 *)(c.tables + ((row & 0x780) | c.column) + n * 2048);
    }
    return v;
}

// Checksum of `words` words; all lanes of a warp take part and get it.
DEVICE u32 crc_warp(const Crc &c, const u32 *at, u64 words) {
    if (words == 0) return 0;
    const u32 lane = lane_of();
    u32 acc = 0;
    u64 j = lane;
    if (j == 0) {
        acc = ~at[0];
        j += 32;
    } else if (j < words) {
        acc = at[j];
        j += 32;
    }
    // Eight loads on their way at a time: each is waited for but once.
    for (; j + 224 < words; j += 256) {
        u32 w[8];
#pragma unroll
        for (u32 i = 0; i < 8; ++i) w[i] = at[j + i * 32];
#pragma unroll
        for (u32 i = 0; i < 8; ++i) acc = crc_next(c, acc, w[i]);
    }
    for (; j < words; j += 32) acc = crc_next(c, acc, at[j]);
    // The last word that this lane took is `j − 32`.
    if (lane < words) acc = crc_multiply(acc, crc_powers[words - (j - 32)]);
    return ~warp_xor(acc);
}

// Share of warp `warp` of `warps` in the checksum of a longer message; the shares' exclusive-or is the sum. Parts are
// counted from the end, so that what follows each is known beforehand.
DEVICE u32 crc_share(const Crc &c, const u32 *at, u64 words, u32 warp, u32 warps) {
    const u64 parts = (words + CRC_PART - 1) / CRC_PART;
    u32 sum = 0;
    for (u64 part = warp; part < parts; part += warps) {
        const u64 end = words - part * CRC_PART, begin = end > CRC_PART ? end - CRC_PART : 0;
        u32 mine = crc_warp(c, at + begin, end - begin);
        mine = crc_multiply(mine, crc_parts[part & 15]);
        for (u64 left = part >> 4; left > 0;) {
            const u64 by = left < 16 ? left : 15;
            mine = crc_multiply(mine, crc_sixteens[by]);
            left -= by;
        }
        sum ^= mine;
    }
    return sum;
}
