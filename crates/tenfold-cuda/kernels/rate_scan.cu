// One pass over a tensor: finite values, the largest, the mean magnitude of rows and columns, and the variance where
// someone asked. The twin of `rate/scan.rs`.
//
// A block takes a band of rows and a stripe of columns. A thread keeps its columns throughout, so that their sums stay
// in registers. Sums are stored by piece and added up by later kernels, in one order.

#include "sample.cuh"

// Sixteen bytes of elements.
template <class E> struct ScanVector {
    static const u32 N = 16 / sizeof(E);
    u32 words[4];
};

// Element `i`, which is known when this is compiled.
template <class E> DEVICE E scan_element(const ScanVector<E> &v, u32 i) {
    if (sizeof(E) == 8) return (E)((u64)v.words[2 * i + 1] << 32 | v.words[2 * i]);
    const u32 bits = 8 * sizeof(E);
    return (E)(v.words[i * bits / 32] >> (i * bits % 32));
}

// What a thread has seen.
struct ScanSums {
    float max, sum, squares;
    u32 bad;
};

template <u32 DTYPE, class E> DEVICE float scan_value(E b, double per_unit, bool scaled) {
    if (sizeof(E) == 8) return (float)(__longlong_as_double((i64)b) * per_unit);
    const float v = sample_real<DTYPE>((u32)b);
    return scaled ? v * (float)per_unit : v;
}

// Elements from `at` on, `count` of them and zeros after; one load where that can be.
template <class E> DEVICE ScanVector<E> scan_load(const E *data, u64 at, u32 count, bool aligned) {
    const u32 n = ScanVector<E>::N;
    ScanVector<E> v;
    if (aligned && count == n) {
        const uint4 raw = __ldcs((const uint4 *)(data + at));
        v.words[0] = raw.x;
        v.words[1] = raw.y;
        v.words[2] = raw.z;
        v.words[3] = raw.w;
        return v;
    }
    v.words[0] = v.words[1] = v.words[2] = v.words[3] = 0;
#pragma unroll
    for (u32 i = 0; i < n; ++i) {
        const E e = i < count ? data[at + i] : (E)0;
        const u32 bit = 8 * sizeof(E) * i;
        v.words[bit / 32] |= (u32)e << (bit % 32);
        if (sizeof(E) == 8) v.words[bit / 32 + 1] = (u32)((u64)e >> 32);
    }
    return v;
}

