// A trial: the sample quantised under the plan as it stands, its symbols counted, its error and what is stored beside
// symbols added up. The last block to end makes costs and the next step of it.
//
// A trellis of few states is searched by a warp a part of a window: it starts a little earlier, whatever the state, and goes
// on a little further. Paths of neighbouring parts need not meet, since nothing is made of them but counts.

#include "judge.cuh"
#include "scalar.cuh"
#include "trellis.cuh"

// Steps of a part, and those before and after it.
#define TRIAL_TICKS (SAMPLE_TICKS / TRIAL_PARTS)
#define TRIAL_BEFORE 16
#define TRIAL_AFTER 16
// Where there are so many parts or fewer, all of them are asked for reconstruction points; of more, one in four.
#define TRIAL_FEW 256

// Steps whose values are on their way while as many others are searched.
#define TRIAL_AHEAD 8
#define TRIAL_SETS (2 * MAX_CLASSES)

// A lane searched by a warp.
struct TrialWide {
    float metric[TRELLIS_WARP(8)];
    float4 cost[SAMPLE_TICKS];
    u32 decisions[SAMPLE_TICKS * TRELLIS_WORDS(8)];
    u8 path[SAMPLE_TICKS];
};

struct TrialShared {
    // Symbols by set, in as many copies as there is room for.
    u32 counts[TRIAL_SETS * 256];
    float costs[MAX_CLASSES * TRELLIS_CLASS];
    u8 low[MAX_CLASSES];
    i32 offsets[16];
    u32 points[OFFSETS + 1];
    i32 beyond[OFFSETS + 1];
    union {
        // A part searched by a warp, a thread a lane: decisions of four steps a word.
        u32 decisions[TRIAL_NARROW][(TRIAL_BEFORE + TRIAL_TICKS + TRIAL_AFTER) / 4 * 32];
        TrialWide wide[TRIAL_WIDE];
    };
};

static_assert(sizeof(TrialShared) <= TRIAL_SHARED, "as the launch code asks for");
static_assert(sizeof(TrialShared) - sizeof(TrialShared::wide) + sizeof(TrialShared::decisions) <= TRIAL_NARROW_SHARED,
              "as the launch code asks for");
static_assert(sizeof(JudgeShared) <= sizeof(TrialShared) - sizeof(TrialShared::wide), "it takes the place of what was counted");

// What a trial needs of the plan, and what a thread adds up.
struct TrialWork {
    TrialShared *shared;
    const float *sample;
    const u8 *classes;
    u32 dtype, len, copies_log;
    float per_unit, max_u, scale;
    // Steps a unit of the dtype's own values, for the error.
    float per_real;
    bool measure, points;
};

struct TrialSums {
    u32 escapes, far, finite;
    float error;
    // Runs of values stored exactly, and the bits of the last one if it was.
    u32 runs, last, last_bits;
};

// A value in steps; what no level can hold is zero.
DEVICE float trial_u(const TrialWork &w, float v, bool &aside) {
    const float u = v * w.per_unit;
    aside = !(fabsf(u) <= w.max_u);
    return aside ? 0.0f : u;
}

// Notes which of 32 neighbouring values are stored exactly. All lanes take part, in order.
DEVICE void trial_exact(TrialSums &s, float v, bool aside, bool valid) {
    s.finite += valid && v == v;
    const u32 who = __ballot_sync(ALL_LANES, aside && valid);
    if (who == 0) {
        s.last = 0;
        return;
    }
    const u32 bits = __float_as_uint(v);
    u32 before = __shfl_up_sync(ALL_LANES, bits, 1);
    bool joined = lane_of() ? who >> (lane_of() - 1) & 1 : s.last;
    if (lane_of() == 0) before = s.last_bits;
    joined = joined && before == bits;
    s.runs += (u32)__popc(__ballot_sync(ALL_LANES, aside && valid && !joined));
    s.last = who >> 31;
    s.last_bits = __shfl_sync(ALL_LANES, bits, 31);
}

// Squared error in steps of what a decoder will see, rounded to the dtype.
OUTLINE float trial_error(u32 dtype, i32 units, float u, float scale, float per_real) {
    float y = (float)units * (1.0f / UNITS);
    if (dtype != DTYPE_F64)
        y = __uint_as_float(f32_of(dtype, element_of(dtype, __fmul_rn(__int2float_rn(units), scale)))) * per_real;
    return (u - y) * (u - y);
}

