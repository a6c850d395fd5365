// From statistics to a first plan: the sample, a step and low bits. The twins of `rate/sample.rs`, `rate/encoding.rs` and
// `rate/low_bits.rs`; classes have a file of their own.

#include "sample.cuh"

// Copies the windows of the sample, in units; what is not finite is NaN.
KERNEL(WINDOW_THREADS) rate_fit_sample(const RateArgs a) {
    if (a.plan->trivial) return;
    const double per_unit = 1.0 / a.rate->unit;
    for (u32 w = blockIdx.x; w < a.taken; w += gridDim.x) {
        const u64 start = window_start(a, w);
        const u32 len = window_len(a, w);
        float *to = a.sample + (u64)w * SAMPLE_WINDOW;
        if (a.pages) {
            for (u32 i = threadIdx.x; i < SAMPLE_WINDOW; i += WINDOW_THREADS) {
                const double scale = i < len ? page_scale(a, (start + i) / a.table_values) : 1.0;
                to[i] = i < len ? sample_value(a.encoding, start + i, 1.0 / scale) : 0.0f;
            }
            continue;
        }
        for (u32 i = threadIdx.x; i < SAMPLE_WINDOW; i += WINDOW_THREADS) to[i] = i < len ? sample_value(a.encoding, start + i, per_unit) : 0.0f;
    }
}

// Magnitudes of a scalar quantiser with a count of their own; beyond, octaves are counted.
#define FIT_NEAR 512

// How many values are smaller than `x`: counts before each bin, and within a bin as if they were spread evenly.
DEVICE float fit_below(const u32 *before, float x) {
    const u32 b = min(__float_as_uint(x), 0x7f7fffffu), bin = b >> FIT_SHIFT;
    const float part = (float)(b & ((1u << FIT_SHIFT) - 1)) * (1.0f / (1u << FIT_SHIFT));
    return (float)before[bin] + part * (float)(before[bin + 1] - before[bin]);
}

// Bits a value of a scalar quantiser whose levels are `spacing` apart. All lanes take part and get the result.
DEVICE float fit_entropy(const u32 *before, float zeros, float total, float max, float spacing) {
    float bits = 0.0f;
    for (u32 k = lane_of(); k < FIT_NEAR && ((float)(k & ~31u) - 0.5f) * spacing <= max; k += 32) {
        const float from = k ? fit_below(before, ((float)k - 0.5f) * spacing) : -zeros;
        const float count = fit_below(before, ((float)k + 0.5f) * spacing) - from;
        // Every level but zero has a sign.
        bits += entropy_bits(count, total) + (k ? count : 0.0f);
    }
    const u32 octave = lane_of();
    const float from = __uint_as_float((octave + 127) << 23);
    if (from >= (float)FIT_NEAR && (from - 0.5f) * spacing <= max) {
        const float count =
            fit_below(before, (2.0f * from - 0.5f) * spacing) - fit_below(before, (from - 0.5f) * spacing);
        bits += entropy_bits(count, total) + count * (float)(octave + 1);
    }
    return warp_sum(bits) / total;
}

