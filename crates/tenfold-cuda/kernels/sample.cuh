// What the kernels that decide on a plan share: their state, the sample of the tensor, and elements as real numbers.
//
// A sample is windows of neighbouring values, spread evenly, held as f32 in units of `Rate.unit`. Each is searched like
// a small tile of 32 lanes. Where windows lie follows from their number, so nothing but values is kept.
#pragma once

#include "floats.cuh"
#include "base.cuh"

#define SCALE_TOP ((1 << MAX_SCALE_BITS) - 1)

// Squared errors of a trial are added up in 2^-20 steps², as integers: the sum does not depend on the order.
#define ERROR_ONE 1048576.0f
#define POINT_ONE 4096.0f

// A way to make classes, and the bits it would take.
struct Way {
    // Bits with these classes and without any.
    double bits, whole;
    u32 classes, row_bits, col_bits, pad;
    u8 thresholds[MAX_CLASSES];
};

// Root finding for what falls as the step grows: (log2 of the step, logarithm of what it gave).
struct Bracket {
    double over[2], under[2], last[2][2];
    u32 has_over, has_under, trials, pad;
};

// What a trial on the sample adds up.
struct Tally {
    u64 escape_bits, exact_bytes, finite, error;
    // By |multiple of the step|, for the reconstruction points: how many, and by how much they lie beyond their
    // values, in 1/POINT_ONE steps.
    u64 points[OFFSETS + 1];
    i64 beyond[OFFSETS + 1];
    // By set and symbol.
    u32 counts[2 * MAX_CLASSES * 256];
};

// The state of a search for a plan. Zeros before the first kernel.
struct Rate : Seen {
    // Smallest and largest logarithm of a row's mean and of a column's, as integers in the same order.
    u32 row_low, row_high, col_low, col_high;
    // The tensor must be looked at again in another unit.
    u32 rescan;
    // Nothing is left to decide on the sample.
    u32 fixed;
    u32 coarse_done, fine_done, low_changed, rounds;
    // What is wanted of a trial and of a pass: bytes, or the reciprocal of an error; 0 for nothing.
    double want;
    double finest;
    // Of a page that is planned together with others: its mean magnitude, or 1 where all have one step. The sample of all
    // pages is in units of this. Of all pages: the least magnitude that one is thought to have.
    double scale;
    Way ways[WAYS];
    Bracket sample, full;
    // Of full passes: the nearest miss; the best step that kept to the limit, 0 if none did; the smallest blob; how
    // often the step was made coarser for want of any that kept to it.
    double nearest_miss, nearest_step, kept_step;
    u64 smallest;
    u32 coarsened;
    // Blocks of a trial that have added what they saw.
    u32 arrived;
    // Exponents of an f64 tensor's values.
    u64 exponents[2048];
    Tally tally;
};

static_assert(sizeof(Rate) <= RATE_BYTES, "as the launch code reckons");

// How often tables and what is before them are stored: once, or in every page's blob.
DEVICE double rate_headers(const RateArgs &a) { return (double)a.encoding.values / (double)a.table_values; }

// The unit of a page's values in the sample of all.
DEVICE double page_scale(const RateArgs &a, u64 page) {
    return fmax(((const Rate *)((const u8 *)a.pages + page * a.pages_apart))->scale, a.rate->scale);
}

DEVICE bool is_nothing(const RateArgs &a) { return a.plan->trivial || a.rate->fixed; }

// Whether reconstruction points are made of a trial: they follow the step where that does not follow them. They are not worth
// their bytes in a small tensor.
DEVICE bool trial_points(const RateArgs &a) {
    const bool by_error = a.encoding.goal == GOAL_MSE || a.encoding.goal == GOAL_NMSE;
    return a.encoding.values >= 1 << 14 && (a.mode == TRIAL_POINTS || (a.mode == TRIAL_STEP && !by_error));
}

// Whether a trial has nothing to tell any more.
DEVICE bool trial_over(const RateArgs &a) {
    if (is_nothing(a)) return true;
    switch (a.mode) {
    case TRIAL_COARSE: return a.rate->coarse_done;
    case TRIAL_LOW: return !a.rate->low_changed;
    case TRIAL_COSTS: return a.plan->nu == 0;
    case TRIAL_STEP: return a.rate->fine_done;
    case TRIAL_COUNTS: return false;
    default: return !trial_points(a);
    }
}

