// Symbols of a scalar quantiser, counted. Levels are not kept: to find them again is cheaper than to read them back.

#include "levels_search.cuh"

// Element j of sixteen bytes.
template <class E> DEVICE E count_element(const uint4 &v, u32 j) {
    const u32 at = j * (u32)sizeof(E), word = at / 4;
    const u32 low = word == 0 ? v.x : word == 1 ? v.y : word == 2 ? v.z : v.w;
    if (sizeof(E) == 8) return (E)((u64)(word == 0 ? v.y : v.w) << 32 | low);
    return (E)(low >> (8 * (at % 4)));
}

// From so many values on, one in COUNT_PART is counted.
#define COUNT_PART_FROM (1u << 26)
#define COUNT_PART 16

template <class V, u32 MODE>
DEVICE void count_values(const LevelsPass &a, LevelsSearch c, u64 stride, LevelsSum &sum) {
    typedef typename V::E E;
    if (MODE != SEARCH_FULL) c.map.any = MODE == SEARCH_MAPPED;
    constexpr u32 each = 16 / sizeof(E);
    const E *data = (const E *)a.encoding.data;
    const u64 values = a.encoding.values;
    u64 at = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * each;
    LevelsPlace place = levels_seek(c.map, at);
    const uint4 none = make_uint4(0, 0, 0, 0);
    uint4 next = at + each <= values ? *(const uint4 *)(data + at) : none;
    for (; at < values; at += stride) {
        const uint4 now = next;
        // The next load is on its way while this one is worked on.
        next = at + stride + each <= values ? *(const uint4 *)(data + at + stride) : none;
        const bool whole = at + each <= values;
        LevelsPlace here = place;
#pragma unroll
        for (u32 j = 0; j < each; ++j) {
            if (!whole && at + j >= values) break;
            const u32 cls = levels_class(c.map, here);
            const E x = whole ? count_element<E>(now, j) : data[at + j];
            bool aside;
            const i32 k = levels_scalar<V, MODE>(c.scale, c.table + cls * SCALAR_CLASS, x, aside);
            levels_tally(c.hist, cls << 9 | levels_symbol(MODE == SEARCH_FULL ? k >> c.low[cls] : k));
            if (MODE == SEARCH_FULL && c.measure) levels_measure<V>(sum, c.scale, x, k, 0, aside);
            if (c.map.any && ++here.col == c.map.width) {
                here.col = 0;
                here.scale = levels_row_scale(c.map, ++here.row);
            }
        }
        levels_next(c.map, place);
    }
}

template <class V> DEVICE void count_all(const LevelsPass &a, u8 *memory) {
    const Plan *plan = a.plan;
    if (levels_over(a) || plan->nu != 0) return;
    // From one load of a thread to its next, in values. Tables of a large tensor need not have seen all of it: what
    // they have no slot for escapes.
    const bool part = !a.measure && !plan->bounded && a.encoding.values >= COUNT_PART_FROM;
    const u64 stride = (u64)gridDim.x * blockDim.x * (16 / sizeof(typename V::E)) * (part ? COUNT_PART : 1);
    const LevelsSearch c = search_open(a, stride, memory);
    scalar_thresholds(c.table, plan);
    __syncthreads();
    LevelsSum sum = {0.0, 0};
    if (a.measure || plan->bounded || plan->any_low) count_values<V, SEARCH_FULL>(a, c, stride, sum);
    else if (c.map.any) count_values<V, SEARCH_MAPPED>(a, c, stride, sum);
    else count_values<V, SEARCH_BARE>(a, c, stride, sum);
    search_close(a, c, sum);
    if (part && blockIdx.x == 0 && threadIdx.x < plan->classes * 2) atomicAdd(&a.counts[threadIdx.x * 256 + ESCAPE], 1);
}

KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_count_f8_e4m3(const GRID_CONSTANT LevelsPass a) RUNS(count_all<LevelsE4m3>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_count_f8_e5m2(const GRID_CONSTANT LevelsPass a) RUNS(count_all<LevelsE5m2>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_count_f16(const GRID_CONSTANT LevelsPass a) RUNS(count_all<LevelsF16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_count_bf16(const GRID_CONSTANT LevelsPass a) RUNS(count_all<LevelsBf16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_count_f32(const GRID_CONSTANT LevelsPass a) RUNS(count_all<LevelsF32>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_count_f64(const GRID_CONSTANT LevelsPass a) RUNS(count_all<LevelsF64>)