// A plan with a step and nothing else; `step` 0 stands for a tensor that no quantiser holds, all of it stored exactly.
DEVICE void fit_plan(const RateArgs &a, bool trellis, double step) {
    Plan *p = a.plan;
    const u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    const bool bounded = a.encoding.goal == GOAL_BOUND, held = step > 0.0;
    p->nu = trellis ? a.encoding.nu : 0;
    p->on_quantiser = on_quantiser[p->nu];
    p->on_parity = on_parity[p->nu];
    p->max_u = !held ? 0.0f : trellis ? TRELLIS_MAX_U : SCALAR_MAX_U;
    p->lambda = trellis ? LAMBDA_TRELLIS : LAMBDA_SCALAR;
    p->bounded = bounded;
    p->bound = bounded ? a.encoding.target : 0.0;
    for (u32 i = 0; i < 16; ++i) p->offsets[i] = 0;
    p->classes = 1;
    p->row_bits = p->col_bits = p->any_low = 0;
    p->width = 1;
    p->rows = 0;
    p->row_scale = (u64)(u8 *)a.row_scale;
    p->col_scale = (u64)(u8 *)a.col_scale;
    for (u32 i = 0; i < MAX_CLASSES; ++i) p->thresholds[i] = p->low[i] = 0;
    for (u32 i = 0; i < SCALE_SUMS; ++i) p->class_of_sum[i] = 0;
    p->log = 12;
    p->common = p->scale_at = 0;
    p->done = 0;
    p->bytes = 0;
    p->squared_error = 0.0;
    p->finite = a.rate->finite;
    if (!held || !set_step(a.encoding, p, step)) {
        set_step(a.encoding, p, 1.0);
        if (!p->trivial) p->max_u = 0.0f;
        a.rate->fixed = 1;
    }
    if (bounded) a.rate->fixed = 1;
}

// Costs before anything was counted, where nothing is known. All threads of a block take part.
DEVICE void fit_guess(Plan *plan, float lambda) {
    for (u32 i = threadIdx.x; i < 2 * COST_SIGN; i += blockDim.x)
        plan->cost[i] = lambda * fminf((float)(i % COST_LEVELS) + 1.0f, 12.0f);
}

// The same from the magnitudes of the smallest subset: bits of the values that are nearest to each level's point, as if both
// quantisers were used alike. `step` is in units.
DEVICE void fit_costs(Plan *plan, float lambda, const u32 *before, float zeros, float total, float step) {
    for (u32 i = threadIdx.x; i < 2 * COST_SIGN; i += blockDim.x) {
        const u32 k = i % COST_LEVELS, q = i / COST_LEVELS % 2;
        const float at = (float)(2 * k) - (k ? (float)q : 0.0f);
        const float from = k ? fit_below(before, (at - 1.0f) * step) : -zeros;
        const float count = fit_below(before, (at + 1.0f) * step) - from;
        plan->cost[i] = lambda * fminf(log2f((total + 1.0f) / ((k ? 0.5f * count : count) + 0.25f)), 28.0f);
    }
}

