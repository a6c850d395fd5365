// Rotary positions: pairs of columns, turned by angles that grow with a row's position. The twin of `prepare/rope.rs`.
#pragma once

#include "base.cuh"

struct Angle {
    double sin, cos;
};

// Sine and cosine of an angle of up to 2^33, well within what an f32 can tell.
DEVICE Angle angle_of(double a) {
    // What is left of it without quarters of a turn, π/2 being the sum of two numbers.
    const double quarters = rint(a * 0.63661977236758134);
    const double r = fma(-quarters, 6.123233995736766e-17, fma(-quarters, 1.5707963267948966, a)), q = r * r;
    double sin = 0.0, cos = 0.0;
    // Of their series, up to the 17th power.
#pragma unroll
    for (int k = 8; k >= 1; --k) {
        sin = (sin + 1.0) * (-q / (double)(2 * k * (2 * k + 1)));
        cos = (cos + 1.0) * (-q / (double)(2 * k * (2 * k - 1)));
    }
    sin = r + r * sin;
    cos += 1.0;
    switch ((i64)quarters & 3) {
    case 0: return Angle{sin, cos};
    case 1: return Angle{cos, -sin};
    case 2: return Angle{-sin, -cos};
    default: return Angle{-cos, sin};
    }
}

// The position of a row, and how far a pair is turned there.
DEVICE u64 rope_position(const Turning &t, u64 row) {
    const u64 at = t.first + row;
    return t.starts[at / t.run % t.count] + at % t.run;
}

DEVICE Angle rope_angle(const Turning &t, u64 position, u32 pair) {
    const Angle angle = angle_of((double)position * t.frequencies[pair]);
    return Angle{t.back ? -angle.sin : angle.sin, angle.cos};
}

// Turns rows: `get` gives the value at an index of all rows, `put` takes one; what is not turned goes from the one to the
// other. A thread takes a pair of every head of a row.
template <class R, class Get, class Put>
DEVICE void rope_rows(const Turning &t, u64 rows, u32 columns, const Get &get, const Put &put) {
    const u64 all = rows * t.half, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += stride) {
        const u64 row = i / t.half;
        const u32 k = (u32)(i - row * t.half);
        const Angle angle = rope_angle(t, rope_position(t, row), k);
        const R cos = (R)angle.cos, sin = (R)angle.sin;
        const u32 a = t.neighbours ? 2 * k : k, b = t.neighbours ? 2 * k + 1 : k + t.half;
        for (u64 head = row * columns; head < (row + 1) * columns; head += t.head) {
            const R x = get(head + a), y = get(head + b);
            put(head + a, x * cos - y * sin);
            put(head + b, x * sin + y * cos);
            for (u32 rest = 2 * t.half + k; rest < t.head; rest += t.half) put(head + rest, get(head + rest));
        }
    }
}
