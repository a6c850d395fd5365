// Levels: tiles of quantised values to elements, a warp a tile. The twin of `levels/decode.rs` and `levels/dequant.rs`.

#include "blob.cuh"
#include "dequant.cuh"
#include "rans.cuh"

// Sums of two scales.
#define SUMS (2 << MAX_SCALE_BITS)

struct LevelsArgs {
    const Item *items;
    Status *status;
    u32 count, blocks;
    // Dynamic shared memory of a block.
    u32 shared;
};

// Marks the escape among elements of less than 32 bits.
#define LUT_ESCAPE 0x80000000u

// What the tiles of a blob have in common, in shared memory or near it.
template <class E> struct Common {
    // For each class the table of quantiser 1, if there are two, then that of quantiser 0.
    const u32 *slots;
    // Elements of quantiser 1, then of quantiser 0, by symbol; see `LUT_ESCAPE`.
    const u32 *lut;
    // Byte at which the table of quantiser 0 starts, by the sum's class.
    const u32 *base;
    // Four times the scale of each column.
    const u8 *cols;
    u16 *ring;
    bool has_slots, has_cols;
    // Rows of the map and tiles are whole groups of 128 values: columns then lie so that those of a lane's four steps
    // are one word.
    bool aligned;
};

// Scale number `i` of a packed list.
DEVICE u32 scale_at(const u8 *list, u64 len, u32 bits, u64 i) {
    if (bits == 0) return 0;
    const u64 bit = i * bits, at = bit >> 3;
    u32 v = at < len ? list[at] : 0;
    if (at + 1 < len) v |= (u32)list[at + 1] << 8;
    return v >> (bit & 7) & ((1u << bits) - 1);
}

// Bytes of a tile, all lanes alike.
struct Bytes {
    const u8 *base;
    u64 at, end;
    u32 code;
};

DEVICE u32 bytes_next(Bytes &b) {
    if (b.at >= b.end) {
        b.code = b.code ? b.code : STATUS_FIELD;
        return 0;
    }
    return b.base[b.at++];
}

DEVICE u64 bytes_varint(Bytes &b) {
    u64 v = 0;
#pragma unroll 1
    for (u32 shift = 0; shift < 64; shift += 7) {
        const u32 c = bytes_next(b);
        if (b.code) return 0;
        if ((shift == 63 && c > 1) || (shift > 0 && c == 0)) break;
        v |= (u64)(c & 0x7f) << shift;
        if (c < 0x80) return v;
    }
    b.code = b.code ? b.code : STATUS_VARINT;
    return 0;
}

DEVICE u64 bytes_take(Bytes &b, u64 n) {
    const u64 at = b.at;
    if (n > b.end - b.at) b.code = b.code ? b.code : STATUS_FIELD;
    else b.at += n;
    return at;
}

// Only padding to a multiple of four may follow.
DEVICE void bytes_end(Bytes &b) {
    u32 any = b.end - b.at > 3;
    for (u64 i = b.at; i < b.end && !any; ++i) any |= b.base[i];
    if (any && !b.code) b.code = STATUS_TILE_LEFT;
}

// One tile: where its values go and what its bytes are.
struct Tile {
    const u8 *bytes;
    u32 len;
    // First value, number of values, and those wanted.
    u64 start;
    u32 values, from, to;
    bool coded, exact;
    u32 words, escapes, escape_width;
    u64 low_at, low_len, escapes_at, exact_at;
};

