// The preparation transforms of a header. The twin of `prepare/list.rs`.
//
// Few headers have any: what only they need is found here, not on everybody's way.
#pragma once

#include "header_reader.cuh"
#include "kept.cuh"
#include "undo.cuh"

struct TransformsRead {
    u32 at, code, detail;
};

// Reads a basis step, which must be of the basis that is at hand: where its content is, and the tensor's columns.
DEVICE void steps_basis(Reader &r, u32 content, u32 len, u64 columns) {
    Reader s = {content, content + len, 0, 0, 0};
    const u32 kind = reader_byte(s);
    const u64 rank = reader_varint(s);
    // A basis of the blob's own is for the CPU.
    reader_detail(r, kind == 1, STATUS_STEP, TRANSFORM_BASIS);
    const u32 name = reader_take(s, 16);
    reader_check(r, s.code != 0 || kind > 1 || s.at != s.end || rank == 0 || rank > columns, STATUS_BASIS_STEP);
    if (r.code) return;
    const u64 low = window_peek(name), high = window_peek(name + 8);
    const u64 mine = (u64)open_basis.name[1] << 32 | open_basis.name[0], rest = (u64)open_basis.name[3] << 32 | open_basis.name[2];
    reader_check(r, low != mine || high != rest, STATUS_OTHER_BASIS);
    reader_check(r, rank != open_basis.rank || columns != open_basis.columns, STATUS_BASIS_STEP);
}

// Reads a step of rotary positions, which must be the one that is expected but for the position that it starts from.
DEVICE void steps_rope(Reader &r, u32 content, u32 len) {
    Reader s = {content, content + len, 0, 0, 0};
    bool other = len < open_basis.rope_len;
#pragma unroll 1
    for (u32 i = 0; i < open_basis.rope_len && !other; ++i) other = reader_byte(s) != open_basis.rope[i];
    const u64 position = other ? 0 : reader_varint(s);
    other |= s.code != 0 || s.at != s.end || position > MAX_POSITION;
    reader_check(r, other, STATUS_OTHER_ROPE);
    if (r.code == 0 && lane_of() == 0) open_basis.positions[blockIdx.x] = position;
}

// The same for a blob whose coordinates are wanted: what is expected before the basis, then that. Leaves the coordinates'
// number of columns.
DEVICE void steps_coordinates(Reader &r, u32 codec, u32 dtype, u32 count, u64 columns) {
    const u32 before = open_basis.before;
    reader_detail(r, codec != CODEC_LEVELS || dtype == DTYPE_F64, STATUS_STEP, TRANSFORM_BASIS);
    reader_check(r, count == 0, STATUS_NO_BASIS);
    reader_check(r, before == BEFORE_ROPE && count == 1, STATUS_OTHER_ROPE);
#pragma unroll 1
    for (u32 i = 0; i < count && r.code == 0; ++i) {
        const u32 id = reader_byte(r);
        const bool last = i + 1 == count;
        reader_check(r, id == TRANSFORM_ROPE && before == BEFORE_NOTHING, STATUS_OTHER_ROPE);
        reader_detail(r, id != (last ? TRANSFORM_BASIS : TRANSFORM_ROPE) || i > 1, STATUS_STEP, id);
        if (r.code) break;
        const u64 len = reader_varint(r);
        const u32 content = reader_take(r, len);
        if (r.code) break;
        if (last) steps_basis(r, content, (u32)len, columns);
        else if (before == BEFORE_ROPE) steps_rope(r, content, (u32)len);
    }
}

// Passes over transforms, from their number at `at` on, that the caller undoes itself: they must be those that it knows.
DEVICE void steps_pass(Reader &r, u32 codec, u32 at, u32 count, u64 columns) {
    reader_check(r, codec != CODEC_LEVELS || columns != open_basis.columns, STATUS_OTHER_STEPS);
#pragma unroll 1
    for (u32 i = 0; i < count && r.code == 0; ++i) {
        reader_byte(r);
        const u64 len = reader_varint(r);
        reader_take(r, len);
    }
    const u32 len = r.at - at;
    bool other = len != open_basis.known_len;
    if (r.code == 0 && !other)
        for (u32 i = lane_of(); i < len; i += 32) other |= header_window.blob[at + i] != open_basis.known[i];
    reader_check(r, __any_sync(ALL_LANES, other), STATUS_OTHER_STEPS);
}

// Checks weights, and says how they are undone.
DEVICE u32 transforms_weights(Reader &r, u32 content, u64 len, u64 columns, u64 rows) {
    const u32 axis = (u32)window_peek(content) & 0xff;
    const u64 need = axis == AXIS_COLUMNS ? columns : rows;
    reader_check(r, len == 0 || (axis != AXIS_COLUMNS && axis != AXIS_ROWS) || len - 1 != need, STATUS_WEIGHTS);
    return axis == AXIS_ROWS ? UNDO_ROWS : UNDO_COLUMNS;
}

