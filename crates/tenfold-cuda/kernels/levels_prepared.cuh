// Tiles of levels behind transforms: levels are those of working values, which become elements once the transforms are
// undone. The twin of `decode_prepared` in `facade.rs` and of `prepare/tensor.rs`.
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

// A blob whose transforms give each column a number, means or weights, and then perhaps each row a weight: the numbers of columns,
// in shared memory, and the rows' weights as the header has them, or null.
struct Columns {
    const float *numbers;
    u32 count;
    bool added;
    const u8 *rows;
};

// What is asked for once a row; in shared memory, so that it takes no registers of a hot loop: weights of rows, bytes of the numbers.
struct ColumnsRow {
    const u8 *weights;
    u32 bytes;
};

__shared__ ColumnsRow columns_row;

// What a row is multiplied by, for a lane that goes from row to row; the next one's is there before it is needed.
template <bool ROWS> struct OverRows {
    u32 after;
    float now, next;

    METHOD OverRows(u32 row) : after(row + 1) {
        now = weight(row);
        next = weight(after);
    }
    METHOD static float weight(u32 row) { return weight_undone((signed char)columns_row.weights[row]); }
    METHOD float weigh(float v, bool ahead) const { return __fmul_rn(v, ahead ? next : now); }
    METHOD void go_on() {
        now = next;
        // Behind the last row there are other bytes of the header.
        next = weight(++after);
    }
};
template <> struct OverRows<false> {
    METHOD OverRows(u32) {}
    METHOD float weigh(float v, bool) const { return v; }
    METHOD void go_on() {}
};

// Where a lane stands among them: at its first value of a group; working values are `APART` bytes of numbers apart from one step to
// the next. They become elements of a dtype.
template <u32 DTYPE, u32 APART, bool ROWS> struct OverColumns {
    SharedAt at, end;
    bool added;
    OverRows<ROWS> rows;

    METHOD OverColumns(const Columns &columns, u64 first) : rows((u32)(first / columns.count)) {
        const SharedAt start = shared_at(columns.numbers);
        at = start + (u32)(first % columns.count) * 4;
        end = start + columns.count * 4;
        added = columns.added;
    }
    METHOD SharedAt within(SharedAt to) const { return to >= end ? to - columns_row.bytes : to; }
    METHOD SharedAt number(u32 j) const { return within(at + j * APART); }
    METHOD float undo(float v, u32 number, u32 j) const {
        const float by = __uint_as_float(number);
        // Means and weights of rows are not undone together here.
        if (!ROWS && added) return __fadd_rn(v, by);
        return rows.weigh(__fmul_rn(v, by), at + j * APART >= end);
    }
    // Whether all steps of a group lie in one row, as most do.
    METHOD bool is_within() const { return at + (GROUP - 1) * APART < end; }
    METHOD float undo_within(float v, u32 number) const {
        const float by = __uint_as_float(number);
        if (!ROWS && added) return __fadd_rn(v, by);
        return rows.weigh(__fmul_rn(v, by), false);
    }
    // What a table has is so small that no sum or product leaves the range of f32 or bf16: signs need not be set apart.
    METHOD static u32 near_element(float v) {
        const u32 b = __float_as_uint(v);
        if (DTYPE == DTYPE_F32) return b;
        if (DTYPE == DTYPE_BF16) return (b + 0x7fff + (b >> 16 & 1)) >> 16;
        return element_of(DTYPE, v);
    }
    METHOD void go_on() {
        at += GROUP * APART;
        if (at < end) return;
        at -= columns_row.bytes;
        rows.go_on();
    }
};

