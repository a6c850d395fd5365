// A matrix times a vector: what a layer that has just been decoded does with one token. Every warp has loads of a row under way
// all the time, so that the few multiprocessors that decoding leaves over take in as much as they can.

#include "floats.cuh"

// Words of 16 bytes of a lane that are used, while as many are on their way.
#define MULTIPLY_AHEAD 4

// Two numbers of a word.
template <u32 DTYPE> struct MultiplyWord {};
template <> struct MultiplyWord<DTYPE_BF16> {
    METHOD static float2 of(u32 v) { return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)); }
};
template <> struct MultiplyWord<DTYPE_F16> {
#ifdef TENFOLD_EMULATOR
    METHOD static float one(u32 v) { return __uint_as_float(f32_of(DTYPE_F16, v)); }
#else
    METHOD static float one(u32 v) {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((u16)v));
        return f;
    }
#endif
    METHOD static float2 of(u32 v) { return make_float2(one(v & 0xffff), one(v >> 16)); }
};

template <u32 DTYPE> DEVICE float multiply_add(float sum, u32 a, u32 b) {
    const float2 x = MultiplyWord<DTYPE>::of(a), y = MultiplyWord<DTYPE>::of(b);
    return fmaf(x.y, y.y, fmaf(x.x, y.x, sum));
}

// A row's result out of what its lanes have.
template <u32 DTYPE> DEVICE void multiply_end(const MultiplyArgs &a, u32 row, float sum) {
    for (int by = 16; by > 0; by >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, by);
    if (lane_of() != 0) return;
    const u16 *bias = (const u16 *)a.bias;
    if (bias) sum += __uint_as_float(f32_of(DTYPE, bias[row]));
    // What is not finite is so in 16 bits too.
    const u32 bits = __float_as_uint(sum), sign = bits >> 31 << 15;
    const u32 special = DTYPE == DTYPE_BF16 ? 0x7f80 : 0x7c00;
    const bool infinite = (bits & 0x7fffffff) >= (DTYPE == DTYPE_BF16 ? 0x7f7f8000u : 0x477ff000u);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000u;
    ((u16 *)a.to)[row] = (u16)(nan ? 0x7fff : infinite ? sign | special : element_of(DTYPE, sum));
}

// Sixteen-byte words of a row that a lane has under way.
struct MultiplyWords {
    uint4 at[MULTIPLY_AHEAD];
};

// Sums of products in f32, always in the same order.
template <u32 DTYPE> DEVICE void multiply(const MultiplyArgs &a, uint4 *vector) {
    const u32 chunks = a.columns / 8, lane = lane_of(), warps = gridDim.x * (MULTIPLY_THREADS / 32);
    u32 row = blockIdx.x * (MULTIPLY_THREADS / 32) + warp_of(), from = lane;
    float sum = 0.0f;
    const auto load = [&](MultiplyWords &w) {
        const uint4 *weights = (const uint4 *)a.matrix + (u64)row * chunks;
#pragma unroll
        for (u32 i = 0; i < MULTIPLY_AHEAD; ++i)
            w.at[i] = row < a.rows && from + 32 * i < chunks ? __ldcs(weights + from + 32 * i) : make_uint4(0, 0, 0, 0);
    };
    // Uses what has arrived, while what comes next, of this row or of the warp's next one, is on its way.
    const auto take = [&](const MultiplyWords &w, MultiplyWords &next) {
        const u32 now = from, of = row;
        from += 32 * MULTIPLY_AHEAD;
        const bool ends = from - lane >= chunks;
        if (ends) {
            row += warps;
            from = lane;
        }
        load(next);
#pragma unroll
        for (u32 i = 0; i < MULTIPLY_AHEAD; ++i) {
            if (now + 32 * i >= chunks) continue;
            const uint4 x = vector[now + 32 * i];
            sum = multiply_add<DTYPE>(sum, w.at[i].x, x.x);
            sum = multiply_add<DTYPE>(sum, w.at[i].y, x.y);
            sum = multiply_add<DTYPE>(sum, w.at[i].z, x.z);
            sum = multiply_add<DTYPE>(sum, w.at[i].w, x.w);
        }
        if (!warp_agrees(ends)) return;
        multiply_end<DTYPE>(a, of, sum);
        sum = 0.0f;
    };
    MultiplyWords even, odd;
    load(even);
    for (u32 i = threadIdx.x; i < chunks; i += MULTIPLY_THREADS) vector[i] = ((const uint4 *)a.vector)[i];
    __syncthreads();
#pragma unroll 1
    while (warp_agrees(row < a.rows)) {
        take(even, odd);
        if (!warp_agrees(row < a.rows)) break;
        take(odd, even);
    }
}

KERNEL(MULTIPLY_THREADS, 2) multiply_bf16(const MultiplyArgs a) {
    DYNAMIC_SHARED(memory);
    multiply<DTYPE_BF16>(a, (uint4 *)memory);
}
KERNEL(MULTIPLY_THREADS, 2) multiply_f16(const MultiplyArgs a) {
    DYNAMIC_SHARED(memory);
    multiply<DTYPE_F16>(a, (uint4 *)memory);
}
