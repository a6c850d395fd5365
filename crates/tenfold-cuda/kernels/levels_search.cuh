// The search for levels, whichever quantiser makes them: what a block keeps in shared memory, and for a trellis its
// lanes and what becomes of a value on the way back.
#pragma once

#include "levels.cuh"
#include "trellis.cuh"

// Dynamic shared memory: counters, low bits, classes of sums; then costs of a trellis, or thresholds.
#define SEARCH_TABLE (LEVELS_HIST_BYTES + MAX_CLASSES + LEVELS_MAP_BYTES)

static_assert(SEARCH_TABLE + MAX_CLASSES * TRELLIS_CLASS * 4 <= SEARCH_SHARED, "as the launch code reckons");
static_assert(SEARCH_TABLE + MAX_CLASSES * SCALAR_CLASS * 4 <= SEARCH_SHARED, "as the launch code reckons");

// What all threads of a launch have in common.
struct LevelsSearch {
    float *table;
    const u8 *low;
    LevelsMap map;
    LevelsHist hist;
    LevelsScale scale;
    bool measure;
};

// `jump` is that of the map. All threads of a block take part, fill the table, and synchronise after.
DEVICE LevelsSearch search_open(const LevelsPass &a, u64 jump, u8 *memory) {
    const Plan *plan = a.plan;
    u8 *low = memory + LEVELS_HIST_BYTES, *sums = low + MAX_CLASSES;
    LevelsSearch c;
    c.hist = levels_hist((u32 *)memory, plan->classes);
    c.map = levels_map(plan, jump, sums);
    c.scale = levels_scale(plan);
    c.table = (float *)(memory + SEARCH_TABLE);
    if (threadIdx.x < MAX_CLASSES) low[threadIdx.x] = plan->low[threadIdx.x];
    c.low = low;
    c.measure = a.measure;
    return c;
}

// Adds what a block has counted and its warps have measured. Synchronises first.
DEVICE void search_close(const LevelsPass &a, const LevelsSearch &c, const LevelsSum &sum) {
    if (a.measure) levels_sum(a.sums, sum);
    levels_flush(c.hist, a.plan->classes, a.counts);
}

// A lane of a tile.
template <class V> struct LevelsLane {
    const typename V::E *data;
    // First position in the tensor, distance between its values, and their number.
    u64 first;
    u32 lanes, ticks;
    bool paired;
    // Those of this warp.
    u32 *decisions;
    // Four codes a pair of words; those of neighbouring lanes lie side by side.
    uint2 *codes;
};

template <class V> DEVICE LevelsLane<V> search_lane(const LevelsPass &a, u64 tile, u32 lane) {
    const Encoding &encoding = a.encoding;
    const u32 warp = blockIdx.x * (blockDim.x / 32) + warp_of();
    LevelsLane<V> l;
    l.paired = a.plan->paired != 0;
    l.first = levels_first(encoding, tile) + (l.paired ? 2 * lane : lane);
    l.lanes = encoding.lanes;
    l.ticks = levels_steps(encoding, tile, lane, l.paired);
    l.data = (const typename V::E *)encoding.data + l.first;
    l.decisions = (u32 *)(a.decisions + warp * a.warp_decisions);
    l.codes = (uint2 *)a.codes + levels_codes(encoding, tile) + lane;
    return l;
}

// An element, its value in steps, and whether it is stored exactly. Made before its class is looked for: the other way
// round the hot loop needs more registers than there are.
template <class V> struct LevelsInput {
    typename V::E x;
    float u;
    bool aside;
};

template <class V> DEVICE LevelsInput<V> search_input(const LevelsSearch &c, typename V::E x) {
    LevelsInput<V> in;
    in.x = x;
    in.u = levels_u<V>(c.scale, x, in.aside);
    return in;
}

// What each branch costs for an element.
template <class V>
DEVICE void search_branch(const LevelsSearch &c, typename V::E x, const LevelsPlace &place, float (&cost)[4]) {
    const float u = search_input<V>(c, x).u;
    trellis_branch(c.table + levels_class(c.map, place) * TRELLIS_CLASS, u, cost);
}

struct LevelsChoice {
    i32 k;
    u32 code;
};

// The level that a trellis chose for an element of class `cls`, by its quantiser and parity: counted, and measured if
// that is asked for.
template <class V, u32 MODE>
DEVICE LevelsChoice search_choice(const LevelsSearch &c, const LevelsInput<V> &in, u32 cls, u32 q, u32 odd, LevelsSum &sum) {
    const i32 k = trellis_level(c.table + cls * TRELLIS_CLASS, in.u, q, odd);
    const u32 index = (cls * 2 + q) << 8 | levels_symbol(MODE == SEARCH_FULL ? k >> c.low[cls] : k);
    levels_tally(c.hist, index);
    if (MODE == SEARCH_FULL && c.measure) levels_measure<V>(sum, c.scale, in.x, k, q, in.aside);
    return LevelsChoice{k, index | odd * LEVELS_ODD | (k ? 0 : LEVELS_ZERO) | (in.aside ? LEVELS_EXACT : 0)};
}
