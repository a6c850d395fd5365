// The preparation steps of a header. The twin of `prepare/list.rs`.
//
// Few headers have any: what only they need is found here, not on everybody's way.
#pragma once

#include "header_reader.cuh"
#include "kept.cuh"

struct StepsRead {
    u32 at, code, detail;
};

// Reads the steps from `at` on, where their number is, of a header that starts with the bytes `fixed`. All lanes of a warp
// take part. Whether runs of kept elements are right is not asked yet.
OUTLINE StepsRead steps_read(Desc *d, u32 fixed, u32 at, u32 end, u64 values) {
    const u32 codec = fixed >> 8 & 0xff, dtype = fixed >> 16 & 0xff, dims = fixed >> 24;
    // The shape once more: rows and columns. Where some dimension is 0 the others may be of any size.
    Reader r = {FIXED, end, 0, 0, 0};
    u64 rows = 1, columns = 1;
#pragma unroll 1
    for (u32 i = 0; i < dims; ++i) {
        if (i > 0) rows = __umul64hi(rows, columns) != 0 ? ~0ull : rows * columns;
        columns = reader_varint(r);
    }
    r.at = at;
    const u32 count = reader_byte(r), entry = kept_bytes(size_of(dtype));
    u32 kept = 0, kept_at = 0;
    // The last is the first to be undone.
    u32 last_at = 0, last_axis = 0, before_at = 0, before_axis = 0;
#pragma unroll 1
    for (u32 i = 0; i < count; ++i) {
        const u32 id = reader_byte(r);
        reader_detail(r, codec != CODEC_LEVELS || (id != STEP_WEIGHTS && id != STEP_KEPT), STATUS_STEP, id);
        if (r.code) break;
        const u64 len = reader_varint(r);
        const u32 content = reader_take(r, len);
        if (r.code) break;
        if (id == STEP_KEPT) {
            reader_check(r, i > 0, STATUS_KEPT_LATER);
            reader_check(r, len == 0 || (u32)len % entry != 0, STATUS_KEPT);
            if (r.code) break;
            kept = (u32)len / entry;
            kept_at = content;
        } else {
            const u32 axis = (u32)window_peek(content) & 0xff;
            const u64 need = axis == AXIS_COLUMNS ? columns : rows;
            reader_check(r, len == 0 || (axis != AXIS_COLUMNS && axis != AXIS_ROWS) || len - 1 != need, STATUS_WEIGHTS);
            // Twice the same axis: nobody writes that, and there is no room for it here.
            reader_detail(r, before_at != 0 || (last_at != 0 && last_axis == axis), STATUS_STEP, id);
            if (r.code) break;
            before_at = last_at;
            before_axis = last_axis;
            last_at = content + 1;
            last_axis = axis;
        }
    }
    if (lane_of() == 0) {
        d->dtype = dtype;
        d->values = values;
        d->columns = columns;
        d->kept = kept;
        d->kept_at = kept_at;
        d->weights_at[0] = last_at;
        d->weights_at[1] = before_at;
        d->weights_of_rows[0] = last_axis == AXIS_ROWS;
        d->weights_of_rows[1] = before_axis == AXIS_ROWS;
    }
    __syncwarp();
    return StepsRead{r.at, r.code, r.detail};
}
