// One plan for many pages: classes, costs, tables and header are those of all pages together, found by the kernels that
// plan for one tensor; there, pages are as large as each other. A page has a step of its own. What its symbols take under tables that are there is a sum of
// look-ups, so the step is found before anything is written.

#include "assemble.cuh"
#include "levels.cuh"
#include "sample.cuh"

// Of the mean of all pages' magnitudes: no page is thought to be smaller.
#define SHARE_LEAST 0.125

// Bytes that a page's own position takes in its header, more than the one that all pages' header has for it.
DEVICE u32 share_more(const Encoding &encoding) { return encoding.positions.first ? varint_more(*(const u64 *)encoding.positions) : 0; }

// How large a page is.
KERNEL(SHARE_THREADS) rate_share_scale(const ShareArgs a) {
    __shared__ float sums[SHARE_THREADS / 32];
    const RateArgs &page = a.page;
    const u32 pieces = page.stripes * (page.row_threads > 5 ? 1u << (page.row_threads - 5) : 1u);
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < pieces * page.rows; i += SHARE_THREADS) sum += page.row_parts[i];
    sum = warp_sum(sum);
    if (lane_of() == 0) sums[warp_of()] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 w = 1; w < SHARE_THREADS / 32; ++w) sum += sums[w];
    const double mean = (double)sum * page.rate->unit / (double)page.encoding.values;
    page.rate->scale = page.encoding.goal != GOAL_STEP && mean > 0.0 ? mean : 1.0;
}

// What pages have seen of themselves makes what is known of all of them. One block.
KERNEL(SHARE_THREADS) rate_share_open(const ShareArgs a) {
    __shared__ double most[SHARE_THREADS], scales[SHARE_THREADS];
    const u32 tid = threadIdx.x;
    most[tid] = scales[tid] = 0.0;
    for (u32 i = tid; i < a.pages; i += SHARE_THREADS) {
        const Rate *r = (const Rate *)((const u8 *)a.page.rate.first + i * a.page.rate.apart);
        most[tid] = fmax(most[tid], r->max * r->unit / r->scale);
        scales[tid] += r->scale;
    }
    __syncthreads();
    for (u32 by = SHARE_THREADS / 2; by > 0; by >>= 1) {
        if (tid < by) {
            most[tid] = fmax(most[tid], most[tid + by]);
            scales[tid] += scales[tid + by];
        }
        __syncthreads();
    }
    if (tid != 0) return;
    a.rate->unit = 1.0;
    // What is left of a page without its means is noise, and like no other page.
    a.rate->scale = scales[0] / (double)max(a.pages, 1u) * SHARE_LEAST;
    a.rate->max = most[0];
    a.plan->trivial = most[0] == 0.0;
    a.plan->done = 0;
}

// Counts of a trial on the sample, for tables. Zeros, their neighbours and the escape have a slot in every table: pages
// are not all alike. One block.
KERNEL(SHARE_THREADS) rate_share_counts(const ShareArgs a) {
    for (u32 i = threadIdx.x; i < a.plan->classes * 2 * 256; i += SHARE_THREADS) {
        const u32 s = i % 256;
        a.counts[i] = (u64)a.rate->tally.counts[i] + (s <= 2 || s >= 254 || s == ESCAPE);
    }
}

// A page's plan: that of all, with what is its own.
KERNEL(SHARE_THREADS) rate_share_begin(const ShareArgs a) {
    Plan *p = a.page.plan;
    const Plan *all = a.plan;
    const u32 trivial = p->trivial;
    __syncthreads();
    for (u32 i = threadIdx.x; i < sizeof(Plan) / 4; i += SHARE_THREADS) ((u32 *)p)[i] = ((const u32 *)all)[i];
    __syncthreads();
    if (threadIdx.x != 0) return;
    Rate *r = a.page.rate;
    p->trivial = trivial;
    p->common = 1;
    p->done = 0;
    p->bytes = 0;
    p->squared_error = 0.0;
    p->finite = r->finite;
    r->fixed = a.rate->fixed;
    r->finest = r->max * r->unit / SCALAR_MAX_U;
    r->want = rate_want(a.page);
    // A step that no header holds is no step to start from.
    if (!set_step(a.page.encoding, p, all->step * fmax(r->scale, a.rate->scale))) set_step(a.page.encoding, p, fmax(r->max * r->unit, 1.0));
}

