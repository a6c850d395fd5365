// Real numbers to elements: nearest, ties to even, and always finite. The twin of `view/cast.rs`.
#pragma once

#include "base.cuh"

// An f32 to a float of fewer bits, by its bits; `most` is the largest finite number's pattern.
DEVICE u32 narrow(u32 b, u32 exponent_bits, u32 mantissa_bits, u32 most) {
    const u32 sign = b >> 31 << (exponent_bits + mantissa_bits), a = b & 0x7fffffffu;
    const i32 bias = (1 << (exponent_bits - 1)) - 1;
    const i32 e = (i32)(a >> 23) - 127 + bias;
    const u32 shift = 23 - mantissa_bits;
    u32 v, by;
    if (e >= 1) {
        v = (u32)e << 23 | (a & 0x7fffff);
        by = shift;
    } else {
        v = (a & 0x7fffff) | (a >> 23 ? 0x800000 : 0);
        by = shift + (u32)(1 - e);
        if (by > 31) return sign;
    }
    const u32 r = (v + (1u << (by - 1)) - 1 + (v >> by & 1)) >> by;
    return sign | (r < most ? r : most);
}

// Bits of a finite number, or an infinite one that stands for what is too large, as a dtype has it.
DEVICE u32 element_of(u32 dtype, float y) {
    const u32 b = __float_as_uint(y);
    switch (dtype) {
    case DTYPE_BF16: {
        const u32 a = b & 0x7fffffffu, r = (a + 0x7fff + (a >> 16 & 1)) >> 16;
        return (b >> 31 << 15) | (r < 0x7f7f ? r : 0x7f7f);
    }
    case DTYPE_F16: return narrow(b, 5, 10, 0x7bff);
    case DTYPE_F8_E4M3: return narrow(b, 4, 3, 0x7e);
    case DTYPE_F8_E5M2: return narrow(b, 5, 2, 0x7b);
    default: {
        const u32 a = b & 0x7fffffffu;
        return (b & 0x80000000u) | (a < 0x7f7fffffu ? a : 0x7f7fffffu);
    }
    }
}

// Widens an element of a smaller float to f32; infinities and NaN stay what they are.
DEVICE u32 widen(u32 v, u32 exponent_bits, u32 mantissa_bits, bool infinities) {
    const u32 top = (1u << exponent_bits) - 1, m = v & ((1u << mantissa_bits) - 1);
    const u32 e = v >> mantissa_bits & top, sign = v >> (exponent_bits + mantissa_bits) << 31;
    const bool nan = infinities ? e == top && m != 0 : e == top && m == (1u << mantissa_bits) - 1;
    if (nan) return sign | 0x7fc00000u;
    if (infinities && e == top) return sign | 0x7f800000u;
    const i32 bias = (1 << (exponent_bits - 1)) - 1;
    const float scale = __uint_as_float((u32)(((e ? (i32)e : 1) - bias - (i32)mantissa_bits) + 127) << 23);
    const float value = (float)(m | (e ? 1u << mantissa_bits : 0)) * scale;
    return sign | __float_as_uint(value);
}

DEVICE u32 f32_of(u32 dtype, u32 v) {
    switch (dtype) {
    case DTYPE_BF16: return v << 16;
    case DTYPE_F16: return widen(v, 5, 10, true);
    case DTYPE_F8_E4M3: return widen(v, 4, 3, false);
    case DTYPE_F8_E5M2: return widen(v, 5, 2, true);
    default: return v;
    }
}

// An element of one dtype as another has it; what is not finite stays so where the other can say it.
DEVICE u32 convert(u32 from, u32 to, u32 v) {
    if (from == to) return v;
    const u32 b = f32_of(from, v);
    const u32 a = b & 0x7fffffffu, sign = b >> 31;
    if (a < 0x7f800000u) return element_of(to, __uint_as_float(b));
    const bool nan = a > 0x7f800000u;
    switch (to) {
    case DTYPE_BF16: return sign << 15 | (nan ? 0x7fc0 : 0x7f80);
    case DTYPE_F16: return sign << 15 | (nan ? 0x7e00 : 0x7c00);
    // No infinities there.
    case DTYPE_F8_E4M3: return sign << 7 | 0x7f;
    case DTYPE_F8_E5M2: return sign << 7 | (nan ? 0x7e : 0x7c);
    default: return b;
    }
}
