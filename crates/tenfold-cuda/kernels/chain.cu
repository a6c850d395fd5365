// Preparation steps done to a whole tensor and undone, one kernel a step, on working values: f32, or f64 for tensors of
// f64. The twin of `prepare/`. Weights, means and differences give the same bits as there; the others agree within what
// docs/format.md says.

#include "floats.cuh"
#include "dequant.cuh"
#include "rope.cuh"

#define CHAIN_WARPS (CHAIN_THREADS / 32)

// Calls `f` with the index, row and column of every value.
template <class F> DEVICE void chain_each(const ChainArgs &a, const F &f) {
    const u64 all = a.rows * a.columns, stride = (u64)gridDim.x * CHAIN_THREADS;
    for (u64 i = (u64)blockIdx.x * CHAIN_THREADS + threadIdx.x; i < all; i += stride) {
        const u64 row = i >> 32 ? i / a.columns : (u32)i / a.columns;
        f(i, row, (u32)(i - row * a.columns));
    }
}

// Elements of the dtype `kind` to working values. With `by`, those that are not finite are kept elsewhere: zeros here.
template <class R> DEVICE void chain_load(const ChainArgs &a) {
    chain_each(a, [&](u64 i, u64, u32) {
        R v;
        if (sizeof(R) == 8) {
            v = (R)((const double *)a.from)[i];
        } else {
            u32 bits;
            switch (size_of(a.kind)) {
            case 1: bits = ((const u8 *)a.from)[i]; break;
            case 2: bits = ((const u16 *)a.from)[i]; break;
            default: bits = ((const u32 *)a.from)[i];
            }
            v = (R)__uint_as_float(f32_of(a.kind, bits));
        }
        // What is not finite is no number once it is taken off itself.
        if (a.by && !(v - v == (R)0)) v = (R)0;
        ((R *)a.to)[i] = v;
    });
}

// Stores a working value as the element `to` of the dtype `kind`, finite.
template <class R> DEVICE void chain_element(const ChainArgs &a, u64 to, R v) {
    const R number = v == v ? v : (R)0;
    if (sizeof(R) == 8) {
        ((u64 *)a.to)[to] = finite_f64((double)number);
        return;
    }
    const u32 bits = element_of(a.kind, (float)number);
    switch (size_of(a.kind)) {
    case 1: ((u8 *)a.to)[to] = (u8)bits; break;
    case 2: ((u16 *)a.to)[to] = (u16)bits; break;
    default: ((u32 *)a.to)[to] = bits;
    }
}

// Working values to elements of the dtype `kind`, all of them finite.
template <class R> DEVICE void chain_store(const ChainArgs &a) {
    chain_each(a, [&](u64 i, u64, u32) { chain_element(a, i, ((const R *)a.from)[i]); });
}

// Working values to elements, rows of `count` values becoming columns: `rows` values from number `first` on of a tensor
// that has `columns` columns. A block turns squares of 32 by 32 in shared memory, so that both sides are read and written
// in order.
template <class R> DEVICE void chain_transpose(const ChainArgs &a) {
    __shared__ R square[32][33];
    const u64 end = a.first + a.rows;
    const u64 top = a.first / a.columns, bottom = (end + a.columns - 1) / a.columns;
    const u64 across = (a.columns + 31) / 32, all = (bottom - top + 31) / 32 * across;
    for (u64 i = blockIdx.x; i < all; i += gridDim.x) {
        const u64 row = top + i / across * 32, col = i % across * 32;
        for (u32 j = warp_of(); j < 32; j += CHAIN_WARPS) {
            const u64 c = col + j, r = row + lane_of();
            if (c < a.columns && r < bottom) square[j][lane_of()] = ((const R *)a.from)[c * a.count + r];
        }
        __syncthreads();
        for (u32 j = warp_of(); j < 32; j += CHAIN_WARPS) {
            const u64 c = col + lane_of(), at = (row + j) * a.columns + c;
            if (c < a.columns && at >= a.first && at < end) chain_element(a, at - a.first, square[lane_of()][j]);
        }
        __syncthreads();
    }
}

// A number of each column is added, or taken off with `by`.
template <class R> DEVICE void chain_add(const ChainArgs &a) {
    const float *table = (const float *)a.table;
    chain_each(a, [&](u64 i, u64, u32 col) {
        const R v = ((const R *)a.from)[i], m = (R)table[col];
        ((R *)a.to)[i] = a.by ? v - m : v + m;
    });
}