// The first step, and which machine: from the error, or from the entropy of a scalar quantiser. Dynamic shared memory:
// the counts of magnitudes.
KERNEL(FIT_THREADS) rate_fit_first(const RateArgs a) {
    DYNAMIC_SHARED(memory);
    u32 *before = (u32 *)memory;
    __shared__ u32 totals[32], zeros, above[33];
    __shared__ float most;
    __shared__ double low, high;
    Rate *r = a.rate;
    const u32 tid = threadIdx.x, goal = a.encoding.goal;
    if (a.plan->trivial) {
        if (tid == 0) fit_plan(a, false, 0.0);
        fit_guess(a.plan, LAMBDA_SCALAR);
        return;
    }

    // 1. Counts before each magnitude, over the smallest subset.
    for (u32 i = tid; i <= FIT_BINS; i += FIT_THREADS) before[i] = 0;
    if (tid == 0) {
        zeros = 0;
        most = (float)r->max;
    }
    __syncthreads();
    u32 none = 0;
    for (u32 w = 0; w < a.taken; w += a.few_stride) {
        const u32 len = window_len(a, w);
        const SampleQuad quad = sample_quad(a, w, tid);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const float v = fabsf(quad.v[j]);
            if (4 * tid + j >= len) continue;
            if (v > 0.0f) atomicAdd(&before[__float_as_uint(v) >> FIT_SHIFT], 1u);
            else ++none;
        }
    }
    none = warp_sum(none);
    if (lane_of() == 0) atomicAdd(&zeros, none);
    __syncthreads();
    const u32 each = (FIT_BINS + FIT_THREADS - 1) / FIT_THREADS;
    const u32 from = tid * each, to = min(from + each, (u32)FIT_BINS);
    u32 sum = 0;
    for (u32 i = from; i < to; ++i) sum += before[i];
    u32 start = warp_before(sum);
    if (lane_of() == 31) totals[warp_of()] = start + sum;
    __syncthreads();
    const u32 preceding = warp_before(totals[lane_of()]);
    const u32 found = __shfl_sync(ALL_LANES, preceding + totals[lane_of()], 31);
    start += __shfl_sync(ALL_LANES, preceding, (int)warp_of());
    // All but a thousandth of what is not zero.
    const u32 rank = found ? found - 1 - found / 1000 : 0;
    for (u32 i = from; i < to; ++i) {
        const u32 count = before[i];
        before[i] = start;
        if (count > 0 && start <= rank && rank < start + count) most = __uint_as_float((i + 1) << FIT_SHIFT);
        start += count;
    }
    if (tid == FIT_THREADS - 1) before[FIT_BINS] = found;
    __syncthreads();

    // 2. The step.
    const double finest = most / SCALAR_MAX_U, target = a.encoding.target;
    const float all = (float)(found + zeros);
    double step = 0.0;
    if (goal == GOAL_STEP) step = target;
    // A hair less than the bound, so that rounding in f32 does not throw values over it.
    else if (goal == GOAL_BOUND) step = target * (1.0 - 1.0 / 4096.0);
    else if (goal == GOAL_MSE) step = sqrt(target * 3.0);
    else if (goal == GOAL_NMSE) step = sqrt(target * r->variance * 3.0) * r->unit;
    else {
        // The entropy falls as the step grows: each warp tries one of 32 steps in between.
        const double payload = 8.0 * (target - rate_overhead(a));
        const float want =
            (float)(fmax(payload, goal == GOAL_CAP ? 1.0 : target * 4.0) / (double)a.encoding.values);
        if (tid == 0) {
            low = log2(finest);
            high = log2(r->max * 2.0);
        }
        for (u32 round = 0; round < LOOKS_FIRST; ++round) {
            __syncthreads();
            const double apart = (high - low) / 33.0, mine = low + apart * (warp_of() + 1);
            const float spacing = (float)(2.0 * exp2(mine));
            const float bits = fit_entropy(before, (float)zeros, all, (float)r->max, spacing);
            if (lane_of() == 0) above[warp_of()] = bits > want;
            __syncthreads();
            if (tid == 0) {
                u32 n = 0;
                while (n < 32 && above[n]) ++n;
                low += apart * n;
                high = low + apart;
            }
        }
        __syncthreads();
        step = exp2((low + high) * 0.5) * r->unit;
    }

    // 3. Very fine steps: the search keeps levels in few bits, a scalar quantiser need not.
    const bool held = r->max > 0.0 && step > 0.0 && step <= 1.7976931348623157e308 && goal != GOAL_BOUND
                      && !(goal == GOAL_NMSE && !(r->variance <= 1e300));
    bool trellis = a.encoding.nu > 0 && held;
    if (trellis) {
        const float reach = (float)(0.7 * TRELLIS_MAX_U * (step / r->unit));
        trellis = ((float)found - fit_below(before, reach)) * 2000.0f <= all;
    }
    const float lambda = trellis ? LAMBDA_TRELLIS : LAMBDA_SCALAR;
    if (held) fit_costs(a.plan, lambda, before, (float)zeros, all, (float)(step / r->unit));
    else fit_guess(a.plan, lambda);
    if (tid != 0) return;
    r->finest = finest * r->unit;
    r->want = rate_want(a);
    fit_plan(a, trellis, held || goal == GOAL_BOUND ? step : 0.0);
}

// Bits that an escaped level is thought to take.
#define LOW_ESCAPE_BITS 28.0f
// Bits of a symbol's frequency in a header.
#define LOW_SYMBOL_BITS 5.0f
// Every so many steps of a window are looked at where each number of low bits is tried.
#define LOW_SKIP 4