template <u32 DTYPE, class E, bool VARIANCE, bool SCALED>
DEVICE void scan_band(const RateArgs &a, float *shared, double *shared_sums) {
    const u32 n = ScanVector<E>::N, tid = threadIdx.x;
    const E *data = (const E *)a.encoding.data;
    const double per_unit = SCALED ? 1.0 / a.rate->unit : 1.0;
    const u32 log = a.row_threads, per_row = 1u << log, together = SCAN_THREADS >> log;
    const u32 stripe = blockIdx.x % a.stripes, band = blockIdx.x / a.stripes;
    const u64 first = (u64)band * a.band_rows;
    const u64 last = first + a.band_rows < a.rows ? first + a.band_rows : a.rows;
    const u64 col = ((u64)stripe * per_row + (tid & (per_row - 1))) * n;
    const u32 sub = tid >> log;
    const bool aligned = a.width * sizeof(E) % 16 == 0;
    const float below = sample_finite_below<DTYPE>();
    // Which piece of a row this warp adds up; lanes 0, per_row, … end up with a sum each.
    const u32 pieces = per_row > 32 ? per_row >> 5 : 1, piece = stripe * pieces + (warp_of() & (pieces - 1));
    const u32 reduce = per_row < 32 ? per_row : 32;

    // About a value of this band, or its square would drown the deviation: the middle one of three.
    float about = 0.0f;
    if (VARIANCE) {
        float three[3];
        for (u32 i = 0; i < 3; ++i) {
            const u64 at = first * a.width + i * ((last - first) * a.width / 3);
            const float v = at < a.encoding.values ? scan_value<DTYPE, E>(data[at], per_unit, SCALED) : 0.0f;
            three[i] = fabsf(v) < below ? v : 0.0f;
        }
        about = fmaxf(fminf(three[0], three[1]), fminf(fmaxf(three[0], three[1]), three[2]));
    }

    float cols[n];
#pragma unroll
    for (u32 i = 0; i < n; ++i) cols[i] = 0.0f;
    ScanSums s = {0.0f, 0.0f, 0.0f, 0};
    for (u64 base = first; base < last; base += together * SCAN_AHEAD) {
        ScanVector<E> v[SCAN_AHEAD];
        u32 counts[SCAN_AHEAD];
#pragma unroll
        for (u32 j = 0; j < SCAN_AHEAD; ++j) {
            const u64 row = base + j * together + sub, at = row * a.width + col;
            u64 count = row < last && col < a.width ? a.width - col : 0;
            if (count > 0 && at + count > a.encoding.values) count = at < a.encoding.values ? a.encoding.values - at : 0;
            counts[j] = count < n ? (u32)count : n;
            v[j] = scan_load<E>(data, at, counts[j], aligned);
        }
#pragma unroll
        for (u32 j = 0; j < SCAN_AHEAD; ++j) {
            float x[n], sum = 0.0f, max = 0.0f;
#pragma unroll
            for (u32 i = 0; i < n; ++i) {
                x[i] = scan_value<DTYPE, E>(scan_element<E>(v[j], i), per_unit, SCALED);
                sum += fabsf(x[i]);
                max = fmaxf(max, fabsf(x[i]));
            }
            // A sum is finite only if all of it is; the numbers that stand for infinity show in the maximum.
            if (!(sum < __uint_as_float(0x7f800000u)) || max >= below) {
                sum = max = 0.0f;
#pragma unroll
                for (u32 i = 0; i < n; ++i) {
                    const bool ok = fabsf(x[i]) < below;
                    s.bad += !ok;
                    if (VARIANCE && i < counts[j] && !ok) {
                        // Taken off here, it is added again with the others.
                        s.sum += about;
                        s.squares -= about * about;
                    }
                    x[i] = ok ? x[i] : 0.0f;
                    sum += fabsf(x[i]);
                    max = fmaxf(max, fabsf(x[i]));
                }
            }
#pragma unroll
            for (u32 i = 0; i < n; ++i) {
                cols[i] += fabsf(x[i]);
                if (VARIANCE && i < counts[j]) {
                    const float d = x[i] - about;
                    s.sum += d;
                    s.squares = fmaf(d, d, s.squares);
                }
            }
            s.max = fmaxf(s.max, max);
            for (u32 by = reduce >> 1; by > 0; by >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, (int)by);
            const u64 row = base + j * together + sub;
            if ((lane_of() & (reduce - 1)) == 0 && row < last) a.row_parts[(u64)piece * a.rows + row] = sum;
        }
    }

    // Columns, over the rows that were read together.
#pragma unroll
    for (u32 i = 0; i < n; ++i) shared[i * SCAN_THREADS + tid] = cols[i];
    __syncthreads();
    for (u32 by = SCAN_THREADS / 2; by >= per_row; by >>= 1) {
        if (tid < by)
#pragma unroll
            for (u32 i = 0; i < n; ++i) shared[i * SCAN_THREADS + tid] += shared[i * SCAN_THREADS + tid + by];
        __syncthreads();
    }
    if (a.tabular && sub == 0)
        for (u32 i = 0; i < n && col + i < a.width; ++i)
            a.col_parts[(u64)band * a.width + col + i] = shared[i * SCAN_THREADS + tid];

    // The band's share.
    double bad = warp_sum((double)s.bad), sum = warp_sum((double)s.sum), squares = warp_sum((double)s.squares);
    float max = s.max;
    for (int by = 16; by > 0; by >>= 1) max = fmaxf(max, __shfl_xor_sync(ALL_LANES, max, by));
    if (lane_of() == 0) {
        shared_sums[warp_of() * 4] = bad;
        shared_sums[warp_of() * 4 + 1] = sum;
        shared_sums[warp_of() * 4 + 2] = squares;
        shared_sums[warp_of() * 4 + 3] = max;
    }
    __syncthreads();
    if (tid == 0) {
        for (u32 w = 1; w < SCAN_THREADS / 32; ++w) {
            for (u32 i = 0; i < 3; ++i) shared_sums[i] += shared_sums[w * 4 + i];
            shared_sums[3] = fmax(shared_sums[3], shared_sums[w * 4 + 3]);
        }
        // Values here: whole rows of the stripe, but the tensor's last row may end early.
        const u64 from = (u64)stripe * per_row * n;
        const u64 wide = a.width - from < (u64)per_row * n ? a.width - from : (u64)per_row * n;
        u64 values = (last - first) * wide;
        const u64 end = (last - 1) * a.width + from + wide;
        if (end > a.encoding.values) values -= end - a.encoding.values < wide ? end - a.encoding.values : wide;
        ScanPart p;
        p.finite = values - (u64)shared_sums[0];
        const double count = p.finite ? (double)p.finite : 1.0, off = shared_sums[1] / count;
        p.mean = about + off;
        p.squares = VARIANCE ? fmax(shared_sums[2] - off * shared_sums[1], 0.0) : 0.0;
        p.max = (float)shared_sums[3];
        p.pad = 0;
        a.parts[blockIdx.x] = p;
    }
}

