// What the kernels that decode tiles have in common: which blob a block works on, how its tiles are dealt to warps, and
// their checksums.
#pragma once

#include "blob.cuh"
#include "crc_fold.cuh"
#include "crc_running.cuh"

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
    // Pieces of the header whose checksum has to be made.
    u32 pieces;
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
        s.pieces = header_pieces(d);
        s.empty = s.status->code != 0 || d->codec != codec || size_of(s.item.dtype) != size ||
                  d->first_tile + s.place.part >= d->end_tile;
    }
    __syncthreads();
    return s;
}

// A wrong checksum counts more than what damage led a decoder to say, and the header's most.
DEVICE void overrule(Status *status, u32 code) {
    for (u32 seen = 0; seen != STATUS_HEADER_CHECKSUM;) {
        const u32 old = atomicCAS(&status->code, seen, code);
        if (old == seen) return;
        seen = old;
    }
}

OUTLINE void tile_check(const Share &share, u64 number) {
    const TileAt tile = tile_at(share.item, share.work, number);
    if (crc_fold((const u32 *)tile.bytes, tile.len / 4) != tile.crc && lane_of() == 0)
        overrule(share.status, STATUS_TILE_CHECKSUM);
}

// A piece of a long header's checksum; whoever does the last one compares. What a damaged header led to does not count.
OUTLINE void header_check(const Share &share, u32 piece) {
    Work *work = work_of(share.item);
    const u32 *header = (const u32 *)share.item.blob;
    const u32 words = (u32)work->desc.header_len / 4 - 1;
    const u32 begin = piece * HEADER_PIECE, end = min(words, begin + HEADER_PIECE);
    const u32 sum = crc_multiply(crc_fold(header + begin, end - begin), running_power(words - end));
    if (lane_of() != 0) return;
    atomicXor(&work->header_sum, sum);
    __threadfence();
    if (atomicAdd(&work->header_left, ~0u) != 1) return;
    __threadfence();
    if (atomicXor(&work->header_sum, 0u) != header[words]) overrule(share.status, STATUS_HEADER_CHECKSUM);
}

// Deals a block's share of tiles to `warps` warps, so that few tiles are spread over many blocks. Checksums are dealt
// from the other end, so that warps without a tile take them; where all have one, every second warp decodes first
// and the others check first: what the one waits for the other does not need.
template <class F> DEVICE void share_tiles(const Share &share, u32 warps, F decode) {
    const u32 warp = warp_of();
    if (warp >= warps) return;
    if (share.pieces > 0) {
        // Among the blocks that have tiles.
        const Desc *d = &share.work->desc;
        const u32 blocks = (u32)min((u64)share.place.parts, d->end_tile - d->first_tile);
        for (u32 i = share.place.part + (warps - 1 - warp) * blocks; i < share.pieces; i += warps * blocks)
            header_check(share, i);
    }
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
