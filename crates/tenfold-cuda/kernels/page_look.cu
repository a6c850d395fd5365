// A look at coordinates of pages: what they would take at a step, and whether those outside of a part of the basis matter. The twin of
// `cheapest` and `part_does` in the crate tenfold-kv, with bits that are guessed from magnitudes.

#include "base.cuh"

// Steps up to which most values become zero; squared error of others, and the squared error that a bit is worth.
#define LOOK_DEAD 1.24f
#define LOOK_FINE (1.0f / 3.0f)
#define LOOK_WORTH 0.46f
// Bits of a value of one step beside its logarithm.
#define LOOK_BITS 2.0f
// Steps from which on a value that is hardly ever anything but zero is coded; squared error of one that is coded; how much more error of a
// row is worth no bits.
#define LOOK_CODED 1.5f
#define LOOK_ROUNDING (1.0f / 12.0f)
#define LOOK_LOSS 0.05f

// A block a page, a warp a row.
KERNEL(PAGE_PLAN_THREADS) page_look(const PageLookArgs a) {
    __shared__ float costs[PAGE_PLAN_THREADS / 32];
    __shared__ u32 outside;
    const u32 lane = lane_of(), warp = warp_of();
    if (threadIdx.x == 0) outside = 0;
    __syncthreads();
    const float *page = a.coordinates + (u64)blockIdx.x * a.rows * a.rank;
    // The same number, whether a step is the page's own or that of all.
    const float per_step = 1.0f / (float)(a.steps ? a.step * a.steps[blockIdx.x] : a.step);
    float cost = 0.0f;
    for (u64 row = warp; row < a.rows; row += PAGE_PLAN_THREADS / 32) {
        const float *values = page + row * a.rank;
        float kept = 0.0f, lost = 0.0f;
        const auto take = [&](float v, bool outside) {
            const float u = fabsf(v) * per_step, square = u * u;
            cost += u < LOOK_DEAD ? square * (1.0f / LOOK_WORTH) : log2f(u) + LOOK_BITS + LOOK_FINE / LOOK_WORTH;
            kept += fminf(square, LOOK_ROUNDING);
            // What is no number is lost.
            if (outside && !(u < LOOK_CODED)) lost += square;
        };
        u32 i = 0;
        // Sixteen bytes a lane, two of them on their way at a time.
        for (; a.rank % 4 == 0 && i + 256 <= a.rank; i += 256) {
            float4 v[2];
            u32 lacks[2];
#pragma unroll
            for (u32 j = 0; j < 2; ++j) {
                v[j] = *(const float4 *)(values + i + 128 * j + 4 * lane);
                lacks[j] = a.outside ? *(const u32 *)(a.outside + i + 128 * j + 4 * lane) : 0;
            }
#pragma unroll
            for (u32 j = 0; j < 2; ++j) {
                take(v[j].x, lacks[j] & 0xff);
                take(v[j].y, lacks[j] & 0xff00);
                take(v[j].z, lacks[j] & 0xff0000);
                take(v[j].w, lacks[j] & 0xff000000);
            }
        }
        for (i += lane; i < a.rank; i += 32) take(values[i], a.outside && a.outside[i]);
        kept = warp_sum(kept);
        lost = warp_sum(lost);
        if (lane == 0 && !(lost <= LOOK_LOSS * kept)) atomicOr(&outside, 1u);
    }
    cost = warp_sum(cost);
    if (lane == 0) costs[warp] = cost;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 w = 1; w < PAGE_PLAN_THREADS / 32; ++w) cost += costs[w];
    a.seen[blockIdx.x] = PageFound{cost / (float)(a.rows * a.rank), a.outside && !outside ? 1u : 0u};
}
