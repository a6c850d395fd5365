// CRC-32 of a long message by a warp, without tables.
//
// A row is 32 words, a word a lane. From a row to the next the sum is multiplied by X = x^1024, and as 1024 is a power
// of two, X is a root of the CRC's own polynomial: X^32 is the sum of X^26, X^23, … So a row need not be reduced where
// it stands: added to the rows that follow it by 6, 9, … rows it has no effect of its own any more. That takes seven
// instructions a row; only the last 32 rows are reduced bit by bit.
#pragma once

#include "crc.cuh"

#define FOLD_ROWS 32

// Multiplies by X.
OUTLINE u32 crc_row(u32 sum) {
    constexpr u32 nibbles[128] = CRC_NIBBLES;
    u32 v[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 bit = 0; bit < 32; ++bit)
        if (sum >> bit & 1) v[bit & 3] ^= nibbles[bit / 4 * 16 + (1u << (bit & 3))];
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

// Takes 32 rows, of which the first `skip` are not there; `at` is the lane's word of the first. `y` has what the last
// 32 rows came to. The message's first row has its first word inverted. FRESH: the warp has only just written the message.
template <bool FIRST, bool FRESH> DEVICE void fold_rows(u32 (&y)[FOLD_ROWS], const u32 *at, u32 skip) {
#pragma unroll
    for (u32 row = 0; row < FOLD_ROWS; ++row) {
        u32 v = 0;
        if (!FIRST || row >= skip) v = FRESH ? at[row * 32] : __ldg(at + row * 32);
        if (FIRST && row == skip && lane_of() == 0) v = ~v;
        // X^k is 32 − k rows on; in the polynomial as a CRC has it that is the bit before.
#pragma unroll
        for (u32 back = 1; back <= 32; ++back)
            if (CRC_POLYNOMIAL >> (back - 1) & 1) v ^= y[(row - back) & (FOLD_ROWS - 1)];
        y[row] = v;
    }
}

// Checksum of `words` words; all lanes of a warp take part and get it.
template <bool FRESH> DEVICE u32 crc_folded(const u32 *at, u32 words) {
    const u32 lane = lane_of(), rows = words / 32;
    u32 sum = 0, last = lane;
    if (rows > 0) {
        const u32 skip = (0u - rows) & (FOLD_ROWS - 1);
        u32 y[FOLD_ROWS];
#pragma unroll
        for (u32 row = 0; row < FOLD_ROWS; ++row) y[row] = 0;
        const u32 *from = at + lane;
        fold_rows<true, FRESH>(y, from - skip * 32, skip);
        from += (FOLD_ROWS - skip) * 32;
        for (u32 done = FOLD_ROWS - skip; done < rows; done += FOLD_ROWS) {
            fold_rows<false, FRESH>(y, from, 0);
            from += FOLD_ROWS * 32;
        }
        // Rows that were added to others of the last 32 are taken out of them again.
#pragma unroll
        for (u32 row = FOLD_ROWS; row-- > 0;)
#pragma unroll
            for (u32 back = 1; back <= row; ++back)
                if (CRC_POLYNOMIAL >> (back - 1) & 1) y[row] ^= y[row - back];
#pragma unroll
        for (u32 row = 0; row < FOLD_ROWS; ++row) sum = crc_row(sum) ^ y[row];
        last = (rows - 1) * 32 + lane;
    }
    // What is less than a row.
    if (rows * 32 + lane < words) {
        last = rows * 32 + lane;
        const u32 word = FRESH ? at[last] : __ldg(at + last);
        sum = crc_row(sum) ^ (last == 0 ? ~word : word);
    }
    if (last < words) sum = crc_multiply(sum, crc_powers[words - last]);
    return words == 0 ? 0 : ~warp_xor(sum);
}
OUTLINE u32 crc_fold(const u32 *at, u32 words) { return crc_folded<false>(at, words); }
OUTLINE u32 crc_fold_fresh(const u32 *at, u32 words) { return crc_folded<true>(at, words); }
