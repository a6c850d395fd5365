// Which tables a lane's next values have: the class of a value is that of the sum of its row's and its column's scale.
//
// Values come in groups of four steps of 32 lanes. A map has the tables of the group at hand; during it, it looks ahead
// for those of the next, at first and half-way, and then goes on to them: the answer is the start of the chain from one
// state to the next, and nobody must wait for it. There are four maps: the fewer questions a blob leaves open, the fewer
// instructions its map takes.
#pragma once

#include "blob.cuh"

#define GROUP 4
// Sums of two scales.
#define SUMS (2 << MAX_SCALE_BITS)

// Scale number `i` of a packed list.
DEVICE u32 scale_at(const u8 *list, u64 len, u32 bits, u64 i) {
    if (bits == 0) return 0;
    const u64 bit = i * bits, at = bit >> 3;
    u32 v = at < len ? list[at] : 0;
    if (at + 1 < len) v |= (u32)list[at + 1] << 8;
    return v >> (bit & 7) & ((1u << bits) - 1);
}

enum MapKind { MAP_NONE, MAP_ONE, MAP_PHASES, MAP_ALIGNED, MAP_ANY };

// What a block keeps for its map.
struct ClassMap {
    MapKind kind;
    // Address of the table of quantiser 0 by the sum of two scales. Sums are kept four times as large.
    const u32 *base;
    // Scale of each column; where the map is aligned, those of a lane's four steps are one word.
    const u8 *cols;
    // MAP_PHASES: for each scale of a row, each column that a group may start at, and each lane: where the tables of
    // its four values are, in units of 64 bytes from the first.
    uint2 *phases;
    // Columns of a row and between two starts, in units of 32; starts.
    u32 units, apart, starts;
};

// What maps ask for once a row, if that; in shared memory, so that it takes no registers of a hot loop. The scales of rows are in the
// blob's header; `stride` is between the parts of two scales in `phases`.
struct MapRows {
    const u8 *list;
    u64 len;
    u32 bits, width, stride;
    SharedAt sums;
};

__shared__ MapRows map_rows;

// One thread fetches it before maps are made; `base` is the map's.
DEVICE void map_rows_open(const Item &item, const Desc *d, const u32 *base, u32 stride) {
    map_rows = MapRows{(const u8 *)item.blob + d->rows_at, d->rows_len, d->row_bits, (u32)d->width, stride, shared_at(base)};
}

DEVICE u32 row_scale(u32 row) { return scale_at(map_rows.list, map_rows.len, map_rows.bits, row); }

// One class only.
struct OneClass {
    static const bool WHOLE = false;
    SharedAt slots;
    METHOD OneClass(const Item &, const Desc *, const ClassMap &, SharedAt slots, u64) : slots(slots) {}
    METHOD void look_ahead() {}
    METHOD void half_way() {}
    METHOD void go_on() {}
    METHOD SharedAt table(u32) const { return slots; }
};

// Rows are whole steps, and there is room for the tables of every group that may come: one look-up a group.
struct PhasesMap {
    static const bool WHOLE = false;
    SharedAt slots, lane_at;
    u32 row;
    // Where the parts of 32 rows start in `phases`, one a lane; of the 32 after; and that of the row.
    u32 part, part_after, of_row;
    // Steps of a row, and those before the next group; bytes of a part for each, if columns have scales.
    u32 units, unit, bytes;
    uint2 now, ahead;

    METHOD PhasesMap(const Item &, const Desc *d, const ClassMap &map, SharedAt slots, u64 first) : slots(slots) {
        units = map.units;
        bytes = d->col_bits ? 256 / map.apart : 0;
        lane_at = shared_at(map.phases) + lane_of() * 8;
        const u64 at = (first - lane_of()) / 32;
        row = (u32)(at / units);
        unit = (u32)(at - (u64)row * units);
        part = row_scale((row & ~31u) + lane_of()) * map_rows.stride;
        part_after = row_scale((row & ~31u) + 32 + lane_of()) * map_rows.stride;
        of_row = __shfl_sync(ALL_LANES, part, (int)(row & 31));
        look_ahead();
        go_on();
    }

