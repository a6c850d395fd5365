// Tables of pairs: what follows from the tables of single levels, and the forms in which kernels read them. The twin of
// `entropy/pairs.rs`. Normative: docs/format.md, 'Pairs'.
//
// A symbol is two magnitudes of four bits each. Kernels keep it with its bits in another order, parities first, so that the next
// state of the trellis takes one look-up: the *near* form.
#pragma once

#include "base.cuh"

#define PAIR_SLOTS (1u << PAIR_LOG)
#define PAIR_MASK (PAIR_SLOTS - 1)

DEVICE bool pair_escapes(u32 symbol) { return (symbol & PAIR_ESCAPE) == PAIR_ESCAPE; }

// Raw bits behind a symbol: signs of magnitudes that are not zero.
DEVICE u32 pair_raw(u32 symbol) {
    return pair_escapes(symbol) ? PAIR_ESCAPE_BITS : (u32)(symbol >> 4 != 0) + (u32)((symbol & 15) != 0);
}

// Parity of the first magnitude and of the second, halves of the first and of the second.
DEVICE u32 pair_near(u32 symbol) {
    return (symbol >> 4 & 1) | (symbol & 1) << 1 | (symbol >> 5) << 2 | (symbol >> 1 & 7) << 5;
}
DEVICE u32 pair_of_near(u32 near) {
    return ((near & 1) | (near >> 2 & 7) << 1) << 4 | ((near >> 1 & 1) | (near >> 5) << 1);
}

// The quantiser of a pair's second level, by the state's low bits and the parity of the first.
DEVICE u32 pair_second(u32 low, u32 odd, u32 on_quantiser, u32 on_parity) {
    return (low >> 1 ^ (low & on_quantiser) ^ (odd & on_parity)) & 1;
}

// What the low bits of a state make of the next but one, and what the parities of a pair do: a byte each.
struct PairNext {
    u32 by_low, by_parity;
};

DEVICE PairNext pair_next(u32 on_quantiser, u32 on_parity) {
    PairNext n = {0, 0};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        u32 s = i >> 1 ^ (i & 1 ? on_quantiser : 0);
        s = s >> 1 ^ (s & 1 ? on_quantiser : 0);
        n.by_low |= s << 8 * i;
        s = i & 1 ? on_parity : 0;
        s = s >> 1 ^ (s & 1 ? on_quantiser : 0) ^ (i & 2 ? on_parity : 0);
        n.by_parity |= s << 8 * i;
    }
    return n;
}

// Byte `i` of a word whose first byte is zero.
#ifdef TENFOLD_EMULATOR
DEVICE u32 pair_byte(u32 v, u32 i) { return v >> 8 * i & 255; }
#else
DEVICE u32 pair_byte(u32 v, u32 i) { return __byte_perm(v, 0, i); }
#endif

DEVICE u32 pair_state(const PairNext &n, u32 s, u32 low, u32 near) {
    return s >> 2 ^ pair_byte(n.by_low, low) ^ pair_byte(n.by_parity, near & 3);
}

// A table of single levels: frequencies of magnitudes that pairs have symbols for, and of all even and all odd levels; escapes
// count as even.
struct PairFold {
    u16 of[16], parity[2];
};

// Makes one of first slots of symbols. All lanes of a warp take part.
DEVICE void pair_fold(PairFold *to, const u16 *start, u32 log) {
    const auto frequency = [&](u32 symbol) { return (symbol < 255 ? (u32)start[symbol + 1] : 1u << log) - start[symbol]; };
    const u32 lane = lane_of();
    u32 odd = 0;
#pragma unroll 1
    for (u32 i = 1; i < 8; i += 2) odd += frequency(lane * 8 + i);
    odd = warp_sum(odd);
    if (lane < 16) to->of[lane] = (u16)(frequency(lane) + (lane ? frequency(256 - lane) : 0));
    if (lane == 0) {
        to->parity[0] = (u16)((1u << log) - odd);
        to->parity[1] = (u16)odd;
    }
}

