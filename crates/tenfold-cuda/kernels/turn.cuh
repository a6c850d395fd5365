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

DEVICE EightAngles turn_angles(const Turning &t, u64 position, u32 k) {
    EightAngles angles;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
        const Angle one = rope_angle(t, position, k + 2 * j), two = rope_angle(t, position, k + 2 * j + 1);
        angles.by[j] = make_float4((float)one.cos, (float)one.sin, (float)two.cos, (float)two.sin);
    }
    return angles;
}

// Turns them and puts them away.
DEVICE void turn_away(const EightAngles &angles, TurnEights e, u16 *to, u32 half) {
    turn_two(angles.by[0], e.x.x, e.y.x);
    turn_two(angles.by[1], e.x.y, e.y.y);
    turn_two(angles.by[2], e.x.z, e.y.z);
    turn_two(angles.by[3], e.x.w, e.y.w);
    *(uint4 *)to = e.x;
    *(uint4 *)(to + half) = e.y;
}