template <u32 DTYPE, class E> DEVICE void scan_any(const RateArgs &a) {
    __shared__ float shared[SCAN_THREADS * ScanVector<E>::N];
    __shared__ double sums[SCAN_THREADS / 8];
    const bool again = a.mode != 0;
    if (again && !a.rate->rescan) return;
    // Small floats need no other unit, f64 always has one.
    const bool may = DTYPE == DTYPE_BF16 || DTYPE == DTYPE_F32 || DTYPE == DTYPE_F64;
    const bool scaled = may && (again || DTYPE == DTYPE_F64), variance = a.encoding.goal == GOAL_NMSE;
    if (scaled) {
        if (variance) scan_band<DTYPE, E, true, may>(a, shared, sums);
        else scan_band<DTYPE, E, false, may>(a, shared, sums);
    } else {
        if (variance) scan_band<DTYPE, E, true, DTYPE == DTYPE_F64>(a, shared, sums);
        else scan_band<DTYPE, E, false, DTYPE == DTYPE_F64>(a, shared, sums);
    }
}

// So many blocks a multiprocessor have enough loads on their way to keep memory busy.
KERNEL(SCAN_THREADS, 2) rate_scan_f8_e4m3(const RateArgs a) { scan_any<DTYPE_F8_E4M3, u8>(a); }
KERNEL(SCAN_THREADS, 2) rate_scan_f8_e5m2(const RateArgs a) { scan_any<DTYPE_F8_E5M2, u8>(a); }
KERNEL(SCAN_THREADS, 4) rate_scan_f16(const RateArgs a) { scan_any<DTYPE_F16, u16>(a); }
KERNEL(SCAN_THREADS, 4) rate_scan_bf16(const RateArgs a) { scan_any<DTYPE_BF16, u16>(a); }
KERNEL(SCAN_THREADS, 4) rate_scan_f32(const RateArgs a) { scan_any<DTYPE_F32, u32>(a); }
KERNEL(SCAN_THREADS, 4) rate_scan_f64(const RateArgs a) { scan_any<DTYPE_F64, u64>(a); }

// Before anything else: the state of a search is zeros.
KERNEL(SCAN_THREADS) rate_scan_open(const RateArgs a) {
    u32 *words = (u32 *)a.rate;
    for (u32 i = blockIdx.x * SCAN_THREADS + threadIdx.x; i < sizeof(Rate) / 4; i += gridDim.x * SCAN_THREADS) words[i] = 0;
}

