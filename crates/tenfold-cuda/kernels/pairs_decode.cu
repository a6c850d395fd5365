// Levels in pairs: tiles of quantised values to elements, a warp a tile, with or without transforms. As `levels_decode.cu` and
// `levels_prepared.cuh` do for single levels.

#include "levels_pairs.cuh"
#include "levels_prepared.cuh"

// What becomes of working values: the numbers of their columns are added or multiplied, then those of their rows multiplied, and
// elements made of them.
template <class E, u32 DTYPE, bool ROWS> struct PairByColumn : OverColumns<DTYPE, 256, ROWS> {
    static const u32 ENTRY = 8;
    static const bool COLUMNS = true, TOGETHER = ROWS;
    typedef typename Pair<sizeof(E)>::Two Two;
    METHOD PairByColumn(const Columns &columns, u64 first) : OverColumns<DTYPE, 256, ROWS>(columns, first) {}
    METHOD uint2 fetch(SharedAt lut) const { return ordered_u64(lut); }
    METHOD static Two join(u32 a, u32 b) { return (Two)a | (Two)b << (8 * sizeof(E)); }
    METHOD Two of_table(uint2 v, u32 j) const {
        const uint2 by = shared_u64(this->number(j));
        return join(this->near_element(this->undo(__uint_as_float(v.x), by.x, j)),
                    this->near_element(this->undo(__uint_as_float(v.y), by.y, j)));
    }
    template <bool WHOLE, class Put> METHOD void of_tables(const uint2 *v, Put put) const {
        if (WHOLE || this->is_within()) {
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j) {
                const uint2 by = shared_u64(this->at + j * 256);
                put(j, join(this->near_element(this->undo_within(__uint_as_float(v[j].x), by.x)),
                            this->near_element(this->undo_within(__uint_as_float(v[j].y), by.y))));
            }
        } else {
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j) put(j, of_table(v[j], j));
        }
    }
    METHOD Two of_units(const Item &, const Desc *d, i32 first, i32 second, u32 j) const {
        const uint2 by = shared_u64(this->number(j));
        return join(element_of(DTYPE, this->undo(Working<u32>::of_units(d->scale, first), by.x, j)),
                    element_of(DTYPE, this->undo(Working<u32>::of_units(d->scale, second), by.y, j)));
    }
};

// What the tiles of a blob of pairs have in common.
struct PairsNear {
    Near near;
    // The header with pairs taken for values.
    const Desc *halved;
    Columns columns;
};

template <class E, bool ROWS>
DEVICE void pairs_prepared(const Item &item, const Desc *d, const PairsNear &n, const Tile &t, Coder &c, u32 end) {
    const u64 first = t.start + 2 * lane_of();
    if (sizeof(E) == 4) {
        pairs_mapped<E>(item, d, n.halved, n.near, PairByColumn<E, DTYPE_F32, ROWS>(n.columns, first), t, c, end);
    } else if (item.dtype == DTYPE_BF16) {
        pairs_mapped<E>(item, d, n.halved, n.near, PairByColumn<E, DTYPE_BF16, ROWS>(n.columns, first), t, c, end);
    } else {
        pairs_mapped<E>(item, d, n.halved, n.near, PairByColumn<E, DTYPE_F16, ROWS>(n.columns, first), t, c, end);
    }
}

// The same as a function that is called, and what it takes lies in memory, so that blobs without transforms keep their registers.
struct PreparedCall {
    PairsNear n;
    Tile t;
    Coder c;
    u32 end;
};

template <class E> OUTLINE void pairs_called(const Item &item, const Desc *d, PreparedCall &call) {
    if (call.n.columns.rows) pairs_prepared<E, true>(item, d, call.n, call.t, call.c, call.end);
    else pairs_prepared<E, false>(item, d, call.n, call.t, call.c, call.end);
}