DEVICE u32 tile_read(const Desc *d, Tile &t) {
    Bytes b = {t.bytes, 0, t.len, 0};
    if (t.len < 4) return STATUS_FIELD;
    const u32 head = *(const u32 *)t.bytes;
    b.at = 4;
    const u32 flags = head & 255, code = flags >> TILE_ESCAPES_SHIFT & 3;
    t.words = head >> 8;
    t.coded = flags & TILE_CODED;
    t.exact = flags & TILE_EXACT;
    if (flags >> 4) return STATUS_TILE_FLAGS;
    if (!t.coded && (code || t.words)) return STATUS_TILE_ZEROS;
    if (t.coded) bytes_take(b, d->lanes * 4 + (u64)t.words * 2);
    t.low_len = 0;
    t.low_at = 0;
    if (t.coded && d->any_low) {
        t.low_len = bytes_varint(b);
        t.low_at = bytes_take(b, t.low_len);
    }
    t.escapes = 0;
    t.escape_width = 0;
    t.escapes_at = 0;
    if (code) {
        t.escape_width = 1u << (code - 1);
        const u64 n = bytes_varint(b);
        if (b.code) return b.code;
        if (n > t.values) return STATUS_ESCAPES;
        t.escapes = (u32)n;
        t.escapes_at = bytes_take(b, n * t.escape_width);
    }
    t.exact_at = b.at;
    if (!t.exact) bytes_end(b);
    return b.code;
}

// Where a warp stands in a tile.
struct Coder {
    Words words;
    // State of rANS and of the trellis.
    u32 x, s;
    // Escapes taken, bits of `low` taken; trouble of this lane.
    u32 escapes, bad;
    u64 low;
};

// The high part of a level that has no symbol, where `mine`. All lanes take part.
DEVICE i32 escape_next(const Tile &t, Coder &c, bool mine, u32 low_bits, i32 otherwise) {
    const u32 who = __ballot_sync(ALL_LANES, mine);
    const u32 i = c.escapes + (u32)__popc(who & ((1u << lane_of()) - 1));
    c.escapes += (u32)__popc(who);
    if (!mine) return otherwise;
    if (i >= t.escapes) {
        c.bad = STATUS_ESCAPES;
        return 0;
    }
    const u8 *at = t.bytes + t.escapes_at + (u64)i * t.escape_width;
    u32 v = at[0];
    if (t.escape_width == 1) v = (u32)(i32)(signed char)v;
    else {
        v |= (u32)at[1] << 8;
        if (t.escape_width == 2) v = (u32)(i32)(short)v;
        else v |= (u32)at[2] << 16 | (u32)at[3] << 24;
    }
    const i32 high = (i32)v;
    const u32 size = high < 0 ? 0u - (u32)high : (u32)high;
    if (size > (u32)MAX_LEVEL >> low_bits) {
        c.bad = STATUS_LEVEL;
        return 0;
    }
    return high;
}

// Raw bits of this lane's level. All lanes take part.
DEVICE u32 low_next(const Tile &t, Coder &c, u32 bits) {
    const u32 before = warp_before(bits);
    const u64 at = c.low + before, byte = at >> 3;
    c.low += __shfl_sync(ALL_LANES, before + bits, 31);
    u32 v = 0;
    for (u32 i = 0; i < 3; ++i)
        if (byte + i < t.low_len) v |= (u32)t.bytes[t.low_at + byte + i] << (8 * i);
    return v >> (at & 7) & ((1u << bits) - 1);
}

DEVICE u32 next_state(const Desc *d, u32 s, i32 k) {
    return (s >> 1) ^ (s & 1 ? d->on_quantiser : 0) ^ (k & 1 ? d->on_parity : 0);
}

// Which of the tables in shared memory a class's quantiser has.
DEVICE u32 slots_at(const Desc *d, u32 cls, u32 q) { return cls * d->tables_per_class + (d->tables_per_class - 1) - q; }

