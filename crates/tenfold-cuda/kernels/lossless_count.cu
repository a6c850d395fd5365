// How often each byte occurs in each plane of a tensor.
//
// Large tensors are sampled, as reading all of one takes a fifth of the time that encoding does. All values are counted
// only where tiles turn out to have bytes that the sample had missed, and then only in planes that are not noise, as the
// mantissas of floats are: counting takes longer than reading.

#include "lossless_encode.cuh"
#include "split.cuh"

KERNEL(LOSSLESS_THREADS) lossless_count_begin(const LosslessArgs a) {
    if (a.whole) {
        const u64 stride = (u64)gridDim.x * blockDim.x;
        for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < 2 * a.assembly.tiles; i += stride) a.ends[i] = 0;
    }
    if (blockIdx.x > 0) return;
    for (u32 i = threadIdx.x; i < size_of(a.dtype) * 256; i += blockDim.x) {
        a.counts[i] = 0;
        if (a.sampled) a.sampled[i] = 0;
    }
    if (threadIdx.x == 0) {
        *a.assembly.status = Status{0, 0, 0};
        a.tabled->missed = 0;
        a.tabled->taken[0] = a.tabled->taken[1] = 0;
    }
}

// Histograms that a block keeps of each plane: one a lane, or as many as there is room for.
template <u32 P> DEVICE constexpr u32 count_copies() { return COUNT_BYTES / (P * 1024) < 32 ? COUNT_BYTES / (P * 1024) : 32; }

// Counts the bytes of plane p in a vector of rotated elements.
template <u32 P> DEVICE void count_vector(u32 *bins, uint4 v, u32 p) {
    const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (u32 k = 0; k < 16; ++k)
        if (k % P == p) atomicAdd(bins + (w[k / 4] >> (8 * (k % 4)) & 255) * count_copies<P>(), 1u);
}

// Counts N vectors, a plane after the other, with a bit in `wanted` for each.
template <u32 P, u32 N> DEVICE void count_vectors(u32 *mine, const uint4 (&v)[N], u32 wanted) {
#pragma unroll
    for (u32 p = 0; p < P; ++p) {
        if (wanted >> p & 1) {
#pragma unroll
            for (u32 j = 0; j < N; ++j) count_vector<P>(mine + p * 256 * count_copies<P>(), v[j], p);
        }
    }
}

// Clears a block's histograms; returns those of this thread. All threads of a block take part.
template <u32 P> DEVICE u32 *count_open(u32 *bins) {
    for (u32 i = threadIdx.x; i < P * 256 * count_copies<P>(); i += blockDim.x) bins[i] = 0;
    __syncthreads();
    return bins + lane_of() % count_copies<P>();
}

// Adds a block's histograms to those of all. All threads of a block take part.
template <u32 P> DEVICE void count_add(const u32 *bins, u64 *counts) {
    __syncthreads();
    const u32 copies = count_copies<P>();
    for (u32 s = threadIdx.x; s < P * 256; s += blockDim.x) {
        u32 sum = 0;
        for (u32 c = 0; c < copies; ++c) sum += bins[s * copies + (c + s) % copies];
        if (sum) atomicAdd(counts + s, (u64)sum);
    }
}

// Counts 512 bytes in every `a.every` times as many.
template <u32 P> DEVICE void sample_planes(const LosslessArgs &a, u8 *memory) {
    u32 *bins = (u32 *)memory, *mine = count_open<P>(bins);
    const u64 vectors = a.values / (16 / P) / a.every / 32 * 32;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += (u64)gridDim.x * blockDim.x) {
        const u64 at = i / 32 * (32 * a.every) + i % 32;
        const uint4 v[1] = {split_vector<P>(__ldg((const uint4 *)a.data + at), is_float(a.dtype))};
        count_vectors<P>(mine, v, (1u << P) - 1);
    }
    count_add<P>(bins, a.sampled);
}

// Whether a sample says that a plane is not worth coding: its entropy is within half of what WORTH asks for.
DEVICE bool sample_is_noise(const u64 *counts) {
    float total = 0, sum = 0;
    for (u32 s = lane_of(); s < 256; s += 32) {
        const float n = (float)counts[s];
        total += n;
        sum += n > 0 ? n * log2f(n) : 0;
    }
    total = warp_sum(total);
    sum = warp_sum(sum);
    return total > 0 && log2f(total) - sum / total > 8.0f * (1.0f - (float)WORTH / 2);
}

// How often each byte occurs in each plane that may be worth coding. All values: a byte that a sample had missed would
// have no slot.
template <class E> DEVICE void count_planes(const LosslessArgs &a, u8 *memory) {
    const u32 P = sizeof(E), copies = count_copies<P>();
    if (lossless_done(a)) return;
    u32 *bins = (u32 *)memory, *mine = count_open<P>(bins);
    u32 wanted = (1u << P) - 1;
    if (a.sampled) {
        for (u32 p = 0; p < P; ++p)
            if (sample_is_noise(a.sampled + p * 256)) wanted &= ~(1u << p);
    }
    const bool rotate = is_float(a.dtype);
    const uint4 *data = (const uint4 *)a.data;
    const u64 vectors = a.values / (16 / P), stride = (u64)gridDim.x * blockDim.x;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < vectors; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) v[j] = __ldg(data + i + j * stride);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) v[j] = split_vector<P>(v[j], rotate);
        count_vectors<P>(mine, v, wanted);
    }
    for (; i < vectors; i += stride) {
        const uint4 v[1] = {split_vector<P>(__ldg(data + i), rotate)};
        count_vectors<P>(mine, v, wanted);
    }
    // Less than a vector is left.
    const u64 rest = vectors * (16 / P) + threadIdx.x;
    if (blockIdx.x == 0 && rest < a.values) {
        const E v = split_element(((const E *)a.data)[rest], rotate);
#pragma unroll
        for (u32 p = 0; p < P; ++p)
            if (wanted >> p & 1) atomicAdd(mine + (p * 256 + (u32)(v >> (8 * p) & 255)) * copies, 1u);
    }
    count_add<P>(bins, a.counts);
}

KERNEL(COUNT_THREADS) lossless_count_sample_1(const LosslessArgs a) RUNS(sample_planes<1>)
KERNEL(COUNT_THREADS) lossless_count_sample_2(const LosslessArgs a) RUNS(sample_planes<2>)
KERNEL(COUNT_THREADS) lossless_count_sample_4(const LosslessArgs a) RUNS(sample_planes<4>)
KERNEL(COUNT_THREADS) lossless_count_sample_8(const LosslessArgs a) RUNS(sample_planes<8>)
KERNEL(COUNT_THREADS) lossless_count_1(const LosslessArgs a) RUNS(count_planes<u8>)
KERNEL(COUNT_THREADS) lossless_count_2(const LosslessArgs a) RUNS(count_planes<u16>)
KERNEL(COUNT_THREADS) lossless_count_4(const LosslessArgs a) RUNS(count_planes<u32>)
KERNEL(COUNT_THREADS) lossless_count_8(const LosslessArgs a) RUNS(count_planes<u64>)