// What becomes of a working value: its column's number is added or multiplied, then its row's multiplied, and an element made of it.
template <class E, u32 DTYPE, bool ROWS> struct ByColumn : OverColumns<DTYPE, 128, ROWS> {
    static const bool MARKED = false, TOGETHER = ROWS;
    METHOD ByColumn(const Columns &columns, u64 first) : OverColumns<DTYPE, 128, ROWS>(columns, first) {}
    METHOD E of_table(u32 v, u32 j) const {
        return (E)this->near_element(this->undo(__uint_as_float(v), shared_u32(this->number(j)), j));
    }
    // Whether a group lies in one row is asked once, not for each value; where all are `WHOLE`, not at all.
    template <bool WHOLE, class Put> METHOD void of_tables(const u32 *v, Put put) const {
        if (WHOLE || this->is_within()) {
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j)
                put(j, (E)this->near_element(this->undo_within(__uint_as_float(v[j]), shared_u32(this->at + j * 128))));
        } else {
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j) put(j, of_table(v[j], j));
        }
    }
    METHOD E of_units(const Item &, const Desc *d, i32 units, u32 j) const {
        return (E)element_of(DTYPE, this->undo(Working<u32>::of_units(d->scale, units), shared_u32(this->number(j)), j));
    }
};

// Magnitudes below which neither sums nor products of two reach the ends of f32.
#define SMALL_NUMBER 1e18f

// Which of a blob's transforms are weights of rows, undone last; MAX_UNDONE for none.
DEVICE u32 rows_last(const Desc *d) {
    if (d->undone_kind[0] == UNDO_ROWS && d->undone_kind[1] == UNDO_NOTHING) return 0;
    const bool both = d->undone_kind[0] == UNDO_COLUMNS && d->undone_kind[1] == UNDO_ROWS;
    return both && d->undone_kind[2] == UNDO_NOTHING ? 1 : MAX_UNDONE;
}

// Whether a blob's columns can be undone group by group: weights or means of columns, then perhaps weights of rows, or nothing at
// all. Four steps may lead into the next row, but not beyond.
DEVICE bool columns_alone(const Item &item, const Desc *d) {
    const bool alone = d->undone_kind[0] != UNDO_ROWS && (d->undone_kind[0] == UNDO_NOTHING || d->undone_kind[1] == UNDO_NOTHING);
    return (item.dtype == DTYPE_BF16 || item.dtype == DTYPE_F16 || item.dtype == DTYPE_F32) && d->dtype != DTYPE_F64 &&
           (alone || rows_last(d) < MAX_UNDONE) && d->across == 0 && d->columns >= 128 && d->columns < 1u << 16 &&
           d->values >> 32 < d->columns && d->scale < SMALL_NUMBER / (UNITS * 512);
}

// What is in shared memory, once it is there, and where weights of rows are. All threads of a block take part, and synchronise
// before groups are decoded.
DEVICE Columns columns_of(const Item &item, const Desc *d, const float *numbers) {
    const u32 rows = rows_last(d);
    const u8 *weights = rows < MAX_UNDONE ? (const u8 *)item.blob + d->undone_at[rows] : nullptr;
    if (threadIdx.x == 0) columns_row = ColumnsRow{weights, (u32)d->columns * 4};
    return Columns{numbers, 0, d->undone_kind[0] >= UNDO_MEANS, weights};
}

// Fetches the numbers of columns; whether all that this thread took are small. All threads of a block take part.
DEVICE bool columns_fill(const Item &item, const Desc *d, float *numbers) {
    const u8 *blob = (const u8 *)item.blob;
    const u32 at = d->undone_at[0], kind = d->undone_kind[0];
    bool small = true;
    for (u32 i = threadIdx.x; i < (u32)d->columns; i += blockDim.x) {
        // Products with one are what they were.
        float number = 1.0f;
        if (kind >= UNDO_MEANS) number = __uint_as_float(mean_bits(blob, at, kind == UNDO_WIDE_MEANS, i));
        else if (kind == UNDO_COLUMNS) number = weight_undone((signed char)blob[at + i]);
        numbers[i] = number;
        small &= number < SMALL_NUMBER && -number < SMALL_NUMBER;
    }
    return small;
}