// Any blob, any window, steps `step` up to `end`: one value at a time, everything looked up where it lies.
template <class E>
DEVICE void steps_plain(const Item &item, const Work *work, const Common<E> &common, const Tile &t, Coder &c, u32 step, u32 end) {
    const Desc *d = &work->desc;
    const u32 lanes = d->lanes, lane = lane_of();
    const u8 *blob = (const u8 *)item.blob;
    E *out = (E *)item.out;
    for (; step < end; ++step) {
        const u32 i = step * lanes + lane;
        const bool active = lane < lanes && i < t.values;
        u32 cls = 0;
        if (d->classes > 1 && active) {
            const u64 at = t.start + i, row = at / d->width, col = at - row * d->width;
            cls = d->class_of_sum[scale_at(blob + d->rows_at, d->rows_len, d->row_bits, row) +
                                  scale_at(blob + d->cols_at, d->cols_len, d->col_bits, col)];
        }
        const u32 q = c.s & 1, set = cls * d->tables_per_class + q;
        u32 slot = 0;
        if (active) {
            const u32 at = c.x & ((1u << d->log) - 1);
            slot = common.has_slots ? common.slots[(slots_at(d, cls, q) << d->log) + at]
                                    : slot_find(work->start[set], d->log, at);
            c.x = pop(c.x, slot, d->log);
        }
        c.x = fill_up(c.words, c.x, active);
        words_refill(c.words);
        const u32 bits = active ? d->low[cls] : 0;
        i32 k = slot_level(slot);
        const bool escaped = active && slot_symbol(slot) == ESCAPE;
        if (__any_sync(ALL_LANES, escaped)) k = escape_next(t, c, escaped, bits, k);
        if (d->any_low) k = (i32)((u32)k << bits | low_next(t, c, bits));
        if (active) {
            c.s = next_state(d, c.s, k);
            if (i >= t.from && i < t.to)
                out[t.start + i - d->first] = element<E>(item.dtype, d->scale, units_of(d->offsets, k, q));
        }
    }
}

// Whole steps of 32 lanes without low bits, GROUP at a time from `step` on; returns where it stopped: at `end`, or at a
// group with an escape in it, which is left to the plain way.
//
// Everything here is about the length of the chain from one state to the next and about the number of instructions:
// the trellis's state is kept with its bits reversed, so that the quantiser is the sign; tables of quantiser 1 lie
// before those of quantiser 0, so that a mask made of the sign picks one; whether a symbol was an escape is asked once
// a group.
template <class E, u32 CLASSES, u32 GROUP>
DEVICE u32 steps_fast(const Item &item, const Work *work, const Common<E> &common, const Tile &t, Coder &c, u32 step, u32 end) {
    const Desc *d = &work->desc;
    const u32 lane = lane_of(), log = d->log, mask = ((1u << log) - 1) << 2, below = (1u << lane) - 1;
    const u32 on_quantiser = __brev(d->on_quantiser), on_parity = __brev(d->on_parity);
    const SharedAt slots = shared_at(common.slots) + (d->tables_per_class - 1) * (4 << log);
    const SharedAt lut = shared_at(common.lut) + 1024, ring = shared_at(common.ring);
    const SharedAt base = shared_at(common.base);
    const u64 first = t.start + (u64)step * 32 + lane;
    E *out = (E *)item.out + (first - d->first);

    // Where this lane stands in the class map.
    const u8 *rows = (const u8 *)item.blob + d->rows_at;
    const u32 width = (u32)d->width, row_bits = d->row_bits;
    const u64 rows_len = d->rows_len;
    const SharedAt cols = shared_at(common.cols), cols_end = cols + width + (CLASSES == 3 ? lane * 4 : 0);
    u64 row = 0;
    SharedAt col = cols, scale = 0, next_scale = 0;
    if (CLASSES) {
        // In whole groups all lanes are in one row, and a group's columns start at the lane's word.
        const u64 from = CLASSES == 3 ? first - lane : first;
        row = from / width;
        col = cols + (u32)(from - row * width) + (CLASSES == 3 ? lane * 4 : 0);
        scale = base + 4 * scale_at(rows, rows_len, row_bits, row);
        next_scale = base + 4 * scale_at(rows, rows_len, row_bits, row + 1);
    }

    // Tables of a group, looked up a group ahead: first the columns' scales, then what they and the row's pick.
    SharedAt pick[GROUP], table[GROUP], ahead[GROUP];
    bool crossed = false;
    const bool by_column = d->col_bits > 0;
    const auto columns = [&]() {
        crossed = false;
        if (CLASSES == 3) {
            const u32 four = by_column ? shared_u32(col) : 0;
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j) pick[j] = scale + (four >> (8 * j) & 255);
            col += 128;
            if (col >= cols_end) {
                // All lanes alike.
                col -= width;
                scale = next_scale;
                next_scale = base + 4 * scale_at(rows, rows_len, row_bits, ++row + 1);
            }
            return;
        }
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) {
            pick[j] = scale + (CLASSES == 2 ? 0 : shared_u8(col));
            col += 32;
            const bool over = col >= cols_end;
            crossed |= over;
            col = over ? col - width : col;
            scale = over ? next_scale : scale;
        }
    };
    const auto tables = [&]() {
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) ahead[j] = slots + shared_u32(pick[j]);
        if (CLASSES != 3 && __any_sync(ALL_LANES, crossed)) {
            if (crossed) next_scale = base + 4 * scale_at(rows, rows_len, row_bits, ++row + 1);
        }
    };
