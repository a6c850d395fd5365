// Plans that a basis has ready for pages of any size and at any step. A basis knows how its coordinates' deviations
// compare: pages that are made up from those, each half an octave larger than the one before, are planned like any tensor, once.
// A page at a step then takes the plan of the made-up page that is as many steps large as itself. It depends on nothing else.

#include "sample.cuh"

// Deviations of columns are four to an octave, as scales are; made-up rows are not all as large as each other, which gives values
// the tails that those of a cache have.
DEVICE float model_deviation(u32 scale) {
    const float quarter[4] = {1.0f, 1.18920712f, 1.41421356f, 1.68179283f};
    const i32 below = (i32)scale - SCALE_TOP;
    return quarter[below & 3] * __uint_as_float((u32)(127 + (below >> 2)) << 23);
}

DEVICE u32 model_hash(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// A made-up value: the sum of eight bytes is nearly Gaussian, and the same on every machine.
DEVICE float model_value(const PageModelArgs &a, u32 i) {
    const float rows[8] = {0.5f, 0.75f, 0.875f, 1.0f, 1.0f, 1.25f, 1.5f, 2.0f};
    const u32 row = i / a.columns, one = model_hash(2 * i), two = model_hash(2 * i + 1);
    u32 sum = 0;
    for (u32 by = 0; by < 32; by += 8) sum += (one >> by & 255) + (two >> by & 255);
    return ((float)sum - 1020.0f) * (1.0f / 209.0f) * rows[row & 7] * model_deviation(a.scales[i - row * a.columns]);
}

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

// Makes up pages: a block each, of a mean magnitude of 2^(PAGE_RUNG_FIRST / 2) and half an octave more from one to the next.
KERNEL(PAGE_PLAN_THREADS) page_model(const PageModelArgs a) {
    __shared__ float sums[PAGE_PLAN_THREADS / 32];
    const u32 values = a.rows * a.columns;
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < values; i += PAGE_PLAN_THREADS) sum += fabsf(model_value(a, i));
    const float mean = page_sum(sum, sums) / (float)values;
    const i32 rung = (i32)blockIdx.x + PAGE_RUNG_FIRST;
    const float size = (rung & 1 ? 1.41421356f : 1.0f) * __uint_as_float((u32)(127 + (rung >> 1)) << 23);
    float *to = a.to + (u64)blockIdx.x * values;
    for (u32 i = threadIdx.x; i < values; i += PAGE_PLAN_THREADS) to[i] = model_value(a, i) * (size / mean);
}

// Puts a plan away. Where its scales are listed it would need memory that is gone by then: only those of the basis stay.
KERNEL(PAGE_PLAN_THREADS) page_plan_keep(const PagePlanArgs a) {
    const u32 *from = (const u32 *)(const Plan *)a.plan;
    u32 *to = (u32 *)(Plan *)a.kept;
    for (u32 i = threadIdx.x; i < sizeof(Plan) / 4; i += PAGE_PLAN_THREADS) to[i] = from[i];
}

// How large the page is makes its plan; the step is the one that is asked for.
KERNEL(PAGE_PLAN_THREADS) page_plan(const PagePlanArgs a) {
    __shared__ float sums[PAGE_PLAN_THREADS / 32];
    const Encoding &encoding = a.encoding;
    Plan *p = a.plan;
    if (a.status->code) return;
    const float *data = (const float *)encoding.data;
    const u64 values = encoding.values, fours = values / 4;
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < fours; i += PAGE_PLAN_THREADS) {
        const float4 v = ((const float4 *)data)[i];
        sum += (fabsf(v.x) + fabsf(v.y)) + (fabsf(v.z) + fabsf(v.w));
    }
    for (u64 i = fours * 4 + threadIdx.x; i < values; i += PAGE_PLAN_THREADS) sum += fabsf(data[i]);
    sum = page_sum(sum, sums);
    if (!(sum <= 3.4028234663852886e38f)) {
        if (threadIdx.x == 0) report(a.status, STATUS_NOT_FINITE);
        return;
    }
    const float mean = sum / (float)values;
    // Rungs of half an octave, by comparison alone: logarithms differ from machine to machine.
    const float size = mean / (float)encoding.target;
    u32 rung = 0;
    float bound = __uint_as_float((u32)(127 + (PAGE_RUNG_FIRST >> 1)) << 23) * 1.18920712f;
    for (; rung + 1 < PAGE_RUNGS && size > bound; ++rung) bound *= 1.41421356f;
    const u32 *from = (const u32 *)(a.plans + rung);
    for (u32 i = threadIdx.x; i < sizeof(Plan) / 4; i += PAGE_PLAN_THREADS) ((u32 *)p)[i] = from[i];
    __syncthreads();
    if (threadIdx.x != 0) return;
    p->rows = encoding.values / encoding.cols;
    p->done = 0;
    p->bytes = 0;
    p->squared_error = 0.0;
    p->finite = values;
    if (!set_step(encoding, p, encoding.target)) report(a.status, STATUS_DOES_NOT_FIT);
}
