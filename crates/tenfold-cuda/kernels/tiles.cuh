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

// What a block works on.
struct Share {
    const Item *item;
    Status *status;
    const Work *work;
    Place place;
    bool check;
};

// False where there is nothing to do for a block. All of its threads take part.
DEVICE bool share_open(const TilesArgs &a, u32 codec, u32 size, Share &share) {
    __shared__ u32 stop;
    share.place = place_of(a.items, a.count, a.blocks);
    share.status = a.status + share.place.item;
    share.item = a.items + share.place.item;
    share.work = work_of(*share.item);
    share.check = a.check;
    const Desc *d = &share.work->desc;
    if (threadIdx.x == 0)
        stop = share.status->code != 0 || d->codec != codec || size_of(share.item->dtype) != size ||
               d->first_tile + share.place.part >= d->end_tile;
    __syncthreads();
    return !stop;
}

// A wrong checksum counts more than what its tile led a decoder to say.
OUTLINE void tile_check(const Item &item, const Work *work, u64 number, Status *status) {
    const TileAt tile = tile_at(item, work, number);
    if (crc_fold((const u32 *)tile.bytes, tile.len / 4) != tile.crc && lane_of() == 0)
        atomicExch(&status->code, (u32)STATUS_TILE_CHECKSUM);
}

// Deals a block's share of tiles to `warps` warps, so that few tiles are spread over many blocks. Checksums are dealt
// from the other end, so that warps without a tile take them; where all have one, every second warp decodes first
// and the others check first: what the one waits for the other does not need.
template <class F> DEVICE void share_tiles(const Share &share, u32 warps, F decode) {
    const Desc *d = &share.work->desc;
    const u32 warp = warp_of();
    if (warp >= warps) return;
    const u64 stride = (u64)share.place.parts * warps, from = d->first_tile + share.place.part, end = d->end_tile;
    u64 tile = from + (u64)warp * share.place.parts;
    u64 checked = share.check ? from + (u64)(warps - 1 - warp) * share.place.parts : end;
    if (warp & 1 && checked < end) {
        tile_check(*share.item, share.work, checked, share.status);
        checked += stride;
    }
    while (tile < end || checked < end) {
        if (tile < end) decode(tile);
        if (checked < end) tile_check(*share.item, share.work, checked, share.status);
        tile += stride;
        checked += stride;
    }
}
