// Tiles of levels behind transforms: levels are those of working values, which become elements once the transforms are undone. The twin of `decode_prepared` in `facade.rs` and of `prepare/tensor.rs`.
//
// A way of its own, and a function that is called, so that blobs without transforms do not pay for it.
#pragma once

#include "kept.cuh"
#include "levels_ticks.cuh"
#include "tiles.cuh"
#include "undo.cuh"

// Working values of tensors whose elements have so many bytes, and these elements.
template <class E> struct Working {
    typedef float Real;
    METHOD static Real of_bits(u64 bits) { return __uint_as_float((u32)bits); }
    METHOD static bool is_finite(u64 bits) { return (~bits & 0x7f800000u) != 0; }
    METHOD static E element_of_real(u32 dtype, Real v) { return (E)element_of(dtype, v); }
    METHOD static Real of_units(double scale, i32 units) { return of_bits(element<u32>(DTYPE_F32, scale, units)); }
};

template <> struct Working<u64> {
    typedef double Real;
    METHOD static Real of_bits(u64 bits) { return __longlong_as_double((i64)bits); }
    METHOD static bool is_finite(u64 bits) { return (~bits & 0x7ff0000000000000ull) != 0; }
    METHOD static u64 element_of_real(u32, Real v) { return finite_f64(v); }
    METHOD static Real of_units(double scale, i32 units) { return of_bits(element_f64(scale, units)); }
};

template <class E> DEVICE void prepared_levels(const Item &item, const Work *work, const u32 *slots, const Tile &t, Coder &c) {
    const Desc *d = &work->desc;
    const u32 lanes = d->lanes, lane = lane_of();
    const Undo transforms(item, d);
    E *out = (E *)item.out;
    // The lane's first value in the map, and its first among those wanted.
    const u32 first = t.from > lane ? (t.from - lane + lanes - 1) / lanes * lanes + lane : lane;
    Walk map(t.start + lane, d->width, lanes), tensor(t.start + first, d->columns, lanes);
    const auto class_of = [&](u32) {
        const u32 cls = class_at(item, d, map.row, map.col);
        map.go_on();
        return cls;
    };
    steps_plain(work, slots, t, c, 0, class_of, [&](u32 i, i32 units) {
        const auto v = transforms.undo(Working<E>::of_units(d->scale, units), tensor.row, tensor.col);
        out[t.start + i - d->first] = Working<E>::element_of_real(item.dtype, v);
        tensor.go_on();
    });
}

template <class E> DEVICE void prepared_zeros(const Item &item, const Desc *d, const Tile &t) {
    const Undo transforms(item, d);
    E *out = (E *)item.out + (t.start - d->first);
    Walk tensor(t.start + t.from + lane_of(), d->columns, 32);
    for (u32 i = t.from + lane_of(); i < t.to; i += 32) {
        const auto v = transforms.undo((typename Working<E>::Real)0, tensor.row, tensor.col);
        out[i] = Working<E>::element_of_real(item.dtype, v);
        tensor.go_on();
    }
}

template <class E> DEVICE u32 prepared_exact(const Item &item, const Desc *d, const Tile &t) {
    const Undo transforms(item, d);
    E *out = (E *)item.out;
    const auto finite = [](u64 bits) { return Working<E>::is_finite(bits); };
    return exact_runs(t, sizeof(typename Working<E>::Real), finite, [&](u64 from, u64 to, u64 bits) {
        Walk tensor(t.start + from + lane_of(), d->columns, 32);
        for (u64 i = from + lane_of(); i < to; i += 32) {
            const auto v = transforms.undo(Working<E>::of_bits(bits), tensor.row, tensor.col);
            out[t.start + i - d->first] = Working<E>::element_of_real(item.dtype, v);
            tensor.go_on();
        }
    });
}

template <class E>
DEVICE void prepared_tile(const Item &item, const Work *work, const u32 *slots, u16 *ring, u64 number, Status *status) {
    const Desc *d = &work->desc;
    const u32 lane = lane_of();
    Tile t;
    u32 code = tile_open(item, work, number, t);
    if (code) {
        if (lane == 0) report(status, code);
        return;
    }
    if (!t.coded) {
        prepared_zeros<E>(item, d, t);
    } else {
        Coder c = coder_open(item, d, t, ring);
        if (__any_sync(ALL_LANES, c.bad)) {
            if (c.bad) report(status, c.bad);
            return;
        }
        prepared_levels<E>(item, work, slots, t, c);
        coder_close(t, c);
        if (c.bad) report(status, c.bad);
    }
    __syncwarp();
    if (t.exact) {
        code = prepared_exact<E>(item, d, t);
        if (code && lane == 0) report(status, code);
        __syncwarp();
    }
    if (d->kept > 0) kept_put<E>(item, d, t.start + t.from, t.start + t.to);
    __syncwarp();
}

// A block's share of a blob with transforms.
template <class E> OUTLINE void prepared_blob(const Share &share, u32 room) {
    DYNAMIC_SHARED(memory);
    const Work *work = share.work;
    const Desc *d = &work->desc;
    const u32 warps = blockDim.x / 32, used = warps * RING_ROOM;
    // Shared memory: rings, slots if there is room.
    u32 *slots = used + ((u64)d->tables << d->log << 2) <= room ? (u32 *)(memory + used) : nullptr;
    // The rings are not in use yet.
    if (slots)
        slots_fill(slots, work->start, d->tables, d->log, (u16 *)memory, used / 512, [&](u32 t) {
            return slots_at(d, t / d->tables_per_class, t % d->tables_per_class);
        });
    __syncthreads();
    share_tiles<1>(share, warps, [&](u64 tile, u64) {
        prepared_tile<E>(share.item, work, slots, (u16 *)(memory + warp_of() * RING_ROOM), tile, share.status);
    });
}