// Counts a level.
DEVICE void trial_count(const TrialWork &w, TrialSums &s, float u, u32 cls, u32 q, i32 k, bool aside) {
    TrialShared &t = *w.shared;
    const i32 high = k >> t.low[cls];
    const u32 size = (u32)(high < 0 ? -high : high);
    const u32 symbol = size < 128 ? (u32)high & 255 : ESCAPE;
    s.escapes += size >= 128;
    s.far = max(s.far, size >= 128 ? size : 0u);
    const u32 copy = lane_of() & ((1u << w.copies_log) - 1);
    atomicAdd(&t.counts[(((cls * 2 + q) << 8 | symbol) << w.copies_log) + copy], 1u);
    if (!w.measure && !w.points) return;
    const i32 size_m = 2 * (k < 0 ? -k : k) - (k ? (i32)q : 0), bin = size_m < OFFSETS ? size_m : OFFSETS;
    if (w.points) {
        // Magnitudes with low bits are too large to have an offset worth storing.
        if (bin == 0 || t.low[cls] || symbol == ESCAPE) return;
        atomicAdd(&t.points[bin], 1u);
        const float by = fminf(fmaxf((float)size_m - fabsf(u), -8.0f), 8.0f);
        atomicAdd(&t.beyond[bin], __float2int_rn(by * POINT_ONE));
        return;
    }
    if (aside) return;
    const i32 units = (size_m * UNITS - (size_m ? t.offsets[bin] : 0)) * (k < 0 ? -1 : 1);
    s.error += trial_error(w.dtype, units, u, w.scale, w.per_real);
}

// Adds what a warp saw to the tensor's.
DEVICE void trial_add(const RateArgs &a, const TrialSums &s, bool window) {
    Tally *t = &a.rate->tally;
    const u32 escapes = warp_sum(s.escapes), finite = warp_sum(s.finite);
    const float error = warp_sum(s.error);
    u32 far = s.far;
    for (int by = 16; by > 0; by >>= 1) far = max(far, __shfl_xor_sync(ALL_LANES, far, by));
    if (lane_of() != 0) return;
    if (escapes) atomicAdd(&t->escape_bits, (u64)escapes * (far < 1 << 7 ? 8 : far < 1 << 15 ? 16 : 32));
    if (error > 0.0f) atomicAdd(&t->error, (u64)(error * ERROR_ONE));
    if (!window) return;
    atomicAdd(&t->finite, (u64)finite);
    // A gap of two bytes and a length of one before each run's element.
    if (s.runs) atomicAdd(&t->exact_bytes, (u64)s.runs * (3 + size_of(a.encoding.dtype)) + 1);
}

// Values of a lane and their classes.
struct TrialBatch {
    float v[TRIAL_AHEAD];
    u32 cls[TRIAL_AHEAD];
};

DEVICE void trial_load(const TrialWork &w, u32 t, TrialBatch &b) {
#pragma unroll
    for (u32 j = 0; j < TRIAL_AHEAD; ++j) {
        const u32 i = (t + j) * 32 + lane_of();
        b.v[j] = w.sample[i];
        b.cls[j] = w.classes ? w.classes[i] : 0;
    }
}

DEVICE TrialSums trial_scalar(const TrialWork &w, u32 part) {
    TrialSums s = {0, 0, 0, 0.0f, 0, 0, 0};
    for (u32 t = part * TRIAL_TICKS; t < (part + 1) * TRIAL_TICKS; t += TRIAL_AHEAD) {
        TrialBatch b;
        trial_load(w, t, b);
#pragma unroll
        for (u32 j = 0; j < TRIAL_AHEAD; ++j) {
            const bool valid = (t + j) * 32 + lane_of() < w.len;
            bool aside;
            const float u = trial_u(w, b.v[j], aside);
            trial_exact(s, b.v[j], aside, valid);
            const i32 k = scalar_level(w.shared->costs + b.cls[j] * SCALAR_CLASS, u);
            if (valid) trial_count(w, s, u, b.cls[j], 0, k, aside);
        }
    }
    return s;
}

template <u32 NU> DEVICE TrialSums trial_narrow(const TrialWork &w, u32 part) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    TrialSums s = {0, 0, 0, 0.0f, 0, 0, 0};
    u32 *decisions = w.shared->decisions[warp_of()] + lane_of();
    const float *costs = w.shared->costs;
    const u32 first = part * TRIAL_TICKS, last = first + TRIAL_TICKS;
    const u32 from = part ? first - TRIAL_BEFORE : 0, to = min(last + TRIAL_AFTER, (u32)SAMPLE_TICKS);
    float metric[1 << NU];
    trellis_start<NU>(metric);
    if (part)