// Steps that are tried at once, at first and then.
#define SHARE_TRIES 4
#define SHARE_NEAR 2
// Values that a block has on their way at once.
#define SHARE_AHEAD 4
#define SHARE_UNIT (SHARE_THREADS * SHARE_AHEAD)
// Bits of a value that is stored exactly, and of an escape beyond its symbol.
#define SHARE_EXACT 56.0f
#define SHARE_ESCAPE 8.0f

struct ShareTables {
    float thresholds[MAX_CLASSES * SCALAR_CLASS];
    float bits[MAX_CLASSES * 256];
    u8 class_of_sum[SCALE_SUMS];
    u8 low[MAX_CLASSES];
    float sums[SHARE_TRIES][SHARE_THREADS / 32];
    // log2 of the step, and whether it is as good as it gets.
    double next;
    u32 done;
};

// Bits of one value in every try.
template <u32 TRIES>
DEVICE void share_value(const ShareTables &t, float v, u32 cls, const float *factors, float max_u, float *sums) {
    const float *thresholds = t.thresholds + cls * SCALAR_CLASS, *bits = t.bits + cls * 256;
    const u32 low = t.low[cls];
#pragma unroll
    for (u32 j = 0; j < TRIES; ++j) {
        const float u = v * factors[j];
        const bool aside = !(fabsf(u) <= max_u);
        const i32 k = scalar_level(thresholds, aside ? 0.0f : u);
        sums[j] += bits[levels_symbol(k >> low)] + (aside ? SHARE_EXACT : 0.0f);
    }
}

// One look at a page: its bits at steps `apart` octaves apart about 2^`t.next`; and where a line through two of them meets
// what is wanted, which is left in `t.next`, and in `t.done` whether that is near them. FEW: one value in four.
template <u32 TRIES, bool FEW>
DEVICE void share_round(const ShareArgs &a, ShareTables &t, double want, double apart) {
    const Encoding &encoding = a.page.encoding;
    const Plan *p = a.page.plan;
    const float *data = (const float *)encoding.data;
    const u32 tid = threadIdx.x, values = (u32)encoding.values, cols = (u32)encoding.cols;
    const u32 units = (values + SHARE_UNIT - 1) / SHARE_UNIT;
    const bool mask = (cols & (cols - 1)) == 0, any = p->classes > 1;
    const float max_u = p->max_u;
    const double first = t.next - apart * 0.5 * (TRIES - 1);
    float factors[TRIES], sums[TRIES];
#pragma unroll
    for (u32 j = 0; j < TRIES; ++j) {
        sums[j] = 0.0f;
        factors[j] = (float)exp2(-(first + apart * j));
    }
    u32 seen = 0;
    for (u32 unit = 0; unit < units; ++unit) {
        // In other columns each time.
        if (FEW && ((unit ^ unit >> 2) & 3) != 0) continue;
        seen += min((u32)SHARE_UNIT, values - unit * SHARE_UNIT);
        float v[SHARE_AHEAD];
        u32 cls[SHARE_AHEAD];
#pragma unroll
        for (u32 j = 0; j < SHARE_AHEAD; ++j) {
            const u32 i = unit * SHARE_UNIT + j * SHARE_THREADS + tid;
            v[j] = i < values ? data[i] : 0.0f;
            const u32 col = mask ? i & (cols - 1) : i % cols;
            cls[j] = any ? t.class_of_sum[encoding.scales[col]] : 0;
        }
#pragma unroll
        for (u32 j = 0; j < SHARE_AHEAD; ++j)
            if (unit * SHARE_UNIT + j * SHARE_THREADS + tid < values)
                share_value<TRIES>(t, v[j], cls[j], factors, max_u, sums);
    }
#pragma unroll
    for (u32 j = 0; j < TRIES; ++j) {
        const float sum = warp_sum(sums[j]);
        if (lane_of() == 0) t.sums[j][warp_of()] = sum;
    }
    __syncthreads();
    if (tid != 0) return;
    double got[TRIES];
    for (u32 j = 0; j < TRIES; ++j) {
        got[j] = 0.0;
        for (u32 w = 0; w < SHARE_THREADS / 32; ++w) got[j] += (double)t.sums[j][w];
        got[j] *= (double)values / (double)max(seen, 1u);
    }
    // The pair that encloses what is wanted, or the one that is nearest to it.
    u32 j = 0;
    while (j + 2 < TRIES && got[j + 1] > want) ++j;
    const double fall = got[j] - got[j + 1], part = fall > 0.0 ? (got[j] - want) / fall : 0.5;
    t.next = first + apart * (j + fmin(fmax(part, -4.0), 5.0));
    t.done = fall > 0.0 && part >= -LOOK_BEYOND && part <= 1.0 + LOOK_BEYOND;
}

