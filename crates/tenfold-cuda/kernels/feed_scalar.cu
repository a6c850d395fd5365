// Feedback with a scalar quantiser: outputs do not depend on each other, so that a warp takes 32 of them through a panel. Levels are not
// kept: `levels_count` and those that write find them again.

#include "levels_search.cuh"

// Values of a warp: a column of the panel a row, with a gap so that both ways of reading them meet no bank twice.
typedef float FeedSquare[FEED_PANEL][33];

static_assert(FEED_PANEL == 32, "a lane has a column, too");
static_assert(FEED_SCALAR_SHARED == (1 + FEED_SCALAR_THREADS / 32 * 2) * sizeof(FeedSquare), "as the launch code reckons");

// Calls `f` with the column and the output of each of a warp's values, both counted from the first, and the value's place in the
// blob: neighbouring lanes have neighbouring places.
template <class F> DEVICE void feed_square(const FeedArgs &a, u32 output, u32 columns, u32 outputs, const F &f) {
    for (u32 i = 0; i < (a.turned ? columns : outputs); ++i) {
        const u32 c = a.turned ? i : lane_of(), o = a.turned ? lane_of() : i;
        if (c >= columns || o >= outputs) continue;
        f(c, o, a.turned ? (u64)(a.first + c) * a.outputs + output + o : (u64)(output + o) * a.inputs + a.first + c);
    }
    __syncwarp();
}

KERNEL(FEED_SCALAR_THREADS) feed_scalar(const GRID_CONSTANT FeedArgs a) {
    DYNAMIC_SHARED(memory);
    const Plan *plan = a.levels.plan;
    if (levels_over(a.levels) || plan->nu != 0) return;
    const LevelsSearch c = search_open(a.levels, 1, memory);
    scalar_thresholds(c.table, plan);
    FeedSquare *squares = (FeedSquare *)(memory + SEARCH_SHARED);
    FeedSquare &by = squares[0], &fed = squares[1 + 2 * warp_of()], &off = squares[2 + 2 * warp_of()];
    const u32 columns = a.end - a.first;
    for (u32 i = threadIdx.x; i < columns * columns; i += blockDim.x) {
        const u32 k = i / columns, j = i % columns;
        by[k][j] = a.feed[(u64)(a.first - a.block + k) * a.feed_cols + (a.first - a.block) + j];
    }
    __syncthreads();
    const u32 warps = gridDim.x * (FEED_SCALAR_THREADS / 32);
    for (u32 group = blockIdx.x * (FEED_SCALAR_THREADS / 32) + warp_of(); group * 32 < a.outputs; group += warps) {
        const u32 output = group * 32, outputs = min(a.outputs - output, 32u);
        feed_square(a, output, columns, outputs, [&](u32 col, u32 out, u64 at) {
            fed[col][out] = a.fed[at];
            off[col][out] = a.values[at];
        });
        const u32 mine = output + lane_of();
        for (u32 col = 0; col < columns && mine < a.outputs; ++col) {
            const float v = fed[col][lane_of()];
            const u64 at = a.turned ? (u64)(a.first + col) * a.outputs + mine : (u64)mine * a.inputs + a.first + col;
            const u32 cls = levels_class(c.map, levels_seek(c.map, at));
            bool aside;
            const i32 k = levels_scalar<LevelsF32, SEARCH_FULL>(c.scale, c.table + cls * SCALAR_CLASS, __float_as_uint(v), aside);
            const float seen = __uint_as_float(element<u32>(DTYPE_F32, c.scale.scale, units_of(c.scale.offsets, k, 0)));
            const float error = off[col][lane_of()] - (aside ? v : seen);
            off[col][lane_of()] = error;
            for (u32 later = col + 1; later < columns; ++later) fed[later][lane_of()] = fmaf(by[later][col], error, fed[later][lane_of()]);
        }
        __syncwarp();
        feed_square(a, output, columns, outputs, [&](u32 col, u32 out, u64 at) {
            a.fed[at] = fed[col][out];
            a.errors[a.turned ? (u64)col * a.outputs + output + out : (u64)(output + out) * FEED_PANEL + col] = off[col][out];
        });
    }
}
