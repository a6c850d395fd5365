// What kernels that look at whole pages have in common.
#pragma once

#include "base.cuh"

// Sum over a block, in an order that does not depend on anything. All threads take part and get it.
DEVICE float page_sum(float mine, float *shared) {
    mine = warp_sum(mine);
    __syncthreads();
    if (lane_of() == 0) shared[warp_of()] = mine;
    __syncthreads();
    float all = 0.0f;
    for (u32 w = 0; w < PAGE_PLAN_THREADS / 32; ++w) all += shared[w];
    return all;
}

// How large a page is, and its rows beside it: a scale each, four to an octave, or none where rows are about as large as each other and
// telling would cost more than it saves.
struct PageRows {
    float mean[PAGE_ROWS];
    u8 scale[PAGE_ROWS];
    float sums[PAGE_PLAN_THREADS / 32];
    u32 apart;
};

// Mean magnitude of a page. All threads of a block take part; what is in shared memory is there for all after.
DEVICE float page_rows(PageRows &p, const float *data, u64 rows, u64 cols) {
    const bool few = rows <= PAGE_ROWS;
    if (threadIdx.x == 0) p.apart = 0;
    float sum = 0.0f;
    for (u64 row = warp_of(); row < rows; row += PAGE_PLAN_THREADS / 32) {
        const float *values = data + row * cols;
        float own = 0.0f;
        u64 i = 4 * lane_of();
        if (cols % 4 == 0) {
            for (; i < cols; i += 128) {
                const float4 v = *(const float4 *)(values + i);
                own += (fabsf(v.x) + fabsf(v.y)) + (fabsf(v.z) + fabsf(v.w));
            }
        } else {
            for (i = lane_of(); i < cols; i += 32) own += fabsf(values[i]);
        }
        own = warp_sum(own);
        if (few && lane_of() == 0) p.mean[row] = own;
        sum += lane_of() == 0 ? own : 0.0f;
    }
    const float mean = page_sum(sum, p.sums) / (float)(rows * cols);
    if (!few) return mean;
    u32 apart = 0;
    for (u32 row = threadIdx.x; row < rows; row += PAGE_PLAN_THREADS) {
        const float size = p.mean[row] / (float)cols;
        // By comparison alone: logarithms differ from machine to machine. The first bound lies half a scale behind the first.
        u32 scale = 0;
        float bound = mean * (0.25f * 1.09050773f);
        for (; scale + 1 < 1u << PAGE_ROW_BITS && size > bound; ++scale) bound *= 1.18920712f;
        p.scale[row] = (u8)scale;
        const i32 off = (i32)scale - PAGE_ROW_MIDDLE;
        apart += (u32)(off * off);
    }
    if (apart) atomicAdd(&p.apart, apart);
    __syncthreads();
    return mean;
}

// Whether rows have scales of their own.
DEVICE bool page_tells(const PageRows &p, u64 rows, const Plan *plan) {
    return rows <= PAGE_ROWS && plan->classes > 1 && p.apart >= rows;
}
