// Checksums of the tiles that a call decodes.

#include "blob.cuh"
#include "crc.cuh"

struct CheckArgs {
    const Item *items;
    Status *status;
    u32 count, blocks;
};

// Checksums of the tiles that are wanted; a warp a tile.
KERNEL(1024) blob_check_tiles(const CheckArgs a) {
    __shared__ u32 table[CRC_TABLE_WORDS];
    const Place place = place_of(a.items, a.count, a.blocks);
    Status *status = a.status + place.item;
    crc_fill(table);
    __syncthreads();
    if (status->code) return;
    const Item item = a.items[place.item];
    const Work *work = work_of(item);
    const Crc crc = crc_open(table);
    const u64 stride = (u64)place.parts * (blockDim.x / 32);
    for (u64 t = work->desc.first_tile + warp_of() * place.parts + place.part; t < work->desc.end_tile; t += stride) {
        const TileAt tile = tile_at(item, work, t);
        const u32 sum = crc_warp(crc, (const u32 *)tile.bytes, tile.len / 4);
        if (sum != tile.crc && lane_of() == 0) report(status, STATUS_TILE_CHECKSUM);
    }
}
