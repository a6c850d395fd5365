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

// Eight values a thread at a time where rows are whole eights, or one.
template <class F> DEVICE void basis_each(const BasisArgs &a, F value) {
    const u64 all = a.rows * a.columns, stride = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (a.columns % 8 != 0) {
        for (u64 i = first; i < all; i += stride) a.to[i] = (u16)value(a.from ? a.from[i] : 0, (u32)(i % a.columns));
        return;
    }
    const u32 eights = a.columns / 8;
    for (u64 i = first; i < all / 8; i += stride) {
        const u32 col = (u32)(i % eights) * 8;
        uint4 v = a.from ? __ldcs((const uint4 *)a.from + i) : make_uint4(0, 0, 0, 0);
        u32 *words = &v.x;
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            words[j] = value(words[j] & 0xffff, col + 2 * j) | value(words[j] >> 16, col + 2 * j + 1) << 16;
        ((uint4 *)a.to)[i] = v;
    }
}

// Every row is the means.
KERNEL(256) basis_fill(const BasisArgs a) {
    basis_each(a, [&](u32, u32 col) { return basis_half(__ldg(a.means + col)); });
}

// Rows without the means.
KERNEL(256) basis_center(const BasisArgs a) {
    basis_each(a, [&](u32 v, u32 col) { return basis_half(__uint_as_float(v << 16) - __ldg(a.means + col)); });
}
