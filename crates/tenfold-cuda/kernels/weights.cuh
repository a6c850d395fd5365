// Weights of columns and rows, undone: every value times a power of two, in eighths of an octave. The twin of
// `prepare/weights.rs`.
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

// Weights of a blob in the order in which they are undone.
struct Weights {
    const u8 *first, *second;
    bool first_of_rows, second_of_rows;

    METHOD Weights(const Item &item, const Desc *d) {
        const u8 *blob = (const u8 *)item.blob;
        first = d->weights_at[0] ? blob + d->weights_at[0] : nullptr;
        second = d->weights_at[1] ? blob + d->weights_at[1] : nullptr;
        first_of_rows = d->weights_of_rows[0];
        second_of_rows = d->weights_of_rows[1];
    }
    template <class R> METHOD R undo(R v, u64 row, u64 col) const {
        if (first) v = weighed(v, weight_undone((signed char)first[first_of_rows ? row : col]));
        if (second) v = weighed(v, weight_undone((signed char)second[second_of_rows ? row : col]));
        return v;
    }
};
