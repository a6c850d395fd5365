// Symbols of a scalar quantiser, counted. Levels are not kept: to find them again is cheaper than to read them back.

#include "levels.cuh"

// Element j of sixteen bytes.
template <class E> DEVICE E count_element(const uint4 &v, u32 j) {
    const u32 at = j * (u32)sizeof(E), word = at / 4;
    const u32 low = word == 0 ? v.x : word == 1 ? v.y : word == 2 ? v.z : v.w;
    if (sizeof(E) == 8) return (E)((u64)(word == 0 ? v.y : v.w) << 32 | low);
    return (E)(low >> (8 * (at % 4)));
}

template <class E> DEVICE void count_all(const LevelsPass &a, u8 *memory) {
    const Plan *plan = a.plan;
    if (levels_over(a) || plan->nu != 0) return;
    // Values that a thread loads at once, and the distance from one load to its next.
    constexpr u32 each = 16 / sizeof(E);
    const u64 stride = (u64)gridDim.x * blockDim.x * each;
    u8 *low = memory + LEVELS_HIST_BYTES, *sums = low + MAX_CLASSES;
    float *thresholds = (float *)(sums + LEVELS_MAP_BYTES);
    const LevelsHist hist = levels_hist((u32 *)memory, plan->classes);
    const LevelsMap map = levels_map(plan, stride, sums);
    const LevelsScale scale = levels_scale(a.job, plan);
    scalar_thresholds(thresholds, plan);
    if (threadIdx.x < MAX_CLASSES) low[threadIdx.x] = plan->low[threadIdx.x];
    __syncthreads();
    const bool measure = a.measure;
    LevelsSum sum = {0.0, 0};
    const E *data = (const E *)a.job.data;
    u64 at = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * each;
    LevelsPlace place = levels_seek(map, at);
    for (; at < a.job.values; at += stride) {
        const u32 count = (u32)min(a.job.values - at, (u64)each);
        const bool whole = count == each;
        const uint4 loaded = whole ? *(const uint4 *)(data + at) : make_uint4(0, 0, 0, 0);
        LevelsPlace here = place;
#pragma unroll
        for (u32 j = 0; j < each; ++j) {
            if (j >= count) break;
            const u32 cls = levels_class(map, here);
            const E x = whole ? count_element<E>(loaded, j) : data[at + j];
            bool aside;
            const i32 k = levels_scalar<E>(scale, thresholds + cls * SCALAR_CLASS, x, aside);
            levels_tally(hist, cls << 9 | levels_symbol(k >> low[cls]));
            if (measure) levels_measure<E>(sum, scale, x, k, 0, aside);
            if (map.any && ++here.col == map.width) {
                here.col = 0;
                here.scale = levels_row_scale(map, ++here.row);
            }
        }
        levels_next(map, place);
    }
    if (measure) levels_sum(a.sums, sum);
    levels_flush(hist, plan->classes, a.counts);
}

KERNEL(512, 2) levels_count_1(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    count_all<u8>(a, memory);
}
KERNEL(512, 2) levels_count_2(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    count_all<u16>(a, memory);
}
KERNEL(512, 2) levels_count_4(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    count_all<u32>(a, memory);
}
KERNEL(512, 2) levels_count_8(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    count_all<u64>(a, memory);
}