// The step with which a page takes the bytes that it may. A block a page.
KERNEL(SHARE_THREADS, 6) rate_share_step(const ShareArgs a) {
    __shared__ ShareTables t;
    const RateArgs &page = a.page;
    const Encoding &encoding = page.encoding;
    const u32 tid = threadIdx.x;
    Plan *p = page.plan;
    const Rate *r = page.rate;
    if (p->trivial || r->fixed || page.status->code || r->want == 0.0) return;
    scalar_thresholds(t.thresholds, p);
    for (u32 i = tid; i < p->classes * 256; i += SHARE_THREADS) {
        const u32 cls = i / 256, s = i % 256, *freq = a.freq + cls * 512;
        const u32 f = s == ESCAPE ? 0 : freq[s];
        const float symbol = (float)p->log - log2f((float)max(f ? f : freq[ESCAPE], 1u));
        t.bits[i] = symbol + (f ? 0.0f : SHARE_ESCAPE) + (float)p->low[cls];
    }
    if (tid < SCALE_SUMS) t.class_of_sum[tid] = p->class_of_sum[tid];
    if (tid < MAX_CLASSES) t.low[tid] = p->low[tid];
    if (tid == 0) t.next = log2(p->step);
    __syncthreads();
    // Header, directory and a checksum; of a tile its first word and half the padding at its end; a lane's state takes 32
    // bits and holds about 8.
    const double fixed = (double)((*a.header_len + share_more(encoding) + 3) / 4 * 4 + 4) + (double)encoding.tiles * (14.0 + 3.0 * encoding.lanes);
    const double want = fmax(r->want - fixed, 1.0) * 8.0;
    if (encoding.values >= 16 * SHARE_UNIT) share_round<SHARE_TRIES, true>(a, t, want, LOOK_FAR);
    else share_round<SHARE_TRIES, false>(a, t, want, LOOK_FAR);
    // The first look takes one value in four of a large page, later looks take all.
    for (u32 round = 0; round < LOOK_ROUNDS; ++round) {
        __syncthreads();
        share_round<SHARE_NEAR, false>(a, t, want, LOOK_NEAR);
        __syncthreads();
        if (t.done) break;
    }
    if (tid == 0) set_step(encoding, p, fmax(exp2(t.next), r->finest));
}

// A page's header before a pass: that of all, with the page's own scale, and its own position if it has one.
KERNEL(SHARE_THREADS) rate_share_header(const ShareArgs a) {
    if (a.pass->code) return;
    const Encoding &encoding = a.page.encoding;
    const u64 len = *a.header_len, words = (len + 3) / 4;
    const bool own = encoding.positions.first != nullptr;
    const u32 more = share_more(encoding);
    u32 *to = a.page_header;
    if (!own) {
        for (u64 i = threadIdx.x; i < words; i += SHARE_THREADS) to[i] = a.header[i];
    } else {
        const u8 *from = (const u8 *)a.header;
        const u64 position = *(const u64 *)encoding.positions;
        for (u64 i = threadIdx.x; i < (len + more + 3) / 4 * 4; i += SHARE_THREADS) {
            const u64 by = i - encoding.position_at;
            u32 v;
            if (i < encoding.position_at) v = from[i] + (i == encoding.length_at ? more : 0);
            else if (by <= more) v = (u32)(position >> (7 * by) & 0x7f) | (by < more ? 0x80u : 0u);
            else v = i < len + more ? from[i - more] : 0;
            ((u8 *)to)[i] = (u8)v;
        }
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    *a.page_header_len = len + more;
    const Plan *p = a.page.plan;
    const u32 scale = __float_as_uint((float)p->scale);
    for (u32 i = 0; i < 4; ++i) ((u8 *)to)[p->scale_at + more + i] = (u8)(scale >> (8 * i));
}
