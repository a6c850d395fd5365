// What the kernels that decode tiles have in common: which blob a block works on, how its tiles are dealt to warps, and
// their checksums.
#pragma once

#include "blob.cuh"
#include "crc_fold.cuh"

struct TilesArgs {
    const Item *items;
    Status *status;
    u32 count, blocks;
    // Dynamic shared memory of a block.
    u32 shared;
    // Whether to check checksums.
    u32 check;
};

// What a block works on; in shared memory, so that no register has to keep it.
struct Share {
    Item item;
    Status *status;
    const Work *work;
    Place place;
    bool check, empty;
};

// All threads of the block take part.
DEVICE const Share &share_open(const TilesArgs &a, u32 codec, u32 size) {
    __shared__ Share s;
    if (threadIdx.x == 0) {
        s.place = place_of(a.items, a.count, a.blocks);
        s.status = a.status + s.place.item;
        s.item = a.items[s.place.item];
        s.work = work_of(s.item);
        s.check = a.check;
        const Desc *d = &s.work->desc;
        s.empty = s.status->code != 0 || d->codec != codec || size_of(s.item.dtype) != size ||
                  d->first_tile + s.place.part >= d->end_tile;
    }
    __syncthreads();
    return s;
}

// A wrong checksum counts more than what its tile led a decoder to say.
OUTLINE void tile_check(const Share &share, u64 number) {
    const TileAt tile = tile_at(share.item, share.work, number);
    if (crc_fold((const u32 *)tile.bytes, tile.len / 4) != tile.crc && lane_of() == 0)
        atomicExch(&share.status->code, (u32)STATUS_TILE_CHECKSUM);
}

// Deals a block's share of tiles to `warps` warps, so that few tiles are spread over many blocks. Checksums are dealt
// from the other end, so that warps without a tile take them; where all have one, every second warp decodes first
// and the others check first: what the one waits for the other does not need.
template <class F> DEVICE void share_tiles(const Share &share, u32 warps, F decode) {
    const u32 warp = warp_of();
    if (warp >= warps) return;
    for (u32 round = 0;; ++round) {
        const Desc *d = &share.work->desc;
        const u64 parts = share.place.parts, end = d->end_tile;
        const u64 from = d->first_tile + share.place.part + round * warps * parts;
        if (from >= end) return;
        const u64 tile = from + warp * parts, checked = from + (warps - 1 - warp) * parts;
        const bool check = share.check && checked < end;
        if (check && warp & 1) tile_check(share, checked);
        if (tile < end) decode(tile);
        if (check && !(warp & 1)) tile_check(share, checked);
    }
}
