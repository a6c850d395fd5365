// CRC-32 by a warp. Lane l takes words l, l + 32, …, so that a warp reads whole lines; its sum is advanced by 32
// words with four look-ups, and at the end by what is left to the end of the message.
#pragma once

#include "base.cuh"

#define CRC_TABLE_WORDS 1024

#ifdef TENFOLD_EMULATOR
#define CRC_STORED static const u32
#else
#define CRC_STORED static __device__ const u32
#endif
CRC_STORED crc_table[CRC_TABLE_WORDS] = CRC_TABLE;
CRC_STORED crc_powers[33] = CRC_POWERS;
CRC_STORED crc_parts[16] = CRC_PARTS;
CRC_STORED crc_sixteens[16] = CRC_SIXTEENS;

// Product modulo the CRC's polynomial; lowest coefficients in the top bits.
OUTLINE u32 crc_multiply(u32 a, u32 b) {
    u32 product = 0;
#pragma unroll
    for (int bit = 31; bit >= 0; --bit) {
        product ^= (0u - (b >> bit & 1)) & a;
        a = (a >> 1) ^ ((0u - (a & 1)) & CRC_POLYNOMIAL);
    }
    return product;
}

// Copies the table to a block's shared memory; the caller synchronises.
DEVICE void crc_fill(u32 *table) {
    for (u32 i = threadIdx.x; i < CRC_TABLE_WORDS; i += blockDim.x) table[i] = crc_table[i];
}

DEVICE u32 crc_advance(const u32 *table, u32 v) {
    return table[v & 255] ^ table[256 + (v >> 8 & 255)] ^ table[512 + (v >> 16 & 255)] ^ table[768 + (v >> 24)];
}

// Checksum of `words` words; all lanes of a warp take part and get it.
DEVICE u32 crc_warp(const u32 *table, const u32 *at, u64 words) {
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
    for (; j + 96 < words; j += 128) {
        const u32 a = at[j], b = at[j + 32], c = at[j + 64], d = at[j + 96];
        acc = crc_advance(table, acc) ^ a;
        acc = crc_advance(table, acc) ^ b;
        acc = crc_advance(table, acc) ^ c;
        acc = crc_advance(table, acc) ^ d;
    }
    for (; j < words; j += 32) acc = crc_advance(table, acc) ^ at[j];
    // The last word that this lane took is `j − 32`.
    if (lane < words) acc = crc_multiply(acc, crc_powers[words - (j - 32)]);
    return ~warp_xor(acc);
}

// Share of warp `warp` of `warps` in the checksum of a longer message; the shares' exclusive-or is the sum. Parts are
// counted from the end, so that what follows each is known beforehand.
DEVICE u32 crc_share(const u32 *table, const u32 *at, u64 words, u32 warp, u32 warps) {
    const u64 parts = (words + CRC_PART - 1) / CRC_PART;
    u32 sum = 0;
    for (u64 part = warp; part < parts; part += warps) {
        const u64 end = words - part * CRC_PART, begin = end > CRC_PART ? end - CRC_PART : 0;
        u32 mine = crc_warp(table, at + begin, end - begin);
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
