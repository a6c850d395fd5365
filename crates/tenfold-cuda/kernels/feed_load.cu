// A matrix on its way to feedback: its elements weighted, and afterwards what a blob is off by.

#include "floats.cuh"

DEVICE float feed_element(const void *from, u32 kind, u64 i) {
    u32 bits;
    switch (size_of(kind)) {
    case 1: bits = ((const u8 *)from)[i]; break;
    case 2: bits = ((const u16 *)from)[i]; break;
    default: bits = ((const u32 *)from)[i];
    }
    return __uint_as_float(f32_of(kind, bits));
}

// Elements times what their column and their row are multiplied by, each product rounded. A block takes squares of 32 by 32, which it
// turns where columns are to come one after the other.
KERNEL(FACTOR_THREADS) feed_load(const FeedLoadArgs a) {
    __shared__ float square[32][33];
    const u64 across = (a.inputs + 31) / 32, down = (a.outputs + 31) / 32;
    for (u64 s = blockIdx.x; s < across * down; s += gridDim.x) {
        const u32 top = (u32)(s / across) * 32, left = (u32)(s % across) * 32;
        for (u32 r = warp_of(); r < 32; r += FACTOR_THREADS / 32) {
            const u32 i = top + r, j = left + lane_of();
            if (i >= a.outputs || j >= a.inputs) continue;
            float v = __fmul_rn(feed_element(a.from, a.kind, (u64)i * a.inputs + j), a.columns[j]);
            if (a.rows) v = __fmul_rn(v, a.rows[i]);
            if (!(v - v == 0.0f)) *a.bad = 1;
            if (a.turned) square[r][lane_of()] = v;
            else a.to[(u64)i * a.inputs + j] = v;
        }
        __syncthreads();
        for (u32 r = warp_of(); a.turned && r < 32; r += FACTOR_THREADS / 32) {
            const u32 j = left + r, i = top + lane_of();
            if (i < a.outputs && j < a.inputs) a.to[(u64)j * a.outputs + i] = square[lane_of()][r];
        }
        __syncthreads();
    }
}

// What two tensors differ by, and 0 where that is no number.
KERNEL(FACTOR_THREADS) feed_off(const FeedOffArgs a) {
    const u64 all = a.rows * a.columns, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += stride) {
        const float v = feed_element(a.original, a.kind, i) - feed_element(a.instead, a.kind, i);
        a.off[i] = v - v == 0.0f ? v : 0.0f;
    }
}

// Sums of products, a warp a row, always in the same order.
KERNEL(FACTOR_THREADS) feed_sum(const FeedOffArgs a) {
    const u64 warps = (u64)gridDim.x * (FACTOR_THREADS / 32);
    for (u64 row = (u64)blockIdx.x * (FACTOR_THREADS / 32) + warp_of(); row < a.rows; row += warps) {
        double sum = 0.0;
        for (u64 i = lane_of(); i < a.columns; i += 32)
            sum += (double)a.off[row * a.columns + i] * (double)a.product[row * a.columns + i];
        sum = warp_sum(sum);
        if (lane_of() == 0) a.sums[row] = sum;
    }
}