// Checks means, all of which must be finite, and says how they are undone. All lanes of a warp take part.
DEVICE u32 transforms_means(Reader &r, u32 content, u64 len, u64 columns) {
    const u32 size = (u32)window_peek(content) & 0xff;
    const bool wide = size == 4;
    const u64 bytes = len - 1;
    reader_check(r, len == 0 || (size != 2 && !wide) || bytes % size != 0 || bytes / size != columns, STATUS_MEANS);
    bool wild = false;
    for (u64 i = lane_of(); r.code == 0 && i < columns; i += 32)
        wild |= (~mean_bits(header_window.blob, content + 1, wide, i) & 0x7f800000u) == 0;
    reader_check(r, __any_sync(ALL_LANES, wild), STATUS_MEANS);
    return wide ? UNDO_WIDE_MEANS : UNDO_MEANS;
}

// Checks a transposition, before which only kept elements may stand: they are then for a chain, since they lie elsewhere among
// the values.
DEVICE void transforms_transposed(Reader &r, u64 len, u32 before, u32 kept) {
    reader_check(r, len != 0 || before > (kept ? 1u : 0u), STATUS_TRANSPOSED);
    reader_detail(r, kept != 0, STATUS_STEP, TRANSFORM_TRANSPOSED);
}

// Reads the transforms from `at` on, where their number is, of a header that starts with the bytes `fixed`. All lanes of a warp
// take part. Whether runs of kept elements are right is not asked yet.
OUTLINE TransformsRead transforms_read(Desc *d, u32 fixed, u32 at, u32 end, u64 values) {
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
    if (open_basis.rank) {
        if (open_basis.before == TRANSFORMS_KNOWN) steps_pass(r, codec, at, count, columns);
        else steps_coordinates(r, codec, dtype, count, columns);
        if (lane_of() == 0) {
            d->values = values / max(columns, (u64)1) * open_basis.rank;
            d->columns = open_basis.rank;
            d->kept = 0;
        }
        __syncwarp();
        return TransformsRead{r.at, r.code, r.detail};
    }
    u32 kept = 0, kept_at = 0, seen = 0, transposed = 0;
    // What is to be undone is noted where it goes, not in registers: this is called, and its caller has them all.
    if (lane_of() == 0)
#pragma unroll 1
        for (u32 k = 0; k < MAX_UNDONE; ++k) d->undone_kind[k] = UNDO_NOTHING;
#pragma unroll 1
    for (u32 i = 0; i < count; ++i) {
        const u32 id = reader_byte(r);
        const bool here = id == TRANSFORM_WEIGHTS || id == TRANSFORM_MEANS || id == TRANSFORM_KEPT || id == TRANSFORM_TRANSPOSED;
        reader_detail(r, codec != CODEC_LEVELS || !here, STATUS_STEP, id);
        if (r.code) break;
        const u64 len = reader_varint(r);
        const u32 content = reader_take(r, len);
        if (r.code) break;
        if (id == TRANSFORM_KEPT) {
            reader_check(r, i > 0, STATUS_KEPT_LATER);
            reader_check(r, len == 0 || (u32)len % entry != 0, STATUS_KEPT);
            if (r.code) break;
            kept = (u32)len / entry;
            kept_at = content;
        } else if (id == TRANSFORM_TRANSPOSED) {
            transforms_transposed(r, len, i, kept);
            if (r.code) break;
            transposed = 1;
            const u64 swap = rows;
            rows = columns;
            columns = swap;
        } else {
            const u32 kind = id == TRANSFORM_MEANS ? transforms_means(r, content, len, columns)
                                                   : transforms_weights(r, content, len, columns, rows);
            // Twice the same: nobody writes that, and there is no room for it here.
            const u32 bit = 1u << min(kind, (u32)UNDO_MEANS);
            reader_detail(r, (seen & bit) != 0, STATUS_STEP, id);
            if (r.code) break;
            seen |= bit;
            if (lane_of() == 0) {
                // The last is the first to be undone.
#pragma unroll 1
                for (u32 k = MAX_UNDONE - 1; k > 0; --k) {
                    d->undone_at[k] = d->undone_at[k - 1];
                    d->undone_kind[k] = d->undone_kind[k - 1];
                }
                d->undone_at[0] = content + 1;
                d->undone_kind[0] = kind;
            }
        }
    }
    if (lane_of() == 0) {
        d->dtype = dtype;
        d->values = values;
        d->columns = columns;
        d->kept = kept;
        d->kept_at = kept_at;
        d->transposed = transposed;
    }
    __syncwarp();
    return TransformsRead{r.at, r.code, r.detail};
}