// Values times a number of their column, or of their row with `by`.
template <class R> DEVICE void chain_weigh(const ChainArgs &a) {
    const float *table = (const float *)a.table;
    chain_each(a, [&](u64 i, u64 row, u32 col) {
        ((R *)a.to)[i] = ((const R *)a.from)[i] * (R)table[a.by ? a.first + row : col];
    });
}

// Differences from the row before, in groups of `count` rows. Not in place.
template <class R> DEVICE void chain_differ(const ChainArgs &a) {
    const R *from = (const R *)a.from;
    chain_each(a, [&](u64 i, u64 row, u32) {
        ((R *)a.to)[i] = (a.first + row) % a.count ? from[i] - from[i - a.columns] : from[i];
    });
}

// Sums of differences; the first row is that of a group. A thread takes a column of a group.
template <class R> DEVICE void chain_sum(const ChainArgs &a) {
    const u64 groups = (a.rows + a.count - 1) / a.count, all = groups * a.columns, stride = (u64)gridDim.x * CHAIN_THREADS;
    for (u64 i = (u64)blockIdx.x * CHAIN_THREADS + threadIdx.x; i < all; i += stride) {
        const u64 group = i / a.columns, first = group * a.count, end = min(first + a.count, a.rows);
        u64 at = first * a.columns + (i - group * a.columns);
        R sum = (R)0;
        for (u64 row = first; row < end; ++row, at += a.columns) {
            const R v = ((const R *)a.from)[at];
            sum = row == first ? v : v + sum;
            ((R *)a.to)[at] = sum;
        }
    }
}

template <class R> DEVICE void chain_turn(const ChainArgs &a) {
    const R *from = (const R *)a.from;
    R *to = (R *)a.to;
    rope_rows<R>(
        a.turning, a.rows, a.columns, [&](u64 i) { return from[i]; }, [&](u64 i, R v) { to[i] = v; });
}

// Columns of a row are cut into blocks of 2^`log`, then into the powers of two that are left. The block of a column: where
// it starts, and log2 of its columns.
struct ChainBlock {
    u32 start, log;
};

DEVICE ChainBlock chain_block(u32 columns, u32 log, u32 col) {
    u32 start = columns >> log << log;
    if (col < start) return ChainBlock{col >> log << log, log};
    for (u32 rest = columns - start; log > 0;) {
        --log;
        if (!(rest >> log & 1)) continue;
        if (col < start + (1u << log)) break;
        start += 1u << log;
    }
    return ChainBlock{start, log};
}

// Where block `index` of a row is.
DEVICE ChainBlock chain_nth(u32 columns, u32 log, u32 index) {
    const u32 full = columns >> log;
    if (index < full) return ChainBlock{index << log, log};
    u32 start = full << log;
    for (index -= full;; start += 1u << log) {
        do --log;
        while (!(columns >> log & 1));
        if (index-- == 0) return ChainBlock{start, log};
    }
}

DEVICE u32 chain_blocks(u32 columns, u32 log) { return (columns >> log) + (u32)__popc(columns & ((1u << log) - 1)); }

// Sums and differences of a block in shared memory, by `threads` threads of which this is number `me`.
template <class R, class Sync> DEVICE void chain_butterflies(R *v, u32 log, u32 me, u32 threads, const Sync &sync) {
    for (u32 by = 1; by < 1u << log; by *= 2) {
        for (u32 i = me; i < 1u << log >> 1; i += threads) {
            const u32 low = (i & ~(by - 1)) * 2 | (i & (by - 1));
            const R x = v[low], y = v[low + by];
            v[low] = x + y;
            v[low + by] = x - y;
        }
        sync();
    }
}

