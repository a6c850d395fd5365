// Does it pay to give values of different expected size different tables, and where to cut? The twin of
// `rate/classes.rs`.

#include "sample.cuh"

// Classes whose tables are read quickly; more of them have to save CLASS_DEAR bits a value each. A page behind a basis is
// decoded about as fast as its tables are made, and a map that takes no bytes would make many.
#define CLASS_CHEAP 8
#define CLASS_CHEAP_PAGE 4
#define CLASS_DEAR 0.004
// A join must not look cheaper by less than this: noise of the sample has bits too.
#define CLASS_NOISE 32.0
// Slots of the tables that are reckoned with, and bits before their frequencies.
#define CLASS_SLOTS 2048.0f
#define CLASS_TABLE 20.0f
// Values of a small tensor.
#define CLASS_SMALL (1u << 17)

// Magnitudes told apart when statistics are compared: exact for small ones, then logarithmic.
DEVICE u32 class_bin(float a) {
    const float k = a + 0.5f;
    if (k < 16.0f) return (u32)k;
    const float bin = 16.0f + log2f(k * 0.0625f) * 4.0f;
    return bin < CLASS_BINS - 1.0f ? (u32)bin : CLASS_BINS - 1;
}

// Bits of a bin's values, and of their levels' frequencies in `tables` tables: two levels a bin, more in those that are
// logarithmic.
DEVICE float class_bits(u32 bin, float count, float total, float tables) {
    if (count == 0.0f) return 0.0f;
    const float levels = bin == 0 ? 1.0f : bin < 16 ? 2.0f : 6.0f * exp2f((float)(bin - 16) * 0.25f);
    const float each = 1.0f + 2.0f * log2f(1.0f + count * CLASS_SLOTS / (total * levels));
    return count * log2f(total / count) + tables * fminf(levels, 48.0f) * each;
}

// Bits of the histograms of two parts together, or of one (`b` none), with their tables. All lanes take part.
DEVICE float class_entropy(const u32 *a, const u32 *b, float tables) {
    const u32 lane = lane_of();
    u32 first = a[lane], second = lane + 32 < CLASS_BINS ? a[lane + 32] : 0;
    if (b) {
        first += b[lane];
        if (lane + 32 < CLASS_BINS) second += b[lane + 32];
    }
    const float total = (float)warp_sum(first + second);
    return warp_sum(class_bits(lane, (float)first, total, tables) + class_bits(lane + 32, (float)second, total, tables))
           + tables * CLASS_TABLE;
}

