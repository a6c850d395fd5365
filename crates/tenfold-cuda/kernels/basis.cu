// Around the products of a basis: rows that start as its means, and rows that these are taken off.

#include "floats.cuh"

struct BasisArgs {
    // Rows of bf16, where they go, and the means: f32.
    const u16 *from;
    u16 *to;
    const float *means;
    u64 rows;
    u32 columns, unused;
};

// To the nearest, ties to even; what is not a number stays none.
DEVICE u32 basis_half(float v) {
    const u32 b = __float_as_uint(v);
    return (b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

// Eight means, as they are needed together.
struct BasisEight {
    float4 low, high;
};

DEVICE BasisEight basis_means(const BasisArgs &a, u32 eight) {
    const float4 *means = (const float4 *)a.means + 2 * (u64)eight;
    return BasisEight{__ldg(means), __ldg(means + 1)};
}

DEVICE uint4 basis_pack(float a, float b, float c, float d, float e, float f, float g, float h) {
    return make_uint4(basis_half(a) | basis_half(b) << 16, basis_half(c) | basis_half(d) << 16,
                      basis_half(e) | basis_half(f) << 16, basis_half(g) | basis_half(h) << 16);
}

DEVICE float basis_low(u32 word) { return __uint_as_float(word << 16); }
DEVICE float basis_high(u32 word) { return __uint_as_float(word & 0xffff0000u); }

// Every row is the means. Eight columns a thread at a time where rows are whole eights, or one.
KERNEL(256) basis_fill(const BasisArgs a) {
    const u64 all = a.rows * a.columns, stride = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (a.columns % 8 != 0) {
        for (u64 i = first; i < all; i += stride) a.to[i] = (u16)basis_half(a.means[i % a.columns]);
        return;
    }
    // Columns of a thread are a fixed jump apart, most often none.
    const u32 eights = a.columns / 8, jump = (u32)(stride % eights);
    u32 at = (u32)(first % eights);
    BasisEight m = basis_means(a, at);
    uint4 v = basis_pack(m.low.x, m.low.y, m.low.z, m.low.w, m.high.x, m.high.y, m.high.z, m.high.w);
    for (u64 i = first; i < all / 8; i += stride) {
        ((uint4 *)a.to)[i] = v;
        if (jump == 0) continue;
        at = at + jump < eights ? at + jump : at + jump - eights;
        m = basis_means(a, at);
        v = basis_pack(m.low.x, m.low.y, m.low.z, m.low.w, m.high.x, m.high.y, m.high.z, m.high.w);
    }
}

// Rows without the means.
KERNEL(256) basis_center(const BasisArgs a) {
    const u64 all = a.rows * a.columns, stride = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (a.columns % 8 != 0) {
        for (u64 i = first; i < all; i += stride)
            a.to[i] = (u16)basis_half(basis_low(a.from[i]) - a.means[i % a.columns]);
        return;
    }
    const u32 eights = a.columns / 8, jump = (u32)(stride % eights);
    u32 at = (u32)(first % eights);
    BasisEight m = basis_means(a, at);
    for (u64 i = first; i < all / 8; i += stride) {
        const uint4 x = __ldcs((const uint4 *)a.from + i);
        ((uint4 *)a.to)[i] = basis_pack(basis_low(x.x) - m.low.x, basis_high(x.x) - m.low.y, basis_low(x.y) - m.low.z,
                                        basis_high(x.y) - m.low.w, basis_low(x.z) - m.high.x, basis_high(x.z) - m.high.y,
                                        basis_low(x.w) - m.high.z, basis_high(x.w) - m.high.w);
        if (jump == 0) continue;
        at = at + jump < eights ? at + jump : at + jump - eights;
        m = basis_means(a, at);
    }
}
