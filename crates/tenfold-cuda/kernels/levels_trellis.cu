// Levels by a trellis of 4 or 8 states: a warp a tile, a thread a lane. Forwards for the decisions, backwards for the
// levels, whose symbols are counted on the way.
//
// Where there are few tiles, several warps share one: each takes a part of every lane. Paths must meet where parts do, so
// that the state there is settled first: by a search that starts a little earlier, whatever the state, and goes on a little
// further. Paths that lead to the same place have nearly always merged by then, and a part's search is as good as one of
// the whole lane.

#include "levels_search.cuh"

// Steps after which metrics are made small again, a multiple of four.
#define SETTLE 64
// Steps before and after the place where two parts meet, multiples of four.
#define MEET_BEFORE 32
#define MEET_AFTER 32

static_assert(MEET_BEFORE + MEET_AFTER <= PART_LEAST, "decisions have the room of a part's");

// A step forwards, and on to another class if `last` of those that share one; returns its decisions below those of the steps before.
template <class V, u32 NU>
DEVICE u32 trellis_on(const LevelsSearch &c, float (&metric)[1 << NU], LevelsPlace &place, typename V::E x, u32 word, bool last) {
    float cost[4];
    search_branch<V>(c, x, place, cost);
    if (last) levels_next(c.map, place);
    return trellis_step<NU>(metric, cost, word);
}

// Steps `from` to `to` of a lane, the first of them a multiple of four. Decisions of four steps share a word, the first
// step's on top; words of neighbouring lanes lie side by side.
template <class V, u32 NU>
DEVICE void trellis_forward(const LevelsSearch &c, const LevelsLane<V> &l, u32 from, u32 to, float (&metric)[1 << NU]) {
    typedef typename V::E E;
    if (from >= to) return;
    LevelsPlace place = levels_seek(c.map, l.first + levels_offset(l.lanes, from, l.paired));
    const u32 stride = l.lanes, whole = (to - from) / 4, left = (to - from) % 4;
    const E *data = l.data + (u64)from * stride;
    u32 *decisions = l.decisions;
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
    if (left) {
        u32 word = 0;
        for (u32 j = 0; j < left; ++j)
            word = trellis_on<V, NU>(c, metric, place, data[levels_offset(stride, j, l.paired)], word, single || j & 1);
        *decisions = word << (4 - left) * (1 << NU);
    }
}

// The state of a lane before step `at`, where a part ends and another starts.
template <class V, u32 NU> DEVICE u32 trellis_meet(const LevelsSearch &c, const LevelsLane<V> &l, u32 at) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    const u32 from = at - MEET_BEFORE, to = min(at + MEET_AFTER, l.ticks);
    float metric[1 << NU];
#pragma unroll
    for (u32 s = 0; s < 1u << NU; ++s) metric[s] = 0.0f;
    trellis_forward<V, NU>(c, l, from, to, metric);
    u32 state = trellis_best<NU>(metric);
    for (u32 step = to; step-- > at;) {
        const u32 word = l.decisions[(step - from) / 4 * 32] >> (3 - step % 4) * (1 << NU);
        state = trellis_before(state, state >> (NU - 1), word >> state & 1, NU, on_quantiser[NU], on_parity[NU]);
    }
    return state;
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

// Back from step `to` to step `from`, which is a multiple of four.
template <class V, u32 NU, u32 MODE>
DEVICE void trellis_backward(const LevelsSearch &c, const LevelsLane<V> &l, u32 from, u32 to, TrellisBack &b) {
    typedef typename V::E E;
    constexpr u32 bits = 1u << NU;
    if (from >= to) return;
    b.place = levels_seek(c.map, l.first + levels_offset(l.lanes, to - 1, l.paired));
    const bool single = !l.paired;
    const u32 stride = l.lanes, whole = (to - from) / 4, left = (to - from) % 4;
    const E *data = l.data + (u64)(from + whole * 4) * stride;
    const u32 *decisions = l.decisions + whole * 32;
    uint2 *codes = l.codes + (u64)(from / 4 + whole) * stride;
    if (left) {
        const u32 word = *decisions;
        u32 code[2] = {0, 0};
#pragma unroll
        for (u32 j = 4; j-- > 0;)
            if (j < left)
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

// States where parts meet, by warp and lane.
typedef u8 TrellisMeets[LEVELS_THREADS / 32][32];

template <class V, u32 NU, u32 MODE>
DEVICE void trellis_tiles(const LevelsPass &a, LevelsSearch c, TrellisMeets &meets, LevelsSum &sum) {
    const u32 lane = lane_of(), warp = warp_of(), warps = blockDim.x / 32, parts = a.parts;
    if (MODE != SEARCH_FULL) c.map.any = MODE == SEARCH_MAPPED;
    TrellisBack b;
    b.sum = sum;
    // Few tiles are spread over many blocks, and a tile's parts are neighbours in one.
    const u32 part = warp % parts, steps = a.part_ticks;
    for (u64 all = 0; all < a.encoding.tiles; all += (u64)gridDim.x * (warps / parts)) {
        const u64 tile = all + (u64)(warp / parts) * gridDim.x + blockIdx.x;
        const bool valid = tile < a.encoding.tiles;
        LevelsLane<V> l = search_lane<V>(a, valid ? tile : 0, lane);
        l.decisions += lane;
        if (!valid) l.ticks = 0;
        const u32 from = min(part * steps, l.ticks), to = min(from + steps, l.ticks);
        u32 state = 0;
        if (parts > 1) {
            if (from > 0 && from < to) state = trellis_meet<V, NU>(c, l, from);
            __syncthreads();
            meets[warp][lane] = (u8)state;
            __syncthreads();
        }
        float metric[1 << NU];
        trellis_start<NU>(metric, state);
        trellis_forward<V, NU>(c, l, from, to, metric);
        b.state = to < l.ticks ? meets[(warp + 1) % (LEVELS_THREADS / 32)][lane] : trellis_best<NU>(metric);
        b.any = b.asides = 0;
        trellis_backward<V, NU, MODE>(c, l, from, to, b);
        const u32 flags = levels_flags(b.any, b.asides);
        // Other warps may have other parts of the tile.
        if (lane == 0 && flags) atomicOr(&a.tiles[tile].flags, flags);
    }
    sum = b.sum;
}

template <class V> DEVICE void trellis_all(const LevelsPass &a, u8 *memory) {
    __shared__ TrellisMeets meets;
    const Plan *plan = a.plan;
    if (levels_over(a) || (plan->nu != 2 && plan->nu != 3)) return;
    const LevelsSearch c = search_open(a, levels_jump(a.encoding, plan), memory);
    trellis_costs(c.table, plan);
    __syncthreads();
    LevelsSum sum = {0.0, 0};
    if (plan->nu == 2) trellis_tiles<V, 2, SEARCH_FULL>(a, c, meets, sum);
    else if (a.measure || plan->any_low) trellis_tiles<V, 3, SEARCH_FULL>(a, c, meets, sum);
    else if (c.map.any) trellis_tiles<V, 3, SEARCH_MAPPED>(a, c, meets, sum);
    else trellis_tiles<V, 3, SEARCH_BARE>(a, c, meets, sum);
    search_close(a, c, sum);
}

KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f8_e4m3(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsE4m3>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f8_e5m2(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsE5m2>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f16(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsF16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_bf16(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsBf16>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f32(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsF32>)
KERNEL(LEVELS_THREADS, LEVELS_BLOCKS) levels_trellis_f64(const GRID_CONSTANT LevelsPass a) RUNS(trellis_all<LevelsF64>)