DEVICE u32 trial_stride(const RateArgs &a) { return a.mode <= TRIAL_LOW ? a.coarse_stride : a.fine_stride; }

// First value of a window of the sample, and how many it has.
DEVICE u64 window_start(const RateArgs &a, u32 window) {
    return ((u64)window * a.windows + a.windows / 2) / a.taken * SAMPLE_WINDOW;
}

DEVICE u32 window_len(const RateArgs &a, u32 window) {
    const u64 left = a.encoding.values - window_start(a, window);
    return left < SAMPLE_WINDOW ? (u32)left : SAMPLE_WINDOW;
}

// Values of a subset of the sample.
DEVICE u64 subset_values(const RateArgs &a, u32 stride) {
    const u32 count = (a.taken + stride - 1) / stride;
    const u32 last = (count - 1) * stride;
    return (u64)(count - 1) * SAMPLE_WINDOW + window_len(a, last);
}

static_assert(4 * FIT_THREADS == SAMPLE_WINDOW, "a quad a thread");

struct SampleQuad {
    float v[4];
};

DEVICE SampleQuad sample_quad(const RateArgs &a, u32 window, u32 quad) {
    const float4 f = ((const float4 *)a.sample)[window * FIT_THREADS + quad];
    return SampleQuad{{f.x, f.y, f.z, f.w}};
}

// Magnitudes at and beyond this are not finite.
template <u32 DTYPE> DEVICE float sample_finite_below() {
    if (DTYPE == DTYPE_F16 || DTYPE == DTYPE_F8_E5M2) return 65536.0f;
    if (DTYPE == DTYPE_F8_E4M3) return 480.0f;
    return __uint_as_float(0x7f800000u);
}

// An element as a real number, in few instructions: exponents are moved to where an f32 has them and their bias is
// made up for by a product, which is right for subnormal numbers too. What is not finite comes out as a number that
// `sample_finite_below` excludes.
template <u32 DTYPE> DEVICE float sample_real(u32 b) {
    if (DTYPE == DTYPE_BF16) return __uint_as_float(b << 16);
    if (DTYPE == DTYPE_F16) return __uint_as_float((b & 0x8000u) << 16 | (b & 0x7fffu) << 13) * 0x1p112f;
    if (DTYPE == DTYPE_F8_E5M2) return __uint_as_float((b & 0x80u) << 24 | (b & 0x7fu) << 21) * 0x1p112f;
    if (DTYPE == DTYPE_F8_E4M3) return __uint_as_float((b & 0x80u) << 24 | (b & 0x7fu) << 20) * 0x1p120f;
    return __uint_as_float(b);
}

// Element `i` of a tensor in units; what is not finite is NaN.
DEVICE float sample_value(const Encoding &encoding, u64 i, double per_unit) {
    const float nan = __uint_as_float(0x7fc00000u);
    if (encoding.dtype == DTYPE_F64) {
        const double x = ((const double *)encoding.data)[i] * per_unit;
        return fabs(x) <= 3.4e38 ? (float)x : nan;
    }
    const u32 size = size_of(encoding.dtype);
    const u32 b = size == 1   ? ((const u8 *)encoding.data)[i]
                  : size == 2 ? ((const u16 *)encoding.data)[i]
                              : ((const u32 *)encoding.data)[i];
    const float x = __uint_as_float(f32_of(encoding.dtype, b));
    return fabsf(x) < __uint_as_float(0x7f800000u) ? x * (float)per_unit : nan;
}

// A number as an integer of the same order.
DEVICE u32 ordered(float v) {
    const u32 b = __float_as_uint(v);
    return b >> 31 ? ~b : b | 0x80000000u;
}
DEVICE float unordered(u32 v) { return __uint_as_float(v >> 31 ? v & 0x7fffffffu : ~v); }

// The integer logarithm of a scale, counted from the smallest; see `scale_base`.
DEVICE u32 scale_of(float log, float per_octave, float base) {
    const float s = rintf(log * per_octave - base);
    return s <= 0.0f ? 0 : s >= (float)SCALE_TOP ? SCALE_TOP : (u32)s;
}
// Scale 0: the smallest logarithm, but no further from the largest than there are scales.
DEVICE float scale_base(u32 low, u32 high, float per_octave) {
    const float top = unordered(high) * per_octave - (float)SCALE_TOP, least = unordered(low) * per_octave;
    return least > top ? least : top;
}
DEVICE u32 scale_bits(u32 low, u32 high, float per_octave) {
    return 32 - (u32)__clz((int)scale_of(unordered(high), per_octave, scale_base(low, high, per_octave)));
}