// The same of frequencies.
DEVICE void pair_fold_frequencies(PairFold *to, const u32 *freq, u32 log) {
    const u32 lane = lane_of();
    u32 odd = 0;
#pragma unroll 1
    for (u32 i = 1; i < 8; i += 2) odd += freq[lane * 8 + i];
    odd = warp_sum(odd);
    if (lane < 16) to->of[lane] = (u16)(freq[lane] + (lane ? freq[256 - lane] : 0));
    if (lane == 0) {
        to->parity[0] = (u16)((1u << log) - odd);
        to->parity[1] = (u16)odd;
    }
}

// The first slots of the symbols of one table of pairs: of pairs that begin in a state with the bits `low`; `of` are the tables of
// the quantisers, of which there are two if `both`. All lanes of a warp take part; eight symbols each.
DEVICE void pair_table(u16 *to, const PairFold *of, u32 both, u32 log, u32 low, u32 on_quantiser, u32 on_parity) {
    const u32 lane = lane_of(), a = lane / 2, unit = 1u << (2 * log - PAIR_LOG), least = unit + unit / 4;
    const PairFold &first = of[low & both], &second = of[pair_second(low, a, on_quantiser, on_parity) & both];
    const u32 size = first.of[a], from = lane % 2 * 8;
    const bool escapes = a >= 14 && lane % 2 == 1;
    // Loops that are not unrolled here and below: code that runs once takes longer to fetch than to run.
    const auto product = [&](u32 b) {
        const u32 w = size * second.of[b];
        return w >= unit / 4 && !(a >= 14 && b >= 14) ? w : 0;
    };
    u32 even = 0, odd = 0, sum = 0;
#pragma unroll 1
    for (u32 b = from; b < from + 8; ++b) {
        const u32 w = product(b);
        sum += w ? max(w, least) : 0;
        even += b & 1 ? 0 : w;
        odd += b & 1 ? w : 0;
    }
    // What is left for escapes, by the parities of both: lanes whose magnitudes have the same parity add up theirs.
#pragma unroll 1
    for (u32 by = 1; by < 32; by = by == 1 ? 4 : 2 * by) {
        even += __shfl_xor_sync(ALL_LANES, even, (int)by);
        odd += __shfl_xor_sync(ALL_LANES, odd, (int)by);
    }
    const u32 all = first.parity[a & 1];
    even = max(all * second.parity[0] - even, least);
    odd = max(all * second.parity[1] - odd, least);
    if (escapes) sum += even + odd;
    u32 before = warp_before(sum);
    // A quotient of numbers below 2^36 and 2^25 is nearer to no integer than an f64 can tell: rounding it down is exact.
    const double total = (double)__shfl_sync(ALL_LANES, before + sum, 31);
#pragma unroll 1
    for (u32 b = from; b < from + 8; ++b) {
        to[a * 16 + b] = (u16)((double)before * (double)PAIR_SLOTS / total);
        const u32 w = product(b);
        before += escapes && b >= 14 ? (b & 1 ? odd : even) : w ? max(w, least) : 0;
    }
}

// What tables say of a state: the near symbol, the state once that is off it, and once the raw bits are off it as well; `mark`
// tells escapes from others.
struct PairFound {
    u32 near, y, rest, mark;
};

#ifdef TENFOLD_EMULATOR
DEVICE u32 pair_within(u32 low, u32 near) { return low << 8 | near; }
template <u32 N> DEVICE u32 less_times(u32 v, u32 by) { return v - by * N; }
DEVICE SharedAt pair_words(SharedAt table, u32 low) { return table + low * (4 * PAIR_SLOTS); }
#else
// Left to itself, the compiler shifts and masks the state anew.
DEVICE u32 pair_within(u32 low, u32 near) {
    asm("mad.lo.u32 %0, %1, 256, %0;" : "+r"(near) : "r"(low));
    return near;
}
// v − N · by: what is left of a word without its upper bits. Masks would do, in the busier pipe.
template <u32 N> DEVICE u32 less_times(u32 v, u32 by) {
    asm("mad.lo.u32 %0, %1, %2, %0;" : "+r"(v) : "r"(by), "n"((int)(0u - N)));
    return v;
}
DEVICE SharedAt pair_words(SharedAt table, u32 low) {
    asm("mad.lo.u32 %0, %1, %2, %0;" : "+r"(table) : "r"(low), "n"(4 * PAIR_SLOTS));
    return table;
}
#endif
// The near forms of escapes are the last.
DEVICE bool pair_near_escapes(u32 near) { return near >= 252; }

