// Levels by a trellis of 4 or 8 states: a warp a tile, a thread a lane. Forwards for the decisions, backwards for the
// levels, whose symbols are counted on the way.

#include "levels_search.cuh"

// Steps after which metrics are made small again, a multiple of four.
#define SETTLE 64

// A step forwards, and on to another class if `last` of those that share one; returns its decisions below those of the steps before.
template <class V, u32 NU>
DEVICE u32 trellis_on(const LevelsSearch &c, float (&metric)[1 << NU], LevelsPlace &place, typename V::E x, u32 word, bool last) {
    float cost[4];
    search_branch<V>(c, x, place, cost);
    if (last) levels_next(c.map, place);
    return trellis_step<NU>(metric, cost, word);
}

// Decisions of four steps share a word, the first step's on top; words of neighbouring lanes lie side by side. Returns
// the state at the end.
template <class V, u32 NU> DEVICE u32 trellis_forward(const LevelsSearch &c, const LevelsLane<V> &l) {
    typedef typename V::E E;
    float metric[1 << NU];
    trellis_start<NU>(metric);
    LevelsPlace place = levels_seek(c.map, l.first);
    const E *data = l.data;
    u32 *decisions = l.decisions;
    const u32 stride = l.lanes, whole = l.ticks / 4;
    const bool single = !l.paired;
    for (u32 group = 0; group < whole; ++group) {
        E x[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) x[j] = data[levels_offset(stride, j, l.paired)];
        data += 4 * stride;
        if (group % (SETTLE / 4) == SETTLE / 4 - 1) trellis_settle<NU>(metric);
        u32 word = 0;
#pragma unroll
        for (u32 j = 0; j < 4; ++j) word = trellis_on<V, NU>(c, metric, place, x[j], word, single || j & 1);
        *decisions = word;
        decisions += 32;
    }
    if (l.ticks % 4) {
        u32 word = 0;
        for (u32 j = 0; j < l.ticks % 4; ++j)
            word = trellis_on<V, NU>(c, metric, place, data[levels_offset(stride, j, l.paired)], word, single || j & 1);
        *decisions = word << (4 - l.ticks % 4) * (1 << NU);
    }
    return trellis_best<NU>(metric);
}

// What a lane finds on its way back.
struct TrellisBack {
    LevelsPlace place;
    u32 state;
    // All levels or-ed together, and whether any value is stored exactly.
    u32 any, asides;
    LevelsSum sum;
};

// A step back, and back to another class if `first` of those that share one; `word` has its decisions in its low bits. Returns the
// code.
template <class V, u32 NU, u32 MODE>
DEVICE u32 trellis_off(const LevelsSearch &c, TrellisBack &b, typename V::E x, u32 word, bool first) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    const LevelsInput<V> in = search_input<V>(c, x);
    const u32 cls = levels_class(c.map, b.place);
    if (first) levels_back(c.map, b.place);
    const u32 q = b.state >> (NU - 1), odd = word >> b.state & 1;
    b.state = trellis_before(b.state, q, odd, NU, on_quantiser[NU], on_parity[NU]);
    const LevelsChoice chosen = search_choice<V, MODE>(c, in, cls, q, odd, b.sum);
    b.any |= (u32)chosen.k;
    b.asides |= in.aside;
    return chosen.code;
}

template <class V, u32 NU, u32 MODE>
DEVICE void trellis_backward(const LevelsSearch &c, const LevelsLane<V> &l, TrellisBack &b) {
    typedef typename V::E E;
    constexpr u32 bits = 1u << NU;
    if (l.ticks == 0) return;
    b.place = levels_seek(c.map, l.first + levels_offset(l.lanes, l.ticks - 1, l.paired));
    const bool single = !l.paired;
    const u32 stride = l.lanes, whole = l.ticks / 4;
    const E *data = l.data + (u64)whole * 4 * stride;
    const u32 *decisions = l.decisions + whole * 32;
    uint2 *codes = l.codes + (u64)whole * stride;
    if (l.ticks % 4) {
        const u32 word = *decisions;
        u32 code[2] = {0, 0};
#pragma unroll
        for (u32 j = 4; j-- > 0;)
            if (j < l.ticks % 4)
                code[j / 2] |= trellis_off<V, NU, MODE>(c, b, data[levels_offset(stride, j, l.paired)], word >> (3 - j) * bits,
                                                        single || !(j & 1))
                               << (16 * (j % 2));
        *codes = make_uint2(code[0], code[1]);
    }
    for (u32 group = whole; group-- > 0;) {
        data -= 4 * stride;
        decisions -= 32;
        codes -= stride;
        E x[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) x[j] = data[levels_offset(stride, j, l.paired)];
        const u32 word = *decisions;
        u32 code[4];
#pragma unroll
        for (u32 j = 4; j-- > 0;) code[j] = trellis_off<V, NU, MODE>(c, b, x[j], word >> (3 - j) * bits, single || !(j & 1));
        *codes = make_uint2(code[0] | code[1] << 16, code[2] | code[3] << 16);
    }
}

template <class V, u32 NU, u32 MODE> DEVICE void trellis_tiles(const LevelsPass &a, LevelsSearch c, LevelsSum &sum) {
    const u32 lane = lane_of(), warps = blockDim.x / 32;
    if (MODE != SEARCH_FULL) c.map.any = MODE == SEARCH_MAPPED;
    TrellisBack b;
    b.sum = sum;
    // Few tiles are spread over many blocks.
    for (u64 tile = (u64)warp_of() * gridDim.x + blockIdx.x; tile < a.encoding.tiles; tile += (u64)gridDim.x * warps) {
        LevelsLane<V> l = search_lane<V>(a, tile, lane);
        l.decisions += lane;
        b.state = trellis_forward<V, NU>(c, l);
        b.any = b.asides = 0;
        trellis_backward<V, NU, MODE>(c, l, b);
        const u32 flags = levels_flags(b.any, b.asides);
        if (lane == 0) a.tiles[tile].flags = flags;
    }
    sum = b.sum;
}

template <class V> DEVICE void trellis_all(const LevelsPass &a, u8 *memory) {
    const Plan *plan = a.plan;
    if (levels_over(a) || (plan->nu != 2 && plan->nu != 3)) return;
    const LevelsSearch c = search_open(a, levels_jump(a.encoding, plan), memory);
    trellis_costs(c.table, plan);
    __syncthreads();
    LevelsSum sum = {0.0, 0};
    if (plan->nu == 2) trellis_tiles<V, 2, SEARCH_FULL>(a, c, sum);
    else if (a.measure || plan->any_low) trellis_tiles<V, 3, SEARCH_FULL>(a, c, sum);
    else if (c.map.any) trellis_tiles<V, 3, SEARCH_MAPPED>(a, c, sum);
    else trellis_tiles<V, 3, SEARCH_BARE>(a, c, sum);
    search_close(a, c, sum);
}

KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f8_e4m3(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsE4m3>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f8_e5m2(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsE5m2>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f16(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsF16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_bf16(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsBf16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f32(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsF32>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f64(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsF64>)