DEVICE bool way_has_rows(u32 way) { return way < WAY_BASIS ? way / 3 != 2 : way == WAY_BASIS; }
DEVICE bool way_has_cols(u32 way) { return way / 3 != 1; }
DEVICE float way_per_octave(u32 way) { return way < WAY_BASIS ? (float)(1u << way % 3) : 4.0f; }

// Sum of two scales under a way of grouping, for values of one window.
struct Grouping {
    u64 row0;
    u32 col0, width;
    float per_octave, row_base, col_base;
    bool rows, cols;
    // Scales of columns where they are known.
    const u8 *known;
};

DEVICE Grouping grouping_of(const RateArgs &a, u32 way, u32 window) {
    const Rate *r = a.rate;
    Grouping g;
    const u64 start = window_start(a, window);
    g.row0 = start / a.width;
    g.col0 = (u32)(start - g.row0 * a.width);
    g.width = (u32)a.width;
    g.per_octave = way_per_octave(way);
    g.rows = way_has_rows(way);
    g.cols = way_has_cols(way);
    g.row_base = g.rows ? scale_base(r->row_low, r->row_high, g.per_octave) : 0.0f;
    g.col_base = g.cols ? scale_base(r->col_low, r->col_high, g.per_octave) : 0.0f;
    g.known = way < WAY_BASIS ? 0 : a.encoding.scales;
    return g;
}

DEVICE u32 sum_of_scales(const RateArgs &a, const Grouping &g, u32 i) {
    const u32 over = (g.col0 + i) / g.width, col = g.col0 + i - over * g.width;
    u32 sum = 0;
    if (g.rows) sum += scale_of(a.row_logs[g.row0 + over], g.per_octave, g.row_base);
    if (g.known) sum += g.known[col];
    else if (g.cols) sum += scale_of(a.col_logs[col], g.per_octave, g.col_base);
    return sum;
}

// Gives a plan a step; false, and nothing done, if the header could not hold it.
DEVICE bool set_step(const Encoding &encoding, Plan *plan, double step) {
    const bool wide = encoding.dtype == DTYPE_F64;
    const double scale = wide ? step / UNITS : (double)(float)(step / UNITS);
    const double stored = scale * UNITS, factor = 1.0 / stored;
    const double least = wide ? 2.2250738585072014e-308 : 1.1754943508222875e-38;
    const double most = wide ? 1.7976931348623157e308 : 3.4028234663852886e38;
    if (!(scale >= least && scale <= most && factor > 0.0 && factor <= 1.7976931348623157e308)) return false;
    plan->scale = scale;
    plan->step = stored;
    plan->factor = (float)factor;
    return true;
}

// Bits of a symbol's occurrences among `total`.
DEVICE float entropy_bits(float count, float total) { return count > 0.0f ? count * log2f(total / count) : 0.0f; }

// Bytes of header, directory and lanes, without classes and tables. A lane's state takes 32 bits and holds about 8 of
// the message.
DEVICE double rate_overhead(const RateArgs &a) {
    return 48.0 * rate_headers(a) + (double)a.encoding.tiles * (12.0 + 3.0 * a.encoding.lanes);
}

// What a step must give: bytes, or the reciprocal of a mean squared error in units², so that it falls as the step
// grows. Soft goals on tiny tensors keep at least half of their bytes for symbols.
DEVICE double rate_want(const RateArgs &a) {
    const double target = a.encoding.target, overhead = rate_overhead(a), unit = a.rate->unit;
    switch (a.encoding.goal) {
    case GOAL_BYTES: return fmax(target - overhead, target * 0.5) + overhead;
    // A little lower than need be: a pass too many costs more than the bytes that are left.
    case GOAL_CAP: return fmax(target * CAP_AIM - CAP_SPARE, 1.0);
    case GOAL_MSE: return 1.0 / (target / unit / unit * ERROR_AIM);
    case GOAL_NMSE: return 1.0 / (target * a.rate->variance * ERROR_AIM);
    default: return 0.0;
    }
}

// Values in steps are those of the sample times this.
DEVICE float steps_per_unit(const RateArgs &a) { return (float)(a.rate->unit / a.plan->step); }