// Tables of several classes. A class is the near symbols of every slot, one for each of its four tables; then a span of each near
// symbol of each table. A near symbol within its class has the table's number above it.
#define PAIR_SPANS (4 * PAIR_SLOTS)
#define PAIR_CLASS (PAIR_SPANS + 4 * 256 * 4)

DEVICE u32 pair_slot(u32 low, u32 slot) { return 4 * slot + low; }

// A span: the frequency in bits 0–10, how many raw bits in 11–12, whether it is an escape, and minus the first slot above.
#define SPAN_RAW 11
#define SPAN_ESCAPE (1u << 16)
#define SPAN_START 20

DEVICE u32 pair_span(u32 symbol, u32 start, u32 end) {
    return (end - start) | pair_raw(symbol) << SPAN_RAW | (pair_escapes(symbol) ? SPAN_ESCAPE : 0) | (0u - start) << SPAN_START;
}
DEVICE PairFound span_found(u32 span, u32 near, u32 x, u32 slot) {
    const u32 y = (span & PAIR_MASK) * (x >> PAIR_LOG) + slot + (u32)((i32)span >> SPAN_START);
    // Bits 13 to 15 of a span are zero.
    return PairFound{near, y, __funnelshift_r(y, 0, span >> SPAN_RAW), span & SPAN_ESCAPE};
}

struct SpanTables {
    // Groups between two looks at the ring; more of them have no room in registers.
    static const u32 GROUPS = 1;
    METHOD static PairFound find(SharedAt table, u32 low, u32 x) {
        const u32 slot = x & PAIR_MASK, near = shared_u8(plus_quads(slot, table + low));
        return span_found(shared_u32(table + PAIR_SPANS + 4 * pair_within(low, near)), near, x, slot);
    }
    METHOD static u32 gather(u32 marks, u32 mark) { return marks | mark; }
    METHOD static bool any(u32 marks) { return marks != 0; }
};

// Tables of one class: a word a slot of each of the four, so that one look-up tells all. The frequency is in bits 0–10, the slot's
// offset within its symbol in 11–21, the near symbol in 22–29, how many raw bits above: escapes are the largest words.
#define PAIR_ALONE (4 * PAIR_SLOTS * 4)
#define WORD_NEAR 22
#define WORD_RAW 30
#define WORD_ESCAPE (PAIR_ESCAPE_BITS << WORD_RAW | 252u << WORD_NEAR)

DEVICE u32 pair_word(u32 symbol, u32 frequency) { return frequency | pair_near(symbol) << WORD_NEAR | pair_raw(symbol) << WORD_RAW; }
DEVICE PairFound word_found(u32 word, u32 high) {
    const u32 then = word >> PAIR_LOG, symbol = word >> WORD_NEAR, raw = word >> WORD_RAW;
    const u32 offset = less_times<1u << (WORD_NEAR - PAIR_LOG)>(then, symbol);
    const u32 y = less_times<PAIR_SLOTS>(word, then) * high + offset;
    return PairFound{less_times<1u << (WORD_RAW - WORD_NEAR)>(symbol, raw), y, y >> raw, word};
}

struct WordTables {
    static const u32 GROUPS = 2;
    METHOD static PairFound find(SharedAt table, u32 low, u32 x) {
        const u32 high = x >> PAIR_LOG;
        return word_found(shared_u32(plus_quads(less_times<PAIR_SLOTS>(x, high), pair_words(table, low))), high);
    }
    METHOD static u32 gather(u32 marks, u32 mark) { return max(marks, mark); }
    METHOD static bool any(u32 marks) { return marks >= WORD_ESCAPE; }
};

