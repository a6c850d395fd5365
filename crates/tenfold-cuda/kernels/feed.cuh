// Feedback of errors where a trellis runs along the outputs of a column and on into the next: the twin of `calibrated/feed.rs` and
// `column.rs`. Columns lie one after the other, as in the blob. One block takes the columns of a panel in order; what the columns
// before the panel have left is in the values already.
#pragma once

#include "levels_search.cuh"
#include "levels_tile.cuh"

// Values of a column that lie in one tile, and those behind it that the trellis looks at.
struct FeedRun {
    u64 tile, start;
    // In the tile: the first value, the one behind the column, and the one behind all that is looked at.
    u32 from, stop, seen;
    // Lanes; the first step, how many there are, and whether two neighbours are steps of a lane.
    u32 lanes, first, steps;
    bool paired;
    u32 column;
    // Where the column starts, counted from the tile's first value; before it, if that is in the tile before.
    i64 begin;
    // Ways through the trellis: of lane i in step s, byte s % 4 of word s / 4 * 32 + i.
    u32 *path;
};

// The run that starts at a value of a column.
DEVICE FeedRun feed_run(const FeedArgs &a, u32 column, u64 at, u32 nu, u32 *path) {
    const Encoding &encoding = a.levels.encoding;
    FeedRun r;
    r.column = column;
    r.lanes = encoding.lanes;
    r.paired = a.levels.plan->paired != 0;
    r.tile = at / encoding.tile_values;
    r.start = levels_first(encoding, r.tile);
    const u64 len = levels_len(encoding, r.tile);
    r.begin = (i64)((u64)column * a.outputs) - (i64)r.start;
    const u64 end = (u64)(column + 1) * a.outputs - r.start, block = (u64)a.block_end * a.outputs - r.start;
    r.from = (u32)(at - r.start);
    r.stop = (u32)min(end, len);
    r.seen = (u32)min(min((u64)r.stop + FEED_AHEAD * nu * r.lanes, len), max(block, (u64)r.stop));
    // A step of all lanes is as many neighbours; of pairs two steps are.
    const u32 each = r.paired ? 2 * r.lanes : r.lanes;
    r.first = r.from / each * (r.paired ? 2 : 1);
    r.steps = (r.seen + each - 1) / each * (r.paired ? 2 : 1) - r.first;
    r.path = r.steps <= FEED_STEPS ? path : (u32 *)a.path;
    return r;
}

// Where step `step` of a lane is in the tile, both counted from the first.
DEVICE u32 feed_position(const FeedRun &r, u32 step, u32 lane) {
    return r.first * r.lanes + (r.paired ? step / 2 * 64 + lane * 2 + step % 2 : step * r.lanes + lane);
}

DEVICE bool feed_within(const FeedRun &r, u32 lane, u32 position) {
    return lane < r.lanes && position >= r.from && position < r.seen;
}

// Step and lane of value `i`, counted from the first of the run's first step.
DEVICE void feed_place(const FeedRun &r, u32 i, u32 &step, u32 &lane) {
    step = r.paired ? i / 64 * 2 + i % 2 : i / r.lanes;
    lane = r.paired ? i % 64 / 2 : i % r.lanes;
}

// Column and output of a value of the tile; behind the column it is one of the columns that follow.
DEVICE void feed_where(const FeedArgs &a, const FeedRun &r, u32 position, u32 &column, u32 &output) {
    const u32 behind = (u32)((i64)position - r.begin), columns = behind < a.outputs ? 0 : behind / a.outputs;
    column = r.column + columns;
    output = behind - columns * a.outputs;
}

// Its place in the map, whose rows are mostly those of the matrix.
DEVICE LevelsPlace feed_seek(const FeedArgs &a, const LevelsMap &m, u64 at, u32 column, u32 output) {
    if (m.any && m.width == a.outputs) return LevelsPlace{column, output, levels_row_scale(m, column)};
    return levels_seek(m, at);
}

// A value with the errors of the panel's columns before the run's: what is quantised, if it is of this column.
DEVICE float feed_value(const FeedArgs &a, const FeedRun &r, u64 at, u32 column, u32 output) {
    const u32 done = r.column - a.first;
    const float *by = a.feed + (u64)(column - a.block) * a.feed_cols + (a.first - a.block);
    const float *errors = a.errors + output;
    float v = a.fed[at];
#pragma unroll 8
    for (u32 c = 0; c < done; ++c) v = fmaf(by[c], errors[(u64)c * a.outputs], v);
    return v;
}

// Levels, codes and errors of a run's values of this column, by the way through the trellis. All threads take part.
DEVICE void feed_finish(const FeedArgs &a, const LevelsSearch &c, const FeedRun &r) {
    const Encoding &encoding = a.levels.encoding;
    float *errors = a.errors + (u64)(r.column - a.first) * a.outputs;
    u16 *codes = a.levels.codes;
    LevelsSum unused = {0.0, 0};
    bool coded = false, asides = false;
    LevelsPlace place = levels_seek(c.map, r.start + r.from + threadIdx.x);
    for (u32 i = r.from + threadIdx.x; i < r.stop; i += FEED_THREADS) {
        u32 step, lane;
        feed_place(r, i - r.first * r.lanes, step, lane);
        const u32 way = r.path[step / 4 * 32 + lane] >> (8 * (step % 4)), q = way & 1;
        const u64 at = r.start + i;
        const float v = a.fed[at];
        const LevelsInput<LevelsF32> in = search_input<LevelsF32>(c, __float_as_uint(v));
        const u32 cls = levels_class(c.map, place);
        const LevelsChoice chosen = search_choice<LevelsF32, SEARCH_FULL>(c, in, cls, q, way >> 1 & 1, unused);
        codes[levels_code(encoding, r.paired, r.tile, i)] = (u16)chosen.code;
        coded |= chosen.k != 0;
        asides |= in.aside;
        const float seen = __uint_as_float(element<u32>(DTYPE_F32, c.scale.scale, units_of(c.scale.offsets, chosen.k, q)));
        errors[(i64)i - r.begin] = a.values[at] - (in.aside ? v : seen);
        levels_next(c.map, place);
    }
    const u32 flags = levels_flags(coded, asides);
    if (lane_of() == 0 && flags) atomicOr(&a.levels.tiles[r.tile].flags, flags);
}

// Takes the columns of a panel in order. `find` leaves a run's way through the trellis in its path, and states of lanes where the
// column ends; it synchronises first and last. Shared memory starts with that of a search for levels.
template <class F> DEVICE void feed_columns(const FeedArgs &a, u8 *memory, const F &find) {
    __shared__ u32 states[32];
    const Plan *plan = a.levels.plan;
    LevelsSearch c = search_open(a.levels, FEED_THREADS, memory);
    c.measure = false;
    trellis_costs(c.table, plan);
    if (threadIdx.x < 32) states[threadIdx.x] = a.states[threadIdx.x];
    for (u32 column = a.first; column < a.end; ++column) {
        u64 at = (u64)column * a.outputs;
        const u64 end = at + a.outputs;
        while (at < end) {
            const FeedRun r = feed_run(a, column, at, plan->nu, (u32 *)(memory + SEARCH_SHARED));
            __syncthreads();
            // Lanes of a tile start anew.
            if (r.from == 0 && threadIdx.x < 32) states[threadIdx.x] = 0;
            find(c, r, states);
            feed_finish(a, c, r);
            at = r.start + r.stop;
        }
    }
    __syncthreads();
    if (threadIdx.x < 32) a.states[threadIdx.x] = states[threadIdx.x];
    levels_flush(c.hist, plan->classes, a.levels.counts);
}
