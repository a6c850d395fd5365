// The encoder's choice of frequencies, by a warp. The twin of `entropy/fit.rs`.
//
// Lane l has symbols l, l + 32, …: eight each. Results may differ from the CPU's by single slots where logarithms
// round differently; every table is a right one, and the cost is the same to a thousandth of a bit.
#pragma once

#include "base.cuh"

// Bits that an escaped level is thought to take beyond its symbol.
#define FIT_ESCAPE_BITS 16.0f

// What a slot more (or less) of a symbol saves, in bits.
DEVICE float fit_gain(float n, u32 from, bool up) {
    const float to = up ? (float)from + 1.0f : (float)from - 1.0f;
    // Never chosen: a symbol that does not occur, or the last slot of one that does.
    if (n == 0.0f || to == 0.0f) return -__uint_as_float(0x7f800000);
    return n * log2f(to / (float)from);
}

// Turns 256 counts into frequencies that add up to 2^log. With `levels`, symbols too rare for a slot are left to the
// escape; without, every symbol that occurs has one. All lanes of a warp take part; `freq` may not be `counts`.
template <class C> OUTLINE void fit_normalise(const C *counts, u32 log, bool levels, u32 *freq) {
    const u32 lane = lane_of(), slots = 1u << log;
    u64 want[8], total = 0;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        want[i] = counts[i * 32 + lane];
        total += want[i];
    }
    total = warp_sum(total);
    if (total == 0) {
#pragma unroll
        for (u32 i = 0; i < 8; ++i) freq[i * 32 + lane] = 0;
        __syncwarp();
        if (lane == 0) freq[0] = slots;
        __syncwarp();
        return;
    }
    if (levels) {
        // A slot costs every other symbol about 1.44/2^log bits; it saves an escape's bits.
        const float rare = (float)total * 1.44f / ((float)slots * FIT_ESCAPE_BITS);
        u64 left = 0;
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            if (i * 32 + lane != ESCAPE && (float)want[i] < rare) {
                left += want[i];
                want[i] = 0;
            }
        }
        left = warp_sum(left);
        if (lane == ESCAPE % 32) want[ESCAPE / 32] += left;
    }

    // 1. To the nearest, at least one.
    u32 f[8], used = 0;
    float n[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        f[i] = (u32)((want[i] * slots + total / 2) / total);
        if (want[i] > 0 && f[i] == 0) f[i] = 1;
        n[i] = (float)want[i];
        used += f[i];
    }
    used = warp_sum(used);

    // 2. Give or take single slots where that changes the cost least. Each lane knows its best symbol; only the one
    // whose symbol was chosen looks again.
    const bool up = used < slots;
    u32 chosen = 0;
    float best = 0;
    bool look = true;
    while (used != slots) {
        if (look) {
            best = fit_gain(n[0], f[0], up);
            chosen = 0;
#pragma unroll
            for (u32 i = 1; i < 8; ++i) {
                const float gain = fit_gain(n[i], f[i], up);
                if (gain > best) {
                    best = gain;
                    chosen = i;
                }
            }
        }
        float most = best;
        for (int by = 16; by > 0; by >>= 1) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, by));
        const u32 who = __ballot_sync(ALL_LANES, best == most);
        look = (u32)__ffs((int)who) - 1 == lane;
#pragma unroll
        for (u32 i = 0; i < 8; ++i)
            if (look && i == chosen) f[i] = up ? f[i] + 1 : f[i] - 1;
        used = up ? used + 1 : used - 1;
    }
#pragma unroll
    for (u32 i = 0; i < 8; ++i) freq[i * 32 + lane] = f[i];
    __syncwarp();
}

// Bits that these counts cost under a table. With `levels`, symbols without a slot and the escape's own cost an
// escape; without, they must not occur. All lanes of a warp take part and get it.
template <class C> OUTLINE double fit_cost(const C *counts, const u32 *freq, u32 log, bool levels) {
    const float escape = (float)log - log2f((float)max(1u, freq[ESCAPE])) + FIT_ESCAPE_BITS;
    double bits = 0;
    for (u32 s = lane_of(); s < 256; s += 32) {
        const u32 f = freq[s];
        const float each = levels && (f == 0 || s == ESCAPE) ? escape : (float)log - log2f((float)max(1u, f));
        bits += (double)counts[s] * (double)each;
    }
    return warp_sum(bits);
}
