// Levels by a trellis of 16 to 256 states: a warp a lane of a tile. Forwards step by step, with the costs of 32 steps
// worked out side by side; backwards the states of 32 steps one after the other, then their levels side by side.

#include "levels.cuh"
#include "trellis.cuh"

// What the lanes of a launch have in common.
struct WideShared {
    const float *costs;
    const u8 *low;
    // Jumps of one step.
    LevelsMap map;
    LevelsHist hist;
    LevelsScale scale;
};

// A warp's lane.
template <class V> struct WideLane {
    const typename V::E *data;
    u64 first;
    u32 lanes, steps;
    u32 *decisions;
    u16 *codes;
    // This warp's part of shared memory: metrics on the way forwards, decisions on the way back.
    float *memory;
};

template <class V, u32 NU> DEVICE u32 wide_forward(const WideShared &c, const WideLane<V> &l) {
    float *now = l.memory, *next = l.memory + 2 * TRELLIS_PLANE(NU);
    trellis_warp_start<NU>(now);
    const u32 lane = lane_of();
    for (u32 base = 0; base < l.steps; base += 32) {
        const u32 mine = base + lane, count = min(l.steps - base, 32u);
        float cost[4] = {0, 0, 0, 0};
        if (mine < l.steps) {
            const u64 at = (u64)mine * l.lanes;
            bool aside;
            const float u = levels_u<V>(c.scale, l.data[at], aside);
            const u32 cls = levels_class(c.map, levels_seek(c.map, l.first + at));
            trellis_branch(c.costs + cls * TRELLIS_CLASS, u, cost);
        }
        // Any state's metric will do to keep them small, once all can be reached.
        float by = base ? now[0] : 0.0f;
        __syncwarp();
        for (u32 j = 0; j < count; ++j) {
            float all[4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) all[i] = __shfl_sync(ALL_LANES, cost[i], (int)j);
            const u32 word = trellis_warp_step<NU>(now, next, all, by);
            if (lane < TRELLIS_WORDS(NU)) l.decisions[(base + j) * TRELLIS_WORDS(NU) + lane] = word;
            by = 0.0f;
            float *swap = now;
            now = next;
            next = swap;
        }
    }
    return trellis_warp_best<NU>(now);
}

// Returns the tile's flags as this thread sees them.
template <class V, u32 NU>
DEVICE u32 wide_backward(const WideShared &c, const WideLane<V> &l, u32 s, bool measure, LevelsSum &sum) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    constexpr u32 words = TRELLIS_WORDS(NU);
    u32 *chunk = (u32 *)l.memory;
    const u32 lane = lane_of();
    u32 flags = 0;
    for (u32 base = (l.steps + 31) / 32 * 32; base > 0;) {
        base -= 32;
        const u32 count = min(l.steps - base, 32u);
        __syncwarp();
        for (u32 i = lane; i < count * words; i += 32) chunk[i] = l.decisions[base * words + i];
        __syncwarp();
        // The way in: quantiser and parity of step `base + lane` stay with that lane.
        u32 q = 0, odd = 0;
        for (u32 j = count; j-- > 0;) {
            const u32 parity = chunk[j * words + s / 32] >> (s & 31) & 1, left = s >> (NU - 1);
            if (j == lane) {
                q = left;
                odd = parity;
            }
            s = trellis_before(s, left, parity, NU, on_quantiser[NU], on_parity[NU]);
        }
        if (lane < count) {
            const u32 step = base + lane;
            const u64 at = (u64)step * l.lanes;
            const typename V::E x = l.data[at];
            bool aside;
            const float u = levels_u<V>(c.scale, x, aside);
            const u32 cls = levels_class(c.map, levels_seek(c.map, l.first + at));
            const i32 k = trellis_level(c.costs + cls * TRELLIS_CLASS, u, q, odd);
            const u32 index = (cls * 2 + q) << 8 | levels_symbol(k >> c.low[cls]);
            levels_tally(c.hist, index);
            if (measure) levels_measure<V>(sum, c.scale, x, k, q, aside);
            flags |= (k ? LEVELS_CODED : 0) | (aside ? LEVELS_ASIDE : 0);
            const u32 code = index | odd * LEVELS_ODD | (k ? 0 : LEVELS_ZERO) | (aside ? LEVELS_EXACT : 0);
            l.codes[(u64)(step / 4) * l.lanes * 4 + step % 4] = (u16)code;
        }
    }
    return flags;
}

