// Deltas, the second of two passes: changes go from the workspace to the tensor if nothing is wrong. And what a host has decoded is held
// against the tensor, in place of the first pass.

#include "delta.cuh"

// Statuses before anything is known.
KERNEL(DELTA_THREADS) delta_start(const GRID_CONSTANT DeltaArgs a) {
    if (threadIdx.x < a.count) *a.items[threadIdx.x].status = Status{0, 0, 0};
}

// The last tile whose changes start at a place of the workspace or before it.
DEVICE u32 delta_tile_of(const DeltaItem &item, u64 slot, u32 low, u32 high) {
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (item.tiles[middle].first <= slot) low = middle;
        else high = middle;
    }
    return low;
}

template <class E> DEVICE void delta_write(const DeltaArgs &a) {
    const u32 which = delta_item(a, [](const DeltaItem &item) { return item.write0; });
    const DeltaItem &item = a.items[which];
    if (item.status->code != 0) return;
    __shared__ u32 ends[2];
    const u64 from = (u64)(blockIdx.x - item.write0) * DELTA_CHUNK, to = min(from + DELTA_CHUNK, item.slots);
    if (threadIdx.x < 2) ends[threadIdx.x] = delta_tile_of(item, threadIdx.x == 0 ? from : to - 1, 0, item.tile_count);
    __syncthreads();
    const u32 first = ends[0], last = ends[1];
    // All loads before the first store, which might be to where they are from, for all that a compiler knows.
    u64 where[DELTA_CHUNK / DELTA_THREADS];
    E value[DELTA_CHUNK / DELTA_THREADS];
#pragma unroll
    for (u32 j = 0; j < DELTA_CHUNK / DELTA_THREADS; ++j) {
        const u64 i = from + j * DELTA_THREADS + threadIdx.x;
        where[j] = ~0ull;
        if (i >= to) continue;
        const u32 number = delta_tile_of(item, i, first, last + 1);
        const DeltaTile &tile = item.tiles[number];
        if (i - tile.first >= tile.changes || item.states[number] != DELTA_OLD) continue;
        where[j] = tile.start + __ldg(item.places + i);
        value[j] = __ldg((const E *)item.values + i);
    }
#pragma unroll
    for (u32 j = 0; j < DELTA_CHUNK / DELTA_THREADS; ++j)
        if (where[j] != ~0ull) ((E *)item.to)[where[j]] = value[j];
}

// A block a tile.
template <class E> DEVICE void delta_check(const DeltaCheckArgs &a) {
    const DeltaItem &item = a.item;
    const u32 number = a.tiles[blockIdx.x];
    const DeltaTile &tile = item.tiles[number];
    const E *base = (const E *)item.to + tile.start;
    __shared__ u64 sums[DELTA_THREADS / 32];
    u64 sum = 0;
    for (u32 i = threadIdx.x; i < tile.changes; i += DELTA_THREADS) {
        const u32 place = item.places[tile.first + i];
        sum += delta_mix(place, base[place]);
    }
    sum = warp_sum(sum);
    if (lane_of() == 0) sums[warp_of()] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 i = 1; i < DELTA_THREADS / 32; ++i) sum += sums[i];
    delta_judge(item, tile, number, sum);
}

KERNEL(DELTA_THREADS) delta_write_1(const GRID_CONSTANT DeltaArgs a) { delta_write<u8>(a); }
KERNEL(DELTA_THREADS) delta_write_2(const GRID_CONSTANT DeltaArgs a) { delta_write<u16>(a); }
KERNEL(DELTA_THREADS) delta_write_4(const GRID_CONSTANT DeltaArgs a) { delta_write<u32>(a); }
KERNEL(DELTA_THREADS) delta_write_8(const GRID_CONSTANT DeltaArgs a) { delta_write<u64>(a); }
KERNEL(DELTA_THREADS) delta_check_1(const GRID_CONSTANT DeltaCheckArgs a) { delta_check<u8>(a); }
KERNEL(DELTA_THREADS) delta_check_2(const GRID_CONSTANT DeltaCheckArgs a) { delta_check<u16>(a); }
KERNEL(DELTA_THREADS) delta_check_4(const GRID_CONSTANT DeltaCheckArgs a) { delta_check<u32>(a); }
KERNEL(DELTA_THREADS) delta_check_8(const GRID_CONSTANT DeltaCheckArgs a) { delta_check<u64>(a); }
