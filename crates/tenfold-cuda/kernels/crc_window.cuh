// CRC-32 of a message that a warp takes in pieces, while it does something else with them: `crc_fold.cuh` in instalments.
#pragma once

#include "crc_fold.cuh"

// Multiplies by X: eight look-ups in the table of four bits at a time, which is 128 words in shared memory. Wherever lanes
// look, the sixteen words of a row are in banks of their own.
DEVICE u32 window_row(SharedAt nibbles, u32 sum) {
    u32 v = 0;
#pragma unroll
    for (u32 n = 0; n < 8; ++n) {
        const u32 at = n == 0 ? sum << 2 : sum >> (4 * n - 2);
        v ^= shared_u32(nibbles + 64 * n + (at & 0x3c));
    }
    return v;
}

// Where a warp stands in a message: what the last 32 rows came to, and how many are left. A row is 32 words, a word a lane.
struct Window {
    u32 y[FOLD_ROWS];
    u32 rows;
};

// Rows whose words are sent for together: each is waited for but once.
#define WINDOW_AHEAD 8

// Takes 32 rows; `load` has the lane's word of a row, and `use` makes of it what the checksum is of. See `fold_rows`.
template <class L, class U> DEVICE void window_take(Window &w, L load, U use) {
#pragma unroll
    for (u32 from = 0; from < FOLD_ROWS; from += WINDOW_AHEAD) {
        u32 words[WINDOW_AHEAD];
#pragma unroll
        for (u32 i = 0; i < WINDOW_AHEAD; ++i) words[i] = load(from + i);
#pragma unroll
        for (u32 i = 0; i < WINDOW_AHEAD; ++i) {
            const u32 row = from + i;
            u32 v = use(row, words[i]);
            // The row before last: it has only just been made.
#pragma unroll
            for (u32 back = 32; back > 0; --back)
                if (CRC_POLYNOMIAL >> (back - 1) & 1) v ^= w.y[(row - back) & (FOLD_ROWS - 1)];
            w.y[row] = v;
        }
    }
    w.rows -= FOLD_ROWS;
}

// Rows that the first 32 lack, so that a multiple of 32 is left after them; those are zero, and the message's first word is
// inverted.
DEVICE u32 window_skip(u32 words) { return (0u - words / 32) & (FOLD_ROWS - 1); }

DEVICE void window_open(Window &w, u32 words) {
#pragma unroll
    for (u32 row = 0; row < FOLD_ROWS; ++row) w.y[row] = 0;
    w.rows = words / 32 + window_skip(words);
}

// The checksum, once no row is left; `rest` is the lane's word of what is less than a row. All lanes of a warp take part
// and get it.
DEVICE u32 window_close(Window &w, SharedAt nibbles, u32 words, u32 rest) {
    const u32 lane = lane_of(), rows = words / 32;
    // Rows that were added to others of the last 32 are taken out of them again.
#pragma unroll
    for (u32 row = FOLD_ROWS; row-- > 0;)
#pragma unroll
        for (u32 back = 1; back <= row; ++back)
            if (CRC_POLYNOMIAL >> (back - 1) & 1) w.y[row] ^= w.y[row - back];
    u32 sum = w.y[0];
#pragma unroll
    for (u32 row = 1; row < FOLD_ROWS; ++row) sum = window_row(nibbles, sum) ^ w.y[row];
    u32 last = rows * 32 + lane - 32;
    if (rows * 32 + lane < words) {
        last = rows * 32 + lane;
        sum = window_row(nibbles, sum) ^ (last == 0 ? ~rest : rest);
    }
    if (last < words) sum = crc_product(sum, crc_powers[words - last]);
    sum = warp_xor(sum);
    return words == 0 ? 0 : ~sum;
}
