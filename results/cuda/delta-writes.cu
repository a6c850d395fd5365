// Scattered 2-byte writes at increasing places, mean gap 100: which way of writing is the fastest?
#include <cstdio>
#include <cstdint>
#include <vector>
#include <algorithm>
#include <random>
#include <cuda_runtime.h>
typedef uint32_t u32; typedef uint16_t u16;
#define CK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { printf("%s: %s\n", #x, cudaGetErrorString(e)); exit(1); } } while (0)
struct V8 { uint4 a, b; };
__device__ void get8(const u32 *p, u32 (&v)[8]) { uint4 a = *(const uint4 *)p, b = *(const uint4 *)(p + 4); v[0]=a.x;v[1]=a.y;v[2]=a.z;v[3]=a.w;v[4]=b.x;v[5]=b.y;v[6]=b.z;v[7]=b.w; }
__device__ void get8(const u16 *p, u16 (&v)[8]) { uint4 a = *(const uint4 *)p; u32 w[4] = {a.x,a.y,a.z,a.w};
#pragma unroll
 for (int j = 0; j < 8; ++j) v[j] = (u16)(w[j/2] >> (16 * (j & 1))); }
// 0: as it is. 1: prefetch to L2, then store. 2: load, then store what differs. 3: eight a thread, lane by lane. 4: 3 with loads first. 5: 3 with prefetch. 6: 2 with all loads of next in flight
template <int V> __global__ void __launch_bounds__(256) scatter(u16 *to, const u32 *places, const u16 *values, size_t n) {
    if (V == 0 || V == 1 || V == 2) {
        for (size_t i = ((size_t)blockIdx.x * 256 + threadIdx.x) * 8; i + 8 <= n; i += (size_t)gridDim.x * 2048) {
            u32 p[8]; u16 v[8], o[8];
            get8(places + i, p); get8(values + i, v);
            if (V == 1) {
#pragma unroll
                for (int j = 0; j < 8; ++j) asm volatile("prefetch.global.L2 [%0];" :: "l"(to + p[j]));
            }
            if (V == 2) {
#pragma unroll
                for (int j = 0; j < 8; ++j) asm volatile("ld.global.u16 %0, [%1];" : "=h"(o[j]) : "l"(to + p[j]));
            }
#pragma unroll
            for (int j = 0; j < 8; ++j) if (V != 2 || o[j] != v[j]) to[p[j]] = v[j];
        }
    } else {
        // A warp has 256 changes side by side; a store has 32 neighbours.
        const u32 lane = threadIdx.x & 31;
        for (size_t i = ((size_t)blockIdx.x * 8 + threadIdx.x / 32) * 256; i + 256 <= n; i += (size_t)gridDim.x * 2048) {
            u32 p[8]; u16 v[8], o[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) { p[j] = places[i + 32 * j + lane]; v[j] = values[i + 32 * j + lane]; }
            if (V == 5) {
#pragma unroll
                for (int j = 0; j < 8; ++j) asm volatile("prefetch.global.L2 [%0];" :: "l"(to + p[j]));
            }
            if (V == 4) {
#pragma unroll
                for (int j = 0; j < 8; ++j) asm volatile("ld.global.u16 %0, [%1];" : "=h"(o[j]) : "l"(to + p[j]));
            }
#pragma unroll
            for (int j = 0; j < 8; ++j) if (V != 4 || o[j] != v[j]) to[p[j]] = v[j];
        }
    }
}
// Reads alone, for the floor of the first pass.
__global__ void __launch_bounds__(256) gather(const u16 *to, const u32 *places, u32 *sum, size_t n) {
    u32 s = 0;
    for (size_t i = ((size_t)blockIdx.x * 256 + threadIdx.x) * 8; i + 8 <= n; i += (size_t)gridDim.x * 2048) {
        u32 p[8]; get8(places + i, p);
#pragma unroll
        for (int j = 0; j < 8; ++j) s += to[p[j]];
    }
    if (s == 0x12345) *sum = s;
}
int main() {
    const size_t values = 1ull << 30; std::vector<u32> p; std::vector<u16> v; std::mt19937 g(1); std::geometric_distribution<int> gap(0.01);
    for (size_t at = gap(g); at < values; at += 1 + gap(g)) { p.push_back((u32)at); v.push_back((u16)g()); }
    p.resize(p.size() / 2048 * 2048); v.resize(p.size()); size_t n = p.size(); printf("%zu changes\n", n);
    u16 *to, *dv; u32 *dp, *sum; CK(cudaMalloc(&to, values * 2)); CK(cudaMalloc(&dv, n * 2)); CK(cudaMalloc(&dp, n * 4)); CK(cudaMalloc(&sum, 4));
    CK(cudaMemset(to, 7, values * 2)); CK(cudaMemcpy(dp, p.data(), n * 4, cudaMemcpyHostToDevice));
    for (auto &x : v) if (x == 0x0707) x = 1;
    cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b);
    char *flush; CK(cudaMalloc(&flush, 256 << 20));
    for (int granularity : {64, 32, 128}) {
        CK(cudaDeviceSetLimit(cudaLimitMaxL2FetchGranularity, granularity)); size_t got; cudaDeviceGetLimit(&got, cudaLimitMaxL2FetchGranularity);
        for (int grid : {1056, 5240, 65536}) for (int k = 0; k < 7; ++k) {
            std::vector<float> t;
            for (int r = 0; r < 9; ++r) {
                for (auto &x : v) x ^= 0x1555; CK(cudaMemcpy(dv, v.data(), n * 2, cudaMemcpyHostToDevice));
                CK(cudaMemset(flush, r, 256 << 20));
                int blocks = (int)std::min<size_t>(grid, n / 2048);
                cudaEventRecord(a);
                switch (k) {
                    case 0: scatter<0><<<blocks, 256>>>(to, dp, dv, n); break; case 1: scatter<1><<<blocks, 256>>>(to, dp, dv, n); break;
                    case 2: scatter<2><<<blocks, 256>>>(to, dp, dv, n); break; case 3: scatter<3><<<blocks, 256>>>(to, dp, dv, n); break;
                    case 4: scatter<4><<<blocks, 256>>>(to, dp, dv, n); break; case 5: scatter<5><<<blocks, 256>>>(to, dp, dv, n); break;
                    case 6: gather<<<blocks, 256>>>(to, dp, sum, n); break;
                }
                cudaEventRecord(b); CK(cudaEventSynchronize(b)); float ms; cudaEventElapsedTime(&ms, a, b); t.push_back(ms);
            }
            std::sort(t.begin(), t.end());
            const char *name[] = {"store", "prefetch, store", "load, store", "store, lanes side by side", "load, store, side by side", "prefetch, store, side by side", "loads alone"};
            printf("granularity %zu, grid %d, %s: %.3f ms (%.3f to %.3f)\n", got, grid, name[k], t[4], t[0], t[8]);
        }
    }
}
