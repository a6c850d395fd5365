// The decoder's side of interleaved rANS: one lane a thread, one stream a warp. The twin of `entropy/rans`.
#pragma once

#include "base.cuh"

// Words of a warp's ring; it holds two chunks, the third is on its way. Its first words stand behind its end once
// more, so that four steps never have to think of the end.
#define RING 512
#define CHUNK (RING / 2)
#define MIRROR 128
#define RING_BYTES (RING * 2)
#define RING_ROOM ((RING + MIRROR) * 2)

// Where a warp stands in a stream of words. The same in all lanes but for `next`.
struct Words {
    u16 *ring;
    // The stream from the 16 bytes that hold its start, and the end of what may be read.
    u64 base, limit;
    // Words taken, counted from `base`; words before the stream's first.
    u32 at, skew;
    // First chunk in the ring.
    u32 chunk;
    uint4 next;
};

// A lane's share of a chunk; what lies beyond the blob reads as zero.
DEVICE uint4 words_fetch(const Words &w, u32 chunk) {
    const u64 at = w.base + (u64)chunk * (CHUNK * 2) + lane_of() * 16;
    if (at + 16 <= w.limit) return *(const uint4 *)at;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (at + 4 <= w.limit) v.x = *(const u32 *)at;
    if (at + 8 <= w.limit) v.y = *(const u32 *)(at + 4);
    if (at + 12 <= w.limit) v.z = *(const u32 *)(at + 8);
    return v;
}

DEVICE void words_put(const Words &w, u32 chunk, uint4 v) {
    *(uint4 *)(w.ring + (chunk & 1) * CHUNK + lane_of() * 8) = v;
    if ((chunk & 1) == 0 && lane_of() * 8 < MIRROR) *(uint4 *)(w.ring + RING + lane_of() * 8) = v;
}

// Starts at `at`, a multiple of four; `limit` is one too.
DEVICE Words words_open(u16 *ring, u64 at, u64 limit) {
    Words w;
    w.ring = ring;
    w.base = at & ~15ull;
    w.limit = limit;
    w.skew = (u32)(at - w.base) / 2;
    w.at = w.skew;
    w.chunk = 0;
    __syncwarp();
    words_put(w, 0, words_fetch(w, 0));
    words_put(w, 1, words_fetch(w, 1));
    w.next = words_fetch(w, 2);
    __syncwarp();
    return w;
}

// Puts the next chunk in the place of the first, and sends for another.
DEVICE void words_turn(Words &w) {
    __syncwarp();
    words_put(w, w.chunk + 2, w.next);
    __syncwarp();
    ++w.chunk;
    w.next = words_fetch(w, w.chunk + 2);
}

// To be called once for every CHUNK words that may have been taken.
DEVICE void words_refill(Words &w) {
    if (w.at / CHUNK > w.chunk) words_turn(w);
}

DEVICE u32 words_taken(const Words &w) { return w.at - w.skew; }

// A slot as tables in shared memory have it, so that a decoder needs few steps to take it apart: frequency − 1 in
// bits 0–11, the symbol in 12–19, the offset within the symbol above.
DEVICE u32 slot_of(u32 offset, u32 frequency, u32 symbol) { return (frequency - 1) | symbol << 12 | offset << 20; }
DEVICE u32 slot_symbol(u32 slot) { return slot >> 12 & 255; }
DEVICE i32 slot_level(u32 slot) { return (i32)(slot << 12) >> 24; }

// The slot's word found by halving, for tables that have no room in shared memory.
DEVICE u32 slot_find(const u16 *start, u32 log, u32 slot) {
    u32 low = 0, high = 256;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (start[middle] <= slot) low = middle;
        else high = middle;
    }
    // Symbols without slots share a start with the next that has some; the last of them owns the slot.
    const u32 end = low < 255 ? start[low + 1] : 1u << log;
    return slot_of(slot - start[low], end - start[low], low);
}

// Fills tables of 2^log slots, table t at `place(t)`. All threads of a block take part, and synchronise after. `near` is
// shared memory for the starts of `room` tables at a time.
template <class F> DEVICE void slots_fill(u32 *slots, const u16 (*start)[256], u32 tables, u32 log, u16 *near, u32 room, F place) {
    for (u32 from = 0; from < tables; from += room) {
        const u32 count = min(room, tables - from);
        __syncthreads();
        for (u32 i = threadIdx.x; i < count * 128; i += blockDim.x) ((u32 *)near)[i] = ((const u32 *)start[from])[i];
        __syncthreads();
        for (u32 i = threadIdx.x; i < count << log; i += blockDim.x) {
            const u32 t = i >> log, slot = i & ((1u << log) - 1);
            slots[(place(from + t) << log) + slot] = slot_find(near + t * 256, log, slot);
        }
    }
}

// Takes a symbol's slot off a state, before the state is filled up again.
DEVICE u32 pop(u32 x, u32 slot, u32 log) {
    const u32 high = x >> log;
    return (slot & 0xfff) * high + high + (slot >> 20);
}

// Fills up the states of lanes that run low, in lane order. All lanes of the warp take part.
DEVICE u32 fill_up(Words &w, u32 x, bool active = true) {
    const bool low = active && x < START;
    const u32 who = __ballot_sync(ALL_LANES, low);
    const u32 before = (u32)__popc(who & ((1u << lane_of()) - 1));
    const u32 word = w.ring[(w.at + before) & (RING - 1)];
    w.at += (u32)__popc(who);
    return low ? x << 16 | word : x;
}
