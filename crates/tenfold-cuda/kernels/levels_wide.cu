// Levels by a trellis of 16 to 256 states: a warp a lane of a tile. Forwards step by step, with the costs of 32 steps
// worked out side by side; backwards the states of 32 steps one after the other, then their levels side by side.

#include "levels_search.cuh"

// `memory` is this warp's part of shared memory: metrics on the way forwards, decisions on the way back.
template <class V, u32 NU> DEVICE u32 wide_forward(const LevelsSearch &c, const LevelsLane<V> &l, float *memory) {
    float *now = memory, *next = memory + 2 * TRELLIS_PLANE(NU);
    trellis_warp_start<NU>(now);
    const u32 lane = lane_of();
    for (u32 base = 0; base < l.ticks; base += 32) {
        const u32 mine = base + lane, count = min(l.ticks - base, 32u);
        float cost[4] = {0, 0, 0, 0};
        if (mine < l.ticks) {
            const u64 at = levels_offset(l.lanes, mine, l.paired);
            search_branch<V>(c, l.data[at], levels_seek(c.map, l.first + at), cost);
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
DEVICE u32 wide_backward(const LevelsSearch &c, const LevelsLane<V> &l, float *memory, u32 s, LevelsSum &sum) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    constexpr u32 words = TRELLIS_WORDS(NU);
    u32 *chunk = (u32 *)memory;
    const u32 lane = lane_of();
    u32 flags = 0;
    for (u32 base = (l.ticks + 31) / 32 * 32; base > 0;) {
        base -= 32;
        const u32 count = min(l.ticks - base, 32u);
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
            const u64 at = levels_offset(l.lanes, step, l.paired);
            const LevelsInput<V> in = search_input<V>(c, l.data[at]);
            const u32 cls = levels_class(c.map, levels_seek(c.map, l.first + at));
            const LevelsChoice chosen = search_choice<V, SEARCH_FULL>(c, in, cls, q, odd, sum);
            flags |= (chosen.k ? LEVELS_CODED : 0) | (in.aside ? LEVELS_ASIDE : 0);
            ((u16 *)l.codes)[(u64)(step / 4) * l.lanes * 4 + step % 4] = (u16)chosen.code;
        }
    }
    return flags;
}

template <class V, u32 NU> DEVICE void wide_lanes(const LevelsPass &a, const LevelsSearch &c, LevelsSum &sum) {
    const Encoding &encoding = a.encoding;
    const u32 warps = blockDim.x / 32, warp = blockIdx.x * warps + warp_of();
    // Behind the costs of the classes in use.
    float *memory = c.table + a.plan->classes * TRELLIS_CLASS + warp_of() * TRELLIS_WARP(NU);
    // Neighbouring warps take neighbouring lanes, which share lines of memory.
    for (u64 i = warp; i < encoding.tiles * encoding.lanes; i += (u64)gridDim.x * warps) {
        const u64 tile = i / encoding.lanes;
        const LevelsLane<V> l = search_lane<V>(a, tile, (u32)(i % encoding.lanes));
        if (l.ticks == 0) continue;
        const u32 state = wide_forward<V, NU>(c, l, memory);
        const u32 seen = wide_backward<V, NU>(c, l, memory, state, sum);
        const u32 flags = levels_flags(seen & LEVELS_CODED, seen & LEVELS_ASIDE);
        // Other warps have other lanes of the tile.
        if (lane_of() == 0) atomicOr(&a.tiles[tile].flags, flags);
    }
}

static_assert(TRELLIS_WARP(8) * 4 <= WIDE_WARP_SHARED, "as the launch code reckons");

template <class V> DEVICE void wide_all(const LevelsPass &a, u8 *memory) {
    const Plan *plan = a.plan;
    if (levels_over(a) || plan->nu < 4) return;
    // Jumps of one step are not taken: every value's place is looked for.
    const LevelsSearch c = search_open(a, 1, memory);
    trellis_costs(c.table, plan);
    __syncthreads();
    LevelsSum sum = {0.0, 0};
    switch (plan->nu) {
    case 4: wide_lanes<V, 4>(a, c, sum); break;
    case 5: wide_lanes<V, 5>(a, c, sum); break;
    case 6: wide_lanes<V, 6>(a, c, sum); break;
    case 7: wide_lanes<V, 7>(a, c, sum); break;
    default: wide_lanes<V, 8>(a, c, sum); break;
    }
    search_close(a, c, sum);
}

KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_wide_f8_e4m3(const GRID_CONSTANT LevelsPass a) RUNS(wide_all<LevelsE4m3>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_wide_f8_e5m2(const GRID_CONSTANT LevelsPass a) RUNS(wide_all<LevelsE5m2>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_wide_f16(const GRID_CONSTANT LevelsPass a) RUNS(wide_all<LevelsF16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_wide_bf16(const GRID_CONSTANT LevelsPass a) RUNS(wide_all<LevelsBf16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_wide_f32(const GRID_CONSTANT LevelsPass a) RUNS(wide_all<LevelsF32>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_wide_f64(const GRID_CONSTANT LevelsPass a) RUNS(wide_all<LevelsF64>)