// Each block tries one way to group values, and joins neighbouring groups until a join would cost more than a table
// saves. Dynamic shared memory: histograms by sum of scales, in copies against conflicts.
KERNEL(FIT_THREADS) rate_classes_try(const RateArgs a) {
    DYNAMIC_SHARED(memory);
    u32 *hist = (u32 *)memory;
    const u32 size = SCALE_SUMS * CLASS_BINS;
    __shared__ float bits[SCALE_SUMS], loss[SCALE_SUMS];
    __shared__ u8 before[SCALE_SUMS], after[SCALE_SUMS];
    __shared__ u32 parts, first;
    Rate *r = a.rate;
    if (a.plan->trivial || a.plan->max_u == 0.0f) return;
    const u32 way = a.first_way + blockIdx.x, tid = threadIdx.x, lane = lane_of();
    Way *out = &r->ways[way];
    const bool rows = way_has_rows(way), cols = way_has_cols(way);
    if ((rows && a.rows < 2) || (cols && !a.tabular)) {
        if (tid == 0) out->classes = 0;
        return;
    }

    // 1. Histograms.
    const u32 threads = blockDim.x, copies = threads < FIT_THREADS ? 1 : CLASS_COPIES;
    for (u32 i = tid; i < size * copies; i += threads) hist[i] = 0;
    __syncthreads();
    const float per_level = 0.5f * steps_per_unit(a);
    u32 *mine = hist + (lane & (copies - 1)) * size;
    for (u32 w = 0; w < a.taken; w += a.few_stride) {
        const Grouping g = grouping_of(a, way, w);
        const u32 len = window_len(a, w);
        for (u32 q = tid; q < FIT_THREADS; q += threads) {
            const SampleQuad quad = sample_quad(a, w, q);
            u32 sums[4];
#pragma unroll
            for (u32 j = 0; j < 4; ++j) sums[j] = 4 * q + j < len ? sum_of_scales(a, g, 4 * q + j) : 0;
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                const float v = fabsf(quad.v[j]) * per_level;
                if (4 * q + j < len) atomicAdd(&mine[sums[j] * CLASS_BINS + (v >= 0.0f ? class_bin(v) : 0)], 1u);
            }
        }
    }
    __syncthreads();
    for (u32 i = tid; i < size; i += threads) {
        u32 sum = 0;
        for (u32 c = 0; c < copies; ++c) sum += hist[c * size + i];
        hist[i] = sum;
    }
    __syncthreads();

    // 2. A part for every sum that occurs; what joining it to the one before would cost. Bits are those of the subset,
    // a table's share of it among them.
    const double values = (double)a.encoding.values, each = values / (double)subset_values(a, a.few_stride);
    const float tables = (float)((a.plan->nu ? 2.0 : 1.0) * rate_headers(a) / each);
    for (u32 s = warp_of(); s < SCALE_SUMS; s += threads / 32) {
        const u32 *h = hist + s * CLASS_BINS;
        const bool any = __any_sync(ALL_LANES, h[lane] || (lane + 32 < CLASS_BINS && h[lane + 32]));
        const float e = class_entropy(h, 0, tables);
        if (lane == 0) bits[s] = any ? e : -1.0f;
    }
    __syncthreads();
    if (tid == 0) {
        u32 count = 0, last = 0;
        for (u32 s = 0; s < SCALE_SUMS; ++s) {
            if (bits[s] < 0.0f) continue;
            if (count == 0) first = s;
            else after[last] = (u8)s;
            before[s] = (u8)last;
            last = s;
            ++count;
        }
        after[last] = SCALE_SUMS - 1;
        parts = count;
    }
    __syncthreads();
    const float never = 3e38f;
    for (u32 s = warp_of(); s < SCALE_SUMS; s += threads / 32) {
        float l = never;
        if (bits[s] >= 0.0f && s != first) {
            const u32 b = before[s];
            l = class_entropy(hist + b * CLASS_BINS, hist + s * CLASS_BINS, tables) - bits[b] - bits[s];
        }
        if (lane == 0) loss[s] = l;
    }
    __syncthreads();

    // 3. One warp joins: few steps in a row, each short. The last sum of all never occurs and ends the list.
    if (warp_of() != 0) return;
    const double dear = fmax(CLASS_NOISE, CLASS_DEAR * values);
    const u32 cheap = a.encoding.scales && a.table_values <= CLASS_SMALL ? CLASS_CHEAP_PAGE : CLASS_CHEAP;
    u32 count = parts;
    const u32 head = first;
    while (count > 1) {
        float least = never;
        u32 at = 0;
        for (u32 s = lane; s < SCALE_SUMS; s += 32)
            if (loss[s] < least) {
                least = loss[s];
                at = s;
            }
        warp_least(least, at);
        if ((double)least * each >= (count > cheap ? dear : CLASS_NOISE) && count <= MAX_CLASSES) break;
        const u32 left = before[at], right = after[at];
        u32 *to = hist + left * CLASS_BINS;
        const u32 *joined = hist + at * CLASS_BINS;
        const float was = bits[left] + bits[at];
        to[lane] += joined[lane];
        if (lane + 32 < CLASS_BINS) to[lane + 32] += joined[lane + 32];
        __syncwarp();
        if (lane == 0) {
            bits[left] = was + least;
            bits[at] = -1.0f;
            loss[at] = never;
            after[left] = (u8)right;
            before[right] = (u8)left;
        }
        __syncwarp();
        if (left != head) {
            const u32 b = before[left];
            const float l = class_entropy(hist + b * CLASS_BINS, to, tables) - bits[b] - bits[left];
            if (lane == 0) loss[left] = l;
        }
        if (right != SCALE_SUMS - 1) {
            const float l = class_entropy(to, hist + right * CLASS_BINS, tables) - bits[left] - bits[right];
            if (lane == 0) loss[right] = l;
        }
        __syncwarp();
        --count;
    }

    // 4. What this way takes, and what it would take without classes.
    float sum = 0.0f;
    u32 whole_first = 0, whole_second = 0;
    for (u32 s = head, n = 0; n < count; ++n, s = after[s]) {
        sum += bits[s];
        if (lane == 0 && n > 0) out->thresholds[n - 1] = (u8)s;
        whole_first += hist[s * CLASS_BINS + lane];
        if (lane + 32 < CLASS_BINS) whole_second += hist[s * CLASS_BINS + lane + 32];
    }
    const float total = (float)warp_sum(whole_first + whole_second);
    const float whole = warp_sum(class_bits(lane, (float)whole_first, total, tables)
                                 + class_bits(lane + 32, (float)whole_second, total, tables))
                        + tables * CLASS_TABLE;
    if (lane != 0) return;
    const float per_octave = way_per_octave(way);
    out->row_bits = rows ? scale_bits(r->row_low, r->row_high, per_octave) : 0;
    out->col_bits = way >= WAY_BASIS ? SCALES_OF_BASIS : cols ? scale_bits(r->col_low, r->col_high, per_octave) : 0;
    out->classes = count;
    out->bits = (double)sum * each + (double)a.rows * out->row_bits + (double)a.width * listed_bits(out->col_bits);
    out->whole = (double)whole * each;
}

