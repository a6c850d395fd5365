// The encoder's search through the trellis: Viterbi, a lane of a tile by a thread (4 or 8 states) or by a warp (16
// to 256). The twin of `quant/trellis.rs`.
//
// Cost of a path: Σ (u − m)² + λ·bits(level), u the value in steps. Both ways into a state come from the same
// quantiser, so a decision is one bit, the parity of the level, and the quantiser is the top bit of the state. The
// levels themselves are found again from u on the way back: that is cheaper than to keep four candidates a value.
#pragma once

#include "base.cuh"

// Floats of one class and quantiser in a block's cost table: magnitude and sign, and a gap so that equal magnitudes
// of neighbouring sets lie in different banks.
#define TRELLIS_SET (2 * COST_LEVELS + 8)
#define TRELLIS_CLASS (2 * TRELLIS_SET)

// Adding this leaves the nearest integer in the low bits of a float.
#define TRELLIS_ROUND 12582912.0f
#define TRELLIS_ROUND_BITS 0x4b400000u

// Costs of the classes in use, by set, magnitude and sign, over 16: distances are reckoned in units of four steps, the
// spacing of levels of one parity. All threads of a block take part, and synchronise after.
DEVICE void trellis_costs(float *table, const Plan *plan) {
    const u32 entries = plan->classes * 2 * (2 * COST_LEVELS);
    for (u32 i = threadIdx.x; i < entries; i += blockDim.x) {
        const u32 set = i / (2 * COST_LEVELS), at = i % (2 * COST_LEVELS);
        table[set * TRELLIS_SET + at] = plan->cost[(at & 1) * COST_SIGN + set * COST_LEVELS + at / 2] * 0.0625f;
    }
}

// Grid points of the even levels 2j: 4j, or 4j − 1 (0 for j = 0); of the odd ones 2j + 1: 4j + 2, or 4j + 1. This is how
// far they are from 4j, over four.
DEVICE float trellis_shift(u32 q, u32 odd) { return (q ? 0.25f : 0.0f) - (odd ? 0.5f : 0.0f); }

// The nearest point: j in the low bits of `rounded`, and the distance to it.
DEVICE float trellis_round(float t, u32 q, u32 odd, float &rounded) {
    const float at = q || odd ? t + trellis_shift(q, odd) : t;
    rounded = at + TRELLIS_ROUND;
    return at - (rounded - TRELLIS_ROUND);
}

DEVICE u32 trellis_index(float rounded) { return __float_as_uint(rounded) - TRELLIS_ROUND_BITS; }

// Entries of the even levels of one sign lie 16 bytes apart. `trellis_entries` is where they would start if j had the
// bits of `rounded` above it: one addition a look-up.
#define TRELLIS_AHEAD ((u64)(TRELLIS_ROUND_BITS << 4 & 0xffffffffu))

DEVICE const u8 *trellis_entries(const float *costs, float u) {
    return (const u8 *)costs + (u < 0.0f ? 4 : 0) - TRELLIS_AHEAD;
}

DEVICE float trellis_entry(const u8 *entries, float rounded, u32 q, u32 odd) {
    return *(const float *)(entries + (u64)(__float_as_uint(rounded) << 4) + (q * TRELLIS_SET + odd * 2) * 4);
}

DEVICE float trellis_zero(const u8 *entries, u32 q) {
    return *(const float *)(entries + TRELLIS_AHEAD + q * TRELLIS_SET * 4);
}

// What the best even and the best odd level of each quantiser cost: even 0, odd 0, even 1, odd 1. Zero is tried
// beside the nearest even level, where rate and distance disagree most; it also stands in for the point −1, which is
// none. `costs` are those of the value's class.
DEVICE void trellis_branch(const float *costs, float u, float (&cost)[4]) {
    const float a = fabsf(u) * 0.25f;
    // Beyond the table costs stay what they are, and zero is out of the question: a whole number may be taken off.
    const float beyond = fmaxf(a - (COST_LEVELS / 2 - 2.0f), 0.0f);
    const float t = a - ((beyond + TRELLIS_ROUND) - TRELLIS_ROUND);
    const u8 *entries = trellis_entries(costs, u);
#pragma unroll
    for (u32 q = 0; q < 2; ++q) {
        float even, odd;
        const float by_even = trellis_round(t, q, 0, even), by_odd = trellis_round(t, q, 1, odd);
        const float near = fmaf(by_even, by_even, trellis_entry(entries, even, q, 0));
        cost[2 * q] = fminf(near, fmaf(t, t, trellis_zero(entries, q)));
        cost[2 * q + 1] = fmaf(by_odd, by_odd, trellis_entry(entries, odd, q, 1));
    }
}

// Magnitude of the level of this parity that is nearest.
DEVICE i32 trellis_nearest(float u, u32 q, u32 odd) {
    float rounded;
    trellis_round(fabsf(u) * 0.25f, q, odd, rounded);
    return (i32)(2 * trellis_index(rounded) + odd);
}

// The level that `trellis_branch` reckoned with.
DEVICE i32 trellis_level(const float *costs, float u, u32 q, u32 odd) {
    const float t = fabsf(u) * 0.25f;
    float rounded;
    const float by = trellis_round(t, q, odd, rounded);
    const u32 k = 2 * trellis_index(rounded) + odd;
    const float *of = costs + (u < 0.0f ? 1 : 0) + q * TRELLIS_SET;
    const bool zero = !odd && fmaf(t, t, of[0]) < fmaf(by, by, of[2 * min(k, COST_LEVELS - 2u)]);
    return zero ? 0 : u < 0.0f ? -(i32)k : (i32)k;
}