// Exponents of an f64 tensor's values that are finite and not zero: what its unit is chosen by.
KERNEL(SCAN_THREADS) rate_scan_exponents(const RateArgs a) {
    __shared__ u32 counts[2048];
    for (u32 i = threadIdx.x; i < 2048; i += SCAN_THREADS) counts[i] = 0;
    __syncthreads();
    const u64 *data = (const u64 *)a.encoding.data;
    for (u64 i = (u64)blockIdx.x * SCAN_THREADS + threadIdx.x; i < a.encoding.values; i += (u64)gridDim.x * SCAN_THREADS) {
        const u64 b = data[i] << 1 >> 1;
        const u32 e = (u32)(b >> 52);
        if (b != 0 && e < 2047) atomicAdd(&counts[e], 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 2048; i += SCAN_THREADS)
        if (counts[i]) atomicAdd(&a.rate->exponents[i], (u64)counts[i]);
}

DEVICE double power_of_two(i32 e) { return __longlong_as_double((i64)(e + 1023) << 52); }

// The unit of an f64 tensor: a magnitude that all but a hundredth do not exceed by much.
KERNEL(32) rate_scan_unit(const RateArgs a) {
    Rate *r = a.rate;
    u64 total = 0;
    for (u32 i = lane_of(); i < 2047; i += 32) total += r->exponents[i];
    total = warp_sum(total);
    if (lane_of() != 0) return;
    u64 above = 0;
    i32 e = 2046;
    for (; e > 0; --e) {
        above += r->exponents[e];
        if (above > total / 100) break;
    }
    // Exponent 0 has subnormal numbers, which no unit helps.
    r->unit = total > 0 && e > 0 ? power_of_two(e - 1023) : 1.0;
    // Told apart from zeros, should all vanish in this unit.
    r->variance = total > 0 ? 1.0 : 0.0;
}

struct Moments {
    double count, mean, squares, max;
};

DEVICE void moments_add(Moments &m, const Moments &o) {
    const double count = m.count + o.count, apart = o.mean - m.mean;
    if (count > 0.0) {
        m.squares += o.squares + apart * apart * m.count * o.count / count;
        m.mean += apart * o.count / count;
        m.count = count;
    }
    m.max = fmax(m.max, o.max);
}

// Adds up what the blocks saw.
KERNEL(SUM_THREADS) rate_scan_sum(const RateArgs a) {
    __shared__ Moments all[SUM_THREADS];
    Rate *r = a.rate;
    const bool again = a.mode != 0, wide = a.encoding.dtype == DTYPE_F64;
    if (again && !r->rescan) return;
    const u32 tid = threadIdx.x, blocks = a.stripes * a.bands;
    Moments m = {0.0, 0.0, 0.0, 0.0};
    for (u32 i = tid; i < blocks; i += SUM_THREADS) {
        const ScanPart p = a.parts[i];
        moments_add(m, Moments{(double)p.finite, p.mean, p.squares, p.max});
    }
    all[tid] = m;
    __syncthreads();
    for (u32 by = SUM_THREADS / 2; by > 0; by >>= 1) {
        if (tid < by) moments_add(all[tid], all[tid + by]);
        __syncthreads();
    }
    if (tid != 0) return;
    m = all[0];
    // Behind steps nothing else than numbers can be stored.
    if (a.encoding.transforms_len && (u64)m.count != a.encoding.values) report(a.status, STATUS_NOT_FINITE);
    const bool any = wide && r->variance > 0.0;
    if (!wide && !again) r->unit = 1.0;
    r->max = m.max;
    r->finite = (u64)m.count;
    r->variance = m.squares / fmax(m.count, 1.0);
    a.plan->trivial = m.max == 0.0 && !any;
    a.plan->done = 0;
    r->row_low = r->col_low = 0xffffffffu;
    r->row_high = r->col_high = 0;
    // Squares of very large or small values leave the range of f32: look again in another unit.
    if (!wide && !again && m.max > 0.0 && !(m.max >= 1e-12 && m.max < 1e12)) {
        r->unit = power_of_two((i32)log2(m.max));
        r->rescan = 1;
    }
}

// Notes the smallest and largest logarithm of a warp's means.
DEVICE void scan_note(float log, bool valid, u32 *low, u32 *high) {
    u32 least = valid ? ordered(log) : 0xffffffffu, most = valid ? ordered(log) : 0;
    for (int by = 16; by > 0; by >>= 1) {
        least = min(least, __shfl_xor_sync(ALL_LANES, least, by));
        most = max(most, __shfl_xor_sync(ALL_LANES, most, by));
    }
    if (lane_of() == 0) {
        atomicMin(low, least);
        atomicMax(high, most);
    }
}

// Logarithms of the rows' means.
KERNEL(SCAN_THREADS) rate_scan_rows(const RateArgs a) {
    const u32 pieces = a.stripes * (a.row_threads > 5 ? 1u << (a.row_threads - 5) : 1u);
    if (a.plan->trivial) return;
    for (u64 base = (u64)blockIdx.x * SCAN_THREADS; base < a.rows; base += (u64)gridDim.x * SCAN_THREADS) {
        const u64 row = base + threadIdx.x;
        const bool valid = row < a.rows;
        float log = 0.0f;
        if (valid) {
            float sum = 0.0f;
            for (u32 p = 0; p < pieces; ++p) sum += a.row_parts[(u64)p * a.rows + row];
            const u64 left = a.encoding.values - row * a.width;
            log = log2f(fmaxf(sum / (float)(left < a.width ? left : a.width), 1e-30f));
            a.row_logs[row] = log;
        }
        scan_note(log, valid, &a.rate->row_low, &a.rate->row_high);
    }
}

// Logarithms of the columns' means where there are few bands: a thread a column.
KERNEL(SCAN_THREADS) rate_scan_cols_few(const RateArgs a) {
    if (a.plan->trivial) return;
    const u64 col = (u64)blockIdx.x * SCAN_THREADS + threadIdx.x;
    float sum = 0.0f;
    if (col < a.width)
        for (u32 band = 0; band < a.bands; ++band) sum += a.col_parts[(u64)band * a.width + col];
    const float log = log2f(fmaxf(sum / (float)a.rows, 1e-30f));
    if (col < a.width) a.col_logs[col] = log;
    scan_note(log, col < a.width, &a.rate->col_low, &a.rate->col_high);
}

// The same otherwise: 32 columns a block, 32 bands at a time.
KERNEL(1024) rate_scan_cols(const RateArgs a) {
    __shared__ float sums[32][33];
    if (a.plan->trivial) return;
    const u32 lane = lane_of(), warp = warp_of();
    const u64 col = (u64)blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (col < a.width)
        for (u32 band = warp; band < a.bands; band += 32) sum += a.col_parts[(u64)band * a.width + col];
    sums[warp][lane] = sum;
    __syncthreads();
    // Transposed: a warp adds up one column.
    const float total = warp_sum(sums[lane][warp]);
    __syncthreads();
    if (lane == 0) sums[0][warp] = total;
    __syncthreads();
    if (warp != 0) return;
    const float log = log2f(fmaxf(sums[0][lane] / (float)a.rows, 1e-30f));
    if (col < a.width) a.col_logs[col] = log;
    scan_note(log, col < a.width, &a.rate->col_low, &a.rate->col_high);
}