#pragma unroll
        for (u32 i = 0; i < 1u << NU; ++i) metric[i] = 0.0f;
    TrialBatch next;
    trial_load(w, from, next);
    for (u32 t = from; t < to; t += TRIAL_AHEAD) {
        const TrialBatch b = next;
        if (t + TRIAL_AHEAD < to) trial_load(w, t + TRIAL_AHEAD, next);
        const bool mine = t >= first && t < last;
#pragma unroll
        for (u32 g = 0; g < TRIAL_AHEAD; g += 4) {
            u32 word = 0;
#pragma unroll
            for (u32 j = g; j < g + 4; ++j) {
                bool aside;
                const float u = trial_u(w, b.v[j], aside);
                if (mine) trial_exact(s, b.v[j], aside, (t + j) * 32 + lane_of() < w.len);
                float cost[4];
                trellis_branch(costs + b.cls[j] * TRELLIS_CLASS, u, cost);
                word |= trellis_step<NU>(metric, cost) << (8 * (j - g));
            }
            decisions[(t - from + g) / 4 * 32] = word;
        }
    }
    u32 state = trellis_best<NU>(metric);
    for (u32 t = to; t-- > last;) {
        const u32 word = decisions[(t - from) / 4 * 32] >> (8 * (t % 4));
        state = trellis_before(state, state >> (NU - 1), word >> state & 1, NU, on_quantiser[NU], on_parity[NU]);
    }
    trial_load(w, last - TRIAL_AHEAD, next);
    for (u32 t = last; t > first;) {
        t -= TRIAL_AHEAD;
        const TrialBatch b = next;
        if (t > first) trial_load(w, t - TRIAL_AHEAD, next);
#pragma unroll
        for (u32 g = TRIAL_AHEAD; g > 0; g -= 4) {
            const u32 word = decisions[(t - from + g - 4) / 4 * 32];
#pragma unroll
            for (u32 j = g; j-- > g - 4;) {
                bool aside;
                const float u = trial_u(w, b.v[j], aside);
                const u32 q = state >> (NU - 1), odd = word >> (8 * (j - (g - 4)) + state) & 1;
                state = trellis_before(state, q, odd, NU, on_quantiser[NU], on_parity[NU]);
                const i32 k = trellis_level(costs + b.cls[j] * TRELLIS_CLASS, u, q, odd);
                if ((t + j) * 32 + lane_of() < w.len) trial_count(w, s, u, b.cls[j], q, k, aside);
            }
        }
    }
    return s;
}

// One lane of a window by a whole warp.
template <u32 NU> DEVICE TrialSums trial_wide(const TrialWork &w, u32 lane) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    TrialWide &t = w.shared->wide[warp_of()];
    const float *costs = w.shared->costs;
    TrialSums s = {0, 0, 0, 0.0f, 0, 0, 0};
    for (u32 step = lane_of(); step < SAMPLE_TICKS; step += 32) {
        const u32 i = step * 32 + lane, cls = w.classes ? w.classes[i] : 0;
        bool aside;
        float cost[4];
        trellis_branch(costs + cls * TRELLIS_CLASS, trial_u(w, w.sample[i], aside), cost);
        t.cost[step] = make_float4(cost[0], cost[1], cost[2], cost[3]);
    }
    // What is stored exactly, once a window.
    if (lane == 0)
        for (u32 step = 0; step < SAMPLE_TICKS; ++step) {
            const u32 i = step * 32 + lane_of();
            bool aside;
            trial_u(w, w.sample[i], aside);
            trial_exact(s, w.sample[i], aside, i < w.len);
        }
    float *now = t.metric, *next = t.metric + TRELLIS_WARP(NU) / 2;
    trellis_warp_start<NU>(now);
    for (u32 step = 0; step < SAMPLE_TICKS; ++step) {
        const float4 c = t.cost[step];
        const float cost[4] = {c.x, c.y, c.z, c.w};
        const u32 word = trellis_warp_step<NU>(now, next, cost, 0.0f);
        if (lane_of() < TRELLIS_WORDS(NU)) t.decisions[step * TRELLIS_WORDS(NU) + lane_of()] = word;
        float *swap = now;
        now = next;
        next = swap;
    }
    u32 state = trellis_warp_best<NU>(now);
    __syncwarp();
    for (u32 step = SAMPLE_TICKS; step-- > 0;) {
        const u32 word = t.decisions[step * TRELLIS_WORDS(NU) + (state >> 5)];
        const u32 q = state >> (NU - 1), odd = word >> (state & 31) & 1;
        if (lane_of() == 0) t.path[step] = (u8)(q | odd << 1);
        state = trellis_before(state, q, odd, NU, on_quantiser[NU], on_parity[NU]);
    }
    __syncwarp();
    for (u32 step = lane_of(); step < SAMPLE_TICKS; step += 32) {
        const u32 i = step * 32 + lane, cls = w.classes ? w.classes[i] : 0;
        const u32 q = t.path[step] & 1, odd = t.path[step] >> 1;
        bool aside;
        const float u = trial_u(w, w.sample[i], aside);
        const i32 k = trellis_level(costs + cls * TRELLIS_CLASS, u, q, odd);
        if (i < w.len) trial_count(w, s, u, cls, q, k, aside);
    }
    __syncwarp();
    return s;
}