// Blocks of 2^`kind` columns, rotated; signs of columns come before, or behind with `by`. With `count`, a warp takes a
// block, else all threads do. Shared memory: the blocks.
template <class R> DEVICE void chain_hadamard(const ChainArgs &a, u8 *memory) {
    const float *signs = (const float *)a.table;
    const bool warps = a.count != 0;
    const u32 log = a.kind, each = chain_blocks(a.columns, log);
    const u32 me = warps ? lane_of() : threadIdx.x, threads = warps ? 32 : CHAIN_THREADS;
    R *v = (R *)memory + (warps ? (u64)warp_of() << log : 0);
    const auto sync = [&]() {
        if (warps) __syncwarp();
        else __syncthreads();
    };
    const u64 all = a.rows * each, stride = (u64)gridDim.x * (warps ? CHAIN_WARPS : 1);
    for (u64 i = warps ? (u64)blockIdx.x * CHAIN_WARPS + warp_of() : blockIdx.x; i < all; i += stride) {
        const u64 row = i / each;
        const ChainBlock b = chain_nth(a.columns, log, (u32)(i - row * each));
        const u64 at = row * a.columns + b.start;
        const R scale = (R)1 / (R)sqrt((double)(1u << b.log));
        for (u32 j = me; j < 1u << b.log; j += threads) {
            const R x = ((const R *)a.from)[at + j];
            v[j] = a.by ? x : x * (R)signs[b.start + j];
        }
        sync();
        chain_butterflies(v, b.log, me, threads, sync);
        for (u32 j = me; j < 1u << b.log; j += threads)
            ((R *)a.to)[at + j] = v[j] * scale * (a.by ? (R)signs[b.start + j] : (R)1);
        sync();
    }
}

// Blocks of 2^`kind` ≤ 32 columns times a matrix of their size; `table` has those of 1, 2, 4, … columns one after the
// other. A warp takes 32 columns of a row, which no block goes beyond.
template <class R> DEVICE void chain_cosines(const ChainArgs &a) {
    const R *table = (const R *)a.table;
    const u32 lane = lane_of(), chunks = (a.columns + 31) / 32;
    const u64 all = a.rows * chunks, stride = (u64)gridDim.x * CHAIN_WARPS;
    for (u64 i = (u64)blockIdx.x * CHAIN_WARPS + warp_of(); i < all; i += stride) {
        const u64 row = i / chunks;
        const u32 first = (u32)(i - row * chunks) * 32, col = first + lane;
        const bool inside = col < a.columns;
        const u64 at = row * a.columns + col;
        const R v = inside ? ((const R *)a.from)[at] : (R)0;
        const ChainBlock b = inside ? chain_block(a.columns, a.kind, col) : ChainBlock{col, 0};
        // Before this matrix are those of fewer columns: 1 + 4 + 16 + … numbers.
        const R *line = table + ((1u << 2 * b.log) - 1) / 3 + ((col - b.start) << b.log);
        R sum = (R)0;
        for (u32 j = 0; j < 1u << a.kind; ++j) {
            const bool mine = j < 1u << b.log;
            const R x = __shfl_sync(ALL_LANES, v, (int)(mine ? b.start - first + j : lane));
            if (mine) sum += line[j] * x;
        }
        if (inside) ((R *)a.to)[at] = sum;
    }
}

// Rows of `count` values times a matrix of f32 that has `columns` columns: for tensors of f64, of which there are few.
DEVICE void chain_product(const ChainArgs &a) {
    const float *table = (const float *)a.table;
    chain_each(a, [&](u64 i, u64 row, u32 col) {
        const double *from = (const double *)a.from + row * a.count;
        double sum = 0.0;
        for (u32 k = 0; k < a.count; ++k) sum += from[k] * (double)table[(u64)k * a.columns + col];
        ((double *)a.to)[i] = sum;
    });
}

// Squares of all values: a sum a block.
template <class R> DEVICE void chain_power(const ChainArgs &a) {
    __shared__ double sums[CHAIN_WARPS];
    double sum = 0.0;
    chain_each(a, [&](u64 i, u64, u32) {
        const double v = (double)((const R *)a.from)[i];
        sum += v * v;
    });
    sum = warp_sum(sum);
    if (lane_of() == 0) sums[warp_of()] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 i = 1; i < CHAIN_WARPS; ++i) sum += sums[i];
    ((double *)a.to)[blockIdx.x] = sum;
}

// Puts `count` runs of elements of the dtype `kind` where they belong among elements of the dtype `by`, of which there are
// `rows` from number `first` on. A warp takes a run.
KERNEL(CHAIN_THREADS) chain_keep(const ChainArgs a) {
    const ChainKept *runs = (const ChainKept *)a.table;
    const u32 stride = gridDim.x * CHAIN_WARPS;
    for (u32 i = blockIdx.x * CHAIN_WARPS + warp_of(); i < a.count; i += stride) {
        const ChainKept run = runs[i];
        const u64 start = max(run.start, a.first), end = min(run.start + run.len, a.first + a.rows);
        for (u64 at = start + lane_of(); at < end; at += 32) {
            const u64 to = at - a.first;
            const u32 bits = a.kind == DTYPE_F64 ? 0 : convert(a.kind, a.by, (u32)run.bits);
            switch (size_of(a.by)) {
            case 1: ((u8 *)a.to)[to] = (u8)bits; break;
            case 2: ((u16 *)a.to)[to] = (u16)bits; break;
            case 4: ((u32 *)a.to)[to] = bits; break;
            default: ((u64 *)a.to)[to] = run.bits;
            }
        }
    }
}

