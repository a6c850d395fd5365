// Fingerprints: the tree of BLAKE3 over a tensor and the few bytes that stand before it, up to the last nodes, which the host merges. The
// twin of `tenfold::delta::fingerprint`, which has BLAKE3 from a crate. Normative: docs/format.md, 'Deltas'.
//
// A thread hashes a chunk of 1,024 bytes; threads of a block then merge neighbours. A node without a neighbour moves up as it is, which gives
// the tree that BLAKE3 describes: the left part of each node has as many chunks as the largest power of two that leaves some to the right.

#include "base.cuh"

#define HASH_CHUNK 1024
#define HASH_FIRST 1
#define HASH_LAST 2
#define HASH_PARENT 4

// A node of the tree.
struct HashNode {
    u32 w[8];
};

DEVICE HashNode hash_start() {
    return HashNode{{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

DEVICE u32 turn_right(u32 v, u32 by) { return __funnelshift_r(v, v, by); }

DEVICE void hash_mix(u32 &a, u32 &b, u32 &c, u32 &d, u32 x, u32 y) {
    a += b + x;
    d = turn_right(d ^ a, 16);
    c += d;
    b = turn_right(b ^ c, 12);
    a += b + y;
    d = turn_right(d ^ a, 8);
    c += d;
    b = turn_right(b ^ c, 7);
}

// Takes a block of 16 words into a node.
DEVICE void hash_block(HashNode &node, const u32 (&block)[16], u64 counter, u32 len, u32 flags) {
    u32 m[16], v[16];
    const HashNode start = hash_start();
#pragma unroll
    for (u32 i = 0; i < 16; ++i) m[i] = block[i];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) v[i] = node.w[i];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) v[8 + i] = start.w[i];
    v[12] = (u32)counter;
    v[13] = (u32)(counter >> 32);
    v[14] = len;
    v[15] = flags;
#pragma unroll
    for (u32 round = 0; round < 7; ++round) {
        hash_mix(v[0], v[4], v[8], v[12], m[0], m[1]);
        hash_mix(v[1], v[5], v[9], v[13], m[2], m[3]);
        hash_mix(v[2], v[6], v[10], v[14], m[4], m[5]);
        hash_mix(v[3], v[7], v[11], v[15], m[6], m[7]);
        hash_mix(v[0], v[5], v[10], v[15], m[8], m[9]);
        hash_mix(v[1], v[6], v[11], v[12], m[10], m[11]);
        hash_mix(v[2], v[7], v[8], v[13], m[12], m[13]);
        hash_mix(v[3], v[4], v[9], v[14], m[14], m[15]);
        const u32 next[16] = {m[2], m[6], m[3], m[10], m[7], m[0], m[4], m[13], m[1], m[11], m[12], m[5], m[9], m[14], m[15], m[8]};
#pragma unroll
        for (u32 i = 0; i < 16; ++i) m[i] = next[i];
    }
#pragma unroll
    for (u32 i = 0; i < 8; ++i) node.w[i] = v[i] ^ v[8 + i];
}

// A byte of the message; zero behind its end.
DEVICE u32 message_byte(const FingerprintArgs &a, u64 at) {
    if (at < a.before_len) return a.before[at / 4] >> (8 * (at & 3)) & 255;
    return at - a.before_len < a.len ? a.from[at - a.before_len] : 0;
}

// A block of the message, which starts at any address: words of eight bytes, where all that they touch is the tensor's.
DEVICE void message_block(const FingerprintArgs &a, u64 at, u32 (&block)[16]) {
    const u64 start = (u64)a.from + at - a.before_len, shift = 8 * (start & 7);
    const bool inside = at >= (u64)a.before_len + 7 && at + 64 + 8 <= a.before_len + a.len;
    if (!inside) {
#pragma unroll 1
        for (u32 i = 0; i < 16; ++i) {
            u32 word = 0;
            for (u32 j = 0; j < 4; ++j) word |= message_byte(a, at + 4 * i + j) << (8 * j);
            // Not by `i` itself: what is indexed so would live in memory.
#pragma unroll
            for (u32 k = 0; k < 16; ++k)
                if (k == i) block[k] = word;
        }
        return;
    }
    const u64 *words = (const u64 *)(start & ~7ull);
    u64 word[9];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) word[i] = words[i];
    word[8] = shift ? words[8] : 0;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
        const u64 v = shift ? word[i] >> shift | word[i + 1] << (64 - shift) : word[i];
        block[2 * i] = (u32)v;
        block[2 * i + 1] = (u32)(v >> 32);
    }
}

