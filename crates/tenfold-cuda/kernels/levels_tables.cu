// Tables of a quantised tensor, and its header up to the directory. The first block makes tables, a warp each; the
// others pack the scales of rows and columns, which may be long lists.

#include "assemble.cuh"
#include "fit.cuh"
#include "levels.cuh"
#include "pairs.cuh"

// Where the lists of scales start in the header, where the scale is, and long transforms; in bits.
struct HeaderLists {
    u64 rows, cols, scale, transforms;
};

// Transforms of so many bytes are written by one thread; longer ones are a list.
#define FEW_TRANSFORM_BYTES 96

// Transforms that are few bytes, with the tensor's own position.
OUTLINE void header_transforms(Writer &w, const Encoding &encoding) {
    const bool own = encoding.positions.first != nullptr;
    const u64 position = own ? *(const u64 *)encoding.positions : 0;
    // No preparation transforms.
    if (encoding.transforms_len == 0) writer_byte(w, 0);
    for (u32 i = 0; i < encoding.transforms_len; ++i) {
        const u32 more = own && w.at == 8 * (u64)encoding.length_at ? varint_more(position) : 0;
        if (own && w.at == 8 * (u64)encoding.position_at) writer_varint(w, position);
        else writer_byte(w, encoding.header_transforms[i] + more);
    }
}

// Everything before the tables. All lanes of a warp take part, with the same writer; lists are left to others.
OUTLINE HeaderLists header_front(Writer &w, const Encoding &encoding, const Plan *plan) {
    writer_start(w, plan->paired ? CODEC_PAIRS : CODEC_LEVELS, encoding.header_dtype, encoding.dims, encoding.shape);
    const u64 transforms = w.at;
    if (encoding.transforms_len > FEW_TRANSFORM_BYTES) writer_take(w, 8 * (u64)encoding.transforms_len);
    else header_transforms(w, encoding);
    writer_byte(w, plan->nu);
    writer_geometry(w, encoding.lanes, encoding.ticks);
    writer_byte(w, plan->log);
    HeaderLists lists = {0, 0, w.at, transforms};
    if (encoding.dtype == DTYPE_F64) {
        const u64 scale = (u64)__double_as_longlong(plan->scale);
        writer_u32(w, (u32)scale);
        writer_u32(w, (u32)(scale >> 32));
    } else {
        writer_u32(w, __float_as_uint((float)plan->scale));
    }
    u32 used = OFFSETS;
    while (used > 0 && plan->offsets[used] == 0) --used;
    writer_byte(w, used);
    for (u32 i = 1; i <= used; ++i) writer_byte(w, (u32)plan->offsets[i]);
    writer_byte(w, plan->classes);
    if (plan->classes > 1) {
        writer_varint(w, plan->width);
        writer_byte(w, plan->row_bits | plan->col_bits << 4);
        for (u32 c = 1; c < plan->classes; ++c) writer_byte(w, plan->thresholds[c - 1]);
        lists.rows = w.at;
        writer_take(w, (plan->rows * plan->row_bits + 7) / 8 * 8);
        lists.cols = w.at;
        writer_take(w, (plan->width * listed_bits(plan->col_bits) + 7) / 8 * 8);
    }
    for (u32 c = 0; c < plan->classes; ++c) writer_byte(w, plan->low[c]);
    return lists;
}

// Packs a list of scales, 32 bits a thread at a time.
DEVICE void header_list(u32 *words, u64 at, const u8 *scales, u64 count, u32 bits) {
    const u64 total = count * bits, stride = (u64)(gridDim.x - 1) * blockDim.x;
    for (u64 i = (u64)(blockIdx.x - 1) * blockDim.x + threadIdx.x; i * 32 < total; i += stride) {
        u32 v = 0;
        for (u64 s = i * 32 / bits; s < count && s * bits < i * 32 + 32; ++s) {
            const i64 by = (i64)(s * bits) - (i64)(i * 32);
            v |= by < 0 ? (u32)scales[s] >> -by : (u32)scales[s] << by;
        }
        writer_or(words, at + i * 32, v, (u32)min(total - i * 32, (u64)32));
    }
}

