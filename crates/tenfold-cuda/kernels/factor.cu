// Factors of a curvature in f64: the twin of `calibrated/factors.rs` and `cholesky.rs`. What columns before a panel account for is
// taken off by products of matrices; a block factors the panel's corner, and a thread a row solves for the rows below it.

#include "base.cuh"

// E[x·xᵀ], damped, from the last column to the first: the lower factor of that is the upper one of the matrix.
KERNEL(FACTOR_THREADS) factor_damp(const FactorArgs a) {
    const u64 all = a.cols * a.cols, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += stride) {
        const double v = (double)a.inputs[all - 1 - i];
        a.matrix[i] = i % (a.cols + 1) ? v : fmax(v * a.damping, a.floor);
    }
}

// The corner of a panel: rows that cross its own columns. One block.
KERNEL(FACTOR_THREADS) factor_corner(const FactorArgs a) {
    __shared__ double c[FACTOR_PANEL][FACTOR_PANEL + 1];
    const u32 width = (u32)min((u64)FACTOR_PANEL, a.cols - a.first);
    double *at = a.matrix + a.first * (a.cols + 1);
    for (u32 i = threadIdx.x; i < width * width; i += blockDim.x) c[i / width][i % width] = at[i / width * a.cols + i % width];
    for (u32 k = 0; k < width; ++k) {
        __syncthreads();
        const double pivot = c[k][k];
        // What is not positive, NaN among it, is reported; what comes of it is of no use.
        const bool good = pivot > 0.0 && pivot - pivot == 0.0;
        if (!good && threadIdx.x == 0) atomicCAS(a.bad, 0u, (u32)a.first + k + 1);
        const double root = good ? sqrt(pivot) : 1.0;
        __syncthreads();
        for (u32 r = k + threadIdx.x; r < width; r += blockDim.x) c[r][k] = r == k ? root : c[r][k] / root;
        __syncthreads();
        const u32 left = width - k - 1;
        for (u32 i = threadIdx.x; i < left * left; i += blockDim.x) {
            const u32 r = k + 1 + i / left, j = k + 1 + i % left;
            if (j <= r) c[r][j] -= c[r][k] * c[j][k];
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < width * width; i += blockDim.x)
        if (i % width <= i / width) at[i / width * a.cols + i % width] = c[i / width][i % width];
}

// Rows below a corner that is whole, divided by it.
KERNEL(FACTOR_ROWS) factor_below(const FactorArgs a) {
    DYNAMIC_SHARED(memory);
    double *corner = (double *)memory, *rows = corner + FACTOR_PANEL * FACTOR_PANEL;
    const u64 top = a.first + FACTOR_PANEL + (u64)blockIdx.x * FACTOR_ROWS;
    const u32 count = (u32)min((u64)FACTOR_ROWS, a.cols - top);
    const double *from = a.matrix + a.first * (a.cols + 1);
    double *at = a.matrix + top * a.cols + a.first;
    for (u32 i = threadIdx.x; i < FACTOR_PANEL * FACTOR_PANEL; i += blockDim.x)
        corner[i] = from[i / FACTOR_PANEL * a.cols + i % FACTOR_PANEL];
    for (u32 i = threadIdx.x; i < count * FACTOR_PANEL; i += blockDim.x)
        rows[i % FACTOR_PANEL * (FACTOR_ROWS + 1) + i / FACTOR_PANEL] = at[i / FACTOR_PANEL * a.cols + i % FACTOR_PANEL];
    __syncthreads();
    if (threadIdx.x < count) {
        for (u32 c = 0; c < FACTOR_PANEL; ++c) {
            double v = rows[c * (FACTOR_ROWS + 1) + threadIdx.x];
            for (u32 t = 0; t < c; ++t) v -= corner[c * FACTOR_PANEL + t] * rows[t * (FACTOR_ROWS + 1) + threadIdx.x];
            rows[c * (FACTOR_ROWS + 1) + threadIdx.x] = v / corner[c * (FACTOR_PANEL + 1)];
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < count * FACTOR_PANEL; i += blockDim.x)
        at[i / FACTOR_PANEL * a.cols + i % FACTOR_PANEL] = rows[i % FACTOR_PANEL * (FACTOR_ROWS + 1) + i / FACTOR_PANEL];
}

// Pivots in the order of columns.
KERNEL(FACTOR_THREADS) factor_pivots(const FactorArgs a) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < a.cols; k += stride)
        a.pivots[k] = a.matrix[(a.cols - 1 - k) * (a.cols + 1)];
}

// How weighted columns answer to the errors of those before them, from the factor. A block turns squares of 32 by 32.
KERNEL(FACTOR_THREADS) factor_turn(const FactorArgs a) {
    __shared__ float square[32][33];
    const u64 n = a.cols, across = (n + 31) / 32;
    for (u64 i = blockIdx.x; i < across * across; i += gridDim.x) {
        const u64 top = i / across * 32, left = i % across * 32;
        for (u32 r = warp_of(); r < 32; r += FACTOR_THREADS / 32) {
            const u64 j = left + r, k = top + lane_of();
            float v = 0.0f;
            if (j < k && k < n) {
                const double by = 1.0 / a.matrix[(n - 1 - k) * (n + 1)];
                v = (float)(a.matrix[(n - 1 - j) * n + n - 1 - k] * by) * (a.factors[k] / a.factors[j]);
            }
            square[r][lane_of()] = v;
        }
        __syncthreads();
        for (u32 r = warp_of(); r < 32; r += FACTOR_THREADS / 32) {
            const u64 k = top + r, j = left + lane_of();
            if (k < n && j < n) a.feed[k * n + j] = square[lane_of()][r];
        }
        __syncthreads();
    }
}
