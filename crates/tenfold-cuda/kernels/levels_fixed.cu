// Plans without a search, for tests: a step, a machine and classes as the host gives them. Costs are guessed, and
// measured from the counts of a pass for the next.

#include "levels.cuh"

KERNEL(PASS_THREADS) levels_fixed_plan(const LevelsFixed a) {
    Plan *p = a.plan;
    for (u32 i = threadIdx.x; i < 2 * COST_SIGN; i += blockDim.x)
        p->cost[i] = a.lambda * fminf(1.0f + (float)(i % COST_LEVELS), 12.0f);
    if (threadIdx.x) return;
    const u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    p->nu = a.nu;
    p->on_quantiser = on_quantiser[a.nu];
    p->on_parity = on_parity[a.nu];
    p->scale = a.dtype == DTYPE_F64 ? a.step / UNITS : (double)(float)(a.step / UNITS);
    p->step = p->scale * UNITS;
    p->factor = (float)(1.0 / p->step);
    p->max_u = a.max_u;
    p->lambda = a.lambda;
    p->bounded = a.bounded;
    p->bound = a.bound;
    for (u32 i = 0; i < 16; ++i) p->offsets[i] = a.offsets[i];
    p->classes = a.classes;
    p->row_bits = a.row_bits;
    p->col_bits = a.col_bits;
    p->width = a.width;
    p->rows = a.rows;
    p->row_scale = a.row_scale;
    p->col_scale = a.col_scale;
    p->any_low = 0;
    for (u32 c = 0; c < MAX_CLASSES; ++c) {
        p->thresholds[c] = a.thresholds[c];
        p->low[c] = a.low[c];
        if (c < a.classes && a.low[c]) p->any_low = 1;
    }
    for (u32 sum = 0; sum < 2 << MAX_SCALE_BITS; ++sum) {
        u32 cls = 0;
        for (u32 c = 1; c < a.classes; ++c) cls += a.thresholds[c - 1] <= sum;
        p->class_of_sum[sum] = (u8)cls;
    }
    p->log = a.log;
    p->paired = a.paired;
    p->pair_bits = 0.0f;
    p->trivial = 0;
}

// Costs from what the last pass has counted: a thread a table. The twin of `quant/cost.rs`, without the signs' shares.
KERNEL(32) levels_fixed_costs(const LevelsFixed a) {
    const u32 set = threadIdx.x;
    if (set >= a.classes * 2) return;
    const u64 *counts = a.counts + set * 256;
    const i32 low = a.low[set / 2];
    float total = 1.0f, last = 0.0f;
    for (u32 i = 0; i < 256; ++i) total += (float)counts[i];
    for (i32 k = 0; k < COST_LEVELS; ++k) {
        const float both = ((float)counts[(u8)(k >> low)] + (float)counts[(u8)(-k >> low)]) / 2;
        float own = fminf(log2f(total / (both + 0.25f)) + (float)low, 28.0f);
        // A small count says little: never cheaper than its neighbour towards zero.
        if (both < 8.0f) own = fmaxf(own, last);
        last = own;
        a.plan->cost[set * COST_LEVELS + (u32)k] = a.lambda * own;
        a.plan->cost[COST_SIGN + set * COST_LEVELS + (u32)k] = a.lambda * own;
    }
}