template <class E, u32 SIZE> struct PairGroups {
    METHOD static void run(const Item &item, const Desc *d, const PairsNear &n, const Tile &t, Coder &c, u32 end) {
        if (!d->prepared) {
            pairs_mapped<E>(item, d, n.halved, n.near, PairElements<E>(), t, c, end);
        } else {
            PreparedCall call = {n, t, c, end};
            pairs_called<E>(item, d, call);
            c = call.c;
        }
    }
};
// Numbers of columns are not for elements of a byte.
template <class E> struct PairGroups<E, 1> {
    METHOD static void run(const Item &item, const Desc *d, const PairsNear &n, const Tile &t, Coder &c, u32 end) {
        pairs_mapped<E>(item, d, n.halved, n.near, PairElements<E>(), t, c, end);
    }
};
// Nor are tables for those of eight.
template <class E> struct PairGroups<E, 8> {
    METHOD static void run(const Item &, const Desc *, const PairsNear &, const Tile &, Coder &, u32) {}
};

// Values from tick `done` on.
template <class E>
DEVICE void pairs_rest(const Item &item, const Work *work, const PairsNear &n, const Tile &t, Coder &c, u32 done) {
    const Desc *d = &work->desc;
    E *out = (E *)item.out;
    const auto class_of = [&](u32 i) {
        const u64 at = t.start + i, row = at / d->width;
        return class_at(item, d, row, at - row * d->width);
    };
    const u8 *tables = (const u8 *)n.near.slots;
    if (d->prepared) {
        const Undo transforms(item, d);
        pairs_plain(work, tables, t, c, done, class_of, [&](u32 i, i32 units) {
            const u64 at = t.start + i, row = at / d->columns;
            const u64 col = at - row * d->columns;
            const auto v = transforms.undo(Working<E>::of_units(d->scale, units), row, col);
            out[prepared_place(d, at, row, col)] = Working<E>::element_of_real(item.dtype, v);
        });
    } else {
        pairs_plain(work, tables, t, c, done, class_of, [&](u32 i, i32 units) {
            out[t.start + i - d->first] = element<E>(item.dtype, d->scale, units);
        });
    }
}

template <class E> DEVICE void pairs_tile(const Item &item, const Work *work, const PairsNear &n, u64 number, Status *status) {
    const Desc *d = &work->desc;
    const u32 lane = lane_of();
    Tile t;
    if (!tile_begin(item, work, number, t, status)) return;
    if (t.coded) {
        Coder c = coder_open(item, d, t, n.near.ring);
        if (__any_sync(ALL_LANES, c.bad)) {
            if (c.bad) report(status, c.bad);
            return;
        }
        const u32 done = pairs_in_groups(item, d, n.near, t, sizeof(E));
        if (done) PairGroups<E, sizeof(E)>::run(item, d, n, t, c, done);
        pairs_rest<E>(item, work, n, t, c, done);
        coder_close(t, c);
        if (c.bad) report(status, c.bad);
    } else if (d->prepared) {
        prepared_zeros<E>(item, d, t);
    } else {
        E *out = (E *)item.out + (t.start - d->first);
        for (u32 i = t.from + lane; i < t.to; i += 32) out[i] = 0;
    }
    __syncwarp();
    if (t.exact) {
        const u32 code = d->prepared ? prepared_exact<E>(item, d, t) : put_exact<E>(item, d, t);
        if (code && lane == 0) report(status, code);
        __syncwarp();
    }
    if (d->prepared && d->kept > 0) kept_put<E>(item, d, t.start + t.from, t.start + t.to);
    __syncwarp();
}

