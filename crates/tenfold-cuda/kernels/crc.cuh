// CRC-32 by a warp. Lane l takes words l, l + 32, …, so that a warp reads whole lines; its sum is advanced by 32
// words with four look-ups, and at the end by what is left to the end of the message.
#pragma once

#include "base.cuh"

#define CRC_TABLE_WORDS 1024

// Product modulo the CRC's polynomial; lowest coefficients in the top bits.
OUTLINE u32 crc_multiply(u32 a, u32 b) {
    u32 product = 0;
#pragma unroll 4
    for (int bit = 31; bit >= 0; --bit) {
        product ^= b >> bit & 1 ? a : 0;
        a = (a >> 1) ^ (a & 1 ? CRC_POLYNOMIAL : 0);
    }
    return product;
}

// Fills a block's table; the caller synchronises.
DEVICE void crc_fill(u32 *table) {
    const u32 powers[33] = CRC_POWERS;
    for (u32 i = threadIdx.x; i < CRC_TABLE_WORDS; i += blockDim.x)
        table[i] = crc_multiply((i & 255) << (8 * (i >> 8)), powers[32]);
}

DEVICE u32 crc_advance(const u32 *table, u32 v) {
    return table[v & 255] ^ table[256 + (v >> 8 & 255)] ^ table[512 + (v >> 16 & 255)] ^ table[768 + (v >> 24)];
}

// x to the power of 32·n, n = 1 … 32, without an array that would live in memory.
OUTLINE u32 crc_power(u32 n) {
    const u32 powers[33] = CRC_POWERS;
    u32 p = 0;
#pragma unroll
    for (u32 i = 0; i <= 32; ++i) p = i == n ? powers[i] : p;
    return p;
}

// v times x to the power of 32·words.
DEVICE u32 crc_shift(const u32 *table, u32 v, u64 words) {
    for (; words >= 32; words -= 32) v = crc_advance(table, v);
    return words ? crc_multiply(v, crc_power((u32)words)) : v;
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
    if (lane < words) acc = crc_multiply(acc, crc_power((u32)(words - (j - 32))));
    return ~warp_xor(acc);
}
