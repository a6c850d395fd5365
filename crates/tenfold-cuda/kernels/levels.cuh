// Lossy encoding on the device: what the passes over the tiles share. `levels_count` (scalar), `levels_trellis` and
// `levels_wide` find levels and count symbols, `levels_tables` makes tables and header of the counts, `levels_pack`
// codes every tile into a slot of its own, `levels_write` puts the tiles in their places.
#pragma once

#include "dequant.cuh"
#include "base.cuh"
#include "scalar.cuh"

// Flags of a tile: some level is not zero, some value is stored exactly.
#define LEVELS_CODED 1u
#define LEVELS_ASIDE 2u

// Of all that the lanes of a warp have seen.
DEVICE u32 levels_flags(bool coded, bool aside) {
    return (__any_sync(ALL_LANES, coded) ? LEVELS_CODED : 0u) | (__any_sync(ALL_LANES, aside) ? LEVELS_ASIDE : 0u);
}

// A code: symbol, set, parity of the level, whether the level is zero, whether the value is stored exactly.
#define LEVELS_INDEX 0x1fffu
#define LEVELS_ODD 0x2000u
#define LEVELS_ZERO 0x4000u
#define LEVELS_EXACT 0x8000u

// Nothing is left to do: the goal is met, or something went wrong. `levels_begin` has seen to it.
DEVICE bool levels_over(const LevelsPass &a) { return a.pass->code != 0; }

DEVICE u64 levels_first(const Encoding &encoding, u64 tile) { return tile * encoding.tile_values; }
DEVICE u32 levels_len(const Encoding &encoding, u64 tile) { return (u32)min(encoding.tile_values, encoding.values - tile * encoding.tile_values); }

// Steps that a lane has in a tile of so many values.
DEVICE u32 levels_ticks(u32 values, u32 lanes, u32 lane) {
    return lane < lanes && lane < values ? (values - lane - 1) / lanes + 1 : 0;
}

// The same for lanes whose steps are values of pairs: neighbours are two steps of a lane, and the next two are 64 values on.
DEVICE u32 levels_steps(const Encoding &encoding, u64 tile, u32 lane, bool paired) {
    const u32 values = levels_len(encoding, tile);
    return paired ? 2 * levels_ticks(values / 2, encoding.lanes, lane) : levels_ticks(values, encoding.lanes, lane);
}
DEVICE u32 levels_offset(u32 lanes, u32 step, bool paired) { return paired ? step / 2 * 64 + step % 2 : step * lanes; }

// Values from one class of a lane to the next.
DEVICE u32 levels_jump(const Encoding &encoding, const Plan *plan) { return plan->paired ? 64 : encoding.lanes; }

// Codes of a tile: four steps of a lane lie together.
DEVICE u64 levels_codes(const Encoding &encoding, u64 tile) { return tile * ((encoding.ticks + 3) / 4) * encoding.lanes; }

// Dtypes as types: kernels are made for each, so that reading an element is an instruction or two.
template <class T, u32 ID> struct LevelsDtype {
    typedef T E;
    static constexpr u32 dtype = ID;
};
typedef LevelsDtype<u8, DTYPE_F8_E4M3> LevelsE4m3;
typedef LevelsDtype<u8, DTYPE_F8_E5M2> LevelsE5m2;
typedef LevelsDtype<u16, DTYPE_F16> LevelsF16;
typedef LevelsDtype<u16, DTYPE_BF16> LevelsBf16;
typedef LevelsDtype<u32, DTYPE_F32> LevelsF32;
typedef LevelsDtype<u64, DTYPE_F64> LevelsF64;

// What inner loops are made for. MAPPED: there are classes. FULL: there may be anything: classes or not, low bits, an
// error to measure, a bound.
#define SEARCH_BARE 0
#define SEARCH_MAPPED 1
#define SEARCH_FULL 2

// What makes reals of a tensor's elements and levels of reals.
struct LevelsScale {
    float factor, max_u;
    // The step, and 1/step for what is only measured.
    double step, per_step, scale, bound;
    const i32 *offsets;
    bool bounded;
};

DEVICE LevelsScale levels_scale(const Plan *plan) {
    return LevelsScale{plan->factor, plan->max_u, plan->step,    1.0 / plan->step,
                       plan->scale,  plan->bound, plan->offsets, plan->bounded != 0};
}

// A value in steps; what no level can hold is zero and `aside`.
template <class V> DEVICE float levels_u(const LevelsScale &s, typename V::E bits, bool &aside) {
    const float u = V::dtype == DTYPE_F64 ? (float)(__longlong_as_double((i64)bits) / s.step)
                                          : __uint_as_float(f32_of(V::dtype, (u32)bits)) * s.factor;
    aside = !(fabsf(u) <= s.max_u);
    return aside ? 0.0f : u;
}

template <class V> DEVICE double levels_real(typename V::E bits) {
    return V::dtype == DTYPE_F64 ? __longlong_as_double((i64)bits)
                                 : (double)__uint_as_float(f32_of(V::dtype, (u32)bits));
}

// How far a decoder will be off.
template <class V> DEVICE double levels_off(const LevelsScale &s, typename V::E bits, i32 k, u32 q) {
    const typename V::E seen = element<typename V::E>(V::dtype, s.scale, units_of(s.offsets, k, q));
    return levels_real<V>(bits) - levels_real<V>(seen);
}

