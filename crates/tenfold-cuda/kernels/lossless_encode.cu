// Elements to lossless tiles. The twin of `lossless/encode.rs`.
//
// Tables and header from the counts of `lossless_count.cu`; tiles, a warp each, with coded planes in slots of the
// workspace. Once `lossless_layout` knows where tiles go, `lossless_write.cu` puts them there.

#include "fit.cuh"
#include "lossless_encode.cuh"
#include "pack.cuh"
#include "quotient.cuh"
#include "split.cuh"

// Bytes near those of a sample get a slot as well: above, and further below, as there are half as many values of every
// exponent as of the next, and more values than the sample has find smaller ones.
#define SPARE_BELOW 16
#define SPARE_ABOVE 2
// More than these would cost more than a second pass.
#define SPARE_MOST 32

// Whether `quotient_factor` makes exact quotients of states that are below f·2^20: of every frequency up to 2963, and of
// most above.
DEVICE bool divides(u32 f) {
    const Quotient by = quotient_of(f);
    return ((u64)f << 20) - 1 < (1ull << (32 + by.shift)) / max((u64)1, (u64)by.factor * f - (1ull << (32 + by.shift)));
}

// Gives slots of a symbol that has too many for an exact quotient to the one that has most beside it. All lanes of a warp
// take part.
DEVICE void table_divide(u32 *freq) {
    const u32 lane = lane_of();
    u32 taken = 0, most = 0;
    for (u32 s = lane; s < 256; s += 32) {
        const u32 f = freq[s];
        u32 to = f;
        while (to > 2 && !divides(to)) --to;
        freq[s] = to;
        taken += f - to;
        most = max(most, f <= 1u << (PLANE_LOG - 1) ? f << 8 | s : 0);
    }
    // No two have more than half of all slots.
    taken = warp_sum(taken);
    for (int by = 16; by > 0; by >>= 1) most = max(most, __shfl_xor_sync(ALL_LANES, most, by));
    // Another lane wrote what lane 0 adds to: shuffles do not order memory.
    __syncwarp();
    if (lane == 0 && taken > 0) freq[most & 255] += taken;
    __syncwarp();
}

DEVICE void plane_entries(uint2 *entries, const u32 *freq) {
    pack_fill(entries, freq);
    for (u32 s = lane_of(); s < 256; s += 32)
        if (freq[s] == 0) entries[s].x |= NO_SLOT;
}

// What a table is made for: the counts of all values, or those of a sample with spare bytes. Returns how many bytes
// were found. All lanes of a warp take part.
DEVICE u32 plane_counts(const u64 *from, bool sampled, u64 *counts) {
    const u32 lane = lane_of();
    u32 seen[8], spare[8], distinct = 0, more = 0;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        counts[i * 32 + lane] = from[i * 32 + lane];
        seen[i] = __ballot_sync(ALL_LANES, from[i * 32 + lane] > 0);
        distinct += (u32)__popc(seen[i]);
    }
    if (!sampled || distinct < 2) return distinct;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        const u32 before = i > 0 ? seen[i - 1] : 0, after = i < 7 ? seen[i + 1] : 0;
        spare[i] = 0;
#pragma unroll
        for (u32 by = 1; by <= SPARE_BELOW; ++by) spare[i] |= __funnelshift_r(seen[i], after, by);
#pragma unroll
        for (u32 by = 1; by <= SPARE_ABOVE; ++by) spare[i] |= __funnelshift_l(before, seen[i], by);
        spare[i] &= ~seen[i];
        more += (u32)__popc(spare[i]);
    }
    if (more > SPARE_MOST) return distinct;
#pragma unroll
    for (u32 i = 0; i < 8; ++i)
        if (spare[i] >> lane & 1) counts[i * 32 + lane] = 1;
    return distinct;
}

