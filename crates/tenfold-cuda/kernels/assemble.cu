// Where the tiles of a new blob go, its directory, and the checksum of its header; a block a blob.

#include "assemble.cuh"
#include "crc.cuh"

KERNEL(ASSEMBLE_THREADS) assemble_layout(const Assembly a) { assemble_place(a); }

// The checksum of the header, once the directory has those of the tiles.
KERNEL(ASSEMBLE_THREADS) assemble_seal(const Assembly a) {
    __shared__ u32 table[CRC_TABLE_WORDS];
    __shared__ u32 sums[32];
    __shared__ u32 stop;
    const u32 lane = lane_of(), warp = warp_of();
    if (threadIdx.x == 0) stop = a.status->code;
    crc_fill(table);
    if (warp == 0) sums[lane] = 0;
    __syncthreads();
    if (stop) return;

    const u64 words = (assemble_directory(a) + 8 * a.tiles) / 4;
    const u32 share = crc_share(crc_open(table), (const u32 *)a.out, words, warp, blockDim.x / 32);
    if (lane == 0) sums[warp] = share;
    __syncthreads();
    if (warp != 0) return;
    const u32 sum = warp_xor(sums[lane]);
    if (lane == 0) ((u32 *)a.out)[words] = sum;
}
