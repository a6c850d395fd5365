// What a header says before its tables: shape, codec, geometry, and the parameters of the codec.
//
// The twin of `blob/header.rs`, `levels/params.rs` and `lossless/params.rs`. A warp reads; its lanes do the same,
// but for lists, of which each lane takes an entry. Reading goes on after the first trouble where that does no harm:
// only what decides how far to go has to be right.
#pragma once

#include "blob.cuh"
#include "header_reader.cuh"
#include "transforms_read.cuh"

OUTLINE u32 header_size_of(u32 dtype) { return size_of(dtype); }

// Quotients of what is seldom large.
OUTLINE u64 header_quotient(u64 a, u64 b) {
    if ((a | b) >> 32 == 0) return (u32)a / (u32)b;
    return a / b;
}

DEVICE u64 header_quotient_up(u64 a, u64 b) { return header_quotient(a + b - 1, b); }

// Byte `lane` of sixteen.
DEVICE u32 header_byte_of(u64 low, u64 high) {
    const u32 lane = lane_of();
    return lane < 16 ? (u32)((lane < 8 ? low : high) >> lane % 8 * 8) & 0xff : 0;
}

// What every header starts with, up to the geometry of the tiles. There is no trouble before.
DEVICE void read_start(Reader &r, Desc *d, u64 max_bytes, u32 max_dims) {
    const u32 stored = header_window.words[1];
    const bool paired = (stored >> 8 & 0xff) == CODEC_PAIRS;
    // But for their tiles, pairs are levels.
    const u32 fixed = paired ? (stored & ~0xff00u) | CODEC_LEVELS << 8 : stored;
    const u32 codec = fixed >> 8 & 0xff, dtype = fixed >> 16 & 0xff, dims = fixed >> 24;
    const u32 size = header_size_of(dtype);
    r.at = FIXED;
    reader_detail(r, codec >= 16 && codec <= 18, STATUS_OTHER_ENGINE, codec);
    reader_detail(r, size == 0, STATUS_DTYPE, dtype);
    reader_detail(r, dims > max_dims, STATUS_DIMS, dims);
    u64 bytes = size;
    bool empty = false, over = false;
#pragma unroll 1
    for (u32 i = 0; i < dims && r.code == 0; ++i) {
        const u64 n = reader_varint(r);
        empty |= n == 0;
        // Sizes are below 2^63.
        over |= n != 0 && (__umul64hi(bytes, n) != 0 || bytes * n >> 63 != 0);
        if (!over && n != 0) bytes *= n;
    }
    if (empty) bytes = 0;
    reader_check(r, over && !empty, STATUS_SHAPE);
    reader_size(r, bytes > max_bytes, STATUS_BYTES, bytes);
    if (r.code) return;
    u64 next = reader_peek(r);
    const u32 transforms_at = reader_take(r, 1);
    u64 values = bytes >> (__ffs((i32)size) - 1);
    const bool coordinates = open_basis.rank != 0;
    const bool prepared = r.code == 0 && (coordinates || (next & 0xff) != 0);
    if (prepared) {
        const TransformsRead transforms = transforms_read(d, fixed, transforms_at, r.end, values);
        r.at = transforms.at;
        reader_detail(r, transforms.code != 0, transforms.code, transforms.detail);
        if (r.code) return;
        next = reader_peek(r) << 8;
        if (coordinates) values = d->values;
        // Written again below.
        __syncwarp();
    }
    const bool levels = codec == CODEC_LEVELS;
    reader_detail(r, codec != CODEC_PLANES && !levels, STATUS_CODEC, codec);
    next >>= 8;
    u32 nu = 0;
    if (levels) {
        nu = (u32)next & 0xff;
        next >>= 8;
        reader_check(r, !is_float(dtype), STATUS_LEVELS);
        reader_take(r, 1);
        reader_detail(r, nu == 1 || nu > 8, STATUS_TRELLIS, nu);
    }
    const u32 lanes_log = (u32)next & 0xff;
    reader_take(r, 1);
    if (r.code) return;
    const u64 per_lane = reader_varint(r);
    reader_check(r, lanes_log > LANES_LOG || per_lane == 0 || per_lane > ((u64)MAX_TILE >> (lanes_log & 31)),
                 STATUS_GEOMETRY);
    reader_check(r, paired && (lanes_log != LANES_LOG || per_lane % 2 != 0), STATUS_GEOMETRY);
    if (r.code) return;
    const u64 tiles = header_quotient_up(values, per_lane << lanes_log);
    const u32 on_quantiser[9] = TRELLIS_QUANTISER, on_parity[9] = TRELLIS_PARITY;
    u32 quantiser = 0, parity = 0;
    // Chosen by comparing: lists that are indexed lie in memory.
#pragma unroll
    for (u32 i = 0; i < 9; ++i) {
        if (nu == i) quantiser = on_quantiser[i];
        if (nu == i) parity = on_parity[i];
    }
    if (lane_of() == 0) {
        d->codec = codec;
        d->paired = paired;
        d->apart = 1;
        // Working values are coded as a tensor of f32 is, or of f64.
        d->dtype = coordinates && dtype != DTYPE_F64 ? DTYPE_F32 : dtype;
        d->values = values;
        d->lanes = 1u << lanes_log;
        d->ticks = (u32)per_lane;
        d->tile_values = per_lane << lanes_log;
        d->tiles = tiles;
        // The directory ends where the checksum starts. Nobody looks there before there is known to be room.
        d->directory = r.end - tiles * 8;
        d->nu = nu;
        d->on_quantiser = quantiser;
        d->on_parity = parity;
        d->classes = 1;
        d->tables_per_class = 1;
        d->any_low = 0;
        d->coded = 0;
        d->prepared = prepared && !coordinates;
    }
    __syncwarp();
}