// A large number instead of infinity: it must survive additions.
#define TRELLIS_NEVER 1e30f

// A lane by a thread: metrics of its 2^NU states in registers.

template <u32 NU> DEVICE void trellis_start(float (&metric)[1 << NU], u32 state = 0) {
#pragma unroll
    for (u32 s = 0; s < 1u << NU; ++s) metric[s] = s == state ? 0.0f : TRELLIS_NEVER;
}

// One step; returns the decisions, a bit a state, with those of earlier steps above them.
template <u32 NU>
DEVICE u32 trellis_step(float (&metric)[1 << NU], const float (&cost)[4], u32 earlier = 0) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    constexpr u32 half = (1u << NU) / 2, parity = on_parity[NU], feedback = on_quantiser[NU] & (half - 1);
    float next[1 << NU];
    u32 bits = earlier;
#pragma unroll
    for (u32 to = 2 * half; to-- > 0;) {
        const u32 q = to / half, r = to % half, from = r ^ (q ? feedback : 0);
        const float even = metric[2 * from + q] + cost[2 * q];
        const float odd = metric[2 * (from ^ parity) + q] + cost[2 * q + 1];
        next[to] = fminf(even, odd);
        // The sign of the difference moves in from below. Comparisons would take twice the time.
        bits = __funnelshift_l(__float_as_uint(odd - even), bits, 1);
    }
#pragma unroll
    for (u32 s = 0; s < 2 * half; ++s) metric[s] = next[s];
    return bits;
}

// Keeps metrics small. Once every state can be reached they differ by the cost of a few steps at most, so that any
// of them will do in place of the least.
template <u32 NU> DEVICE void trellis_settle(float (&metric)[1 << NU]) {
    const float by = metric[0];
#pragma unroll
    for (u32 s = 0; s < 1u << NU; ++s) metric[s] -= by;
}

template <u32 NU> DEVICE u32 trellis_best(const float (&metric)[1 << NU]) {
    u32 best = 0;
    float least = metric[0];
#pragma unroll
    for (u32 s = 1; s < 1u << NU; ++s) {
        if (metric[s] < least) best = s;
        least = fminf(least, metric[s]);
    }
    return best;
}

// The state before `s`, which was entered by a level of this parity; the quantiser that was left is `s >> (nu − 1)`.
DEVICE u32 trellis_before(u32 s, u32 q, u32 odd, u32 nu, u32 on_quantiser, u32 on_parity) {
    const u32 fed = (q ? on_quantiser : 0) ^ (odd ? on_parity : 0);
    return ((s ^ fed) << 1 | q) & ((1u << nu) - 1);
}

// A lane by a warp: metrics in shared memory, those of quantiser 1 behind those of quantiser 0 and half the banks
// further, so that a warp's reads and writes meet no bank twice.

#define TRELLIS_PLANE(NU) ((1u << (NU)) / 2 + 16)
// Floats of the two sets of metrics of one warp.
#define TRELLIS_WARP(NU) (4 * TRELLIS_PLANE(NU))
// Words of decisions of a step.
#define TRELLIS_WORDS(NU) ((1u << (NU)) < 32 ? 1u : (1u << (NU)) / 32)

template <u32 NU> DEVICE u32 trellis_place(u32 state) { return (state & 1) * TRELLIS_PLANE(NU) + state / 2; }

template <u32 NU> DEVICE void trellis_warp_start(float *now, u32 state = 0) {
    for (u32 s = lane_of(); s < 1u << NU; s += 32) now[trellis_place<NU>(s)] = s == state ? 0.0f : TRELLIS_NEVER;
    __syncwarp();
}

// One step from `now` to `next`, with costs that all lanes know; `by` is taken off every metric. Returns in lane i
// word i of the decisions, and in lanes that have none a copy of some word.
template <u32 NU>
DEVICE u32 trellis_warp_step(const float *now, float *next, const float (&cost)[4], float by) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    constexpr u32 half = (1u << NU) / 2, parity = on_parity[NU], feedback = on_quantiser[NU] & (half - 1);
    u32 word = 0;
#pragma unroll
    for (u32 i = 0; i < TRELLIS_WORDS(NU); ++i) {
        const u32 to = (i * 32 + lane_of()) & (2 * half - 1);
        const u32 q = to / half, from = (to % half) ^ (q ? feedback : 0);
        const float *of = now + q * TRELLIS_PLANE(NU);
        const float even = of[from] + (q ? cost[2] : cost[0]) - by;
        const float odd = of[from ^ parity] + (q ? cost[3] : cost[1]) - by;
        next[trellis_place<NU>(to)] = fminf(even, odd);
        const u32 bits = __ballot_sync(ALL_LANES, odd < even);
        if (i == 0 || lane_of() == i) word = bits;
    }
    __syncwarp();
    return word;
}

// State of the least metric, in all lanes.
template <u32 NU> DEVICE u32 trellis_warp_best(const float *now) {
    float least = TRELLIS_NEVER * 2;
    u32 best = 0;
    for (u32 s = lane_of(); s < 1u << NU; s += 32) {
        const float m = now[trellis_place<NU>(s)];
        if (m < least) {
            least = m;
            best = s;
        }
    }
    warp_least(least, best);
    return best;
}
