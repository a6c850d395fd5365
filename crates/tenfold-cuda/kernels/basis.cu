// Around the products of a basis: rows of bf16 whose rotary positions are undone or done.

#include "floats.cuh"
#include "rope.cuh"

struct BasisArgs {
    // Rows, and where they go, which may be the same.
    const u16 *from;
    u16 *to;
    u64 rows;
    u32 columns, unused;
    Turning turning;
};

// To the nearest, ties to even; what is not a number stays none.
DEVICE u32 basis_half(float v) {
    const u32 b = __float_as_uint(v);
    return (b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

KERNEL(256) basis_turn(const BasisArgs a) {
    rope_rows<float>(
        a.turning, a.rows, a.columns, [&](u64 i) { return __uint_as_float((u32)a.from[i] << 16); },
        [&](u64 i, float v) { a.to[i] = (u16)basis_half(v); });
}
