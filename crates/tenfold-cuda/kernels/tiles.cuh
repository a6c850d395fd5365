// What the kernels that decode tiles have in common: which blob a block works on, how its tiles are dealt to warps, and
// their checksums.
#pragma once

#include "blob.cuh"
#include "crc_fold.cuh"
#include "crc_running.cuh"

// What of a blob's tiles is a kernel's business: nothing, those that another kernel left to it, all and their checksums.
enum Part { PART_NONE, PART_REST, PART_ALL };

// What a block works on; in shared memory, so that no register has to keep it.
struct Share {
    Item item;
    Status *status;
    const Work *work;
    Place place;
    // Pieces of the header whose checksum has to be made.
    u32 pieces;
    bool check, rest, empty;
};

// `place` says which blob this block works on, `part_of` what a blob's part is. All threads of the block take part.
template <class P, class F> DEVICE const Share &share_open_at(const TilesArgs &a, P place, u32 codec, u32 size, F part_of) {
    __shared__ Share s;
    if (threadIdx.x == 0) {
        s.place = place();
        s.status = a.status + s.place.item;
        s.item = a.items[s.place.item];
        s.work = work_of(s.item);
        const Desc *d = &s.work->desc;
        // What another block said of a tile does not count before the header's checksum is known, of which this one may have a part.
        const bool over = s.status->code != 0 && s.work->header_left == 0;
        s.empty = over || d->codec != codec || size_of(s.item.dtype) != size ||
                  d->first_tile + s.place.part >= d->end_tile;
        const Part part = s.empty ? PART_NONE : part_of(s.item, s.work);
        s.empty = part == PART_NONE;
        s.rest = part == PART_REST;
        s.check = a.check && !s.rest;
        // Opened once, a blob may be decoded again and again: its header is checked the first time.
        s.pieces = s.rest || s.work->header_left == 0 ? 0 : header_pieces(d);
    }
    __syncthreads();
    return s;
}
template <class F> DEVICE const Share &share_open(const TilesArgs &a, u32 codec, u32 size, F part_of) {
    return share_open_at(a, [&] { return place_of(a.items, a.count, a.blocks); }, codec, size, part_of);
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

// A block's share of a long header's pieces, from the last of `warps` warps on.
DEVICE void share_pieces(const Share &share, u32 warps) {
    if (share.pieces == 0) return;
    // Among the blocks that have tiles.
    const Desc *d = &share.work->desc;
    const u32 blocks = (u32)min((u64)share.place.parts, d->end_tile - d->first_tile);
    for (u32 i = share.place.part + (warps - 1 - warp_of()) * blocks; i < share.pieces; i += warps * blocks)
        header_check(share, i);
}

// Deals a block's share of tiles to `warps` warps, so that few tiles are spread over many blocks. A warp gets `K` at
// once: one, or two of which the second may be beyond the end. Checksums are dealt from the other end, so that warps
// without a tile take them; where all have one, every second warp decodes first and the others check first: what the one
// waits for the other does not need.
template <u32 K, class F> DEVICE void share_tiles(const Share &share, u32 warps, F decode) {
    const u32 warp = warp_of();
    if (warp >= warps) return;
    share_pieces(share, warps);
    const auto tile_of = [&](u32 i) { return share.work->desc.first_tile + share.place.part + (u64)i * share.place.parts; };
    const auto check = [&](u32 round) {
        for (u32 i = round * warps + warps - 1 - warp; i < (round + K) * warps; i += warps)
            if (tile_of(i) < share.work->desc.end_tile) tile_check(share, tile_of(i));
    };
    for (u32 round = 0; tile_of(round * warps) < share.work->desc.end_tile; round += K) {
        if (share.check && warp & 1) check(round);
        const u32 i = round * warps + warp;
        if (tile_of(i) < share.work->desc.end_tile) decode(tile_of(i), tile_of(i + warps));
        if (share.check && !(warp & 1)) check(round);
    }
}
