// Putting a blob together: headers as bits in the workspace, and where everything goes.
//
// The order of an encoder: stage the header, find the tiles' lengths, `assemble_layout`, write each tile where the
// layout says and its checksum into the directory, `assemble_seal`.
#pragma once

#include "base.cuh"

// Where the directory starts.
DEVICE u64 assemble_directory(const Assembly &a) { return (*a.staged_len + 3) & ~3ull; }

// Puts a tile's checksum into the directory; one thread.
DEVICE void assemble_checksum(const Assembly &a, u64 tile, u32 crc) {
    ((u32 *)(a.out + assemble_directory(a)))[2 * tile + 1] = crc;
}

// Writes bits, lowest first, into words that were zero. One thread uses it, or all lanes of a warp in step.
struct Writer {
    u32 *words;
    // Bits written, and bits that there is room for.
    u64 at, room;
    // Whether this thread is the one that stores; and whether there was no room for all.
    bool leads, over;
};

// Makes words zero; all threads of a block take part, and synchronise after.
DEVICE void writer_clear(u32 *words, u64 bytes) {
    for (u64 i = threadIdx.x; i < bytes / 4; i += blockDim.x) words[i] = 0;
}

DEVICE Writer writer_open(u32 *words, u64 bytes, bool leads) { return Writer{words, 0, bytes / 4 * 32, leads, false}; }

// Puts n ≤ 32 bits at a place of their own. Words that several threads share change by atomics alone.
DEVICE void writer_or(u32 *words, u64 at, u32 v, u32 n) {
    if (n == 0) return;
    const u32 shift = (u32)at & 31;
    atomicOr(words + (at >> 5), v << shift);
    if (shift + n > 32) atomicOr(words + (at >> 5) + 1, v >> (32 - shift));
}

// Makes room for bits that the caller puts there itself; false if there is none.
DEVICE bool writer_take(Writer &w, u64 bits) {
    w.over |= bits > w.room - w.at;
    if (!w.over) w.at += bits;
    return !w.over;
}

OUTLINE void writer_bits(Writer &w, u32 v, u32 n) {
    if (writer_take(w, n) && w.leads) writer_or(w.words, w.at - n, v, n);
}

// Ends a bit string: bytes follow.
DEVICE void writer_align(Writer &w) { w.at = (w.at + 7) & ~7ull; }

DEVICE u64 writer_bytes(const Writer &w) { return (w.at + 7) / 8; }

DEVICE void writer_byte(Writer &w, u32 v) { writer_bits(w, v & 0xff, 8); }

DEVICE void writer_u32(Writer &w, u32 v) { writer_bits(w, v, 32); }

// Bytes that a varint takes, less one.
DEVICE u32 varint_more(u64 v) {
    u32 more = 0;
    for (v >>= 7; v > 0; v >>= 7) ++more;
    return more;
}

OUTLINE void writer_varint(Writer &w, u64 v) {
    for (; v >= 0x80; v >>= 7) writer_byte(w, (u32)v | 0x80);
    writer_byte(w, (u32)v);
}

// Bits of gamma(v), at most 32, and how many.
DEVICE u32 gamma_length(u32 v) { return 2 * (31 - (u32)__clz((int)(v + 1))) + 1; }

DEVICE u32 gamma_code(u32 v) {
    const u32 n = 31 - (u32)__clz((int)(v + 1));
    return 1u << n | ((v + 1) & ((1u << n) - 1)) << (n + 1);
}

DEVICE void writer_gamma(Writer &w, u32 v) { writer_bits(w, gamma_code(v), gamma_length(v)); }

// How every blob starts, up to its preparation steps. The header's length is `assemble_layout`'s to fill in.
template <class S> DEVICE void writer_start(Writer &w, u32 codec, u32 dtype, u32 dims, const S &shape) {
    writer_u32(w, MAGIC);
    writer_byte(w, FORMAT_VERSION);
    writer_byte(w, codec);
    writer_byte(w, dtype);
    writer_byte(w, dims);
    writer_u32(w, 0);
    for (u32 i = 0; i < dims; ++i) writer_varint(w, shape[i]);
}

DEVICE void writer_geometry(Writer &w, u32 lanes, u64 ticks) {
    writer_byte(w, 31 - (u32)__clz((int)lanes));
    writer_varint(w, ticks);
}

// A measured table as bits: its range of ranks, the bits of this lane's eight, those before them, and all.
struct Measured {
    u32 low, high, mine, before, bits;
};

DEVICE u32 table_symbol(u32 rank, bool levels) { return levels ? rank ^ 0x80 : rank; }

