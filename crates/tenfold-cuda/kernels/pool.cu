// Rows of a paged pool: gathered from wherever their blocks lie, and scattered there, keys with their rotary positions done on the way.
// Rows are as the pool has them, or bf16 where its elements are other floats.

#include "halves.cuh"

// Where a slot is in a layer, in bytes.
DEVICE u64 pool_slot(const PoolArgs &a, u32 slot) {
    const u32 block = slot / a.block;
    return block * a.block_stride + (slot - block * a.block) * a.token_stride;
}

// Where unit `k` of a token is in the pool, from the token's first on.
template <class U> DEVICE U *pool_unit(const PoolArgs &a, u8 *token, u32 k) {
    if (a.heads == 1) return (U *)token + k;
    const u32 head = k / a.head;
    return (U *)(token + head * a.head_stride) + (k - head * a.head);
}

// A warp takes a token of a layer at a time. Rows have the layers of a token side by side.
template <class M, bool SCATTER> DEVICE void pool_copy(const PoolArgs &a) {
    typedef typename M::Pool P;
    typedef typename M::Row R;
    const u32 units = a.heads * a.head, lane = lane_of();
    const u64 all = a.tokens * a.layers, stride = (u64)gridDim.x * (POOL_THREADS / 32);
    for (u64 i = (u64)blockIdx.x * (POOL_THREADS / 32) + warp_of(); i < all; i += stride) {
        const u64 token = i / a.layers, slot = a.slots[token];
        R *row = (R *)a.rows + i * units;
        if (slot >= a.slot_count) {
            // No slot of the pool; negative ones are very large here.
            if (!SCATTER) {
                for (u32 k = lane; k < units; k += 32) row[k] = R();
            }
            continue;
        }
        u8 *at = (u8 *)a.bases[i - token * a.layers] + pool_slot(a, (u32)slot);
        for (u32 k = lane; k < units; k += 4 * 32) {
            // Four on their way at once: what is put away may be what is read next, for all that the compiler knows.
            if (SCATTER) {
                R moved[4];
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    if (k + 32 * j < units) moved[j] = row[k + 32 * j];
                }
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    if (k + 32 * j < units) *pool_unit<P>(a, at, k + 32 * j) = M::to_pool(moved[j]);
                }
            } else {
                P moved[4];
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    if (k + 32 * j < units) moved[j] = *pool_unit<P>(a, at, k + 32 * j);
                }
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    if (k + 32 * j < units) row[k + 32 * j] = M::to_row(moved[j]);
                }
            }
        }
    }
}

// Units are elements here.
template <u32 DTYPE, class E, bool SCATTER> DEVICE void pool_convert(const PoolArgs &a) {
    if (a.unit == 8) pool_copy<PoolEight<DTYPE>, SCATTER>(a);
    else pool_copy<PoolOne<DTYPE, E>, SCATTER>(a);
}

template <bool SCATTER> DEVICE void pool_by_unit(const PoolArgs &a) {
    switch (a.dtype) {
    case DTYPE_F8_E4M3: pool_convert<DTYPE_F8_E4M3, u8, SCATTER>(a); return;
    case DTYPE_F8_E5M2: pool_convert<DTYPE_F8_E5M2, u8, SCATTER>(a); return;
    case DTYPE_F16: pool_convert<DTYPE_F16, u16, SCATTER>(a); return;
    }
    switch (a.unit) {
    case 16: pool_copy<PoolSame<uint4>, SCATTER>(a); break;
    case 4: pool_copy<PoolSame<u32>, SCATTER>(a); break;
    case 2: pool_copy<PoolSame<u16>, SCATTER>(a); break;
    default: pool_copy<PoolSame<u8>, SCATTER>(a);
    }
}

// Eight columns of a head and the eight that they are turned with, to where a pool has them.
template <class M> DEVICE void pool_put(const TurnEights &e, u8 *to, u32 half) {
    typedef typename M::Pool P;
    *(P *)to = M::to_pool(e.x);
    *(P *)(to + half * (sizeof(P) / 8)) = M::to_pool(e.y);
}

DEVICE void pool_away(u32 dtype, const TurnEights &e, u8 *to, u32 half) {
    switch (dtype) {
    case DTYPE_F8_E4M3: pool_put<PoolEight<DTYPE_F8_E4M3>>(e, to, half); break;
    case DTYPE_F8_E5M2: pool_put<PoolEight<DTYPE_F8_E5M2>>(e, to, half); break;
    case DTYPE_F16: pool_put<PoolEight<DTYPE_F16>>(e, to, half); break;
    default: pool_put<PoolSame<uint4>>(e, to, half);
    }
}

// A thread takes eight pairs of every head of a token, in all layers.
DEVICE void pool_turn(const PoolArgs &a, const Turning &t) {
    const u32 each = t.half / 8, heads = a.layers * a.heads;
    const u32 size = a.dtype == DTYPE_F8_E4M3 || a.dtype == DTYPE_F8_E5M2 ? 1 : 2;
    const u64 all = a.tokens * each, stride = (u64)gridDim.x * POOL_THREADS;
    for (u64 i = (u64)blockIdx.x * POOL_THREADS + threadIdx.x; i < all; i += stride) {
        const u64 token = i / each, slot = a.slots[token];
        if (slot >= a.slot_count) continue;
        const u32 k = (u32)(i - token * each) * 8;
        const EightAngles angles = turn_angles(t, rope_position(t, token), k);
        const u16 *row = (const u16 *)a.rows + token * heads * t.head + k;
        const u64 at = pool_slot(a, (u32)slot) + k * size;
        for (u32 head = 0; head < heads; head += 4) {
            // Four on their way at once, as above.
            TurnEights e[4];
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                if (head + j < heads) e[j] = turn_load(row + (head + j) * t.head, t.half);
            }
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                if (head + j >= heads) break;
                const u32 layer = (head + j) / a.heads;
                u8 *to = (u8 *)a.bases[layer] + at + (head + j - layer * a.heads) * a.head_stride;
                turn_eights(angles, e[j]);
                pool_away(a.dtype, e[j], to, t.half);
            }
        }
    }
}

KERNEL(POOL_THREADS) pool_scatter_turned(const GRID_CONSTANT TurnedPoolArgs a) { pool_turn(a.pool, a.turning); }
KERNEL(POOL_THREADS) pool_gather(const GRID_CONSTANT PoolArgs a) { pool_by_unit<false>(a); }
KERNEL(POOL_THREADS) pool_scatter(const GRID_CONSTANT PoolArgs a) { pool_by_unit<true>(a); }