template <class V, u32 NU>
DEVICE void wide_lanes(const LevelsPass &a, const WideShared &c, float *memory, LevelsSum &sum) {
    const Job &job = a.job;
    const u32 warps = blockDim.x / 32, warp = blockIdx.x * warps + warp_of();
    // Neighbouring warps take neighbouring lanes, which share lines of memory.
    for (u64 i = warp; i < job.tiles * job.lanes; i += (u64)gridDim.x * warps) {
        const u64 tile = i / job.lanes;
        const u32 lane = (u32)(i % job.lanes);
        WideLane<V> l;
        l.first = levels_first(job, tile) + lane;
        l.lanes = job.lanes;
        l.steps = levels_steps(levels_len(job, tile), job.lanes, lane);
        l.data = (const typename V::E *)job.data + l.first;
        l.decisions = (u32 *)(a.decisions + warp * a.warp_decisions);
        l.codes = a.codes + (levels_codes(job, tile) + lane) * 4;
        l.memory = memory + warp_of() * TRELLIS_WARP(NU);
        if (l.steps == 0) continue;
        const u32 state = wide_forward<V, NU>(c, l);
        const u32 flags = wide_backward<V, NU>(c, l, state, a.measure, sum);
        const u32 coded = __ballot_sync(ALL_LANES, flags & LEVELS_CODED);
        const u32 aside = __ballot_sync(ALL_LANES, flags & LEVELS_ASIDE);
        // Other warps have other lanes of the tile.
        if (lane_of() == 0)
            atomicOr(&a.tiles[tile].flags, (coded ? LEVELS_CODED : 0u) | (aside ? LEVELS_ASIDE : 0u));
    }
}

// Dynamic shared memory: counters, low bits, classes of sums, costs, metrics.
static_assert(LEVELS_HIST_BYTES + MAX_CLASSES + LEVELS_MAP_BYTES + MAX_CLASSES * TRELLIS_CLASS * 4 <= SEARCH_SHARED, "as the launch code reckons");
static_assert(TRELLIS_WARP(8) * 4 <= WIDE_WARP_SHARED, "as the launch code reckons");

template <class V> DEVICE void wide_all(const LevelsPass &a, u8 *memory) {
    const Plan *plan = a.plan;
    if (levels_over(a) || plan->nu < 4) return;
    u8 *low = memory + LEVELS_HIST_BYTES, *sums = low + MAX_CLASSES;
    float *costs = (float *)(sums + LEVELS_MAP_BYTES);
    float *metrics = costs + plan->classes * TRELLIS_CLASS;
    WideShared c;
    c.hist = levels_hist((u32 *)memory, plan->classes);
    c.map = levels_map(plan, 1, sums);
    c.scale = levels_scale(plan);
    trellis_costs(costs, plan);
    if (threadIdx.x < MAX_CLASSES) low[threadIdx.x] = plan->low[threadIdx.x];
    __syncthreads();
    c.costs = costs;
    c.low = low;
    LevelsSum sum = {0.0, 0};
    switch (plan->nu) {
    case 4: wide_lanes<V, 4>(a, c, metrics, sum); break;
    case 5: wide_lanes<V, 5>(a, c, metrics, sum); break;
    case 6: wide_lanes<V, 6>(a, c, metrics, sum); break;
    case 7: wide_lanes<V, 7>(a, c, metrics, sum); break;
    default: wide_lanes<V, 8>(a, c, metrics, sum); break;
    }
    if (a.measure) levels_sum(a.sums, sum);
    levels_flush(c.hist, plan->classes, a.counts);
}

KERNEL(512, 2) levels_wide_f8_e4m3(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    wide_all<LevelsE4m3>(a, memory);
}
KERNEL(512, 2) levels_wide_f8_e5m2(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    wide_all<LevelsE5m2>(a, memory);
}
KERNEL(512, 2) levels_wide_f16(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    wide_all<LevelsF16>(a, memory);
}
KERNEL(512, 2) levels_wide_bf16(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    wide_all<LevelsBf16>(a, memory);
}
KERNEL(512, 2) levels_wide_f32(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    wide_all<LevelsF32>(a, memory);
}
KERNEL(512, 2) levels_wide_f64(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    wide_all<LevelsF64>(a, memory);
}