#pragma unroll
    for (u32 j = 0; j < GROUP; ++j) table[j] = ahead[j] = slots;
    if (CLASSES) {
        columns();
        tables();
    }

    u32 x = c.x, s = __brev(c.s);
    Words w = c.words;
    for (; step < end; step += GROUP) {
        const u32 x_before = x, s_before = s;
        const SharedAt from = ring + (w.at * 2 & (RING_BYTES - 1));
        SharedAt at = from;
        u32 escaped = 0;
        if (CLASSES) {
#pragma unroll
            for (u32 j = 0; j < GROUP; ++j) table[j] = ahead[j];
            columns();
        }
#pragma unroll
        for (u32 j = 0; j < GROUP; ++j) {
            const u32 q = (u32)((i32)s >> 31);
            const u32 slot = shared_u32((x << 2 & mask) | ((CLASSES ? table[j] : slots) + (i32)(q & ~(mask | 3))));
            const u32 high = x >> log;
            x = (slot & 0xfff) * high + high + (slot >> 20);
            const bool low = x < START;
            const u32 who = __ballot_sync(ALL_LANES, low);
            const u32 word = shared_u16(at + 2 * (u32)__popc(who & below));
            at += 2 * (u32)__popc(who);
            x = low ? x << 16 | word : x;
            const u32 v = shared_u32(lut + (i32)((slot >> 10 & 0x3fc) | (q & ~0x3ffu)));
            escaped |= sizeof(E) < 4 ? v : (u32)(slot_symbol(slot) == ESCAPE) << 31;
            s = s << 1 ^ (q & on_quantiser) ^ ((u32)((i32)(slot << 19) >> 31) & on_parity);
            global_put(out + j * 32, (E)v);
            if (CLASSES && j == 1) tables();
        }
        if (__any_sync(ALL_LANES, (i32)escaped < 0)) {
            x = x_before;
            s = s_before;
            break;
        }
        out += GROUP * 32;
        w.at += (u32)(at - from) / 2;
        words_refill(w);
    }
    c.x = x;
    c.s = __brev(s);
    c.words = w;
    return step;
}

// Values stored as they were, over what the levels gave.
template <class E> DEVICE u32 put_exact(const Item &item, const Desc *d, const Tile &t) {
    Bytes b = {t.bytes, t.exact_at, t.len, 0};
    const u32 size = size_of(d->dtype);
    E *out = (E *)item.out;
    const u64 runs = bytes_varint(b);
    u64 end = 0;
    for (u64 r = 0; r < runs && !b.code; ++r) {
        const u64 gap = bytes_varint(b), len = bytes_varint(b);
        u64 bits = 0;
#pragma unroll 1
        for (u32 i = 0; i < size; ++i) bits |= (u64)bytes_next(b) << (8 * i);
        if (b.code) break;
        const u64 room = t.values - end;
        if (len == 0 || gap > room || len > room - gap) return STATUS_EXACT_RUN;
        const u64 start = end + gap;
        end = start + len;
        const E v = sizeof(E) == 8 ? (E)bits : (E)convert(d->dtype, item.dtype, (u32)bits);
        for (u64 i = max(start, (u64)t.from) + lane_of(); i < min(end, (u64)t.to); i += 32) out[t.start + i - d->first] = v;
    }
    if (!b.code) bytes_end(b);
    return b.code;
}

