// Elements to byte planes. The twin of `lossless/planes.rs`.
#pragma once

#include "base.cuh"

// An element as planes have it: floats are rotated, so that the exponent leads.
template <class E> DEVICE E split_element(E v, bool rotate) {
    return rotate ? (E)(v << 1 | v >> (8 * sizeof(E) - 1)) : v;
}

// What an element is kept in.
template <class E> struct Wide {
    typedef u32 type;
};
template <> struct Wide<u64> {
    typedef u64 type;
};

// What `split_offset` keeps of an element. A compiler that knew these bits would put the number of a plane's table
// together with the offset instead of with the address, at the price of an instruction. All lanes of a warp take part.
DEVICE u32 split_mask() { return __shfl_sync(ALL_LANES, 255u << 3, 0); }

// Eight times the byte of plane p, as an offset into a table of eight bytes an entry; `by` is 1 for floats and 0 for
// others. Rotates no more than is needed.
template <class E> DEVICE u32 split_offset(typename Wide<E>::type v, u32 p, u32 by, u32 mask = 255u << 3) {
    const u32 bits = 8 * sizeof(E);
    if (p > 0) return (u32)(v >> (8 * p - 3 - by)) & mask;
    if constexpr (sizeof(E) == 8) return __funnelshift_l((u32)(v >> 32), (u32)v, 3 + by) & mask;
    else if constexpr (sizeof(E) == 4) return __funnelshift_l(v, v, 3 + by) & mask;
    else return (v | v << bits) >> (bits - 3 - by) & mask;
}

// The same for the elements of P bytes in a word, or for P = 8 in a pair of words.
template <u32 P> DEVICE void split_words(u32 &a, u32 &b, bool rotate) {
    if (!rotate) return;
    if (P == 1) {
        a = (a << 1 & 0xfefefefe) | (a >> 7 & 0x01010101);
        b = (b << 1 & 0xfefefefe) | (b >> 7 & 0x01010101);
    } else if (P == 2) {
        a = (a << 1 & 0xfffefffe) | (a >> 15 & 0x00010001);
        b = (b << 1 & 0xfffefffe) | (b >> 15 & 0x00010001);
    } else if (P == 4) {
        a = __funnelshift_l(a, a, 1);
        b = __funnelshift_l(b, b, 1);
    } else {
        const u32 low = a;
        a = __funnelshift_l(b, low, 1);
        b = __funnelshift_l(low, b, 1);
    }
}

template <u32 P> DEVICE uint4 split_vector(uint4 v, bool rotate) {
    split_words<P>(v.x, v.y, rotate);
    split_words<P>(v.z, v.w, rotate);
    return v;
}

// Four elements of P bytes, as they are in memory.
template <u32 P> struct Quad {
    u32 w[P];
};

// From an address that is a multiple of 4·P, or of 16.
template <u32 P> DEVICE Quad<P> quad_load(const u8 *at) {
    Quad<P> q;
    if constexpr (P == 1) {
        q.w[0] = __ldg((const u32 *)at);
    } else if constexpr (P == 2) {
        const uint2 v = __ldg((const uint2 *)at);
        q.w[0] = v.x;
        q.w[1] = v.y;
    } else {
#pragma unroll
        for (u32 i = 0; i < P; i += 4) {
            const uint4 v = __ldg((const uint4 *)(at + 4 * i));
            q.w[i] = v.x;
            q.w[i + 1] = v.y;
            q.w[i + 2] = v.z;
            q.w[i + 3] = v.w;
        }
    }
    return q;
}

// Of any number of elements up to four, from any address that suits them; zeros after them.
template <class E> DEVICE Quad<sizeof(E)> quad_gather(const E *at, u32 count) {
    Quad<sizeof(E)> q;
    u64 v[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) v[i] = i < count ? (u64)__ldg(at + i) : 0;
    if constexpr (sizeof(E) == 1) {
        q.w[0] = (u32)(v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24);
    } else if constexpr (sizeof(E) == 2) {
        q.w[0] = (u32)(v[0] | v[1] << 16);
        q.w[1] = (u32)(v[2] | v[3] << 16);
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            q.w[i * (sizeof(E) / 4)] = (u32)v[i];
            if constexpr (sizeof(E) == 8) q.w[2 * i + 1] = (u32)(v[i] >> 32);
        }
    }
    return q;
}

// Rotates four elements; those of two bytes `quad_plane` rotates when it has only half of them left.
template <u32 P> DEVICE void quad_split(Quad<P> &q, bool rotate) {
    if constexpr (P == 1) {
        u32 none = 0;
        split_words<P>(q.w[0], none, rotate);
    } else if constexpr (P > 2) {
#pragma unroll
        for (u32 i = 0; i < P; i += 2) split_words<P>(q.w[i], q.w[i + 1], rotate);
    }
}

// Four bytes of plane p of elements that `quad_split` has seen.
template <u32 P> DEVICE u32 quad_plane(const Quad<P> &q, u32 p, bool rotate) {
    if constexpr (P == 1) {
        return q.w[0];
    } else if constexpr (P == 2) {
        const u32 mine = __byte_perm(q.w[0], q.w[1], p == 0 ? 0x6420 : 0x7531);
        const u32 other = __byte_perm(q.w[0], q.w[1], p == 0 ? 0x7531 : 0x6420);
        return rotate ? (mine << 1 & 0xfefefefe) | (other >> 7 & 0x01010101) : mine;
    } else {
        // Words that hold byte p of the four elements.
        const u32 by = P / 4, in = p / 4, pick = (p & 3) | ((p & 3) + 4) << 4;
        const u32 low = __byte_perm(q.w[in], q.w[by + in], pick);
        const u32 high = __byte_perm(q.w[2 * by + in], q.w[3 * by + in], pick);
        return __byte_perm(low, high, 0x5410);
    }
}