// Level of a scalar quantiser; `thresholds` are those of the value's class. Where a bound is missed the value is stored
// exactly, and its level might as well be the cheapest.
template <class V, u32 MODE>
DEVICE i32 levels_scalar(const LevelsScale &s, const float *thresholds, typename V::E bits, bool &aside) {
    const float u = levels_u<V>(s, bits, aside);
    if (MODE != SEARCH_FULL || !s.bounded) return scalar_level(thresholds, u);
    const i32 k = scalar_nearest(u);
    if (!aside) aside = !(fabs(levels_off<V>(s, bits, k, 0)) <= s.bound);
    return aside ? 0 : k;
}

// Adds a value to what is measured.
template <class V>
DEVICE void levels_measure(LevelsSum &sum, const LevelsScale &s, typename V::E bits, i32 k, u32 q, bool aside) {
    const double v = levels_real<V>(bits);
    // Not for infinities and NaN.
    if (v - v == 0.0) ++sum.finite;
    if (aside) return;
    const double e = levels_off<V>(s, bits, k, q) * s.per_step;
    sum.error += e * e;
}

// The sums of a launch's warps lie in their order: what is added up does not depend on who was first.
DEVICE void levels_sum(LevelsSum *sums, LevelsSum sum) {
    sum.error = warp_sum(sum.error);
    sum.finite = warp_sum(sum.finite);
    if (lane_of() == 0) sums[blockIdx.x * (blockDim.x / 32) + warp_of()] = sum;
}

// Which class a value has. A thread goes through positions that are a fixed jump apart.
struct LevelsMap {
    bool any;
    u32 width, rows, jump_rows, jump_cols;
    const u8 *row_scale, *col_scale;
    // In shared memory.
    const u8 *class_of_sum;
};

struct LevelsPlace {
    u32 row, col, scale;
};

// Shared memory that a map takes.
#define LEVELS_MAP_BYTES (2 << MAX_SCALE_BITS)

// All threads of a block take part, and synchronise after.
DEVICE LevelsMap levels_map(const Plan *plan, u64 jump, u8 *shared) {
    for (u32 i = threadIdx.x; i < LEVELS_MAP_BYTES; i += blockDim.x) shared[i] = plan->class_of_sum[i];
    LevelsMap m;
    m.any = plan->classes > 1;
    m.width = m.any ? (u32)plan->width : 1;
    m.rows = (u32)plan->rows;
    m.jump_rows = (u32)(jump / m.width);
    m.jump_cols = (u32)(jump % m.width);
    m.row_scale = plan->row_bits ? (const u8 *)plan->row_scale : 0;
    m.col_scale = plan->col_bits ? (const u8 *)plan->col_scale : 0;
    m.class_of_sum = shared;
    return m;
}

DEVICE u32 levels_row_scale(const LevelsMap &m, u32 row) { return m.row_scale && row < m.rows ? m.row_scale[row] : 0; }

DEVICE LevelsPlace levels_seek(const LevelsMap &m, u64 at) {
    if (!m.any) return LevelsPlace{0, 0, 0};
    const u64 row = at / m.width;
    return LevelsPlace{(u32)row, (u32)(at - row * m.width), levels_row_scale(m, (u32)row)};
}

DEVICE u32 levels_class(const LevelsMap &m, const LevelsPlace &p) {
    return m.any ? m.class_of_sum[p.scale + (m.col_scale ? m.col_scale[p.col] : 0)] : 0;
}

DEVICE void levels_next(const LevelsMap &m, LevelsPlace &p) {
    if (!m.any) return;
    u32 rows = m.jump_rows;
    p.col += m.jump_cols;
    if (p.col >= m.width) {
        p.col -= m.width;
        ++rows;
    }
    if (rows) p.scale = levels_row_scale(m, p.row += rows);
}

DEVICE void levels_back(const LevelsMap &m, LevelsPlace &p) {
    if (!m.any) return;
    u32 rows = m.jump_rows;
    if (p.col < m.jump_cols) {
        p.col += m.width;
        ++rows;
    }
    p.col -= m.jump_cols;
    if (rows) p.scale = levels_row_scale(m, p.row -= rows);
}

// Symbol of a level without its low bits.
DEVICE u32 levels_symbol(i32 high) {
    const u32 size = (u32)(high < 0 ? -high : high);
    return size < 128 ? (u32)high & 255 : ESCAPE;
}

// A block's histogram: as many copies of every counter as there is room for, side by side, so that lanes with the
// same symbol seldom meet.
#define LEVELS_HIST_WORDS (LEVELS_SETS * 256)
#define LEVELS_HIST_BYTES (LEVELS_HIST_WORDS * 4)

struct LevelsHist {
    u32 *at;
    u32 copies_log;
};

// All threads of a block take part, and synchronise after.
DEVICE LevelsHist levels_hist(u32 *shared, u32 classes) {
    u32 log = 0;
    while (log < 4 && (classes * 2 << (log + 1)) <= LEVELS_SETS) ++log;
    for (u32 i = threadIdx.x; i < LEVELS_HIST_WORDS; i += blockDim.x) shared[i] = 0;
    return LevelsHist{shared, log};
}

DEVICE void levels_tally(const LevelsHist &h, u32 index) {
    atomicAdd(&h.at[(index << h.copies_log) + (lane_of() & ((1u << h.copies_log) - 1))], 1u);
}

// Adds a block's counts to the tensor's. Synchronises first.
DEVICE void levels_flush(const LevelsHist &h, u32 classes, u64 *counts) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < classes * 2 * 256; i += blockDim.x) {
        u32 sum = 0;
        for (u32 c = 0; c < 1u << h.copies_log; ++c) sum += h.at[(i << h.copies_log) + c];
        if (sum) atomicAdd(&counts[i], (u64)sum);
    }
}
