// Levels: tiles of quantised values to elements, a warp a tile. The twin of `levels/decode.rs` and `levels/dequant.rs`.

#include "levels_prepared.cuh"

template <class E> DEVICE void decode_tile(const Item &item, const Work *work, const Near &near, u64 number, Status *status) {
    const Desc *d = &work->desc;
    const u32 lane = lane_of();
    Tile t;
    if (!tile_begin(item, work, number, t, status)) return;
    if (!t.coded) {
        E *out = (E *)item.out + (t.start - d->first);
        for (u32 i = t.from + lane; i < t.to; i += 32) out[i] = 0;
    } else {
        Coder c = coder_open(item, d, t, near.ring);
        if (__any_sync(ALL_LANES, c.bad)) {
            if (c.bad) report(status, c.bad);
            return;
        }
        // Elements of eight bytes have no table of them.
        const u32 done = sizeof(E) < 8 ? steps_in_groups(d, near, t) : 0;
        if (sizeof(E) < 8 && done) steps_mapped<E>(item, d, near, AsElement<E>(), t, c, done);
        const auto class_of = [&](u32 i) {
            const u64 at = t.start + i, row = at / d->width;
            return class_at(item, d, row, at - row * d->width);
        };
        E *out = (E *)item.out;
        steps_plain(work, near.slots, t, c, done, class_of, [&](u32 i, i32 units) {
            out[t.start + i - d->first] = element<E>(item.dtype, d->scale, units);
        });
        coder_close(t, c);
        if (c.bad) report(status, c.bad);
    }
    if (t.exact) {
        __syncwarp();
        const u32 code = put_exact<E>(item, d, t);
        if (code && lane == 0) report(status, code);
    }
    __syncwarp();
}

template <class E> DEVICE void decode_blob(const TilesArgs &a) {
    DYNAMIC_SHARED(memory);
    const Share &share = share_open(a, CODEC_LEVELS, sizeof(E), [&](const Item &, const Work *work) {
        return work->desc.paired || (a.small && work->small) ? PART_NONE : PART_ALL;
    });
    if (share.empty) return;
    if (share.work->desc.prepared) {
        prepared_blob<E>(share, a.shared, a.above, a.more);
        return;
    }
    const Item &item = share.item;
    const Work *work = share.work;
    const Desc *d = &work->desc;
    const u32 warps = blockDim.x / 32;

    // Shared memory: rings, elements, slots at a multiple of a table's size, the map; the last two if there is room.
    u32 used = warps * RING_ROOM;
    u32 *lut = (u32 *)(memory + used);
    used += 512 * 4;
    used += (u32)(-((u64)shared_at(memory) + used) & ((4ull << d->log) - 1));
    u32 *slots = (u32 *)(memory + used);
    const u64 slots_end = (u64)used + ((u64)d->tables << d->log << 2);
    // Another launch is for this blob.
    if ((a.above && slots_end <= a.above) || (a.more && slots_end > a.shared)) return;
    Near near;
    near.slots = slots_end <= a.shared ? slots : nullptr;
    near.lut = lut;
    near.ring = (u16 *)(memory + warp_of() * RING_ROOM);
    for (u32 i = threadIdx.x; i < 512; i += blockDim.x) {
        const u32 q = i < 256;
        const i32 k = (i32)(signed char)(i & 255);
        u32 v = sizeof(E) < 8 ? (u32)element<E>(item.dtype, d->scale, units_of(d->offsets, k, q)) : 0;
        if (sizeof(E) < 4 && (i & 255) == ESCAPE) v |= LUT_ESCAPE;
        lut[i] = v;
    }
    map_open(near.map, item, d, near.slots != nullptr, memory, (u32)slots_end, a.shared, 0);
    // The rings are not in use yet.
    if (near.slots)
        slots_fill(slots, work->start, d->tables, d->log, (u16 *)memory, warps * RING_ROOM / 512, [&](u32 t) {
            return slots_at(d, t / d->tables_per_class, t % d->tables_per_class);
        });
    __syncthreads();
    map_fill(near.map, d);
    __syncthreads();
    share_tiles<1>(share, warps, [&](u64 tile, u64) { decode_tile<E>(item, work, near, tile, share.status); });
}

KERNEL(DECODE_THREADS) levels_decode_1(const GRID_CONSTANT TilesArgs a) { decode_blob<u8>(a); }
KERNEL(DECODE_THREADS) levels_decode_2(const GRID_CONSTANT TilesArgs a) { decode_blob<u16>(a); }
KERNEL(DECODE_THREADS) levels_decode_4(const GRID_CONSTANT TilesArgs a) { decode_blob<u32>(a); }
KERNEL(DECODE_THREADS) levels_decode_8(const GRID_CONSTANT TilesArgs a) { decode_blob<u64>(a); }
