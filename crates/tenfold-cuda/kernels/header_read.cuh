// What a header says before its tables: shape, codec, geometry, and the parameters of the codec.
//
// The twin of `blob/header.rs`, `levels/params.rs` and `lossless/params.rs`.
#pragma once

#include "blob.cuh"
#include "header_reader.cuh"

// What a header says before its codec's parameters. Returns false where there is no more to read; the reason is
// in the reader or was told.
DEVICE bool read_start(Reader &r, Desc *d, u64 max_bytes, u32 max_dims, Status *status) {
    r.at = 5;
    const u32 codec = reader_byte(r), dtype = reader_byte(r), dims = reader_byte(r);
    r.at = FIXED;
    const bool first = lane_of() == 0;
    if (codec >= 16 && codec <= 18) {
        if (first) report(status, STATUS_OTHER_ENGINE, codec);
        return false;
    }
    const u32 size = size_of(dtype);
    if (size == 0) {
        if (first) report(status, STATUS_DTYPE, dtype);
        return false;
    }
    if (dims > max_dims) {
        if (first) report(status, STATUS_DIMS, dims, max_dims);
        return false;
    }
    u64 bytes = size;
    bool empty = false, over = false;
    for (u32 i = 0; i < dims; ++i) {
        const u64 n = reader_varint(r);
        empty |= n == 0;
        over |= n != 0 && bytes > 0x7fffffffffffffffull / n;
        bytes = over || n == 0 ? bytes : bytes * n;
    }
    if (r.code) return false;
    if (empty) bytes = 0;
    else if (over) reader_fail(r, STATUS_SHAPE);
    if (r.code) return false;
    if (bytes > max_bytes) {
        if (first) report(status, STATUS_BYTES, 0, bytes);
        return false;
    }
    const u32 steps = reader_byte(r);
    if (steps > 0) {
        const u32 id = reader_byte(r);
        if (r.code == 0 && first) report(status, STATUS_STEP, id);
        return false;
    }
    if (codec != CODEC_PLANES && codec != CODEC_LEVELS) {
        if (first) report(status, STATUS_CODEC, codec);
        return false;
    }
    u32 nu = 0;
    if (codec == CODEC_LEVELS) {
        if (!is_float(dtype)) reader_fail(r, STATUS_LEVELS);
        nu = reader_byte(r);
        if (r.code) return false;
        if (nu == 1 || nu > 8) {
            if (first) report(status, STATUS_TRELLIS, nu);
            return false;
        }
    }
    const u32 lanes_log = reader_byte(r);
    const u64 per_lane = reader_varint(r);
    if (r.code) return false;
    if (lanes_log > LANES_LOG || per_lane == 0 || per_lane > ((u64)MAX_TILE >> lanes_log)) {
        reader_fail(r, STATUS_GEOMETRY);
        return false;
    }
    if (first) {
        const u32 on_quantiser[9] = TRELLIS_QUANTISER, on_parity[9] = TRELLIS_PARITY;
        d->codec = codec;
        d->dtype = dtype;
        d->values = bytes / size;
        d->lanes = 1u << lanes_log;
        d->steps = (u32)per_lane;
        d->tile_values = per_lane << lanes_log;
        d->nu = nu;
        d->on_quantiser = on_quantiser[nu];
        d->on_parity = on_parity[nu];
        d->classes = 1;
        d->tables_per_class = 1;
        d->any_low = 0;
        d->coded = 0;
    }
    __syncwarp();
    return true;
}