    // All lanes alike.
    METHOD void look_ahead() {
        const SharedAt at = lane_at + unit * bytes;
        ahead = shared_u64(at + of_row);
        unit += GROUP;
        if (unit < units) return;
        unit -= units;
        if (!map_rows.bits) return;
        ++row;
        if ((row & 31) == 0) {
            part = part_after;
            part_after = row_scale(row + 32 + lane_of()) * map_rows.stride;
        }
        of_row = __shfl_sync(ALL_LANES, part, (int)(row & 31));
        if (unit == 0) return;
        // Steps of the group that lie in the next row.
        const uint2 other = shared_u64(at + of_row);
        if (unit == 3) ahead.x = (ahead.x & 0xffff) | (other.x & ~0xffffu);
        if (unit == 1) ahead.y = (ahead.y & 0xffff) | (other.y & ~0xffffu);
        else ahead.y = other.y;
    }

    METHOD void half_way() {}
    METHOD void go_on() { now = ahead; }
    METHOD SharedAt table(u32 j) const { return plus_half_64(j < 2 ? now.x : now.y, j & 1, slots); }
};

// What maps have that add up scales value by value. Scales of rows are addresses in `sums`.
struct SumsMap {
    SharedAt slots, col, cols_end, scale, next_scale;
    u32 row;
    bool by_column;
    u32 now[GROUP], ahead[GROUP];

    // From value `first` on, with the lane's columns from `lane_cols`.
    METHOD SumsMap(const Desc *d, SharedAt slots, SharedAt lane_cols, u64 first) : slots(slots) {
        const u32 width = map_rows.width;
        by_column = d->col_bits > 0;
        row = (u32)(first / width);
        col = lane_cols + (u32)(first - (u64)row * width);
        cols_end = lane_cols + width;
        scale = of_row(row);
        next_scale = of_row(row + 1);
    }
    METHOD static SharedAt of_row(u32 row) { return map_rows.sums + 4 * row_scale(row); }
    METHOD void next_row() { next_scale = of_row(++row + 1); }
    METHOD void go_on() {
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) now[j] = ahead[j];
    }
    METHOD SharedAt table(u32 j) const { return slots + now[j]; }
};

// Rows are whole groups, so that all lanes are in one row and a lane's columns are one word.
struct AlignedMap : SumsMap {
    // Where columns have numbers of their own, they are as many: a group never reaches into the next row.
    static const bool WHOLE = true;
    // The columns of the group looked ahead to, and their row's scale.
    u32 four;
    SharedAt here;

    METHOD AlignedMap(const Item &, const Desc *d, const ClassMap &map, SharedAt slots, u64 first)
        : SumsMap(d, slots, shared_at(map.cols) + lane_of() * 4, first - lane_of()) {
        look_ahead();
        half_way();
        go_on();
    }

    METHOD void look_ahead() {
        four = by_column ? shared_u32(col) : 0;
        here = scale;
        col += GROUP * 32;
        if (col >= cols_end) {
            // All lanes alike.
            col -= map_rows.width;
            scale = next_scale;
            next_row();
        }
    }
    METHOD void half_way() {
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) ahead[j] = shared_u32(plus_byte(four, j, here));
    }
};

// Any rows of 128 values or more: every lane looks after itself.
struct AnyMap : SumsMap {
    static const bool WHOLE = false;
    SharedAt pick[GROUP];
    bool crossed;

    METHOD AnyMap(const Item &, const Desc *d, const ClassMap &map, SharedAt slots, u64 first)
        : SumsMap(d, slots, shared_at(map.cols), first) {
        look_ahead();
        half_way();
        go_on();
    }

    METHOD void look_ahead() {
        crossed = false;
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) {
            pick[j] = scale + (by_column ? shared_u8(col) : 0);
            col += 32;
            const bool over = col >= cols_end;
            crossed |= over;
            col = over ? col - map_rows.width : col;
            scale = over ? next_scale : scale;
        }
    }
    METHOD void half_way() {
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) ahead[j] = shared_u32(pick[j]);
        if (__any_sync(ALL_LANES, crossed)) {
            if (crossed) next_row();
        }
    }
};

