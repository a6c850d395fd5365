// Deltas: what changes in a tensor, tile by tile. The twin of `crates/tenfold/src/delta`. Normative: docs/format.md, 'Deltas'.
#pragma once

#include "base.cuh"

#define DELTA_LOG 12
#define DELTA_EACH 8

static_assert(DELTA_EACH * 32 == DELTA_BATCH, "eight changes a lane");

// The tensor that a block works on.
template <class F> DEVICE u32 delta_item(const DeltaArgs &a, F first) {
    u32 low = 0, high = a.count;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (first(a.items[middle]) <= blockIdx.x) low = middle;
        else high = middle;
    }
    return low;
}

// What a value at a place of a tile adds to a sum over it.
DEVICE u64 delta_mix(u32 place, u64 value) {
    const u64 odd = 0xd6e8feb86659fd93ull;
    u64 x = value + ((u64)place + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 32) * odd;
    x = (x ^ x >> 32) * odd;
    return x ^ x >> 32;
}

// Damage counts more than another base, which is what it may look like, and a wrong checksum most.
DEVICE u32 delta_weight(u32 code) {
    return code == 0 ? 0 : code == STATUS_OTHER_BASE ? 1 : code == STATUS_TILE_CHECKSUM ? 3 : 2;
}
DEVICE void delta_report(Status *status, u32 code) {
    for (u32 seen = 0; delta_weight(seen) < delta_weight(code);) {
        const u32 old = atomicCAS(&status->code, seen, code);
        if (old == seen) return;
        seen = old;
    }
}

// What the sum over a tile's old values says of it; nothing to write if it has the sum of new ones.
DEVICE void delta_judge(const DeltaItem &item, const DeltaTile &tile, u32 number, u64 sum) {
    if (sum == tile.before) {
        item.states[number] = DELTA_OLD;
        atomicAdd(&item.status->size, (u64)tile.changes);
    } else {
        item.states[number] = DELTA_NEW;
        if (sum != tile.after) delta_report(item.status, STATUS_OTHER_BASE);
    }
}

// Numbers that values of a size are reckoned with.
template <class E> struct DeltaNumber { typedef u32 type; };
template <> struct DeltaNumber<u64> { typedef u64 type; };

// Eight elements side by side, at a multiple of their bytes or of 16.
template <class E> DEVICE void delta_put(E *to, const E (&v)[DELTA_EACH]) {
    const u32 words = 2 * sizeof(E);
    u32 w[words];
#pragma unroll
    for (u32 i = 0; i < words; ++i) {
        if (sizeof(E) == 8) w[i] = (u32)((u64)v[i / 2] >> (32 * (i & 1)));
        else if (sizeof(E) == 4) w[i] = (u32)v[i];
        else if (sizeof(E) == 2) w[i] = (u32)v[2 * i & 7] | (u32)v[(2 * i + 1) & 7] << 16;
        else w[i] = (u32)v[4 * i & 7] | (u32)v[(4 * i + 1) & 7] << 8 | (u32)v[(4 * i + 2) & 7] << 16 | (u32)v[(4 * i + 3) & 7] << 24;
    }
    if (words == 2) {
        *(uint2 *)to = make_uint2(w[0], w[1]);
        return;
    }
#pragma unroll
    for (u32 i = 0; i + 3 < words; i += 4) ((uint4 *)to)[i / 4] = make_uint4(w[i], w[i + 1], w[i + 2], w[i + 3]);
}

template <class E> DEVICE void delta_get(const E *from, E (&v)[DELTA_EACH]) {
    const u32 words = 2 * sizeof(E);
    u32 w[words];
    if (words == 2) {
        const uint2 two = *(const uint2 *)from;
        w[0] = two.x;
        w[1] = two.y;
    } else {
#pragma unroll
        for (u32 i = 0; i + 3 < words; i += 4) {
            const uint4 four = ((const uint4 *)from)[i / 4];
            w[i] = four.x;
            w[i + 1] = four.y;
            w[i + 2] = four.z;
            w[i + 3] = four.w;
        }
    }
#pragma unroll
    for (u32 j = 0; j < DELTA_EACH; ++j) {
        if (sizeof(E) == 8) v[j] = (E)((u64)w[2 * j % words] | (u64)w[(2 * j + 1) % words] << 32);
        else if (sizeof(E) == 4) v[j] = (E)w[j % words];
        else if (sizeof(E) == 2) v[j] = (E)(w[j / 2 % words] >> (16 * (j & 1)));
        else v[j] = (E)(w[j / 4] >> (8 * (j & 3)));
    }
}

