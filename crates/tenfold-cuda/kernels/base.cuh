// What every kernel uses: numbers, a few types, warps, and the structures that launch code fills in.
#pragma once

#include "format.h"

// OUTLINE: for what is called from many places and need not be quick. GRID_CONSTANT: arguments whose address is given
// to such a function without a copy of them. STORED: a table of constants in the device's memory.
#ifdef TENFOLD_EMULATOR
#define OUTLINE static
#define GRID_CONSTANT
#define STORED static const
#else
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define OUTLINE static __device__ __noinline__
#define GRID_CONSTANT __grid_constant__
#define STORED static __device__ const
#endif
// Threads of a block, and, if it matters, blocks that a multiprocessor must have room for.
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define METHOD __device__ __forceinline__
#define DEVICE static METHOD
// Body of a kernel that gives its arguments `a` and the dynamic shared memory to a function.
#define RUNS(...) { DYNAMIC_SHARED(memory); __VA_ARGS__(a, memory); }

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define ALL_LANES 0xffffffffu

DEVICE u32 lane_of() { return threadIdx.x & 31; }
DEVICE u32 warp_of() { return threadIdx.x >> 5; }

// Reckoned anew wherever it is asked for: a hot loop has no registers to keep it in.
#ifdef TENFOLD_EMULATOR
DEVICE u64 each_at(u64 first, u32 apart) { return first + (u64)blockIdx.y * apart; }
#else
DEVICE u64 each_at(u64 first, u32 apart) {
    u64 at;
    asm volatile("mad.wide.u32 %0, %1, %2, %3;" : "=l"(at) : "r"(blockIdx.y), "r"(apart), "l"(first));
    return at;
}
#endif

// Memory of one tensor of a batch: that of the first, and by how many bytes the next one's is further on. All of a batch
// is of one shape, and blockIdx.y says whose kernel this is; a tensor alone is a batch of one.
template <class T> struct Each {
    T *first;
    // Less than 2^32, for a product of one instruction.
    u64 apart;
    METHOD operator T *() const { return (T *)each_at((u64)first, (u32)apart); }
    METHOD T *operator->() const { return *this; }
    // For casts.
    template <class U> METHOD explicit operator U *() const { return (U *)(T *)*this; }
};

// Where Rust has a field.
#ifdef TENFOLD_EMULATOR
#define OFFSET(type, field, at) static_assert(offsetof(type, field) == at, "offset of " #type "." #field)
#else
#define OFFSET(type, field, at) static_assert(__INTADDR__(&((type *)0)->field) == at, "offset of " #type "." #field)
#endif

#include "abi.h"

// The first trouble is the one that counts.
DEVICE void report(Status *status, u32 code, u32 detail = 0, u64 size = 0) {
    if (atomicCAS(&status->code, 0u, code) == 0u) {
        status->detail = detail;
        status->size = size;
    }
}