// A block's share of a blob. Another launch may have more room.
template <class E> DEVICE void pairs_blob(const Share &share, u32 room, u32 above, u32 more) {
    DYNAMIC_SHARED(memory);
    __shared__ __align__(16) Desc halved;
    __shared__ u32 large;
    const Item &item = share.item;
    const Work *work = share.work;
    const Desc *d = &work->desc;
    const u32 warps = blockDim.x / 32, rings = warps * RING_ROOM;
    // Two numbers of columns are read at once.
    const bool by_column = d->prepared && sizeof(E) >= 2 && sizeof(E) <= 4 && d->columns % 2 == 0 && d->columns >= 256 &&
                           columns_alone(item, d);
    bool grouped = sizeof(E) < 8 && (by_column || !d->prepared);

    // Shared memory: rings, what pairs become, tables, numbers of columns, the map; from the tables on if there is room.
    const u32 entry = by_column || sizeof(E) == 4 ? 8 : 4, columns_bytes = by_column ? ((u32)d->columns * 4 + 15) & ~15u : 0;
    const u64 tables = d->classes == 1 ? PAIR_ALONE : (u64)d->classes * PAIR_CLASS;
    u32 used = rings + (grouped ? PAIRS_TABLES(entry) : 0), columns = columns_bytes;
    if ((above && used + tables + columns <= above) || (more && used + tables + columns > room)) return;
    // Numbers of very many columns may leave no room for tables, which matter more.
    if (used + tables + columns > room) {
        grouped = false;
        used = rings;
        columns = 0;
    }
    const bool fits = used + tables <= room;
    u8 *const at = memory + used;
    u32 *lut = (u32 *)(memory + rings);
    float *numbers = (float *)(at + tables);
    PairsNear n;
    n.near.slots = fits ? (const u32 *)at : nullptr;
    n.near.lut = lut;
    n.near.ring = (u16 *)(memory + warp_of() * RING_ROOM);
    n.near.map.kind = MAP_NONE;
    n.halved = &halved;
    n.columns = columns_of(item, d, numbers);
    n.columns.count = by_column ? (u32)d->columns : 0;
    if (threadIdx.x == 0) large = 0;
    pairs_halve(&halved, d);
    if (grouped && fits) {
        if (by_column) {
            pair_entries<u32>(&halved, DTYPE_F32, lut);
            if (!columns_fill(item, d, numbers)) large = 1;
        } else {
            pair_entries<E>(&halved, item.dtype, lut);
        }
        // Where rows have an odd number of values, pairs lie otherwise in every second row.
        if (d->classes == 1 || d->width % 2 == 0)
            map_open(n.near.map, item, &halved, true, memory, used + (u32)tables + columns, room, by_column ? d->columns / 2 : 0);
    }
    // The rings are not in use yet.
    if (fits && d->classes == 1) pairs_fill_alone((u32 *)at, work->start);
    else if (fits) pairs_fill(at, work->start, d->classes, (u16 *)memory, rings / 2048);
    __syncthreads();
    map_fill(n.near.map, &halved);
    __syncthreads();
    if (large) n.near.map.kind = MAP_NONE;
    share_tiles<1>(share, warps, [&](u64 tile, u64) { pairs_tile<E>(item, work, n, tile, share.status); });
}

template <class E> DEVICE void decode_paired(const TilesArgs &a) {
    const Share &share = share_open(a, CODEC_LEVELS, sizeof(E), [](const Item &, const Work *work) {
        return work->desc.paired ? PART_ALL : PART_NONE;
    });
    if (!share.empty) pairs_blob<E>(share, a.shared, a.above, a.more);
}

KERNEL(DECODE_THREADS) pairs_decode_1(const GRID_CONSTANT TilesArgs a) { decode_paired<u8>(a); }
KERNEL(DECODE_THREADS) pairs_decode_2(const GRID_CONSTANT TilesArgs a) { decode_paired<u16>(a); }
KERNEL(DECODE_THREADS) pairs_decode_4(const GRID_CONSTANT TilesArgs a) { decode_paired<u32>(a); }
KERNEL(DECODE_THREADS) pairs_decode_8(const GRID_CONSTANT TilesArgs a) { decode_paired<u64>(a); }
