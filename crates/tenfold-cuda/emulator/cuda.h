// What the kernels use of CUDA C++, for an ordinary C++ compiler: threads of a block are fibers of one thread,
// and every operation of a warp is a meeting of its lanes.
//
// A kernel that leaves a lane behind in such an operation stops with a message; on a GPU it would hang or worse.
#pragma once

#include <math.h>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define TENFOLD_EMULATOR 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static const
// A block's threads are fibers of one thread, and blocks run one after the other.
#define __shared__ static thread_local

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };
struct dim3 { unsigned x, y, z; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulator {

struct Block {
    dim3 index, dim, grid;
    void *shared;
};
extern thread_local Block block;

unsigned thread();
void meet_block();
// Leaves `mine` with the warp and waits for its other lanes; what they left is at the address returned.
const std::uint64_t *meet_warp(std::uint64_t mine);
[[noreturn]] void fail(const char *why);

inline unsigned lane() { return thread() % 32; }

struct ThreadIndex {
    struct X { operator unsigned() const { return thread(); } } x;
    struct Zero { operator unsigned() const { return 0; } } y, z;
};

template <class T> std::uint64_t to_bits(T v) {
    static_assert(sizeof(T) <= 8);
    std::uint64_t b = 0;
    std::memcpy(&b, &v, sizeof v);
    return b;
}
template <class T> T from_bits(std::uint64_t b) {
    T v;
    std::memcpy(&v, &b, sizeof v);
    return v;
}
inline void full(unsigned mask) {
    if (mask != 0xffffffffu) fail("an operation on part of a warp");
}

} // namespace emulator

static const emulator::ThreadIndex threadIdx{};
#define blockIdx (emulator::block.index)
#define blockDim (emulator::block.dim)
#define gridDim (emulator::block.grid)

inline void __syncthreads() { emulator::meet_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
    emulator::full(mask);
    emulator::meet_warp(0);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

inline unsigned __ballot_sync(unsigned mask, int p) {
    emulator::full(mask);
    const std::uint64_t *all = emulator::meet_warp(p != 0);
    unsigned bits = 0;
    for (unsigned l = 0; l < 32; ++l) bits |= unsigned(all[l] != 0) << l;
    return bits;
}
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p) == 0xffffffffu; }

template <class T> T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    emulator::full(mask);
    const unsigned base = emulator::lane() & ~unsigned(width - 1);
    return emulator::from_bits<T>(emulator::meet_warp(emulator::to_bits(v))[base + (unsigned(from) & unsigned(width - 1))]);
}
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    emulator::full(mask);
    const unsigned l = emulator::lane();
    const std::uint64_t *all = emulator::meet_warp(emulator::to_bits(v));
    return l % unsigned(width) >= by ? emulator::from_bits<T>(all[l - by]) : v;
}
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    emulator::full(mask);
    const unsigned l = emulator::lane();
    const std::uint64_t *all = emulator::meet_warp(emulator::to_bits(v));
    return l % unsigned(width) + by < unsigned(width) ? emulator::from_bits<T>(all[l + by]) : v;
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32) {
    emulator::full(mask);
    (void)width;
    return emulator::from_bits<T>(emulator::meet_warp(emulator::to_bits(v))[emulator::lane() ^ unsigned(by)]);
}

template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> void __stcs(T *p, T v) { *p = v; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(unsigned(v)); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; ++i) r |= (v >> i & 1u) << (31 - i);
    return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((std::uint64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return unsigned(((std::uint64_t(hi) << 32) | lo) >> (n & 31));
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return unsigned((((std::uint64_t(hi) << 32) | lo) << (n & 31)) >> 32);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    const std::uint64_t both = std::uint64_t(b) << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) r |= unsigned(both >> (8 * (s >> (4 * i) & 7)) & 0xff) << (8 * i);
    return r;
}
inline unsigned __float_as_uint(float v) { return emulator::from_bits<unsigned>(emulator::to_bits(v)); }
inline int __float_as_int(float v) { return emulator::from_bits<int>(emulator::to_bits(v)); }
inline float __uint_as_float(unsigned v) { return emulator::from_bits<float>(v); }
inline float __int_as_float(int v) { return emulator::from_bits<float>(emulator::to_bits(v)); }
inline long long __double_as_longlong(double v) { return emulator::from_bits<long long>(emulator::to_bits(v)); }
inline double __longlong_as_double(long long v) { return emulator::from_bits<double>(emulator::to_bits(v)); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __int2float_rn(int v) { return float(v); }
inline float __uint2float_rn(unsigned v) { return float(v); }
inline double __int2double_rn(int v) { return double(v); }
inline int __float2int_rz(float v) { return int(v); }
inline int __float2int_rn(float v) { return int(nearbyint(v)); }
inline float __double2float_rn(double v) { return float(v); }

template <class A, class B> auto min(A a, B b) { return a < b ? a : b; }
template <class A, class B> auto max(A a, B b) { return a > b ? a : b; }

template <class T, class U> T atomicAdd(T *p, U v) { T old = *p; *p = T(old + T(v)); return old; }
template <class T, class U> T atomicMax(T *p, U v) { T old = *p; if (T(v) > old) *p = T(v); return old; }
template <class T, class U> T atomicMin(T *p, U v) { T old = *p; if (T(v) < old) *p = T(v); return old; }
template <class T, class U> T atomicOr(T *p, U v) { T old = *p; *p = old | T(v); return old; }
template <class T, class U> T atomicXor(T *p, U v) { T old = *p; *p = old ^ T(v); return old; }
template <class T, class U> T atomicExch(T *p, U v) { T old = *p; *p = T(v); return old; }
template <class T, class U, class V> T atomicCAS(T *p, U expect, V v) {
    T old = *p;
    if (old == T(expect)) *p = T(v);
    return old;
}