DEVICE u32 pair_start(const u16 *start, u32 symbol) { return symbol < 256 ? start[symbol] : PAIR_SLOTS; }

// The symbol that owns a slot: the last that starts at it or before it.
DEVICE u32 pair_owner(const u16 *start, u32 slot) {
    u32 low = 0;
#pragma unroll 1
    for (u32 by = 128; by > 0; by /= 2)
        if (start[low + by] <= slot) low += by;
    return low;
}

// Fills the tables of one class; `start` may be anywhere. All threads of a block take part, and synchronise after.
DEVICE void pairs_fill_alone(u32 *to, const u16 (*start)[256]) {
    // Slots that a symbol's thread sees to; those of symbols with more are left to the warp.
    const u32 few = 8, lane = lane_of();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < 4 * 256; i += blockDim.x) {
        const u32 symbol = i % 256, first = start[i / 256][symbol], end = pair_start(start[i / 256], symbol + 1);
        const u32 word = pair_word(symbol, end - first);
        u32 at = i / 256 * PAIR_SLOTS + first;
#pragma unroll 1
        for (u32 j = 0; j < min(few, end - first); ++j) to[at + j] = word | j << PAIR_LOG;
#pragma unroll 1
        for (u32 left = __ballot_sync(ALL_LANES, end - first > few); left; left &= left - 1) {
            const int who = __ffs((int)left) - 1;
            const u32 from = __shfl_sync(ALL_LANES, at, who), its = __shfl_sync(ALL_LANES, word, who);
#pragma unroll 1
            for (u32 j = few + lane; j < (its & PAIR_MASK); j += 32) to[from + j] = its | j << PAIR_LOG;
        }
    }
}

// Fills the tables of all classes. All threads of a block take part, and synchronise after; `near` is shared memory for the first
// slots of `room` classes at a time. Small blocks have none, and read them where they are.
DEVICE void pairs_fill(u8 *to, const u16 (*start)[256], u32 classes, u16 *near, u32 room) {
    const u32 each = room ? min(room, classes) : classes;
    for (u32 from = 0; from < classes; from += each) {
        const u32 count = min(each, classes - from);
        const u16 *first = start[from * 4];
        if (room) {
            __syncthreads();
#pragma unroll 1
            for (u32 i = threadIdx.x; i < count * 512; i += blockDim.x) ((u32 *)near)[i] = ((const u32 *)first)[i];
            __syncthreads();
            first = near;
        }
        // A thread takes two slots of all four tables.
#pragma unroll 1
        for (u32 i = threadIdx.x; i < count * (PAIR_SLOTS / 2); i += blockDim.x) {
            const u32 cls = i / (PAIR_SLOTS / 2), slot = i % (PAIR_SLOTS / 2) * 2;
            uint2 v = make_uint2(0, 0);
#pragma unroll 1
            for (u32 low = 0; low < 4; ++low) {
                const u16 *starts = first + (cls * 4 + low) * 256;
                u32 owner = pair_owner(starts, slot);
                v.x |= pair_near(owner) << 8 * low;
                if (slot + 1 >= pair_start(starts, owner + 1)) owner = pair_owner(starts, slot + 1);
                v.y |= pair_near(owner) << 8 * low;
            }
            *(uint2 *)(to + (from + cls) * PAIR_CLASS + pair_slot(0, slot)) = v;
        }
#pragma unroll 1
        for (u32 i = threadIdx.x; i < count * 1024; i += blockDim.x) {
            const u32 cls = i / 1024, low = i / 256 % 4, symbol = i % 256;
            const u16 *starts = first + (cls * 4 + low) * 256;
            u32 *spans = (u32 *)(to + (from + cls) * PAIR_CLASS + PAIR_SPANS);
            spans[pair_within(low, pair_near(symbol))] = pair_span(symbol, starts[symbol], pair_start(starts, symbol + 1));
        }
    }
}
