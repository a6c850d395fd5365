// Scalar levels: nearest, or nearest but one where that saves more rate than it costs distance. The twin of
// `quant/scalar.rs`.
#pragma once

#include "base.cuh"

// Floats of one class in a block's table of thresholds: magnitude and sign, and a gap against bank conflicts.
#define SCALAR_CLASS (2 * COST_LEVELS + 8)

// Where each level starts to pay against the one nearer to zero, levels being 1 apart. All threads of a block take
// part, and synchronise after.
DEVICE void scalar_thresholds(float *table, const Plan *plan) {
    const u32 entries = plan->classes * (2 * COST_LEVELS);
    for (u32 i = threadIdx.x; i < entries; i += blockDim.x) {
        const u32 cls = i / (2 * COST_LEVELS), at = i % (2 * COST_LEVELS), k = at / 2;
        const float *cost = plan->cost + (at & 1) * COST_SIGN + cls * 2 * COST_LEVELS;
        // (u − 2k)² + R(k) = (u − 2k + 2)² + R(k − 1), solved for u/2.
        const float more = k ? fminf(fmaxf((cost[k] - cost[k - 1]) * 0.125f, 0.0f), 1.0f) : 0.0f;
        table[cls * SCALAR_CLASS + at] = k ? (float)k - 0.5f + more : 0.0f;
    }
}

// `thresholds` are those of the value's class.
DEVICE i32 scalar_level(const float *thresholds, float u) {
    const float a = fabsf(u) * 0.5f;
    const i32 k = __float2int_rz(a + 0.5f);
    const float from = thresholds[2 * min(k, COST_LEVELS - 1) + (u < 0.0f ? 1 : 0)];
    const i32 size = k - (k > 0 && !(from < a) ? 1 : 0);
    return u < 0.0f ? -size : size;
}

// The nearest level, ties to even.
DEVICE i32 scalar_nearest(float u) { return __float2int_rn(u * 0.5f); }