// Shared memory by its own short addresses, where a hot loop reckons with them; the emulator has none.
#ifdef TENFOLD_EMULATOR
typedef u64 SharedAt;
DEVICE SharedAt shared_at(const void *p) { return (u64)p; }
DEVICE u32 shared_u8(SharedAt at) { return *(const u8 *)at; }
DEVICE u32 shared_u16(SharedAt at) { return *(const u16 *)at; }
DEVICE u32 shared_u32(SharedAt at) { return *(const u32 *)at; }
DEVICE uint2 shared_u64(SharedAt at) { return *(const uint2 *)at; }
DEVICE uint4 shared_u128(SharedAt at) { return *(const uint4 *)at; }
DEVICE u32 ordered_u16(SharedAt at) { return shared_u16(at); }
DEVICE u32 ordered_u32(SharedAt at) { return shared_u32(at); }
DEVICE uint2 ordered_u64(SharedAt at) { return shared_u64(at); }
DEVICE u32 ordered_count(u32 v) { return (u32)__popc(v); }
DEVICE void shared_put_u8(SharedAt at, u32 v) { *(u8 *)at = (u8)v; }
DEVICE void shared_put_u16(SharedAt at, u32 v) { *(u16 *)at = (u16)v; }
template <class T> DEVICE void shared_put(SharedAt at, T v) { *(T *)at = v; }
#else
typedef u32 SharedAt;
DEVICE SharedAt shared_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE u32 shared_u8(SharedAt at) {
    u32 v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
DEVICE u32 shared_u16(SharedAt at) {
    u32 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
DEVICE u32 shared_u32(SharedAt at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
DEVICE uint2 shared_u64(SharedAt at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
DEVICE uint4 shared_u128(SharedAt at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
// Loads that the assembler leaves in their order, too: it likes to put them off until they are waited for.
DEVICE u32 ordered_u16(SharedAt at) {
    u32 v;
    asm volatile("ld.volatile.shared.u16 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
DEVICE u32 ordered_u32(SharedAt at) {
    u32 v;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
DEVICE uint2 ordered_u64(SharedAt at) {
    uint2 v;
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
// Bits that are set; counting takes long, and what others wait for is to come first.
DEVICE u32 ordered_count(u32 v) {
    u32 n;
    asm volatile("popc.b32 %0, %1;" : "=r"(n) : "r"(v));
    return n;
}
DEVICE void shared_put_u16(SharedAt at, u32 v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"((u16)v) : "memory"); }
DEVICE void shared_put(SharedAt at, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
DEVICE void shared_put_u8(SharedAt at, u32 v) { asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
DEVICE void shared_put(SharedAt at, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
}
DEVICE void shared_put(SharedAt at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
#endif

// An address and byte `i` of a word, or 16 times that byte; an address and 64 times half `i` of one; an address and four times
// a number. The bits
// of `b` where `mask` has any, those of `a` elsewhere. An instruction each.
#ifdef TENFOLD_EMULATOR
DEVICE SharedAt plus_quads(u32 v, SharedAt to) { return to + 4 * v; }
DEVICE u32 bits_of_two(u32 a, u32 b, u32 mask) { return (a & ~mask) | (b & mask); }
DEVICE SharedAt plus_byte(u32 v, u32 i, SharedAt to) { return to + (v >> (8 * i) & 255); }
DEVICE SharedAt plus_half_64(u32 v, u32 i, SharedAt to) { return to + 64 * (v >> (16 * i) & 0xffff); }
DEVICE SharedAt plus_byte_16(u32 v, u32 i, SharedAt to) { return to + 16 * (v >> (8 * i) & 255); }
#else
DEVICE SharedAt plus_byte_16(u32 v, u32 i, SharedAt to) {
    asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(to) : "r"(v), "r"(16u << (8 * i)));
    return to;
}
DEVICE SharedAt plus_quads(u32 v, SharedAt to) {
    asm("mad.lo.u32 %0, %1, 4, %0;" : "+r"(to) : "r"(v));
    return to;
}
DEVICE u32 bits_of_two(u32 a, u32 b, u32 mask) {
    asm("lop3.b32 %0, %0, %1, %2, 0xd8;" : "+r"(a) : "r"(b), "r"(mask));
    return a;
}
DEVICE SharedAt plus_byte(u32 v, u32 i, SharedAt to) {
    asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(to) : "r"(v), "r"(1u << (8 * i)));
    return to;
}
DEVICE SharedAt plus_half_64(u32 v, u32 i, SharedAt to) {
    asm("dp2a.lo.u32.u32 %0, %1, %2, %0;" : "+r"(to) : "r"(v), "r"(64u << (8 * i)));
    return to;
}
#endif

// A store to the device's memory, said to be one: the compiler would have to ask otherwise. A load that stays where it is
// among others.
#ifdef TENFOLD_EMULATOR
DEVICE u32 global_get(const u32 *p) { return *p; }
DEVICE void fetch_soon(const void *, i32) {}
DEVICE void global_pair(uint2 &v, const void *p, i32 left) {
    if (left >= 4) v.x = ((const u32 *)p)[0];
    if (left >= 8) v.y = ((const u32 *)p)[1];
}
DEVICE void wait_briefly() {}
// A device refuses what is not aligned.
template <class T> DEVICE void global_put(T *p, T v) {
    if ((u64)p % sizeof(T)) __builtin_trap();
    *p = v;
}
template <class T> DEVICE T *not_before(T *p, u32) { return p; }
#else
DEVICE u32 global_get(const u32 *p) {
    u32 v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
// Two words, of which those beyond the `left` bytes that may be read stay as they are. No branch, and a load each: two that may
// fill the same register would wait for each other.
DEVICE void global_pair(uint2 &v, const void *p, i32 left) {
    asm volatile("{.reg .pred one, two;\n\t"
                 "setp.ge.s32 one, %3, 4;\n\t"
                 "setp.ge.s32 two, %3, 8;\n\t"
                 "@one ld.global.nc.u32 %0, [%2];\n\t"
                 "@two ld.global.nc.u32 %1, [%2 + 4];}"
                 : "+r"(v.x), "+r"(v.y) : "l"(p), "r"(left) : "memory");
}
// What a warp that waits for another does meanwhile: nothing, for about 50 nanoseconds.
DEVICE void wait_briefly() { asm volatile("nanosleep.u32 50;"); }
// Sends for the line that holds an address, if `left` bytes may be read from there; nothing waits for it.
DEVICE void fetch_soon(const void *p, i32 left) {
    if (left > 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
// An address that is known once a word of 16 bits is there: adds what lies above it. The assembler puts stores as early as it can,
// where they wait, and would see through a shift.
template <class T> DEVICE T *not_before(T *p, u32 word) {
    const u64 at = (u64)p;
    return (T *)((at & ~0xffffffffull) | plus_byte(word, 3, (u32)at));
}
DEVICE void global_put(u8 *p, u8 v) { asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"((u32)v) : "memory"); }
DEVICE void global_put(u16 *p, u16 v) { asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(v) : "memory"); }
DEVICE void global_put(u32 *p, u32 v) { asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void global_put(u64 *p, u64 v) { asm volatile("st.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
#endif

// Whether something holds in all lanes of a warp. Asked of what is the same in all of them, it tells the assembler so: lanes that
// it sees stay together need not be gathered before they vote or change values, and that waits for every load on its way.
DEVICE bool warp_agrees(bool v) { return __all_sync(ALL_LANES, v); }

template <class T> DEVICE T warp_sum(T v) {
    for (int by = 16; by > 0; by >>= 1) v += __shfl_xor_sync(ALL_LANES, v, by);
    return v;
}

DEVICE u32 warp_xor(u32 v) {
    for (int by = 16; by > 0; by >>= 1) v ^= __shfl_xor_sync(ALL_LANES, v, by);
    return v;
}

// Sum of the lanes before this one.
template <class T> DEVICE T warp_before(T v) {
    T sum = v;
    for (u32 by = 1; by < 32; by <<= 1) {
        const T other = __shfl_up_sync(ALL_LANES, sum, by);
        if (lane_of() >= by) sum += other;
    }
    return sum - v;
}

// The least of the lanes' numbers, and the lowest index that has it, in all lanes.
DEVICE void warp_least(float &least, u32 &at) {
    for (int by = 16; by > 0; by >>= 1) {
        const float other = __shfl_xor_sync(ALL_LANES, least, by);
        const u32 there = __shfl_xor_sync(ALL_LANES, at, by);
        if (other < least || (other == least && there < at)) {
            least = other;
            at = there;
        }
    }
}

DEVICE u32 size_of(u32 dtype) {
    switch (dtype) {
    case DTYPE_BOOL: case DTYPE_U8: case DTYPE_I8: case DTYPE_F8_E4M3: case DTYPE_F8_E5M2: return 1;
    case DTYPE_U16: case DTYPE_I16: case DTYPE_F16: case DTYPE_BF16: return 2;
    case DTYPE_U32: case DTYPE_I32: case DTYPE_F32: return 4;
    case DTYPE_U64: case DTYPE_I64: case DTYPE_F64: return 8;
    default: return 0;
    }
}

DEVICE bool is_float(u32 dtype) { return dtype >= DTYPE_F8_E4M3; }

// Bits that a scale takes in a header's list; those that a basis knows have no list.
DEVICE u32 listed_bits(u32 bits) { return bits == SCALES_OF_BASIS ? 0 : bits; }
