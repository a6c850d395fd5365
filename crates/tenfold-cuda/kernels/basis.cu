// Around the products of a basis: rows of bf16 whose rotary positions are undone or done.

#include "floats.cuh"
#include "rope.cuh"

// To the nearest, ties to even; what is not a number stays none.
DEVICE u32 basis_half(float v) {
    const u32 b = __float_as_uint(v);
    return (b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

DEVICE u32 basis_two(float low, float high) { return basis_half(low) | basis_half(high) << 16; }
DEVICE float basis_low(u32 word) { return __uint_as_float(word << 16); }
DEVICE float basis_high(u32 word) { return __uint_as_float(word & 0xffff0000u); }

// Two pairs, turned.
DEVICE void basis_turn_two(const float4 &by, u32 &x, u32 &y) {
    const float a = basis_low(x), b = basis_high(x), c = basis_low(y), d = basis_high(y);
    x = basis_two(a * by.x - c * by.y, b * by.z - d * by.w);
    y = basis_two(a * by.y + c * by.x, b * by.w + d * by.z);
}

// Eight columns of a head and the eight that they are turned with.
struct BasisEights {
    uint4 x, y;
};

DEVICE BasisEights basis_load(const u16 *from, u32 half) { return BasisEights{*(const uint4 *)from, *(const uint4 *)(from + half)}; }

// Turns them and puts them away.
DEVICE void basis_turn_away(const float4 *by, BasisEights e, u16 *to, u32 half) {
    basis_turn_two(by[0], e.x.x, e.y.x);
    basis_turn_two(by[1], e.x.y, e.y.y);
    basis_turn_two(by[2], e.x.z, e.y.z);
    basis_turn_two(by[3], e.x.w, e.y.w);
    *(uint4 *)to = e.x;
    *(uint4 *)(to + half) = e.y;
}

// Rows whose heads are whole eights, turned half with half and all of them: a thread takes eight pairs of every head.
DEVICE void basis_turn_eights(const BasisArgs &a) {
    const Turning &t = a.turning;
    const u32 each = t.half / 8;
    const u64 all = a.rows * each, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += stride) {
        const u64 row = i / each, position = rope_position(t, row);
        const u32 k = (u32)(i - row * each) * 8;
        // Cosine and sine of two pairs each.
        float4 by[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const Angle one = rope_angle(t, position, k + 2 * j), two = rope_angle(t, position, k + 2 * j + 1);
            by[j] = make_float4((float)one.cos, (float)one.sin, (float)two.cos, (float)two.sin);
        }
        // Four heads on their way at once: what is put away may be what is read next, for all that the compiler knows.
        const u64 end = (row + 1) * a.columns;
        u64 head = row * a.columns + k;
        for (; head + 3 * t.head < end; head += 4 * t.head) {
            BasisEights e[4];
#pragma unroll
            for (u32 j = 0; j < 4; ++j) e[j] = basis_load(a.from + head + j * t.head, t.half);
#pragma unroll
            for (u32 j = 0; j < 4; ++j) basis_turn_away(by, e[j], a.to + head + j * t.head, t.half);
        }
        for (; head < end; head += t.head) basis_turn_away(by, basis_load(a.from + head, t.half), a.to + head, t.half);
    }
}

KERNEL(256) basis_turn(const BasisArgs a) {
    const Turning &t = a.turning;
    if (!t.neighbours && t.half % 8 == 0 && t.head == 2 * t.half) {
        basis_turn_eights(a);
        return;
    }
    rope_rows<float>(
        t, a.rows, a.columns, [&](u64 i) { return basis_low(a.from[i]); },
        [&](u64 i, float v) { a.to[i] = (u16)basis_half(v); });
}
