// Transforms that are undone as values are decoded: weights, each value times a power of two in eighths of an octave, and
// means, a number added to each column. The twin of `prepare/weights.rs` and `prepare/means.rs`.
#pragma once

#include "blob.cuh"

STORED u32 weight_eighths[8] = EIGHTHS;

// 2^(−w/8) for a weight of w.
DEVICE float weight_undone(i32 w) {
    // Exponents from −16 to 16 on a number between 1 and 2: adding to the bits is exact.
    return __uint_as_float(weight_eighths[-w & 7] + ((u32)(-w >> 3) << 23));
}

DEVICE float weighed(float v, float by) { return __fmul_rn(v, by); }
DEVICE double weighed(double v, float by) { return __dmul_rn(v, (double)by); }

// Row and column of a value, for one that goes on by the same number of values each time.
struct Walk {
    u64 row, col, width;
    u32 rows, cols;

    METHOD Walk(u64 at, u64 width, u32 by) : width(width) {
        row = at / width;
        col = at - row * width;
        rows = width > by ? 0 : by / (u32)width;
        cols = by - rows * (u32)width;
    }
    METHOD void go_on() {
        row += rows;
        col += cols;
        if (col < width) return;
        col -= width;
        ++row;
    }
};

// Means of a header: bits of the one of a column, as an f32 has them.
DEVICE u32 mean_bits(const u8 *blob, u32 at, bool wide, u64 col) {
    const u32 bits = header_word(blob, at + ((u32)col << (wide ? 2 : 1)));
    return wide ? bits : bits << 16;
}

DEVICE float added(float v, float mean) { return __fadd_rn(v, mean); }
DEVICE double added(double v, float mean) { return __dadd_rn(v, (double)mean); }

// Transforms of a blob in the order in which they are undone.
struct Undo {
    const u8 *blob;
    u32 at[MAX_UNDONE], kind[MAX_UNDONE];

    METHOD Undo(const Item &item, const Desc *d) : blob((const u8 *)item.blob) {
#pragma unroll
        for (u32 i = 0; i < MAX_UNDONE; ++i) {
            at[i] = d->undone_at[i];
            kind[i] = d->undone_kind[i];
        }
    }
    template <class R> METHOD R undo(R v, u64 row, u64 col) const {
#pragma unroll
        for (u32 i = 0; i < MAX_UNDONE; ++i) {
            if (kind[i] == UNDO_NOTHING) break;
            if (kind[i] >= UNDO_MEANS) v = added(v, __uint_as_float(mean_bits(blob, at[i], kind[i] == UNDO_WIDE_MEANS, col)));
            else v = weighed(v, weight_undone((signed char)blob[at[i] + (kind[i] == UNDO_ROWS ? row : col)]));
        }
        return v;
    }
};