DEVICE HashNode hash_chunk(const FingerprintArgs &a, u64 chunk) {
    const u64 first = chunk * HASH_CHUNK, rest = a.before_len + a.len - first;
    const u32 len = rest < HASH_CHUNK ? (u32)rest : HASH_CHUNK, blocks = (len + 63) / 64;
    HashNode node = hash_start();
#pragma unroll 1
    for (u32 i = 0; i < blocks; ++i) {
        u32 block[16];
        message_block(a, first + 64 * i, block);
        const u32 flags = (i == 0 ? HASH_FIRST : 0) | (i + 1 == blocks ? HASH_LAST : 0);
        hash_block(node, block, chunk, min(len - 64 * i, 64u), flags);
    }
    return node;
}

// Merges the nodes of a block's threads, so many of them, `levels` times, and stores what is left.
DEVICE void merge_nodes(HashNode node, u32 count, u32 levels, u32 *to) {
    __shared__ u32 words[8][FINGERPRINT_THREADS];
    const u32 i = threadIdx.x;
#pragma unroll 1
    for (u32 level = 0; level < levels; ++level) {
        if (i < count) {
#pragma unroll
            for (u32 k = 0; k < 8; ++k) words[k][i] = node.w[k];
        }
        __syncthreads();
        if (2 * i + 1 < count) {
            u32 block[16];
#pragma unroll
            for (u32 k = 0; k < 8; ++k) {
                block[k] = words[k][2 * i];
                block[8 + k] = words[k][2 * i + 1];
            }
            node = hash_start();
            hash_block(node, block, 0, 64, HASH_PARENT);
        } else if (2 * i < count) {
#pragma unroll
            for (u32 k = 0; k < 8; ++k) node.w[k] = words[k][2 * i];
        }
        count = (count + 1) / 2;
        __syncthreads();
    }
    if (i >= count) return;
#pragma unroll
    for (u32 k = 0; k < 8; ++k) to[8 * i + k] = node.w[k];
}

// Nodes of a block's share: one each, unless there is but one block.
DEVICE void store_nodes(const FingerprintArgs &a, const HashNode &node, u32 here) {
    merge_nodes(node, here, a.levels, a.to + 8 * (u64)blockIdx.x * (FINGERPRINT_THREADS >> a.levels));
}

DEVICE u32 nodes_here(const FingerprintArgs &a) {
    const u64 left = a.count - (u64)blockIdx.x * FINGERPRINT_THREADS;
    return left < FINGERPRINT_THREADS ? (u32)left : FINGERPRINT_THREADS;
}

// From chunks.
KERNEL(FINGERPRINT_THREADS) fingerprint_chunks(const GRID_CONSTANT FingerprintArgs a) {
    const u32 here = nodes_here(a);
    HashNode node = hash_start();
    if (threadIdx.x < here) node = hash_chunk(a, (u64)blockIdx.x * FINGERPRINT_THREADS + threadIdx.x);
    store_nodes(a, node, here);
}

// From nodes.
KERNEL(FINGERPRINT_THREADS) fingerprint_nodes(const GRID_CONSTANT FingerprintArgs a) {
    const u32 here = nodes_here(a);
    HashNode node = hash_start();
    if (threadIdx.x < here) {
        const u32 *from = (const u32 *)a.from + 8 * ((u64)blockIdx.x * FINGERPRINT_THREADS + threadIdx.x);
#pragma unroll
        for (u32 k = 0; k < 8; ++k) node.w[k] = from[k];
    }
    store_nodes(a, node, here);
}
