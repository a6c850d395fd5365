// Where the tiles of a new blob go, its directory, and the checksum of its header; a block a blob.

#include "assemble.cuh"
#include "crc.cuh"

// Tiles whose lengths a thread adds up at a time.
#define LAYOUT_EACH 8

// Adds up the tiles' lengths and writes header and directory, if there is room for the blob. Leaves the blob's bytes
// in the status: those written, or those needed.
KERNEL(ASSEMBLE_THREADS) assemble_layout(const Assembly a) {
    __shared__ u64 sums[32];
    __shared__ u32 stop;
    const u32 lane = lane_of(), warp = warp_of();
    if (threadIdx.x == 0) stop = a.status->code;
    if (warp == 0) sums[lane] = 0;
    __syncthreads();
    if (stop) return;

    // 1. Where tiles start.
    const u64 directory = assemble_directory(a), header = directory + 8 * a.tiles + 4;
    u64 at = header;
    for (u64 base = 0; base < a.tiles; base += blockDim.x * LAYOUT_EACH) {
        const u64 first = base + threadIdx.x * LAYOUT_EACH;
        u32 len[LAYOUT_EACH];
        u64 mine = 0;
#pragma unroll
        for (u32 i = 0; i < LAYOUT_EACH; ++i) {
            len[i] = first + i < a.tiles ? a.lengths[first + i] : 0;
            mine += len[i];
        }
        const u64 before = warp_before(mine);
        if (lane == 31) sums[warp] = before + mine;
        __syncthreads();
        const u64 part = sums[lane];
        const u64 parts = warp_before(part);
        u64 start = at + __shfl_sync(ALL_LANES, parts, (int)warp) + before;
        at += __shfl_sync(ALL_LANES, parts + part, 31);
#pragma unroll
        for (u32 i = 0; i < LAYOUT_EACH; ++i) {
            if (first + i < a.tiles) a.offsets[first + i] = start;
            start += len[i];
        }
        __syncthreads();
    }
    if (at > a.out_len) {
        if (threadIdx.x == 0) report(a.status, STATUS_BUFFER, 0, at);
        return;
    }

    // 2. Header and directory; checksums come later.
    u32 *out = (u32 *)a.out;
    for (u64 i = threadIdx.x; i < directory / 4; i += blockDim.x) out[i] = i == 2 ? (u32)header : a.staged[i];
    u32 *entries = out + directory / 4;
    for (u64 t = threadIdx.x; t < a.tiles; t += blockDim.x) {
        entries[2 * t] = a.lengths[t];
        entries[2 * t + 1] = 0;
    }
    if (threadIdx.x == 0) a.status->size = at;
}

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