// The classes of rows and columns: how many there are was read.
DEVICE void read_classes(Reader &r, Desc *d, u32 classes) {
    reader_check(r, classes < 2 || classes > MAX_CLASSES, STATUS_CLASSES);
    if (r.code) return;
    const u64 width = reader_varint(r);
    reader_check(r, width == 0 || width > d->values, STATUS_WIDTH);
    if (r.code) return;
    const u32 packed = reader_byte(r);
    const u32 row_bits = packed & 15;
    u32 col_bits = packed >> 4;
    // The basis says them.
    const bool lent = col_bits == SCALES_OF_BASIS && open_basis.scales != 0 && width == open_basis.rank;
    if (lent) col_bits = MAX_SCALE_BITS;
    reader_check(r, row_bits > MAX_SCALE_BITS || col_bits > MAX_SCALE_BITS, STATUS_SCALE_BITS);
    const u32 at = reader_take(r, classes - 1);
    if (r.code) return;
    u64 next = window_peek(at), after = window_peek(min(at + 8, r.end));
    u32 before = 0, class_of[4] = {0, 0, 0, 0};
    const u32 lane = lane_of();
#pragma unroll 1
    for (u32 c = 1; c < classes; ++c) {
        const u32 from = (u32)next & 0xff;
        next = next >> 8 | after << 56;
        after >>= 8;
        reader_check(r, from <= before, STATUS_THRESHOLDS);
        before = from;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) class_of[i] += lane * 4 + i >= from;
    }
    static_assert(sizeof d->class_of_sum == 128, "four a lane");
    ((u32 *)d->class_of_sum)[lane] = class_of[0] | class_of[1] << 8 | class_of[2] << 16 | class_of[3] << 24;
    const u64 rows = header_quotient_up(d->values, width);
    // Products of at most 2^63 and 6; what does not fit the header is refused before it could wrap.
    reader_check(r, rows > ~0ull / 8 || width > ~0ull / 8, STATUS_FIELD);
    const u64 rows_len = (rows * row_bits + 7) / 8, cols_len = (width * col_bits + 7) / 8;
    const u32 rows_at = reader_take(r, rows_len), stored = reader_take(r, lent ? 0 : cols_len);
    // Places count from the blob's start, wherever they are.
    const u64 cols_at = lent ? open_basis.scales - (u64)header_window.blob : stored;
    if (lane == 0) {
        d->width = width;
        d->rows_at = rows_at;
        d->rows_len = rows_len;
        d->cols_at = cols_at;
        d->cols_len = cols_len;
        d->row_bits = row_bits;
        d->col_bits = col_bits;
    }
}

DEVICE void read_levels(Reader &r, Desc *d) {
    const u32 lane = lane_of();
    u64 next = reader_peek(r);
    const u32 log = (u32)next & 0xff;
    reader_take(r, 1);
    reader_check(r, log < LOG_LEAST || log > LOG_MOST, STATUS_TABLE_SIZE);
    double scale;
    if (d->dtype == DTYPE_F64) {
        next = reader_peek(r);
        reader_take(r, 8);
        scale = __longlong_as_double((i64)next);
        next = reader_peek(r);
    } else {
        scale = (double)__uint_as_float((u32)(next >> 8));
        reader_take(r, 4);
        next >>= 40;
    }
    reader_check(r, !(scale > 0.0) || !(scale <= 1.7976931348623157e308), STATUS_SCALE);
    const u32 used = (u32)next & 0xff;
    reader_take(r, 1);
    const u32 stored = reader_take(r, used);
    reader_check(r, used > OFFSETS, STATUS_OFFSETS_COUNT);
    if (r.code) return;
    static_assert(OFFSETS == 8 && sizeof d->offsets == 64, "one a lane, after that of level zero");
    const u64 offsets = window_peek(stored);
    const u32 offset = lane == 0 || lane > used ? 0 : (u32)(offsets >> (lane - 1) * 8);
    if (lane < 16) d->offsets[lane] = (i32)(signed char)offset;
    const u32 classes = reader_byte(r);
    if (r.code) return;
    ((u32 *)d->class_of_sum)[lane] = 0;
    if (lane == 0) {
        d->log = log;
        d->table_log = log;
        d->scale = scale;
        d->width = 1;
        d->rows_at = d->rows_len = d->cols_at = d->cols_len = 0;
        d->row_bits = d->col_bits = 0;
    }
    __syncwarp();
    if (classes != 1) read_classes(r, d, classes);
    const u32 low_at = reader_take(r, classes);
    if (r.code) return;
    const u64 low = window_peek(low_at), high = window_peek(min(low_at + 8, r.end));
    const u32 mine = lane < classes ? header_byte_of(low, high) : 0;
    reader_check(r, __any_sync(ALL_LANES, mine > (d->paired ? 0 : MAX_LOW_BITS)), STATUS_LOW_BITS);
    const u32 any_low = __any_sync(ALL_LANES, mine > 0) ? 1 : 0;
    if (lane < MAX_CLASSES) d->low[lane] = (u8)mine;
    if (lane == 0) {
        d->classes = classes;
        d->tables_per_class = d->nu == 0 ? 1 : 2;
        d->any_low = any_low;
        d->tables = d->nu == 0 ? classes : classes * 2;
    }
    __syncwarp();
}

DEVICE void read_planes(Reader &r, Desc *d) {
    const u32 coded = reader_byte(r);
    const u32 size = header_size_of(d->dtype);
    reader_check(r, size < 8 && coded >> size != 0, STATUS_PLANE);
    if (lane_of() == 0) {
        d->coded = coded;
        d->tables = (u32)__popc(coded);
        d->table_log = PLANE_LOG;
        d->log = PLANE_LOG;
    }
    __syncwarp();
}
