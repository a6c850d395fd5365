// Lossless tiles at their place in the blob: heads, content and checksums, a warp a tile.

#include "crc_running.cuh"
#include "lossless_encode.cuh"
#include "pack.cuh"
#include "split.cuh"

// A coded plane: states, then words. Returns the lane's sum.
DEVICE u32 write_coded(const Crc &r, u32 sum, u32 *to, const u8 *slot, u32 slot_words, u32 lanes, u32 words) {
    const u32 *states = (const u32 *)slot;
    const u16 *from = (const u16 *)(slot + SLOT_STATES) + (slot_words - words);
    const u32 content = lanes + (words + 1) / 2;
    u32 k = lane_of();
    if (k < content) {
        const u32 v = k < lanes ? states[k] : pack_pair(from, words, k - lanes);
        to[k] = v;
        sum = crc_next(r, sum, v);
        k += 32;
    }
    for (; k + 96 < content; k += 128) {
        u32 v[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) v[j] = pack_pair(from, words, k + j * 32 - lanes);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            to[k + j * 32] = v[j];
            sum = crc_next(r, sum, v[j]);
        }
    }
    for (; k < content; k += 32) {
        const u32 v = pack_pair(from, words, k - lanes);
        to[k] = v;
        sum = crc_next(r, sum, v);
    }
    return sum;
}

// Four bytes each of the planes that are stored, from four elements.
template <u32 P> DEVICE void write_quad(const Crc &r, u32 (&sums)[P], u32 *to, const u32 (&place)[P], u32 stored, u32 k, Quad<P> q, bool rotate) {
    quad_split(q, rotate);
#pragma unroll
    for (u32 p = 0; p < P; ++p) {
        if (stored >> p & 1) {
            const u32 v = quad_plane(q, p, rotate);
            to[place[p] + k] = v;
            sums[p] = crc_next(r, sums[p], v);
        }
    }
}

template <class E> DEVICE void write_planes_tile(const LosslessArgs &a, const Crc &r, u64 tile) {
    const u32 P = sizeof(E), at_once = P < 4 ? 4 : P == 4 ? 2 : 1;
    const u32 lane = lane_of();
    const u64 start = tile * a.tile_values;
    const u32 values = (u32)min(a.tile_values, a.values - start);
    u32 *to = (u32 *)(a.assembly.out + a.assembly.offsets[tile]);
    u32 sums[P], place[P], content[P], stored = 0, at = 0;

    // 1. Heads, and planes that are coded.
#pragma unroll
    for (u32 p = 0; p < P; ++p) {
        const u32 head = a.heads[tile * P + p], mode = head & 255, words = head >> 8;
        if (lane == 0) to[at] = head;
        place[p] = ++at;
        sums[p] = running_start(head);
        content[p] = 0;
        if (mode == PLANE_CODED) {
            content[p] = a.lanes + (words + 1) / 2;
            sums[p] = write_coded(r, sums[p], to + at, slot_at(a, P, tile, p), a.slot_words, a.lanes, words);
        } else if (mode == PLANE_STORED) {
            content[p] = (values + 3) / 4;
            stored |= 1u << p;
        }
        at += content[p];
    }

    // 2. Planes that are stored, all in one pass over the elements.
    if (stored) {
        const E *data = (const E *)a.data + start;
        const bool rotate = is_float(a.dtype), aligned = (u64)data % (P < 4 ? 4 * P : 16) == 0;
        u32 k = lane;
        if (aligned) {
            for (; k + (at_once - 1) * 32 < values / 4; k += at_once * 32) {
                Quad<P> q[at_once];
#pragma unroll
                for (u32 j = 0; j < at_once; ++j) q[j] = quad_load<P>((const u8 *)(data + 4 * (u64)(k + j * 32)));
#pragma unroll
                for (u32 j = 0; j < at_once; ++j) write_quad<P>(r, sums, to, place, stored, k + j * 32, q[j], rotate);
            }
        }
        for (; k < (values + 3) / 4; k += 32) {
            const Quad<P> q = quad_gather<E>(data + 4 * (u64)k, min(4u, values - 4 * k));
            write_quad<P>(r, sums, to, place, stored, k, q, rotate);
        }
    }

    // 3. The checksum, section by section.
    u32 sum = ~0u;
#pragma unroll
    for (u32 p = 0; p < P; ++p) sum = running_end(sum, sums[p], content[p]);
    if (lane == 0) assemble_checksum(a.assembly, tile, ~sum);
}

template <class E> DEVICE void write_planes(const LosslessArgs &a) {
    __shared__ u32 tables[CRC_TABLE_WORDS];
    if (a.assembly.status->code || lossless_whole(a)) return;
    crc_fill(tables);
    __syncthreads();
    const Crc r = crc_open(tables);
    const u64 stride = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 t = (u64)warp_of() * gridDim.x + blockIdx.x; t < a.assembly.tiles; t += stride)
        write_planes_tile<E>(a, r, t);
}

KERNEL(ASSEMBLE_THREADS) lossless_layout(const LosslessArgs a) {
    if (!lossless_whole(a)) assemble_place(a.assembly);
}
KERNEL(LOSSLESS_THREADS) lossless_write_1(const LosslessArgs a) { write_planes<u8>(a); }
KERNEL(LOSSLESS_THREADS) lossless_write_2(const LosslessArgs a) { write_planes<u16>(a); }
KERNEL(LOSSLESS_THREADS) lossless_write_4(const LosslessArgs a) { write_planes<u32>(a); }
KERNEL(LOSSLESS_THREADS) lossless_write_8(const LosslessArgs a) { write_planes<u64>(a); }
