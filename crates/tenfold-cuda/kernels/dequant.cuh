// Levels to elements: the twin of `levels/dequant.rs`. Normative: docs/format.md, 'Values of levels'.
#pragma once

#include "floats.cuh"

DEVICE i32 sign_of(i32 v) { return (v > 0) - (v < 0); }

// Multiple of the step, then its place in 1/64 steps.
DEVICE i32 units_of(const i32 *offsets, i32 k, u32 q) {
    const i32 m = 2 * k - (i32)q * sign_of(k);
    const i32 a = m < 0 ? -m : m;
    return UNITS * m - sign_of(m) * offsets[a < OFFSETS ? a : OFFSETS];
}

// A number that is not NaN, or the largest in its place.
DEVICE u64 finite_f64(double y) {
    const u64 b = (u64)__double_as_longlong(y), most = 0x7fefffffffffffffull;
    const u64 a = b & 0x7fffffffffffffffull;
    return (b & ~0x7fffffffffffffffull) | (a < most ? a : most);
}

DEVICE u64 element_f64(double scale, i32 units) { return finite_f64(__dmul_rn(__int2double_rn(units), scale)); }

template <class E> DEVICE E element(u32 dtype, double scale, i32 units) {
    if (sizeof(E) == 8) return (E)element_f64(scale, units);
    return (E)element_of(dtype, __fmul_rn(__int2float_rn(units), (float)scale));
}