// The way that takes fewest bits, or none: a small gain is noise of the sample or not worth a decoder's look-ups.
DEVICE u32 best_way(const RateArgs &a) {
    const Rate *r = a.rate;
    u32 best = WAYS;
    double least = 0.0;
    for (u32 way = 0; way < WAYS; ++way) {
        const Way *w = &r->ways[way];
        const double gain = w->whole - w->bits;
        if (w->classes > 1 && gain > fmax(0.003 * (double)a.encoding.values, 0.002 * w->whole)
            && (best == WAYS || w->bits < least)) {
            least = w->bits;
            best = way;
        }
    }
    return best;
}

// Writes down the scales and classes of the best way, and the class of each value of the sample.
KERNEL(WINDOW_THREADS) rate_classes_apply(const RateArgs a) {
    __shared__ u8 class_of[SCALE_SUMS];
    Rate *r = a.rate;
    Plan *plan = a.plan;
    if (plan->trivial || plan->max_u == 0.0f) return;
    const u32 way = best_way(a), tid = threadIdx.x, threads = gridDim.x * WINDOW_THREADS;
    const u64 first = (u64)blockIdx.x * WINDOW_THREADS + tid;
    if (way == WAYS) {
        for (u64 i = first; i < (u64)a.taken * SAMPLE_WINDOW / 4; i += threads) ((u32 *)a.sample_class)[i] = 0;
        return;
    }
    const Way *w = &r->ways[way];
    if (tid < SCALE_SUMS) {
        u32 c = 0;
        for (u32 i = 0; i + 1 < w->classes; ++i) c += w->thresholds[i] <= tid;
        class_of[tid] = (u8)c;
    }
    __syncthreads();
    const float per_octave = way_per_octave(way);
    const float row_base = scale_base(r->row_low, r->row_high, per_octave);
    const float col_base = scale_base(r->col_low, r->col_high, per_octave);
    for (u64 i = first; i < a.rows; i += threads)
        a.row_scale[i] = w->row_bits ? (u8)scale_of(a.row_logs[i], per_octave, row_base) : 0;
    for (u64 i = first; i < a.width; i += threads)
        a.col_scale[i] = listed_bits(w->col_bits) ? (u8)scale_of(a.col_logs[i], per_octave, col_base) : 0;
    for (u32 window = blockIdx.x; window < a.taken; window += gridDim.x) {
        const Grouping g = grouping_of(a, way, window);
        const u32 len = window_len(a, window);
        for (u32 i = tid; i < SAMPLE_WINDOW; i += WINDOW_THREADS)
            a.sample_class[(u64)window * SAMPLE_WINDOW + i] = i < len ? class_of[sum_of_scales(a, g, i)] : 0;
    }
    if (blockIdx.x != 0) return;
    if (tid < SCALE_SUMS) plan->class_of_sum[tid] = class_of[tid];
    if (tid < MAX_CLASSES) plan->thresholds[tid] = tid + 1 < w->classes ? w->thresholds[tid] : 0;
    if (tid != 0) return;
    plan->classes = w->classes;
    plan->row_bits = w->row_bits;
    plan->col_bits = w->col_bits;
    if (way >= WAY_BASIS) plan->col_scale = (u64)a.encoding.scales;
    plan->width = a.width;
    plan->rows = a.rows;
    // Small tables are made quickly, and a small tensor has no use for fine ones.
    const u32 small = a.table_values <= CLASS_SMALL;
    plan->log = w->classes <= 2 ? 12 - small : w->classes <= 8 ? 11 - small : 10;
}