// How many low bits of a class's levels to leave uncoded, a block a class: fine steps make large levels whose low
// bits are noise, but too many would cost values near zero their share.
KERNEL(FIT_THREADS) rate_fit_low(const RateArgs a) {
    __shared__ u32 counts[(MAX_LOW_BITS + 1) * 256];
    __shared__ u32 all, wide;
    __shared__ float costs[32];
    Plan *plan = a.plan;
    const u32 cls = blockIdx.x, tid = threadIdx.x, lane = lane_of();
    if (plan->trivial || plan->max_u == 0.0f || cls >= plan->classes || (a.mode && a.rate->fixed)) return;
    const u32 threads = blockDim.x;
    if (tid == 0) all = wide = 0;
    __syncthreads();
    const float per_level = 0.5f * steps_per_unit(a);
    u32 here = 0, large = 0;
    for (u32 w = 0; w < a.taken; w += a.few_stride) {
        const u32 len = window_len(a, w);
        for (u32 q = tid; q < FIT_THREADS; q += threads) {
            const u32 four = ((const u32 *)a.sample_class)[w * FIT_THREADS + q];
            const SampleQuad quad = sample_quad(a, w, q);
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                const bool in = 4 * q + j < len && (four >> (8 * j) & 255) == cls;
                here += in;
                large += in && fabsf(quad.v[j]) * per_level > 40.5f;
            }
        }
    }
    here = warp_sum(here);
    large = warp_sum(large);
    if (lane == 0) {
        atomicAdd(&all, here);
        atomicAdd(&wide, large);
    }
    __syncthreads();
    u32 best = 0;
    if (wide * 100 >= all && all > 0) {
        for (u32 i = tid; i < (MAX_LOW_BITS + 1) * 256; i += threads) counts[i] = 0;
        __syncthreads();
        // A warp a number of bits.
        for (u32 low = warp_of(); low <= MAX_LOW_BITS; low += threads / 32) {
            u32 *mine = counts + low * 256;
            for (u32 w = 0; w < a.taken; w += a.few_stride) {
                const u32 len = window_len(a, w);
                for (u32 i = lane; i < len; i += 32 * LOW_SKIP) {
                    const float v = a.sample[(u64)w * SAMPLE_WINDOW + i] * per_level;
                    if (a.sample_class[(u64)w * SAMPLE_WINDOW + i] != cls || !(fabsf(v) < 1e9f)) continue;
                    const i32 high = __float2int_rn(v) >> low;
                    atomicAdd(&mine[high > -128 && high < 128 ? high & 255 : ESCAPE], 1u);
                }
            }
            __syncwarp();
            u32 sum = 0, used = 0;
            for (u32 s = lane; s < 256; s += 32) sum += mine[s];
            const float total = (float)warp_sum(sum);
            float cost = 0.0f;
            for (u32 s = lane; s < 256; s += 32) {
                cost += entropy_bits((float)mine[s], total);
                used += mine[s] > 0;
            }
            // Rare symbols are dearer than they look: their table has only so many slots, and each takes bits in the
            // header, of which these values bear their share.
            const float share = (float)subset_values(a, a.few_stride) / (float)(LOW_SKIP * a.table_values);
            const float symbol = total * 0.00012f + share * LOW_SYMBOL_BITS * (plan->nu ? 2.0f : 1.0f);
            cost = warp_sum(cost) + (float)mine[ESCAPE] * LOW_ESCAPE_BITS + total * (float)low
                   + (float)warp_sum(used) * symbol;
            if (lane == 0) costs[low] = cost;
        }
        __syncthreads();
        for (u32 i = 1; i <= MAX_LOW_BITS; ++i)
            if (costs[i] < costs[best]) best = i;
    }
    if (tid != 0) return;
    // What is noted here stands where no trial follows.
    if (best) atomicOr(&plan->any_low, 1u);
    if (plan->low[cls] != best) {
        plan->low[cls] = (u8)best;
        atomicOr(&a.rate->low_changed, 1u);
    }
}