// Where number `i` of the rows or columns in runs is in the tensor.
DEVICE u64 chain_place(u64 i, u64 of, u64 take, u64 len) { return (i / len * of + of / 2) / take * len + i % len; }

// Brings together the elements where some rows cross some columns. A block takes a row at a time.
KERNEL(CHAIN_THREADS) chain_gather(const GatherArgs a) {
    const u64 rows = a.rows_take * a.rows_len, columns = a.cols_take * a.cols_len;
    for (u64 i = blockIdx.x; i < rows; i += gridDim.x) {
        const u8 *from = (const u8 *)a.from + chain_place(i, a.rows_of, a.rows_take, a.rows_len) * a.row;
        for (u64 j = threadIdx.x; j < columns; j += CHAIN_THREADS) {
            const u64 at = chain_place(j, a.cols_of, a.cols_take, a.cols_len), to = i * columns + j;
            switch (a.size) {
            case 1: ((u8 *)a.to)[to] = from[at]; break;
            case 2: ((u16 *)a.to)[to] = ((const u16 *)from)[at]; break;
            case 4: ((u32 *)a.to)[to] = ((const u32 *)from)[at]; break;
            default: ((u64 *)a.to)[to] = ((const u64 *)from)[at];
            }
        }
    }
}

KERNEL(CHAIN_THREADS) chain_load_4(const ChainArgs a) { chain_load<float>(a); }
KERNEL(CHAIN_THREADS) chain_load_8(const ChainArgs a) { chain_load<double>(a); }
KERNEL(CHAIN_THREADS) chain_store_4(const ChainArgs a) { chain_store<float>(a); }
KERNEL(CHAIN_THREADS) chain_store_8(const ChainArgs a) { chain_store<double>(a); }
KERNEL(CHAIN_THREADS) chain_transpose_4(const ChainArgs a) { chain_transpose<float>(a); }
KERNEL(CHAIN_THREADS) chain_transpose_8(const ChainArgs a) { chain_transpose<double>(a); }
KERNEL(CHAIN_THREADS) chain_add_4(const ChainArgs a) { chain_add<float>(a); }
KERNEL(CHAIN_THREADS) chain_add_8(const ChainArgs a) { chain_add<double>(a); }
KERNEL(CHAIN_THREADS) chain_weigh_4(const ChainArgs a) { chain_weigh<float>(a); }
KERNEL(CHAIN_THREADS) chain_weigh_8(const ChainArgs a) { chain_weigh<double>(a); }
KERNEL(CHAIN_THREADS) chain_differ_4(const ChainArgs a) { chain_differ<float>(a); }
KERNEL(CHAIN_THREADS) chain_differ_8(const ChainArgs a) { chain_differ<double>(a); }
KERNEL(CHAIN_THREADS) chain_sum_4(const ChainArgs a) { chain_sum<float>(a); }
KERNEL(CHAIN_THREADS) chain_sum_8(const ChainArgs a) { chain_sum<double>(a); }
KERNEL(CHAIN_THREADS) chain_turn_4(const ChainArgs a) { chain_turn<float>(a); }
KERNEL(CHAIN_THREADS) chain_turn_8(const ChainArgs a) { chain_turn<double>(a); }
KERNEL(CHAIN_THREADS) chain_hadamard_4(const ChainArgs a) RUNS(chain_hadamard<float>)
KERNEL(CHAIN_THREADS) chain_hadamard_8(const ChainArgs a) RUNS(chain_hadamard<double>)
KERNEL(CHAIN_THREADS) chain_cosines_4(const ChainArgs a) { chain_cosines<float>(a); }
KERNEL(CHAIN_THREADS) chain_cosines_8(const ChainArgs a) { chain_cosines<double>(a); }
KERNEL(CHAIN_THREADS) chain_power_4(const ChainArgs a) { chain_power<float>(a); }
KERNEL(CHAIN_THREADS) chain_power_8(const ChainArgs a) { chain_power<double>(a); }
KERNEL(CHAIN_THREADS) chain_product_8(const ChainArgs a) { chain_product(a); }