// A table for each plane where coding it pays, a warp a plane; then the header.
KERNEL(LOSSLESS_THREADS) lossless_encode_tables(const LosslessArgs a) {
    __shared__ u32 freq[8][256];
    __shared__ u64 counts[8][256];
    // Bits of each plane's table, 0 where it has none; and planes that are one byte throughout.
    __shared__ u32 bits[8], constant[8];
    if (lossless_done(a)) return;
    const u32 lane = lane_of(), warp = warp_of(), planes = size_of(a.dtype);
    const bool sampled = a.sampled && !a.again;
    writer_clear(a.assembly.staged, a.staged_room);
    u32 table = 0, distinct = 0;
    if (warp < planes) {
        distinct = plane_counts((sampled ? a.sampled : a.counts) + warp * 256, sampled, counts[warp]);
        __syncwarp();
        if (distinct > 1) {
            u64 total = 0;
            for (u32 s = lane; s < 256; s += 32) total += counts[warp][s];
            const double each = (double)a.values / (double)warp_sum(total);
            fit_normalise(counts[warp], PLANE_LOG, false, freq[warp]);
            table_divide(freq[warp]);
            const double content = fit_cost(counts[warp], freq[warp], PLANE_LOG, false) * each;
            const u32 header = table_measure(freq[warp], false).bits;
            const double states = (double)a.assembly.tiles * a.lanes * 32.0;
            const double all = (double)a.values * 8.0 * (1.0 - WORTH);
            if (content + (double)((header + 7) / 8 * 8) + states < all) table = header;
            plane_entries(a.entries + warp * 256, freq[warp]);
        }
    }
    if (lane == 0) constant[warp] = warp < planes && distinct < 2;
    if (lane == 0) bits[warp] = table;
    __syncthreads();
    if (warp != 0) return;

    Writer w = writer_open(a.assembly.staged, a.staged_room, lane == 0);
    writer_start(w, CODEC_PLANES, a.dtype, a.dims, a.shape);
    // No preparation steps.
    writer_byte(w, 0);
    writer_geometry(w, a.lanes, a.ticks);
    u32 coded = 0, same = 0, total = 0;
    for (u32 p = 0; p < planes; ++p) {
        coded |= (u32)(bits[p] > 0) << p;
        same |= constant[p] << p;
        total += bits[p];
    }
    writer_byte(w, coded);
    writer_varint(w, (total + 7) / 8);
    for (u32 p = 0; p < planes; ++p)
        if (bits[p]) table_write_measured(w, freq[p], false);
    writer_align(w);
    if (lane == 0) {
        a.tabled->coded = coded;
        a.tabled->constant = same;
        *a.assembly.staged_len = writer_bytes(w);
        if (w.over) report(a.assembly.status, STATUS_WORKSPACE);
    }
}

DEVICE uint2 entry_at(const uint2 *entries, u32 p, u32 offset) {
    return *(const uint2 *)((const u8 *)entries + offset + p * (256 * sizeof(uint2)));
}