template <class E> DEVICE void decode_tile(const Item &item, const Work *work, const Common<E> &common, u64 number, Status *status) {
    const Desc *d = &work->desc;
    const u32 lane = lane_of();
    const TileAt at = tile_at(item, work, number);
    Tile t;
    t.bytes = at.bytes;
    t.len = at.len;
    t.start = number * d->tile_values;
    t.values = (u32)min(d->tile_values, d->values - t.start);
    t.from = (u32)(max(d->first, t.start) - t.start);
    t.to = (u32)(min(d->end, t.start + t.values) - t.start);
    u32 code = tile_read(d, t);
    if (code) {
        if (lane == 0) report(status, code);
        return;
    }
    if (!t.coded) {
        E *out = (E *)item.out + (t.start - d->first);
        for (u32 i = t.from + lane; i < t.to; i += 32) out[i] = 0;
    } else {
        Coder c;
        c.x = lane < d->lanes ? *(const u32 *)(t.bytes + 4 + 4 * lane) : START;
        c.s = 0;
        c.escapes = 0;
        c.low = 0;
        c.bad = c.x < START ? STATUS_STATE : 0;
        c.words = words_open(common.ring, (u64)t.bytes + 4 + 4 * d->lanes, item.blob + item.blob_len);
        if (__any_sync(ALL_LANES, c.bad)) {
            if (c.bad) report(status, c.bad);
            return;
        }
        const bool whole = t.from == 0 && t.to == t.values && d->lanes == 32 && !d->any_low && common.has_slots;
        // Elements of eight bytes have no table of them.
        const bool fast = sizeof(E) < 8 && whole && (d->classes == 1 || common.has_cols);
        const u32 group = 4;
        const u32 fast_end = fast ? t.values / (32 * group) * group : 0, end = (t.to + d->lanes - 1) / d->lanes;
        for (u32 step = 0; step < end;) {
            if (step < fast_end) {
                if (d->classes == 1) step = steps_fast<E, 0, 4>(item, work, common, t, c, step, fast_end);
                else if (common.aligned) step = steps_fast<E, 3, 4>(item, work, common, t, c, step, fast_end);
                else if (d->col_bits) step = steps_fast<E, 1, 4>(item, work, common, t, c, step, fast_end);
                else step = steps_fast<E, 2, 4>(item, work, common, t, c, step, fast_end);
            }
            const u32 stop = step < fast_end ? step + group : end;
            steps_plain<E>(item, work, common, t, c, step, stop);
            step = stop;
        }
        if (t.to == t.values) {
            if (c.x != START || words_taken(c.words) != t.words) c.bad = c.bad ? c.bad : STATUS_WORDS;
            if (c.escapes != t.escapes) c.bad = c.bad ? c.bad : STATUS_ESCAPES;
            if ((c.low + 7) / 8 != t.low_len) c.bad = c.bad ? c.bad : STATUS_LOW_LEFT;
        }
        if (c.bad) report(status, c.bad);
    }
    if (t.exact) {
        __syncwarp();
        code = put_exact<E>(item, d, t);
        if (code && lane == 0) report(status, code);
    }
    __syncwarp();
}

