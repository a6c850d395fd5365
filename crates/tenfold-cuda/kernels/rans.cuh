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
    SharedAt ring;
    // The stream from the 16 bytes that hold its start, and how many of its bytes may be read.
    u64 base;
    u32 limit;
    // Words taken, counted from `base`; words before the stream's first.
    u32 at, skew;
    // First chunk in the ring.
    u32 chunk;
    uint4 next;
};

// A lane's share of a chunk; what lies beyond the blob reads as zero.
DEVICE uint4 words_fetch(const Words &w, u32 chunk) {
    const u32 at = chunk * (CHUNK * 2) + lane_of() * 16;
    if (at + 16 <= w.limit) return *(const uint4 *)(w.base + at);
    uint4 v = make_uint4(0, 0, 0, 0);
    if (at + 4 <= w.limit) v.x = *(const u32 *)(w.base + at);
    if (at + 8 <= w.limit) v.y = *(const u32 *)(w.base + at + 4);
    if (at + 12 <= w.limit) v.z = *(const u32 *)(w.base + at + 8);
    return v;
}

DEVICE void words_put(const Words &w, u32 chunk, uint4 v) {
    shared_put(w.ring + (chunk & 1) * (CHUNK * 2) + lane_of() * 16, v);
    if ((chunk & 1) == 0 && lane_of() * 8 < MIRROR) shared_put(w.ring + RING_BYTES + lane_of() * 16, v);
}

// Starts at `at`, a multiple of four; `limit` is one too. A tile's words are far fewer than 32 bits can count.
DEVICE Words words_open(u16 *ring, u64 at, u64 limit) {
    Words w;
    w.ring = shared_at(ring);
    w.base = at & ~15ull;
    w.limit = (u32)min(limit - w.base, (u64)1 << 31);
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

// The last symbol that starts at a slot or before it, found by halving. Symbols without slots share a start with the
// next that has some; the last of them owns the slot.
DEVICE u32 slot_owner(const u16 *start, u32 slot) {
    u32 low = 0, high = 256;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (start[middle] <= slot) low = middle;
        else high = middle;
    }
    return low;
}
DEVICE u32 owner_end(const u16 *start, u32 owner, u32 log) { return owner < 255 ? start[owner + 1] : 1u << log; }

// A slot's word, for tables that have no room in shared memory.
DEVICE u32 slot_find(const u16 *start, u32 log, u32 slot) {
    const u32 owner = slot_owner(start, slot), first = start[owner];
    return slot_of(slot - first, owner_end(start, owner, log) - first, owner);
}

// Fills tables of 2^log slots, table t at `place(t)`. All threads of a block take part, and synchronise after. `near` is
// shared memory for the starts of `room` tables at a time. A thread takes eight slots, so that it searches but seldom.
template <class F> DEVICE void slots_fill(u32 *slots, const u16 (*start)[256], u32 tables, u32 log, u16 *near, u32 room, F place) {
    for (u32 from = 0; from < tables; from += room) {
        const u32 count = min(room, tables - from);
        __syncthreads();
        for (u32 i = threadIdx.x; i < count * 128; i += blockDim.x) ((u32 *)near)[i] = ((const u32 *)start[from])[i];
        __syncthreads();
        for (u32 i = threadIdx.x; i < count << (log - 3); i += blockDim.x) {
            const u32 t = i >> (log - 3), slot = (i & ((1u << (log - 3)) - 1)) * 8;
            const u16 *starts = near + t * 256;
            u32 owner = slot_owner(starts, slot), first = starts[owner], end = owner_end(starts, owner, log);
            u32 v[8];
#pragma unroll
            for (u32 j = 0; j < 8; ++j) {
                if (slot + j >= end) {
                    first = end;
                    end = owner_end(starts, ++owner, log);
                    // A symbol without slots, and most often more of them.
                    if (slot + j >= end) {
                        owner = slot_owner(starts, slot + j);
                        end = owner_end(starts, owner, log);
                    }
                }
                v[j] = slot_of(slot + j - first, end - first, owner);
            }
            uint4 *to = (uint4 *)(slots + (place(from + t) << log) + slot);
            to[0] = make_uint4(v[0], v[1], v[2], v[3]);
            to[1] = make_uint4(v[4], v[5], v[6], v[7]);
        }
    }
}

// Takes a symbol's slot off a state, before the state is filled up again.
DEVICE u32 pop(u32 x, u32 slot, u32 log) {
    const u32 high = x >> log;
    return (slot & 0xfff) * high + high + (slot >> 20);
}

// Fills a state up from the ring's words from `at` on, which moves behind what was taken; `below` has a bit for each lane before
// this one, `word` is what it found there. For loops that turn the ring themselves. All lanes of the warp take part.
DEVICE u32 fill_near(u32 x, u32 below, SharedAt &at, u32 &word) {
    const bool low = x < START;
    const u32 who = __ballot_sync(ALL_LANES, low);
    word = ordered_u16(at + 2 * (u32)__popc(who & below));
    at += 2 * (u32)__popc(who);
    return low ? x << 16 | word : x;
}
DEVICE u32 pop_fill(u32 x, u32 slot, u32 log, u32 below, SharedAt &at, u32 &word) {
    return fill_near(pop(x, slot, log), below, at, word);
}

// Fills up the states of lanes that run low, in lane order. All lanes of the warp take part.
DEVICE u32 fill_up(Words &w, u32 x, bool active = true) {
    const bool low = active && x < START;
    const u32 who = __ballot_sync(ALL_LANES, low);
    const u32 before = (u32)__popc(who & ((1u << lane_of()) - 1));
    const u32 word = shared_u16(w.ring + ((w.at + before) * 2 & (RING_BYTES - 1)));
    w.at += (u32)__popc(who);
    return low ? x << 16 | word : x;
}