// Groups of steps up to `end`.
template <class E, bool ROWS>
DEVICE void prepared_groups(const Item &item, const Desc *d, const Near &near, const Columns &columns, const Tile &t, Coder &c,
                            u32 end) {
    const u64 first = t.start + lane_of();
    if (sizeof(E) == 4) steps_mapped<E>(item, d, near, ByColumn<E, DTYPE_F32, ROWS>(columns, first), t, c, end);
    else if (item.dtype == DTYPE_BF16) steps_mapped<E>(item, d, near, ByColumn<E, DTYPE_BF16, ROWS>(columns, first), t, c, end);
    else steps_mapped<E>(item, d, near, ByColumn<E, DTYPE_F16, ROWS>(columns, first), t, c, end);
}

// The same where rows have weights: a function that is called, and what it takes lies in memory, so that others keep their registers.
struct RowsCall {
    Near near;
    Columns columns;
    Tile t;
    Coder c;
    u32 end;
};

template <class E> OUTLINE void prepared_rows(const Item &item, const Desc *d, RowsCall &call) {
    prepared_groups<E, true>(item, d, call.near, call.columns, call.t, call.c, call.end);
}

// Where a value goes, of which row and column are known as they are coded.
DEVICE u64 prepared_place(const Desc *d, u64 at, u64 row, u64 col) { return d->across ? col * d->across + row : at - d->first; }

// From step `done` on.
template <class E>
DEVICE void prepared_levels(const Item &item, const Work *work, const u32 *slots, const Tile &t, Coder &c, u32 done) {
    const Desc *d = &work->desc;
    const u32 lanes = d->lanes, lane = lane_of();
    const Undo transforms(item, d);
    E *out = (E *)item.out;
    // The lane's first value in the map, and its first among those wanted.
    const u32 from = max(t.from, done * lanes), next = done * lanes + lane;
    const u32 first = from > lane ? (from - lane + lanes - 1) / lanes * lanes + lane : lane;
    Walk map(t.start + next, d->width, lanes), tensor(t.start + first, d->columns, lanes);
    const auto class_of = [&](u32) {
        const u32 cls = class_at(item, d, map.row, map.col);
        map.go_on();
        return cls;
    };
    steps_plain(work, slots, t, c, done, class_of, [&](u32 i, i32 units) {
        const auto v = transforms.undo(Working<E>::of_units(d->scale, units), tensor.row, tensor.col);
        out[prepared_place(d, t.start + i, tensor.row, tensor.col)] = Working<E>::element_of_real(item.dtype, v);
        tensor.go_on();
    });
}

template <class E> DEVICE void prepared_zeros(const Item &item, const Desc *d, const Tile &t) {
    const Undo transforms(item, d);
    E *out = (E *)item.out;
    Walk tensor(t.start + t.from + lane_of(), d->columns, 32);
    for (u32 i = t.from + lane_of(); i < t.to; i += 32) {
        const auto v = transforms.undo((typename Working<E>::Real)0, tensor.row, tensor.col);
        out[prepared_place(d, t.start + i, tensor.row, tensor.col)] = Working<E>::element_of_real(item.dtype, v);
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
            out[prepared_place(d, t.start + i, tensor.row, tensor.col)] = Working<E>::element_of_real(item.dtype, v);
            tensor.go_on();
        }
    });
}

