// Levels by a trellis of 4 or 8 states: a warp a tile, a thread a lane. Forwards for the decisions, backwards for the
// levels, whose symbols are counted on the way.

#include "levels.cuh"
#include "trellis.cuh"

// Steps after which metrics are made small again, a multiple of four.
#define SETTLE 64

// What the tiles of a launch have in common.
struct TrellisShared {
    const float *costs;
    const u8 *low;
    LevelsMap map;
    LevelsHist hist;
    LevelsScale scale;
};

// A thread's lane.
template <class V> struct TrellisLane {
    const typename V::E *data;
    // First position in the tensor, distance between its values, and their number.
    u64 first;
    u32 lanes, steps;
    // Four steps of decisions a word, four codes a pair of words; those of neighbouring lanes lie side by side.
    u32 *decisions;
    uint2 *codes;
};

template <class V, u32 NU> DEVICE u32 trellis_forward(const TrellisShared &c, const TrellisLane<V> &l) {
    typedef typename V::E E;
    float metric[1 << NU];
    trellis_start<NU>(metric);
    LevelsPlace place = levels_seek(c.map, l.first);
    const E *data = l.data;
    for (u32 t = 0; t < l.steps; t += 4) {
        if (t % SETTLE == 0 && t > 0) trellis_settle<NU>(metric);
        const u32 count = min(l.steps - t, 4u);
        E x[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) x[j] = j < count ? data[j * l.lanes] : (E)0;
        data += 4 * l.lanes;
        u32 word = 0;
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            if (j >= count) break;
            bool aside;
            const float u = levels_u<V>(c.scale, x[j], aside);
            float cost[4];
            trellis_branch(c.costs + levels_class(c.map, place) * TRELLIS_CLASS, u, cost);
            levels_next(c.map, place);
            word |= trellis_step<NU>(metric, cost) << (8 * j);
        }
        l.decisions[t / 4 * 32] = word;
    }
    return trellis_best<NU>(metric);
}

// Returns the tile's flags as this lane sees them. PLAIN: nothing is measured.
template <class V, u32 NU, bool PLAIN>
DEVICE u32 trellis_backward(const TrellisShared &c, const TrellisLane<V> &l, u32 s, bool measure, LevelsSum &sum) {
    typedef typename V::E E;
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    if (l.steps == 0) return 0;
    LevelsPlace place = levels_seek(c.map, l.first + (u64)(l.steps - 1) * l.lanes);
    u32 flags = 0;
    for (u32 group = (l.steps + 3) / 4; group-- > 0;) {
        const u32 count = min(l.steps - group * 4, 4u), word = l.decisions[group * 32];
        const E *data = l.data + (u64)group * 4 * l.lanes;
        E x[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) x[j] = j < count ? data[j * l.lanes] : (E)0;
        u32 codes[2] = {0, 0};
#pragma unroll
        for (u32 j = 4; j-- > 0;) {
            if (j >= count) continue;
            bool aside;
            const float u = levels_u<V>(c.scale, x[j], aside);
            const u32 cls = levels_class(c.map, place);
            levels_back(c.map, place);
            const u32 q = s >> (NU - 1), odd = word >> (8 * j + s) & 1;
            s = trellis_before(s, q, odd, NU, on_quantiser[NU], on_parity[NU]);
            const i32 k = trellis_level(c.costs + cls * TRELLIS_CLASS, u, q, odd);
            const u32 index = (cls * 2 + q) << 8 | levels_symbol(k >> c.low[cls]);
            levels_tally(c.hist, index);
            if (!PLAIN && measure) levels_measure<V>(sum, c.scale, x[j], k, q, aside);
            flags |= (k ? LEVELS_CODED : 0) | (aside ? LEVELS_ASIDE : 0);
            const u32 code = index | odd * LEVELS_ODD | (k ? 0 : LEVELS_ZERO) | (aside ? LEVELS_EXACT : 0);
            codes[j / 2] |= code << (16 * (j % 2));
        }
        l.codes[(u64)group * l.lanes] = make_uint2(codes[0], codes[1]);
    }
    return flags;
}

template <class V, u32 NU, bool PLAIN>
DEVICE void trellis_tiles(const LevelsPass &a, const TrellisShared &c, LevelsSum &sum) {
    const Job &job = a.job;
    const u32 lane = lane_of(), warps = blockDim.x / 32, warp = blockIdx.x * warps + warp_of();
    // Few tiles are spread over many blocks.
    for (u64 tile = (u64)warp_of() * gridDim.x + blockIdx.x; tile < job.tiles; tile += (u64)gridDim.x * warps) {
        TrellisLane<V> l;
        l.first = levels_first(job, tile) + lane;
        l.lanes = job.lanes;
        l.steps = levels_steps(levels_len(job, tile), job.lanes, lane);
        l.data = (const typename V::E *)job.data + l.first;
        l.decisions = (u32 *)(a.decisions + warp * a.warp_decisions) + lane;
        l.codes = (uint2 *)a.codes + levels_codes(job, tile) + lane;
        const u32 state = trellis_forward<V, NU>(c, l);
        const u32 flags = trellis_backward<V, NU, PLAIN>(c, l, state, a.measure, sum);
        const u32 coded = __ballot_sync(ALL_LANES, flags & LEVELS_CODED);
        const u32 aside = __ballot_sync(ALL_LANES, flags & LEVELS_ASIDE);
        if (lane == 0) a.tiles[tile].flags = (coded ? LEVELS_CODED : 0) | (aside ? LEVELS_ASIDE : 0);
    }
}

// Dynamic shared memory: counters, costs, low bits, classes of sums.
template <class V> DEVICE void trellis_all(const LevelsPass &a, u8 *memory) {
    const Plan *plan = a.plan;
    if (levels_over(a) || (plan->nu != 2 && plan->nu != 3)) return;
    u8 *low = memory + LEVELS_HIST_BYTES, *sums = low + MAX_CLASSES;
    float *costs = (float *)(sums + LEVELS_MAP_BYTES);
    TrellisShared c;
    c.hist = levels_hist((u32 *)memory, plan->classes);
    c.map = levels_map(plan, a.job.lanes, sums);
    c.scale = levels_scale(plan);
    trellis_costs(costs, plan);
    if (threadIdx.x < MAX_CLASSES) low[threadIdx.x] = plan->low[threadIdx.x];
    __syncthreads();
    c.costs = costs;
    c.low = low;
    LevelsSum sum = {0.0, 0};
    if (plan->nu == 2) trellis_tiles<V, 2, false>(a, c, sum);
    else if (a.measure) trellis_tiles<V, 3, false>(a, c, sum);
    else trellis_tiles<V, 3, true>(a, c, sum);
    if (a.measure) levels_sum(a.sums, sum);
    levels_flush(c.hist, plan->classes, a.counts);
}

KERNEL(512, 2) levels_trellis_f8_e4m3(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    trellis_all<LevelsE4m3>(a, memory);
}
KERNEL(512, 2) levels_trellis_f8_e5m2(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    trellis_all<LevelsE5m2>(a, memory);
}
KERNEL(512, 2) levels_trellis_f16(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    trellis_all<LevelsF16>(a, memory);
}
KERNEL(512, 2) levels_trellis_bf16(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    trellis_all<LevelsBf16>(a, memory);
}
KERNEL(512, 2) levels_trellis_f32(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    trellis_all<LevelsF32>(a, memory);
}
KERNEL(512, 2) levels_trellis_f64(const GRID_CONSTANT LevelsPass a) {
    DYNAMIC_SHARED(memory);
    trellis_all<LevelsF64>(a, memory);
}