// What a search has measured, for whoever judges it.
DEVICE void sums_up(const LevelsPass &a) {
    LevelsSum sum = {0.0, 0};
    for (u32 i = lane_of(); i < a.sum_count; i += 32) {
        sum.error += a.sums[i].error;
        sum.finite += a.sums[i].finite;
    }
    sum.error = warp_sum(sum.error);
    sum.finite = warp_sum(sum.finite);
    if (lane_of() == 0) {
        a.plan->squared_error = sum.error;
        a.plan->finite = sum.finite;
    }
}

// 32 warps a block, and at least two blocks. The staged header was made zero before.
KERNEL(TABLES_THREADS) levels_tables(const GRID_CONSTANT LevelsPass a) {
    __shared__ u32 bits[LEVELS_SETS];
    __shared__ PairFold folds[LEVELS_SETS];
    __shared__ HeaderLists lists;
    __shared__ u64 tables_at;
    __shared__ u32 over;
    const Plan *plan = a.plan;
    if (levels_over(a)) return;
    const u32 warp = warp_of(), lane = lane_of();
    const bool first = blockIdx.x == 0;

    // 1. The header as far as it is known, by the first block; others only see where their part is.
    Writer w = writer_open(a.header, a.header_room, first && lane == 0);
    if (warp == 0) {
        const HeaderLists found = header_front(w, a.encoding, plan);
        if (lane == 0) {
            lists = found;
            if (first) a.plan->scale_at = (u32)(found.scale / 8);
            over = w.over;
        }
    }
    __syncthreads();
    if (!first) {
        if (over) return;
        if (a.encoding.transforms_len > FEW_TRANSFORM_BYTES) header_list(a.header, lists.transforms, a.encoding.header_transforms, a.encoding.transforms_len, 8);
        if (plan->classes == 1) return;
        if (plan->row_bits) header_list(a.header, lists.rows, (const u8 *)plan->row_scale, plan->rows, plan->row_bits);
        if (listed_bits(plan->col_bits)) header_list(a.header, lists.cols, (const u8 *)plan->col_scale, plan->width, plan->col_bits);
        return;
    }

    // 2. Frequencies; a scalar quantiser has one table a class.
    const u32 by = plan->nu ? 1 : 2, count = plan->classes * 2 / by, set = warp * by;
    u32 *freq = a.freq + set * 256;
    if (warp < count) {
        fit_normalise(a.counts + set * 256, plan->log, true, freq);
        const Measured m = table_measure(freq, true);
        if (lane == 0) bits[warp] = m.bits;
    }
    if (warp == 31 && a.measure) sums_up(a);
    __syncthreads();
    if (plan->paired) {
        // A scalar quantiser is both.
        if (warp < count) pair_fold_frequencies(folds + warp, freq, plan->log);
        __syncthreads();
        const u32 per_class = 2 / by;
        for (u32 t = warp; t < plan->classes * 4; t += TABLES_THREADS / 32)
            pair_table(a.pairs + t * 256, folds + t / 4 * per_class, per_class - 1, plan->log, t % 4, plan->on_quantiser, plan->on_parity);
    }

    // 3. Tables, side by side in one bit string.
    u32 all = 0, before = 0;
    for (u32 i = 0; i < count; ++i) {
        if (i < warp) before += bits[i];
        all += bits[i];
    }
    if (warp == 0) {
        const u64 bytes = (all + 7) / 8;
        writer_varint(w, bytes);
        if (lane == 0) tables_at = w.at;
        writer_take(w, bytes * 8);
        if (lane == 0) {
            over = w.over;
            *a.header_len = writer_bytes(w);
            if (w.over) report(a.pass, STATUS_WORKSPACE);
        }
    }
    __syncthreads();
    if (over || warp >= count) return;
    Writer table = writer_open(a.header, a.header_room, lane == 0);
    table.at = tables_at + before;
    table_write_measured(table, freq, true);
}
