// A guess at the bytes that pages take at steps an octave apart, from the plans that their basis has ready: what each value's level
// would cost, and what a made-up page took beside its symbols. A cap is then met by one encoding, or two.

#include "page.cuh"
#include "scalar.cuh"

#define SIZES_COSTS (2 * COST_LEVELS)

// A block for each page and plan.
KERNEL(PAGE_PLAN_THREADS) page_sizes(const PageSizesArgs a) {
    __shared__ PageRows page;
    __shared__ float thresholds[16 * SCALAR_CLASS];
    __shared__ float costs[16 * SIZES_COSTS];
    __shared__ u8 classes[SCALE_SUMS];
    const u32 of = blockIdx.x / PAGE_SIZES, number = blockIdx.x % PAGE_SIZES;
    const u32 rung = PAGE_SIZES_FIRST + 2 * number;
    const Plan *plan = a.plans + rung;
    const u64 values = a.rows * a.rank;
    const float *data = a.coordinates + of * values;
    scalar_thresholds(thresholds, plan);
    const u32 entries = plan->classes * SIZES_COSTS;
    for (u32 i = threadIdx.x; i < entries; i += PAGE_PLAN_THREADS) {
        const u32 cls = i / SIZES_COSTS, at = i % SIZES_COSTS;
        costs[i] = plan->cost[(at & 1) * COST_SIGN + cls * 2 * COST_LEVELS + at / 2];
    }
    for (u32 i = threadIdx.x; i < SCALE_SUMS; i += PAGE_PLAN_THREADS) classes[i] = plan->class_of_sum[i];
    const float mean = page_rows(page, data, a.rows, a.rank);
    // Exact, since plans are an octave apart.
    const float size = __uint_as_float((u32)(127 + ((i32)rung + PAGE_RUNG_FIRST) / 2) << 23);
    // A page of zeros takes nothing; what is not finite is refused later.
    const float per_step = mean > 0.0f && mean <= 3.4028234663852886e38f ? size / mean : 0.0f;
    const bool mapped = plan->classes > 1, tells = page_tells(page, a.rows, plan);
    float bits = 0.0f;
    for (u64 row = warp_of(); row < a.rows; row += PAGE_PLAN_THREADS / 32) {
        const i32 by = tells ? (i32)page.scale[row] - PAGE_ROW_MIDDLE : 0;
        for (u32 col = lane_of(); col < a.rank; col += 32) {
            const u32 cls = mapped ? classes[max((i32)a.scales[col] + by, 0)] : 0;
            const i32 k = scalar_level(thresholds + cls * SCALAR_CLASS, data[row * a.rank + col] * per_step);
            bits += costs[cls * SIZES_COSTS + 2 * min(k < 0 ? -k : k, COST_LEVELS - 1) + (k < 0 ? 1 : 0)];
        }
    }
    bits = page_sum(bits, page.sums);
    if (threadIdx.x != 0) return;
    float *to = a.sizes + of * (1 + PAGE_SIZES);
    if (number == 0) to[0] = mean;
    const float *beside = a.beside;
    bits = bits / plan->lambda + (float)(8 * a.transforms) + (beside ? beside[number] : 0.0f);
    to[1 + number] = bits + (tells ? (float)(a.rows * PAGE_ROW_BITS) : 0.0f);
}