// Fetches the scales of columns, four times as large; those of a lane's four steps side by side if the map is aligned. All threads of
// the block take part.
DEVICE void map_columns(u8 *cols, const Item &item, const Desc *d, bool aligned) {
    if (d->col_bits == 0) return;
    for (u32 i = threadIdx.x; i < (u32)d->width; i += blockDim.x) {
        const u32 at = aligned ? (i & ~127u) | (i & 31) << 2 | (i >> 5 & 3) : i;
        cols[at] = (u8)(4 * scale_at((const u8 *)item.blob + d->cols_at, d->cols_len, d->col_bits, (u64)i * d->apart));
    }
}

// Lays a blob's map out in a block's shared memory from byte `used` on, as well as there is room, and fetches scales.
// `columns` says how many values of the map have numbers of their own, 0 for none. All threads of the block take part, and
// synchronise before `map_fill`.
DEVICE void map_open(ClassMap &map, const Item &item, const Desc *d, bool has_slots, u8 *memory, u32 used, u32 room, u64 columns) {
    map.kind = has_slots && d->classes == 1 ? MAP_ONE : MAP_NONE;
    // Four steps may lead into the next row, but not beyond. Rows are counted in 32 bits.
    if (!has_slots || d->classes == 1 || d->width < 128 || d->width >= 1u << 30 || d->values >> 32 >= d->width) return;
    const u32 per_class = d->tables_per_class, width = (u32)d->width;
    used = (used + 15) & ~15u;
    u32 *base = (u32 *)(memory + used);
    u8 *cols = memory + used + SUMS * 4;
    const u64 end = (u64)used + SUMS * 4 + (d->col_bits ? width : 0);
    if (end > room) return;
    map.base = base;
    map.cols = cols;
    const bool aligned = width % 128 == 0 && d->tile_values % 128 == 0 && (columns == 0 || columns == width);
    map.kind = aligned ? MAP_ALIGNED : MAP_ANY;

    // Groups start at columns that are a multiple of the largest number that divides them and a row.
    map.units = width / 32;
    map.apart = map.units % 4 == 0 ? 4 : map.units % 2 == 0 ? 2 : 1;
    map.starts = d->col_bits ? map.units / map.apart : 1;
    const u64 phases_at = (end + 15) & ~15ull, phases_end = phases_at + ((u64)map.starts * 256 << d->row_bits);
    const bool even = width % 32 == 0 && d->ticks % map.apart == 0 && d->lanes == 32;
    // Numbers of columns are best looked up where groups are known to lie in one row.
    if (even && phases_end <= room && !(aligned && columns)) map.kind = MAP_PHASES;
    map.phases = (uint2 *)(memory + phases_at);

    if (threadIdx.x == 0) map_rows_open(item, d, base, map.starts * 256);
    for (u32 i = threadIdx.x; i < SUMS; i += blockDim.x) base[i] = (u32)d->class_of_sum[i] * per_class << d->log << 2;
    map_columns(cols, item, d, map.kind == MAP_ALIGNED);
}

// Fills in what follows from the scales. All threads of the block take part, and synchronise after.
DEVICE void map_fill(const ClassMap &map, const Desc *d) {
    if (map.kind != MAP_PHASES) return;
    const u32 each = map.starts * 32;
    const bool by_column = d->col_bits > 0;
    for (u32 i = threadIdx.x; i < each << d->row_bits; i += blockDim.x) {
        const u32 row = i / each, start = (i - row * each) / 32, lane = i % 32;
        u32 at[GROUP];
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) {
            const u32 unit = start * map.apart + j;
            const u32 col = (unit < map.units ? unit : unit - map.units) * 32 + lane;
            at[j] = map.base[row + (by_column ? map.cols[col] / 4 : 0)] / 64;
        }
        map.phases[i] = make_uint2(at[0] | at[1] << 16, at[2] | at[3] << 16);
    }
}