template <class E>
DEVICE void prepared_tile(const Item &item, const Work *work, const Near &near, const Columns &columns, u64 number,
                          Status *status) {
    const Desc *d = &work->desc;
    const u32 lane = lane_of();
    Tile t;
    if (!tile_begin(item, work, number, t, status)) return;
    if (!t.coded) {
        prepared_zeros<E>(item, d, t);
    } else {
        Coder c = coder_open(item, d, t, near.ring);
        if (__any_sync(ALL_LANES, c.bad)) {
            if (c.bad) report(status, c.bad);
            return;
        }
        const bool halves = sizeof(E) == 2 || sizeof(E) == 4;
        const u32 done = halves && columns.count ? steps_in_groups(d, near, t) : 0;
        if (halves && done && columns.rows) {
            RowsCall call = {near, columns, t, c, done};
            prepared_rows<E>(item, d, call);
            c = call.c;
        } else if (halves && done) {
            prepared_groups<E, false>(item, d, near, columns, t, c, done);
        }
        prepared_levels<E>(item, work, near.slots, t, c, done);
        coder_close(t, c);
        if (c.bad) report(status, c.bad);
    }
    __syncwarp();
    if (t.exact) {
        const u32 code = prepared_exact<E>(item, d, t);
        if (code && lane == 0) report(status, code);
        __syncwarp();
    }
    if (d->kept > 0) kept_put<E>(item, d, t.start + t.from, t.start + t.to);
    __syncwarp();
}

// A block's share of a blob with transforms. As for blobs without, another launch may have more room.
template <class E> OUTLINE void prepared_blob(const Share &share, u32 room, u32 above, u32 more) {
    DYNAMIC_SHARED(memory);
    const Item &item = share.item;
    const Work *work = share.work;
    const Desc *d = &work->desc;
    const u32 warps = blockDim.x / 32;
    bool alone = (sizeof(E) == 2 || sizeof(E) == 4) && columns_alone(item, d);

    // Shared memory: rings, working values, numbers of columns and whether all are small, slots at a multiple of a table's
    // size, the map; the last two if there is room.
    const u32 rings = warps * RING_ROOM, lut_bytes = 512 * 4, columns_bytes = (u32)d->columns * 4;
    const u64 tables = (u64)d->tables << d->log << 2;
    const auto slots_from = [&](u32 used) {
        return used + 16 + (u32)(-((u64)shared_at(memory) + used + 16) & ((4ull << d->log) - 1));
    };
    u32 used = rings + (alone ? lut_bytes + columns_bytes : 0);
    const u64 need = slots_from(used) + tables;
    if ((above && need <= above) || (more && need > room)) return;
    // Numbers of very many columns may leave no room for slots, which matter more.
    if (need > room) {
        alone = false;
        used = rings;
    }
    u32 *lut = (u32 *)(memory + rings);
    float *numbers = (float *)(memory + rings + lut_bytes);
    u32 *large = (u32 *)(memory + used);
    u32 *slots = (u32 *)(memory + slots_from(used));
    const u64 slots_end = slots_from(used) + tables;
    Near near;
    near.slots = slots_end <= room ? slots : nullptr;
    near.lut = lut;
    near.ring = (u16 *)(memory + warp_of() * RING_ROOM);
    near.map.kind = MAP_NONE;
    Columns columns = columns_of(item, d, numbers);
    if (threadIdx.x == 0) *large = 0;
    __syncthreads();
    if (alone && near.slots) {
        for (u32 i = threadIdx.x; i < 512; i += blockDim.x)
            lut[i] = element<u32>(DTYPE_F32, d->scale, units_of(d->offsets, (i32)(signed char)(i & 255), i < 256));
        if (!columns_fill(item, d, numbers)) *large = 1;
        map_open(near.map, item, d, true, memory, (u32)slots_end, room, d->columns);
    }
    // The rings are not in use yet.
    if (near.slots)
        slots_fill(slots, work->start, d->tables, d->log, (u16 *)memory, warps * RING_ROOM / 512, [&](u32 t) {
            return slots_at(d, t / d->tables_per_class, t % d->tables_per_class);
        });
    __syncthreads();
    map_fill(near.map, d);
    __syncthreads();
    if (near.map.kind != MAP_NONE && !*large) columns.count = (u32)d->columns;
    share_tiles<1>(share, warps, [&](u64 tile, u64) { prepared_tile<E>(item, work, near, columns, tile, share.status); });
}
