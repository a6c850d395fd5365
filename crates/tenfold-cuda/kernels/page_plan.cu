// Plans that a basis has ready for pages of any size and at any step. A basis knows how its coordinates' deviations
// compare: pages that are made up from those, each half an octave larger than the one before, are planned like any tensor, once.
// A page at a step then takes the plan of the made-up page that is as many steps large as itself. It depends on nothing else.

#include "page.cuh"
#include "sample.cuh"

// Deviations of columns are four to an octave, as scales are.
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

// A made-up value: the sum of eight bytes is nearly Gaussian, and the same on every machine. Rows are as large as each other: those of a page that
// are not have scales. Heavier tails, of rows or of single values, were tried on a real cache and took more bits.
DEVICE float model_value(const PageModelArgs &a, u32 i) {
    const u32 row = i / a.columns, one = model_hash(2 * i), two = model_hash(2 * i + 1);
    u32 sum = 0;
    for (u32 by = 0; by < 32; by += 8) sum += (one >> by & 255) + (two >> by & 255);
    return ((float)sum - 1020.0f) * (1.0f / 209.0f) * model_deviation(a.scales[i - row * a.columns]);
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
    __shared__ PageRows page;
    const Encoding &encoding = a.encoding;
    Plan *p = a.plan;
    if (a.status->code) return;
    const u64 values = encoding.values, rows = values / encoding.cols;
    const float mean = page_rows(page, (const float *)encoding.data, rows, encoding.cols);
    if (!(mean <= 3.4028234663852886e38f)) {
        if (threadIdx.x == 0) report(a.status, STATUS_NOT_FINITE);
        return;
    }
    const double *own = a.steps;
    const double step = own ? encoding.target * *own : encoding.target;
    // Rungs of half an octave, by comparison alone: logarithms differ from machine to machine.
    const float size = mean / (float)step;
    u32 rung = 0;
    float bound = __uint_as_float((u32)(127 + (PAGE_RUNG_FIRST >> 1)) << 23) * 1.18920712f;
    for (; rung + 1 < PAGE_RUNGS && size > bound; ++rung) bound *= 1.41421356f;
    const u32 *from = (const u32 *)(a.plans + rung);
    for (u32 i = threadIdx.x; i < sizeof(Plan) / 4; i += PAGE_PLAN_THREADS) ((u32 *)p)[i] = from[i];
    __syncthreads();
    if (page_tells(page, rows, p)) {
        // Sums of scales are larger by that of a row like the others.
        for (u32 i = threadIdx.x; i < SCALE_SUMS; i += PAGE_PLAN_THREADS)
            p->class_of_sum[i] = a.plans[rung].class_of_sum[i < PAGE_ROW_MIDDLE ? 0 : i - PAGE_ROW_MIDDLE];
        if (threadIdx.x + 1 < p->classes) p->thresholds[threadIdx.x] = (u8)(a.plans[rung].thresholds[threadIdx.x] + PAGE_ROW_MIDDLE);
        for (u32 row = threadIdx.x; row < rows; row += PAGE_PLAN_THREADS) a.row_scale[row] = page.scale[row];
        if (threadIdx.x == 0) {
            p->row_bits = PAGE_ROW_BITS;
            p->row_scale = (u64)(u8 *)a.row_scale;
        }
    }
    if (threadIdx.x != 0) return;
    p->rows = rows;
    p->done = 0;
    p->bytes = 0;
    p->squared_error = 0.0;
    p->finite = values;
    if (!set_step(encoding, p, step)) report(a.status, STATUS_DOES_NOT_FIT);
}