// Bits of a number, from the lowest.
DEVICE u32 delta_low(u32 v, u32 count) { return count < 32 ? v & ((1u << count) - 1) : v; }
DEVICE u64 delta_low(u64 v, u32 count) { return count < 64 ? v & ((1ull << count) - 1) : v; }

// Words of a bit string where the device has them, and where a warp has fetched some of them; indices are below `count`.
struct FarWords {
    const u32 *at;
    u32 count;
    METHOD u32 operator[](u32 i) const { return __ldg(at + min(i, count - 1)); }
};
struct NearWords {
    SharedAt at;
    u32 count;
    METHOD u32 operator[](u32 i) const { return shared_u32(at + 4 * min(i, count - 1)); }
};

// Up to 32 bits of a bit string, or up to 64. What lies beyond its last word is not asked for, but read it must not be.
template <class W> DEVICE void delta_take(u32 &v, const W &words, u32 at, u32 count) {
    const u32 i = at / 32;
    v = delta_low(__funnelshift_r(words[i], words[i + 1], at % 32), count);
}
template <class W> DEVICE void delta_take(u64 &v, const W &words, u32 at, u32 count) {
    const u32 i = at / 32, w = words[i + 1];
    const u32 low = __funnelshift_r(words[i], w, at % 32), high = __funnelshift_r(w, words[i + 2], at % 32);
    v = delta_low(low | (u64)high << 32, count);
}

// Raw bits of a lane's eight changes, `open` of each, `all` together, from bit `at` on. All lanes take part.
template <class N, class W> DEVICE void delta_raw(N (&v)[DELTA_EACH], const W &words, u32 at, const u32 (&open)[DELTA_EACH], u32 all) {
    if (__any_sync(ALL_LANES, all > 64)) {
#pragma unroll
        for (u32 j = 0; j < DELTA_EACH; ++j) {
            delta_take(v[j], words, at, open[j]);
            at += open[j];
        }
        return;
    }
    u64 window;
    delta_take(window, words, at, 64);
#pragma unroll
    for (u32 j = 0; j < DELTA_EACH; ++j) {
        v[j] = delta_low((N)window, open[j]);
        window = open[j] < 64 ? window >> open[j] : 0;
    }
}

// Tokens of gaps: d = 4, s = 3. How many bits one leaves open, and the rest of the gap; 2^22 for any that is beyond a tile.
DEVICE u32 gap_open(u32 token) { return token < 16 ? 0 : 1 + ((token - 16) >> 3); }
DEVICE u32 gap_high(u32 token) {
    if (token < 16) return token;
    const u32 open = 1 + ((token - 16) >> 3);
    return open + 3 >= 22 ? 1u << 22 : (8 | ((token - 16) & 7)) << open;
}

// How a delta tells values of a size.
template <class E> struct Telling {
    typedef typename DeltaNumber<E>::type N;
    static const u32 BITS = 8 * sizeof(E);
    // Tokens: d = 3 and s = 2, for 64 bits 2 and 1.
    static const u32 D = sizeof(E) == 8 ? 2 : 3, S = D - 1;
    u32 way;
    bool floats;

    // Bits that a symbol leaves open; those of one that means nothing do not count.
    METHOD u32 open(u32 symbol) const {
        if (way == DELTA_OVERWRITE) return BITS - 8;
        const u32 token = symbol / 2, open = 1 + ((token - (1u << D)) >> S);
        return token < 1u << D ? 0 : min(open, 63u);
    }

    // The new value; false where there is none.
    METHOD bool join(E old, u32 symbol, N raw, E &to) const {
        const N top = (N)1 << (BITS - 1), all = top - 1 + top, magnitude = top - 1;
        if (way == DELTA_OVERWRITE) {
            const N v = (N)symbol << (BITS - 8) | raw;
            to = (E)(floats ? v >> 1 | (v & 1) << (BITS - 1) : v);
            return true;
        }
        const u32 token = symbol / 2, flips = symbol & 1;
        N number = token;
        bool good = true;
        if (token >= 1u << D) {
            const u32 beyond = token - (1u << D), lead = D + (beyond >> S);
            good = lead < BITS;
            number = good ? (N)(1u << S | (beyond & ((1u << S) - 1))) << (lead - S) | raw : 0;
        }
        const N before = floats ? (N)old & magnitude : (N)old, sign = (N)old & top;
        const N after = way == DELTA_XOR ? before ^ number : before + ((number >> 1) ^ (0 - (number & 1)));
        if (floats) {
            to = (E)(after | (sign ^ (flips ? top : 0)));
            return good && (after & ~magnitude) == 0;
        }
        to = (E)(after & all);
        return good && flips == 0;
    }
};