// One or more blocks a blob, tiles dealt to warps so that few tiles are spread over many blocks.
template <class E> DEVICE void decode_blob(const LevelsArgs &a, unsigned char *memory, u32 *stop) {
    const Place place = place_of(a.items, a.count, a.blocks);
    Status *status = a.status + place.item;
    const Item item = a.items[place.item];
    const Work *work = work_of(item);
    const Desc *d = &work->desc;
    const u32 warps = blockDim.x / 32;
    if (threadIdx.x == 0)
        *stop = status->code != 0 || d->codec != CODEC_LEVELS || size_of(item.dtype) != sizeof(E) ||
                d->first_tile + place.part >= d->end_tile;
    __syncthreads();
    if (*stop) return;

    // Shared memory: rings, look-up tables, slots at a multiple of a table's size, columns; the last two if there is
    // room.
    u32 used = warps * RING_ROOM;
    u32 *lut = (u32 *)(memory + used);
    used += 512 * 4;
    u32 *base = (u32 *)(memory + used);
    used += SUMS * 4;
    used += (u32)(-((u64)shared_at(memory) + used) & ((4ull << d->log) - 1));
    u32 *slots = (u32 *)(memory + used);
    const u32 slots_len = d->tables << d->log;
    Common<E> common;
    common.has_slots = (u64)used + (u64)slots_len * 4 <= a.shared;
    if (common.has_slots) used += slots_len * 4;
    used = (used + 15) & ~15u;
    u8 *cols = memory + used;
    const bool room = d->col_bits == 0 || (u64)used + d->width <= a.shared;
    // Four steps may lead into the next row, but not beyond.
    common.has_cols = common.has_slots && d->classes > 1 && d->width >= 128 && d->width < (1u << 30) && room;
    common.aligned = common.has_cols && d->width % 128 == 0 && d->tile_values % 128 == 0;
    for (u32 i = threadIdx.x; i < 512; i += blockDim.x) {
        const u32 q = i < 256;
        const i32 k = (i32)(signed char)(i & 255);
        u32 v = sizeof(E) < 8 ? (u32)element<E>(item.dtype, d->scale, units_of(d->offsets, k, q)) : 0;
        if (sizeof(E) < 4 && (i & 255) == ESCAPE) v |= LUT_ESCAPE;
        lut[i] = v;
    }
    for (u32 i = threadIdx.x; i < SUMS; i += blockDim.x) base[i] = (u32)d->class_of_sum[i] * d->tables_per_class << d->log << 2;
    // The rings are not in use yet.
    if (common.has_slots)
        slots_fill(slots, work->start, d->tables, d->log, (u16 *)memory, warps * RING_ROOM / 512, [&](u32 t) {
            return slots_at(d, t / d->tables_per_class, t % d->tables_per_class);
        });
    if (common.has_cols && d->col_bits)
        for (u32 i = threadIdx.x; i < d->width; i += blockDim.x)
            cols[common.aligned ? (i & ~127u) | (i & 31) << 2 | (i >> 5 & 3) : i] =
                (u8)(4 * scale_at((const u8 *)item.blob + d->cols_at, d->cols_len, d->col_bits, i));
    __syncthreads();
    common.slots = slots;
    common.lut = lut;
    common.base = base;
    common.cols = cols;
    common.ring = (u16 *)(memory + warp_of() * RING_ROOM);
    const u64 stride = (u64)place.parts * warps;
    for (u64 t = d->first_tile + (u64)warp_of() * place.parts + place.part; t < d->end_tile; t += stride)
        decode_tile<E>(item, work, common, t, status);
}

KERNEL(1024) levels_decode_1(const LevelsArgs a) {
    DYNAMIC_SHARED(memory);
    __shared__ u32 stop;
    decode_blob<u8>(a, memory, &stop);
}
KERNEL(1024) levels_decode_2(const LevelsArgs a) {
    DYNAMIC_SHARED(memory);
    __shared__ u32 stop;
    decode_blob<u16>(a, memory, &stop);
}
KERNEL(1024) levels_decode_4(const LevelsArgs a) {
    DYNAMIC_SHARED(memory);
    __shared__ u32 stop;
    decode_blob<u32>(a, memory, &stop);
}
KERNEL(1024) levels_decode_8(const LevelsArgs a) {
    DYNAMIC_SHARED(memory);
    __shared__ u32 stop;
    decode_blob<u64>(a, memory, &stop);
}
