// Elements of a pool as rows of bf16 have them, and back: one at a time, or eight.
#pragma once

#include "turn.cuh"

// A float of fewer exponents than bf16: how far its mantissa lies below that of f32, what its exponents are off by, its largest number, and
// infinity and NaN, or one of it twice. Only all ones is not finite in E4M3.
template <u32 DTYPE> struct NarrowFloat;
template <> struct NarrowFloat<DTYPE_F8_E4M3> {
    enum : u32 { SIGN = 0x80, SHIFT = 20, BIAS = 120, INFINITE = 0x7f, NONE = 0x7f };
    METHOD static float most() { return 448.0f; }
};
template <> struct NarrowFloat<DTYPE_F8_E5M2> {
    enum : u32 { SIGN = 0x80, SHIFT = 21, BIAS = 112, INFINITE = 0x7c, NONE = 0x7e };
    METHOD static float most() { return 57344.0f; }
};
template <> struct NarrowFloat<DTYPE_F16> {
    enum : u32 { SIGN = 0x8000, SHIFT = 13, BIAS = 112, INFINITE = 0x7c00, NONE = 0x7e00 };
    METHOD static float most() { return 65504.0f; }
};

// Exact for floats of eight bits; of f16, to the nearest.
template <u32 DTYPE> DEVICE u32 half_of(u32 v) {
    typedef NarrowFloat<DTYPE> N;
    const u32 sign = v & N::SIGN ? 0x8000 : 0, a = v & (N::SIGN - 1);
    // As an f32 of the same exponent, which counts from elsewhere; so numbers below the normal ones come out right.
    const u32 finite = turn_half(__uint_as_float(a << N::SHIFT) * __uint_as_float((127 + N::BIAS) << 23));
    const bool infinite = a == N::INFINITE && N::INFINITE != N::NONE;
    return sign | (a < N::INFINITE ? finite : infinite ? 0x7f80 : 0x7fc0);
}

// To the nearest, ties to even. What is too large, infinities too, becomes the largest finite number, as where the CPU writes values.
// NaN stays NaN.
template <u32 DTYPE> DEVICE u32 element_of_half(u32 v) {
    typedef NarrowFloat<DTYPE> N;
    const u32 sign = v & 0x8000 ? N::SIGN : 0, a = v & 0x7fff;
    // The eight bits of a bf16 outlast this wherever the result is not zero.
    const u32 b = __float_as_uint(fminf(turn_low(a), N::most()) * __uint_as_float((127 - N::BIAS) << 23));
    const u32 rounded = (b + (1u << (N::SHIFT - 1)) - 1 + (b >> N::SHIFT & 1)) >> N::SHIFT;
    return sign | (a > 0x7f80 ? (u32)N::NONE : rounded);
}

// What a pool has, and what a row has: units of either.
template <class U> struct PoolSame {
    typedef U Pool;
    typedef U Row;
    METHOD static U to_row(const U &v) { return v; }
    METHOD static U to_pool(const U &v) { return v; }
};

// One element.
template <u32 DTYPE, class E> struct PoolOne {
    typedef E Pool;
    typedef u16 Row;
    METHOD static u16 to_row(E v) { return (u16)half_of<DTYPE>(v); }
    METHOD static E to_pool(u16 v) { return (E)element_of_half<DTYPE>(v); }
};

// Two elements as two of bf16, and back. `shift` is where the second is.
template <u32 DTYPE> DEVICE u32 halves_of_two(u32 v, u32 shift) {
    return half_of<DTYPE>(v & ((1u << shift) - 1)) | half_of<DTYPE>(v >> shift & ((1u << shift) - 1)) << 16;
}

template <u32 DTYPE> DEVICE u32 two_of_halves(u32 v, u32 shift) {
    return element_of_half<DTYPE>(v & 0xffff) | element_of_half<DTYPE>(v >> 16) << shift;
}

// Eight elements of eight bits. Functions of their own: many of them inline are a large module.
template <u32 DTYPE> OUTLINE uint4 halves_of_bytes(uint2 v) {
    return make_uint4(halves_of_two<DTYPE>(v.x, 8), halves_of_two<DTYPE>(v.x >> 16, 8), halves_of_two<DTYPE>(v.y, 8),
                      halves_of_two<DTYPE>(v.y >> 16, 8));
}

template <u32 DTYPE> OUTLINE uint2 bytes_of_halves(uint4 v) {
    return make_uint2(two_of_halves<DTYPE>(v.x, 8) | two_of_halves<DTYPE>(v.y, 8) << 16,
                      two_of_halves<DTYPE>(v.z, 8) | two_of_halves<DTYPE>(v.w, 8) << 16);
}

template <u32 DTYPE> struct PoolEight {
    typedef uint2 Pool;
    typedef uint4 Row;
    METHOD static uint4 to_row(const uint2 &v) { return halves_of_bytes<DTYPE>(v); }
    METHOD static uint2 to_pool(const uint4 &v) { return bytes_of_halves<DTYPE>(v); }
};

// Eight elements of f16.
OUTLINE uint4 halves_of_f16(uint4 v) {
    return make_uint4(halves_of_two<DTYPE_F16>(v.x, 16), halves_of_two<DTYPE_F16>(v.y, 16), halves_of_two<DTYPE_F16>(v.z, 16),
                      halves_of_two<DTYPE_F16>(v.w, 16));
}

OUTLINE uint4 f16_of_halves(uint4 v) {
    return make_uint4(two_of_halves<DTYPE_F16>(v.x, 16), two_of_halves<DTYPE_F16>(v.y, 16), two_of_halves<DTYPE_F16>(v.z, 16),
                      two_of_halves<DTYPE_F16>(v.w, 16));
}

template <> struct PoolEight<DTYPE_F16> {
    typedef uint4 Pool;
    typedef uint4 Row;
    METHOD static uint4 to_row(const uint4 &v) { return halves_of_f16(v); }
    METHOD static uint4 to_pool(const uint4 &v) { return f16_of_halves(v); }
};
