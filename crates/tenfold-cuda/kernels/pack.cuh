// The encoder's side of interleaved rANS: one lane a thread, one stream a warp. The twin of `entropy/rans`.
//
// Symbols are pushed from the last step to the first, and words come out from the last to the first: they fill a slot
// in memory from its end. Shared memory collects them, so that they leave 512 bytes at a time.
#pragma once

#include "base.cuh"

// A warp's shared memory holds two chunks. The upper one fills first, from its end; what has gone into the lower one
// moves up when the upper one leaves. A ring would need no move, but two more instructions for every word.
#define PACK_RING_BYTES (PACK_RING * 2)
#define PACK_CHUNK (PACK_RING / 2)
// Steps that may be pushed between two calls of `pack_flush`: a step has a word a lane at most.
#define PACK_TICKS (PACK_CHUNK / 32)

// Where a warp stands in a stream. All but `x` is the same in all lanes.
struct Pack {
    // The lane's state.
    u32 x;
    // Words of the slot before `top` are still free; those from `done` on are in memory.
    u32 top, done;
    u16 *ring, *slot;
    // Shared memory, as if it went on down to the slot's first word.
    u16 *stage;
};

// A symbol as it is pushed: frequency and first slot, and a factor to divide by the frequency.
DEVICE uint2 pack_entry(u32 frequency, u32 start) { return make_uint2(frequency | start << 16, 0xffffffffu / frequency); }

// Makes 256 entries of frequencies. Symbols without a slot push what the escape does. All lanes of a warp take part;
// eight symbols each.
OUTLINE void pack_fill(uint2 *entries, const u32 *freq) {
    const u32 first = lane_of() * 8;
    u32 sum = 0;
    for (u32 i = 0; i < 8; ++i) sum += freq[first + i];
    u32 start = warp_before(sum);
    const u32 escape = __shfl_sync(ALL_LANES, start, ESCAPE / 8);
    static_assert(ESCAPE % 8 == 0, "the escape is the first of its lane");
    for (u32 i = 0; i < 8; ++i) {
        const u32 f = freq[first + i];
        entries[first + i] = f ? pack_entry(f, start) : pack_entry(max(1u, freq[ESCAPE]), escape);
        start += f;
    }
    __syncwarp();
}

// Starts a stream in a slot of `words` words, a multiple of PACK_CHUNK, at an address that is a multiple of 16.
DEVICE Pack pack_open(u16 *ring, u16 *slot, u32 words) {
    Pack p;
    p.x = START;
    p.top = p.done = words;
    p.ring = ring;
    p.slot = slot;
    p.stage = ring + PACK_RING - words;
    return p;
}

// Pushes a symbol a lane; lanes that are not `active` stay as they are. All lanes of the warp take part.
DEVICE void pack_push(Pack &p, uint2 entry, u32 log, bool active = true) {
    const u32 f = entry.x & 0xffff;
    const bool full = active && p.x >> (32 - log) >= f;
    const u32 who = __ballot_sync(ALL_LANES, full);
    p.top -= (u32)__popc(who);
    const u32 at = p.top + (u32)__popc(who & ((1u << lane_of()) - 1));
    if (full) p.stage[at] = (u16)p.x;
    const u32 x = full ? p.x >> 16 : p.x;
    // The factor is 2^32/f or up to one less, and a state is below 2^32: the quotient is exact or one too small. With
    // r = x − q·f the state becomes q·2^log + r + start, that is x + q·(2^log − f) + start.
    const u32 other = (1u << log) - f, quotient = __umulhi(x, entry.y);
    u32 next = x + quotient * other + (entry.x >> 16);
    // Where this sum does not fit 32 bits, f is 2^log and there is nothing to correct.
    if (x >= quotient * f + f) next += other;
    if (active) p.x = next;
}

// Pushes a pair a lane, its `raw` bits below it. The entry is that of a symbol; see `pack_push`.
DEVICE void pack_push_pair(Pack &p, uint2 entry, u32 raw, u32 bits, bool active = true) {
    const u32 f = entry.x & 0xffff;
    const bool full = active && p.x >> (32 - PAIR_LOG - raw) >= f;
    const u32 who = __ballot_sync(ALL_LANES, full);
    p.top -= (u32)__popc(who);
    const u32 at = p.top + (u32)__popc(who & ((1u << lane_of()) - 1));
    if (full) p.stage[at] = (u16)p.x;
    const u32 x = (full ? p.x >> 16 : p.x) << raw | bits;
    // As above; no frequency is all of the slots.
    const u32 other = (1u << PAIR_LOG) - f, quotient = __umulhi(x, entry.y);
    u32 next = x + quotient * other + (entry.x >> 16);
    if (x - quotient * f >= f) next += other;
    if (active) p.x = next;
}

DEVICE void pack_leave(Pack &p) {
    uint4 *lower = (uint4 *)p.ring + lane_of(), *upper = lower + PACK_CHUNK / 8;
    p.done -= PACK_CHUNK;
    p.stage += PACK_CHUNK;
    __syncwarp();
    *(uint4 *)(p.slot + p.done + lane_of() * 8) = *upper;
    *upper = *lower;
    __syncwarp();
}

// To be called after at most PACK_TICKS steps. False if the slot has no room for as many again: what is left of the
// stream must not be pushed.
DEVICE bool pack_flush(Pack &p) {
    if (p.done - p.top >= PACK_CHUNK) pack_leave(p);
    return p.top >= PACK_CHUNK;
}

// Brings the last words to memory. The slot then holds the stream's words from `top` to its end; what lies
// before them in their chunk means nothing.
DEVICE void pack_close(Pack &p) {
    while (p.done > p.top) pack_leave(p);
}

// Words 2·i and 2·i + 1 of a stream that starts at any word of a slot; a zero after an odd last one.
DEVICE u32 pack_pair(const u16 *from, u32 words, u32 i) {
    const u32 *pair = (const u32 *)((u64)from & ~3ull) + i;
    const bool single = 2 * i + 1 == words;
    const u32 shift = (u64)from & 2 ? 16 : 0;
    // The second word may lie in the next pair, which is not there after the last.
    const u32 v = __funnelshift_r(__ldg(pair), shift && !single ? __ldg(pair + 1) : 0, shift);
    return single ? v & 0xffff : v;
}
