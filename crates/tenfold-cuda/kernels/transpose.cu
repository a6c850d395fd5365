// Elements of a transposed tensor, decoded as they are coded, to their places: every element is read once and written once. A block
// turns squares in shared memory, so that both sides are read and written in order.

#include "blob.cuh"

#define TRANSPOSE_WARPS (TRANSPOSE_THREADS / 32)

// Side of a square of elements of so many bytes: a row of it is at least 64 bytes.
template <class E> struct Square {
    static const u32 SIDE = sizeof(E) <= 2 ? 64 : 32, PITCH = SIDE + (sizeof(E) < 4 ? 4 / sizeof(E) : 1);
};

// What is transposed: `rows` rows of `columns` elements.
struct Turned {
    const void *from;
    void *to;
    u64 rows, columns;
};

// Calls `turn` with the first row and column of each of this block's squares.
template <class E, class F> DEVICE void each_square(const Turned &t, F turn) {
    const u64 side = Square<E>::SIDE, across = (t.columns + side - 1) / side, all = (t.rows + side - 1) / side * across;
    for (u64 i = blockIdx.x; i < all; i += gridDim.x) {
        const u64 down = i / across;
        turn(down * side, (i - down * across) * side);
        __syncthreads();
    }
}

template <class E> DEVICE void transpose_single(const Turned &t) {
    const u32 side = Square<E>::SIDE;
    __shared__ E square[side * Square<E>::PITCH];
    each_square<E>(t, [&](u64 row, u64 col) {
        for (u32 i = warp_of(); i < side; i += TRANSPOSE_WARPS)
#pragma unroll
            for (u32 j = lane_of(); j < side; j += 32)
                if (row + i < t.rows && col + j < t.columns)
                    square[i * Square<E>::PITCH + j] = ((const E *)t.from)[(row + i) * t.columns + col + j];
        __syncthreads();
        for (u32 j = warp_of(); j < side; j += TRANSPOSE_WARPS)
#pragma unroll
            for (u32 i = lane_of(); i < side; i += 32)
                if (row + i < t.rows && col + j < t.columns)
                    ((E *)t.to)[(col + j) * t.rows + row + i] = square[i * Square<E>::PITCH + j];
    });
}

// The same for elements of two bytes where rows and columns are even: two at a time, read and written.
DEVICE void transpose_double(const Turned &t) {
    const u32 side = 64, words = side / 2, pitch = words + 1;
    __shared__ u32 square[side * pitch];
    const u32 lane = lane_of();
    each_square<u16>(t, [&](u64 row, u64 col) {
#pragma unroll
        for (u32 i = warp_of(); i < side; i += TRANSPOSE_WARPS)
            if (row + i < t.rows && col + 2 * lane < t.columns)
                square[i * pitch + lane] = ((const u32 *)t.from)[((row + i) * t.columns + col) / 2 + lane];
        __syncthreads();
        // A lane has two rows of the square, a warp two columns at a time.
        if (row + 2 * lane < t.rows) {
#pragma unroll
            for (u32 j = warp_of(); j < words; j += TRANSPOSE_WARPS) {
                if (col + 2 * j >= t.columns) break;
                const u32 a = square[2 * lane * pitch + j], b = square[(2 * lane + 1) * pitch + j];
                u32 *to = (u32 *)t.to + ((col + 2 * j) * t.rows + row) / 2 + lane;
                to[0] = (a & 0xffff) | b << 16;
                to[t.rows / 2] = a >> 16 | (b & 0xffff0000u);
            }
        }
    });
}

// Nothing is done where decoding failed, or where the tensor is not of the stated size.
template <class E> DEVICE void transpose(const TransposeArgs &a) {
    const Desc *d = &work_of(*a.item)->desc;
    if (a.status->code != 0 || d->columns == 0 || d->values * sizeof(E) != a.len) return;
    const Turned t = {a.from, a.to, d->values / d->columns, d->columns};
    const bool even = ((t.rows | t.columns | ((u64)a.from | (u64)a.to) >> 1) & 1) == 0;
    if (sizeof(E) == 2 && even) transpose_double(t);
    else transpose_single<E>(t);
}

KERNEL(TRANSPOSE_THREADS) transpose_1(const TransposeArgs a) { transpose<u8>(a); }
KERNEL(TRANSPOSE_THREADS) transpose_2(const TransposeArgs a) { transpose<u16>(a); }
KERNEL(TRANSPOSE_THREADS) transpose_4(const TransposeArgs a) { transpose<u32>(a); }
KERNEL(TRANSPOSE_THREADS) transpose_8(const TransposeArgs a) { transpose<u64>(a); }