DEVICE TrialSums trial_wide_any(const TrialWork &w, u32 nu, u32 lane) {
    switch (nu) {
    case 4: return trial_wide<4>(w, lane);
    case 5: return trial_wide<5>(w, lane);
    case 6: return trial_wide<6>(w, lane);
    case 7: return trial_wide<7>(w, lane);
    default: return trial_wide<8>(w, lane);
    }
}

// Whether this is the last block of a trial to get here: then all others have added what they saw. All threads take part.
DEVICE bool trial_last(const RateArgs &a) {
    __shared__ u32 last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&a.rate->arrived, 1u) == gridDim.x - 1;
        if (last) a.rate->arrived = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

DEVICE void trial_all(const RateArgs &a, u8 *memory, bool wide) {
    TrialShared &t = *(TrialShared *)memory;
    const Plan *plan = a.plan;
    const u32 tid = threadIdx.x, nu = plan->nu, classes = plan->classes, threads = blockDim.x;
    if (trial_over(a) || wide != (nu > 3)) return;
    for (u32 i = tid; i < TRIAL_SETS * 256; i += threads) t.counts[i] = 0;
    if (nu) trellis_costs(t.costs, plan);
    else scalar_thresholds(t.costs, plan);
    if (tid < MAX_CLASSES) t.low[tid] = plan->low[tid];
    if (tid < 16) t.offsets[tid] = plan->offsets[tid];
    if (tid <= OFFSETS) t.points[tid] = t.beyond[tid] = 0;
    __syncthreads();

    TrialWork w;
    w.shared = &t;
    w.dtype = a.encoding.dtype;
    w.copies_log = 0;
    while (w.copies_log < 4 && (classes * 2 << (w.copies_log + 1)) <= TRIAL_SETS) ++w.copies_log;
    w.per_unit = steps_per_unit(a);
    w.max_u = plan->max_u;
    w.scale = (float)plan->scale;
    w.per_real = plan->factor;
    w.measure = a.encoding.goal == GOAL_MSE || a.encoding.goal == GOAL_NMSE;
    const bool points = trial_points(a);
    const u32 stride = trial_stride(a), windows = (a.taken + stride - 1) / stride;
    // Of many windows a part each will do.
    const bool thin = a.mode > TRIAL_LOW && a.mode != TRIAL_COUNTS && windows >= TRIAL_THIN;
    const u32 each = wide ? 32 : thin ? 1 : TRIAL_PARTS, units = windows * each;
    // Few parts are spread over many blocks.
    for (u32 unit = warp_of() * gridDim.x + blockIdx.x; unit < units; unit += gridDim.x * (threads / 32)) {
        const u32 window = unit / each * stride, part = thin ? unit % TRIAL_PARTS : unit % each;
        w.sample = a.sample + (u64)window * SAMPLE_WINDOW;
        w.classes = classes > 1 ? a.sample_class + (u64)window * SAMPLE_WINDOW : 0;
        w.len = window_len(a, window);
        w.points = points && (units <= TRIAL_FEW || a.mode == TRIAL_POINTS || unit / TRIAL_PARTS % 4 == 0);
        if (wide) trial_add(a, trial_wide_any(w, nu, part), part == 0);
        else trial_add(a, nu == 0 ? trial_scalar(w, part) : nu == 2 ? trial_narrow<2>(w, part) : trial_narrow<3>(w, part), true);
    }

    __syncthreads();
    Tally *tally = &a.rate->tally;
    for (u32 i = tid; i < classes * 2 * 256; i += threads) {
        u32 sum = 0;
        for (u32 c = 0; c < 1u << w.copies_log; ++c) sum += t.counts[(i << w.copies_log) + c];
        if (sum) atomicAdd(&tally->counts[i], sum);
    }
    if (points && tid <= OFFSETS && t.points[tid]) {
        atomicAdd(&tally->points[tid], (u64)t.points[tid]);
        atomicAdd((u64 *)&tally->beyond[tid], (u64)(i64)t.beyond[tid]);
    }
    if (a.mode != TRIAL_COUNTS && trial_last(a)) judge_trial(a, *(JudgeShared *)memory);
}

// For scalar quantisers and trellises of 4 and 8 states.
KERNEL(TRIAL_NARROW * 32) rate_trial_narrow(const RateArgs a) {
    DYNAMIC_SHARED(memory);
    trial_all(a, memory, false);
}

// For trellises of 16 to 256 states.
KERNEL(TRIAL_WIDE * 32) rate_trial_wide(const RateArgs a) {
    DYNAMIC_SHARED(memory);
    trial_all(a, memory, true);
}