// What a measured table takes. All lanes of a warp take part; `bits` is the same in all.
OUTLINE Measured table_measure(const u32 *freq, bool levels) {
    const u32 lane = lane_of(), none = levels ? 1 : 0;
    u32 low = 256, high = 0;
    for (u32 i = 0; i < 8; ++i) {
        const u32 rank = lane * 8 + i;
        // The escape's rank is not among them.
        if (rank >= none && freq[table_symbol(rank, levels)] > 0) {
            low = min(low, rank);
            high = rank;
        }
    }
    const u32 who = __ballot_sync(ALL_LANES, low < 256);
    Measured m;
    m.low = __shfl_sync(ALL_LANES, low, who ? __ffs((int)who) - 1 : 0);
    m.high = __shfl_sync(ALL_LANES, high, who ? 31 - __clz((int)who) : 0);
    if (who == 0) m.low = m.high = none;
    m.mine = 0;
    for (u32 i = 0; i < 8; ++i) {
        const u32 rank = lane * 8 + i;
        if (rank >= m.low && rank <= m.high) m.mine += gamma_length(freq[table_symbol(rank, levels)]);
    }
    const u32 escape = levels ? gamma_length(freq[ESCAPE]) : 0;
    m.before = 2 + escape + 16 + warp_before(m.mine);
    m.bits = 2 + escape + 16 + warp_sum(m.mine);
    return m;
}

// Writes a measured table. All lanes of a warp take part, with the same writer.
OUTLINE void table_write_measured(Writer &w, const u32 *freq, bool levels) {
    const Measured m = table_measure(freq, levels);
    const u64 end = w.at + m.bits;
    if (m.bits > w.room - w.at) w.over = true;
    if (w.over) return;
    writer_bits(w, 1, 2);
    if (levels) writer_gamma(w, freq[ESCAPE]);
    writer_bits(w, m.low, 8);
    writer_bits(w, m.high - m.low, 8);
    u64 at = end - m.bits + m.before;
    for (u32 i = 0; i < 8; ++i) {
        const u32 rank = lane_of() * 8 + i;
        if (rank < m.low || rank > m.high) continue;
        const u32 f = freq[table_symbol(rank, levels)];
        writer_or(w.words, at, gamma_code(f), gamma_length(f));
        at += gamma_length(f);
    }
    w.at = end;
}

// Tiles whose lengths a thread adds up at a time.
#define LAYOUT_EACH 8

// Adds up the tiles' lengths and writes header and directory, if there is room for the blob. Leaves the blob's bytes
// in the status: those written, or those needed. One block.
DEVICE void assemble_place(const Assembly &a) {
    __shared__ u64 sums[32];
    __shared__ u32 stop;
    const u32 lane = lane_of(), warp = warp_of();
    if (threadIdx.x == 0) stop = a.status->code;
    if (warp == 0) sums[lane] = 0;
    __syncthreads();
    if (stop) return;

    // 1. Where tiles start.
    const u64 directory = assemble_directory(a), header = directory + 8 * a.tiles + 4;
    u64 at = header;
    for (u64 base = 0; base < a.tiles; base += blockDim.x * LAYOUT_EACH) {
        const u64 first = base + threadIdx.x * LAYOUT_EACH;
        u32 len[LAYOUT_EACH];
        u64 mine = 0;
#pragma unroll
        for (u32 i = 0; i < LAYOUT_EACH; ++i) {
            len[i] = first + i < a.tiles ? a.lengths[first + i] : 0;
            mine += len[i];
        }
        const u64 before = warp_before(mine);
        if (lane == 31) sums[warp] = before + mine;
        __syncthreads();
        const u64 part = sums[lane];
        const u64 parts = warp_before(part);
        u64 start = at + __shfl_sync(ALL_LANES, parts, (int)warp) + before;
        at += __shfl_sync(ALL_LANES, parts + part, 31);
#pragma unroll
        for (u32 i = 0; i < LAYOUT_EACH; ++i) {
            if (first + i < a.tiles) a.offsets[first + i] = start;
            start += len[i];
        }
        __syncthreads();
    }
    if (at > a.out_len) {
        if (threadIdx.x == 0) report(a.status, STATUS_BUFFER, 0, at);
        return;
    }

    // 2. Header and directory; checksums come later.
    u32 *out = (u32 *)a.out;
    for (u64 i = threadIdx.x; i < directory / 4; i += blockDim.x) out[i] = i == 2 ? (u32)header : a.staged[i];
    u32 *entries = out + directory / 4;
    for (u64 t = threadIdx.x; t < a.tiles; t += blockDim.x) {
        entries[2 * t] = a.lengths[t];
        entries[2 * t + 1] = 0;
    }
    if (threadIdx.x == 0) a.status->size = at;
}