// Codes the planes of a tile that have a table, and says how each plane of it is to be written. A warp a tile.
template <class E> DEVICE void encode_planes_tile(const LosslessArgs &a, const Tabled &tabled, const uint2 *entries, u16 *rings, u64 tile) {
    const u32 P = sizeof(E), batch = P == 8 ? PACK_TICKS / 2 : PACK_TICKS;
    const u32 lane = lane_of(), lanes = a.lanes;
    const u64 start = tile * a.tile_values;
    const u32 values = (u32)min(a.tile_values, a.values - start);
    const E *data = (const E *)a.data + start;
    const u32 rotate = is_float(a.dtype) ? 1 : 0, mask = split_mask();
    typedef typename Wide<E>::type Value;
    const Value first = data[0];
    // Bits in which values differ from the first; planes whose slot has room left.
    Value differs = 0;
    u32 live = tabled.coded;
    // See `NO_SLOT`.
    u32 marks = 0;
    Pack packs[P];
#pragma unroll
    for (u32 p = 0; p < P; ++p) {
        u8 *slot = slot_at(a, P, tile, p);
        packs[p] = pack_open(rings + p * PACK_RING, (u16 *)(slot + SLOT_STATES), a.slot_words);
    }

    // 1. Steps at the end that are not full, or do not fill a batch.
    const u32 batches = lanes == 32 ? values / 32 / batch : 0;
    for (u32 step = (values + lanes - 1) / lanes; step-- > batches * batch;) {
        const u32 i = step * lanes + lane;
        const bool active = lane < lanes && i < values;
        const Value v = active ? data[i] : first;
        differs |= v ^ first;
#pragma unroll
        for (u32 p = 0; p < P; ++p) {
            if (live >> p & 1) {
                const uint2 entry = entry_at(entries, p, split_offset<E>(v, p, rotate, mask));
                marks |= entry.x;
                pack_push(packs[p], entry, PLANE_LOG, active);
                if (!pack_flush(packs[p])) live &= ~(1u << p);
            }
        }
    }

    // 2. All others, a batch at a time; the next one is on its way meanwhile.
    Value next[batch];
    const E *at = data + (u64)batches * (batch * 32) + lane;
    if (batches > 0) {
#pragma unroll
        for (u32 j = 0; j < batch; ++j) next[j] = __ldg(at - (batch - j) * 32);
    }
    for (u32 b = batches; b-- > 0;) {
        at -= batch * 32;
        Value now[batch];
#pragma unroll
        for (u32 j = 0; j < batch; ++j) {
            now[j] = next[j];
            differs |= now[j] ^ first;
        }
        if (b > 0) {
#pragma unroll
            for (u32 j = 0; j < batch; ++j) next[j] = __ldg(at - (batch - j) * 32);
        }
#pragma unroll
        for (u32 p = 0; p < P; ++p) {
            if (live >> p & 1) {
#pragma unroll
                for (u32 j = batch; j-- > 0;) {
                    const uint2 entry = entry_at(entries, p, split_offset<E>(now[j], p, rotate, mask));
                    marks |= entry.x;
                    pack_push(packs[p], entry, PLANE_LOG);
                }
                if (!pack_flush(packs[p])) live &= ~(1u << p);
            }
        }
    }

    // 3. Whichever form takes fewest bytes.
    for (int by = 16; by > 0; by >>= 1) differs |= __shfl_xor_sync(ALL_LANES, differs, by);
    u32 len = 0;
    bool missed = __any_sync(ALL_LANES, marks >= NO_SLOT);
#pragma unroll
    for (u32 p = 0; p < P; ++p) {
        u32 head = PLANE_STORED, content = values;
        const u32 words = a.slot_words - packs[p].top;
        if (split_offset<E>(differs, p, rotate) == 0) {
            head = PLANE_CONSTANT | split_offset<E>(first, p, rotate) / 8 << 8;
            content = 0;
        } else if (tabled.constant >> p & 1) {
            missed = true;
        } else if ((live >> p & 1) && lanes * 4 + words * 2 < values) {
            pack_close(packs[p]);
            if (lane < lanes) ((u32 *)slot_at(a, P, tile, p))[lane] = packs[p].x;
            head = PLANE_CODED | words << 8;
            content = lanes * 4 + words * 2;
        }
        len += 4 + ((content + 3) & ~3u);
        if (lane == 0) a.heads[tile * P + p] = head;
    }
    if (lane == 0) a.assembly.lengths[tile] = len;
    if (lane == 0 && missed && !a.again) a.tabled->missed = 1;
}

template <class E> DEVICE void encode_planes(const LosslessArgs &a, u8 *memory) {
    const u32 P = sizeof(E), warps = blockDim.x / 32;
    uint2 *entries = (uint2 *)memory;
    if (lossless_done(a) || lossless_whole(a)) return;
    const Tabled tabled = *a.tabled;
    for (u32 i = threadIdx.x; i < P * 256; i += blockDim.x)
        if (tabled.coded >> (i / 256) & 1) entries[i] = a.entries[i];
    __syncthreads();
    u16 *rings = (u16 *)(memory + P * 256 * sizeof(uint2)) + warp_of() * P * PACK_RING;
    const u64 stride = (u64)gridDim.x * warps;
    for (u64 t = (u64)warp_of() * gridDim.x + blockIdx.x; t < a.assembly.tiles; t += stride)
        encode_planes_tile<E>(a, tabled, entries, rings, t);
}

KERNEL(LOSSLESS_THREADS, 4) lossless_encode_tiles_1(const LosslessArgs a) RUNS(encode_planes<u8>)
KERNEL(LOSSLESS_THREADS, 4) lossless_encode_tiles_2(const LosslessArgs a) RUNS(encode_planes<u16>)
KERNEL(LOSSLESS_THREADS, 4) lossless_encode_tiles_4(const LosslessArgs a) RUNS(encode_planes<u32>)
KERNEL(LOSSLESS_THREADS, 3) lossless_encode_tiles_8(const LosslessArgs a) RUNS(encode_planes<u64>)