DEVICE void read_levels(Reader &r, Desc *d) {
    if (!is_float(d->dtype)) return reader_fail(r, STATUS_LEVELS);
    const u32 log = reader_byte(r);
    if (r.code) return;
    if (log < LOG_LEAST || log > LOG_MOST) return reader_fail(r, STATUS_TABLE_SIZE);
    double scale;
    if (d->dtype == DTYPE_F64) {
        const u64 lo = reader_u32(r), hi = reader_u32(r);
        scale = __longlong_as_double((i64)(hi << 32 | lo));
    } else {
        scale = (double)__uint_as_float(reader_u32(r));
    }
    if (r.code) return;
    if (!(scale > 0.0) || !(scale <= 1.7976931348623157e308)) return reader_fail(r, STATUS_SCALE);
    const u32 used = reader_byte(r);
    i32 offsets[OFFSETS];
#pragma unroll
    for (u32 i = 0; i < OFFSETS; ++i) offsets[i] = 0;
    const u64 stored = reader_take(r, used);
    if (r.code) return;
    if (used > OFFSETS) return reader_fail(r, STATUS_OFFSETS_COUNT);
    r.at = stored;
#pragma unroll
    for (u32 i = 0; i < OFFSETS; ++i)
        if (i < used) offsets[i] = (i32)(signed char)reader_byte(r);
    const u32 classes = reader_byte(r);
    if (r.code) return;
    u64 width = 1, rows_at = 0, rows_len = 0, cols_at = 0, cols_len = 0;
    u32 row_bits = 0, col_bits = 0;
    __syncwarp();
    for (u32 i = lane_of(); i < sizeof d->class_of_sum; i += 32) d->class_of_sum[i] = 0;
    __syncwarp();
    if (classes != 1) {
        if (classes < 2 || classes > MAX_CLASSES) return reader_fail(r, STATUS_CLASSES);
        width = reader_varint(r);
        if (r.code) return;
        if (width == 0 || width > d->values) return reader_fail(r, STATUS_WIDTH);
        const u32 packed = reader_byte(r);
        row_bits = packed & 15;
        col_bits = packed >> 4;
        if (r.code) return;
        if (row_bits > MAX_SCALE_BITS || col_bits > MAX_SCALE_BITS) return reader_fail(r, STATUS_SCALE_BITS);
        u32 before = 0;
        for (u32 c = 1; c < classes; ++c) {
            const u32 from = reader_byte(r);
            if (r.code) return;
            if (from <= before) return reader_fail(r, STATUS_THRESHOLDS);
            before = from;
            for (u32 i = lane_of(); i < sizeof d->class_of_sum; i += 32)
                if (i >= from) d->class_of_sum[i] = (u8)c;
        }
        const u64 rows = (d->values + width - 1) / width;
        // Products of at most 2^63 and 6; what does not fit the header is refused before it could wrap.
        if (rows > ~0ull / 8 || width > ~0ull / 8) return reader_fail(r, STATUS_FIELD);
        rows_len = (rows * row_bits + 7) / 8;
        rows_at = reader_take(r, rows_len);
        if (r.code) return;
        cols_len = (width * col_bits + 7) / 8;
        cols_at = reader_take(r, cols_len);
        if (r.code) return;
    }
    u32 any_low = 0, over = 0;
    for (u32 c = 0; c < MAX_CLASSES; ++c) {
        const u32 n = c < classes ? reader_byte(r) : 0;
        over |= n > MAX_LOW_BITS;
        any_low |= n > 0;
        if (lane_of() == 0) d->low[c] = (u8)n;
    }
    if (r.code) return;
    if (over) return reader_fail(r, STATUS_LOW_BITS);
    const u32 per_class = d->nu == 0 ? 1 : 2;
    if (lane_of() == 0) {
        d->log = log;
        d->scale = scale;
        d->offsets[0] = 0;
#pragma unroll
        for (u32 i = 0; i < OFFSETS; ++i) d->offsets[i + 1] = offsets[i];
        d->classes = classes;
        d->tables_per_class = per_class;
        d->width = width;
        d->rows_at = rows_at;
        d->rows_len = rows_len;
        d->cols_at = cols_at;
        d->cols_len = cols_len;
        d->row_bits = row_bits;
        d->col_bits = col_bits;
        d->any_low = any_low;
        d->tables = classes * per_class;
        d->table_log = log;
    }
    __syncwarp();
}

DEVICE void read_planes(Reader &r, Desc *d) {
    const u32 coded = reader_byte(r);
    const u32 size = size_of(d->dtype);
    if (r.code) return;
    if (size < 8 && coded >> size != 0) return reader_fail(r, STATUS_PLANE);
    const u32 tables = (u32)__popc(coded);
    if (lane_of() == 0) {
        d->coded = coded;
        d->tables = tables;
        d->table_log = PLANE_LOG;
        d->log = PLANE_LOG;
    }
    __syncwarp();
}
