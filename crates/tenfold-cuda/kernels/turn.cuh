// Rows of bf16 whose rotary positions are undone or done, eight pairs at a time.
#pragma once

#include "floats.cuh"
#include "rope.cuh"

// To the nearest, ties to even; what is not a number stays none.
DEVICE u32 turn_half(float v) {
    const u32 b = __float_as_uint(v);
    return (b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

DEVICE u32 turn_join(float low, float high) { return turn_half(low) | turn_half(high) << 16; }
DEVICE float turn_low(u32 word) { return __uint_as_float(word << 16); }
DEVICE float turn_high(u32 word) { return __uint_as_float(word & 0xffff0000u); }

// Two pairs, turned.
DEVICE void turn_two(const float4 &by, u32 &x, u32 &y) {
    const float a = turn_low(x), b = turn_high(x), c = turn_low(y), d = turn_high(y);
    x = turn_join(a * by.x - c * by.y, b * by.z - d * by.w);
    y = turn_join(a * by.y + c * by.x, b * by.w + d * by.z);
}

// Eight columns of a head and the eight that they are turned with.
struct TurnEights {
    uint4 x, y;
};

DEVICE TurnEights turn_load(const u16 *from, u32 half) { return TurnEights{*(const uint4 *)from, *(const uint4 *)(from + half)}; }

// How far eight pairs from `k` on are turned at a position: cosine and sine of two pairs each.
struct EightAngles {
    float4 by[4];
};

// Sine and cosine to what bf16 can tell, of an angle of up to 2^33: quarters of a turn are taken off in f64, the rest is f32.
DEVICE float2 turn_angle(double a) {
    const double quarters = rint(a * 0.63661977236758134);
    const float r = (float)fma(-quarters, 6.123233995736766e-17, fma(-quarters, 1.5707963267948966, a)), q = r * r;
    const float sin = r + r * q * (-1.6666667e-1f + q * (8.3333333e-3f + q * (-1.9841270e-4f + q * 2.7557319e-6f)));
    const float cos = 1.0f + q * (-0.5f + q * (4.1666667e-2f + q * (-1.3888889e-3f + q * 2.4801587e-5f)));
    const i32 turn = (i32)((i64)quarters & 3);
    const float s = turn & 1 ? cos : sin, c = turn & 1 ? sin : cos;
    // The sine changes its sign in the third and fourth quarter, the cosine in the second and third.
    return make_float2(turn & 2 ? -s : s, (turn + 1) & 2 ? -c : c);
}

DEVICE EightAngles turn_angles(const Turning &t, u64 position, u32 k) {
    EightAngles angles;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
        const float2 one = turn_angle((double)position * t.frequencies[k + 2 * j]);
        const float2 two = turn_angle((double)position * t.frequencies[k + 2 * j + 1]);
        angles.by[j] = make_float4(one.y, t.back ? -one.x : one.x, two.y, t.back ? -two.x : two.x);
    }
    return angles;
}

// Turns them.
DEVICE void turn_eights(const EightAngles &angles, TurnEights &e) {
    turn_two(angles.by[0], e.x.x, e.y.x);
    turn_two(angles.by[1], e.x.y, e.y.y);
    turn_two(angles.by[2], e.x.z, e.y.z);
    turn_two(angles.by[3], e.x.w, e.y.w);
}

// Turns them and puts them away.
DEVICE void turn_away(const EightAngles &angles, TurnEights e, u16 *to, u32 half) {
    turn_eights(angles, e);
    *(uint4 *)to = e.x;
    *(uint4 *)(to + half) = e.y;
}
