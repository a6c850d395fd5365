// Rows of a paged pool: gathered from wherever their blocks lie, and scattered there, keys with their rotary positions done on the way.

#include "turn.cuh"

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
template <class U, bool SCATTER> DEVICE void pool_copy(const PoolArgs &a) {
    const u32 units = a.heads * a.head, lane = lane_of();
    const u64 all = a.tokens * a.layers, stride = (u64)gridDim.x * (POOL_THREADS / 32);
    for (u64 i = (u64)blockIdx.x * (POOL_THREADS / 32) + warp_of(); i < all; i += stride) {
        const u64 token = i / a.layers, slot = a.slots[token];
        U *row = (U *)a.rows + i * units;
        if (slot >= a.slot_count) {
            // No slot of the pool; negative ones are very large here.
            if (!SCATTER) {
                for (u32 k = lane; k < units; k += 32) row[k] = U();
            }
            continue;
        }
        u8 *at = (u8 *)a.bases[i - token * a.layers] + pool_slot(a, (u32)slot);
        for (u32 k = lane; k < units; k += 4 * 32) {
            // Four on their way at once: what is put away may be what is read next, for all that the compiler knows.
            U moved[4];
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                if (k + 32 * j < units) moved[j] = SCATTER ? row[k + 32 * j] : *pool_unit<U>(a, at, k + 32 * j);
            }
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                if (k + 32 * j < units) (SCATTER ? *pool_unit<U>(a, at, k + 32 * j) : row[k + 32 * j]) = moved[j];
            }
        }
    }
}

template <bool SCATTER> DEVICE void pool_by_unit(const PoolArgs &a) {
    switch (a.unit) {
    case 16: pool_copy<uint4, SCATTER>(a); break;
    case 4: pool_copy<u32, SCATTER>(a); break;
    case 2: pool_copy<u16, SCATTER>(a); break;
    default: pool_copy<u8, SCATTER>(a);
    }
}

// A thread takes eight pairs of every head of a token, in all layers.
DEVICE void pool_turn(const PoolArgs &a, const Turning &t) {
    const u32 each = t.half / 8, heads = a.layers * a.heads;
    const u64 all = a.tokens * each, stride = (u64)gridDim.x * POOL_THREADS;
    for (u64 i = (u64)blockIdx.x * POOL_THREADS + threadIdx.x; i < all; i += stride) {
        const u64 token = i / each, slot = a.slots[token];
        if (slot >= a.slot_count) continue;
        const u32 k = (u32)(i - token * each) * 8;
        const EightAngles angles = turn_angles(t, rope_position(t, token), k);
        const u16 *row = (const u16 *)a.rows + token * heads * t.head + k;
        const u64 at = pool_slot(a, (u32)slot) + 2 * k;
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
                turn_away(angles, e[j], (u16 *)to, t.half);
            }
        }
    }
}

KERNEL(POOL_THREADS) pool_scatter_turned(const GRID_CONSTANT TurnedPoolArgs a) { pool_turn(a.pool, a.turning); }
KERNEL(POOL_THREADS) pool_gather(const GRID_CONSTANT PoolArgs a) { pool_by_unit<false>(a); }
KERNEL(POOL_THREADS) pool_scatter(const GRID_CONSTANT PoolArgs a) { pool_by_unit<true>(a); }
