// Headers: read and checked by a block for each blob.
//
// The twin of `blob/header.rs`, `levels/params.rs`, `lossless/params.rs` and `entropy/table_code.rs`.

#include "blob.cuh"
#include "crc.cuh"

// Bytes of a header that a warp has at hand.
#define WINDOW 512

// Reads a header. All lanes of the warp do the same, so that they can fetch the next piece together. Everything in
// registers: whoever takes it by reference is inlined.
struct Reader {
    const u8 *base;
    u32 at, end, window;
    u8 *bytes;
    u32 code;
};

#define NO_WINDOW 0x80000000u

DEVICE void reader_fail(Reader &r, u32 code) {
    if (r.code == 0) r.code = code;
}

OUTLINE void window_fetch(const u8 *base, u32 window, u32 end, u8 *bytes) {
    // Headers end at a multiple of four.
    const u32 *from = (const u32 *)(base + window);
    const u32 words = (end - window) / 4, lane = lane_of();
    u32 v[WINDOW / 128];
#pragma unroll
    for (u32 i = 0; i < WINDOW / 128; ++i) v[i] = lane + i * 32 < words ? from[lane + i * 32] : 0;
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < WINDOW / 128; ++i) ((u32 *)bytes)[lane + i * 32] = v[i];
    __syncwarp();
}

DEVICE void reader_fetch(Reader &r) {
    r.window = r.at & ~3u;
    window_fetch(r.base, r.window, r.end, r.bytes);
}

DEVICE u32 reader_byte(Reader &r) {
    if (r.at >= r.end) {
        reader_fail(r, STATUS_FIELD);
        return 0;
    }
    if (r.at - r.window >= WINDOW) reader_fetch(r);
    return r.bytes[r.at++ - r.window];
}

DEVICE u32 reader_u32(Reader &r) {
    u32 v = 0;
#pragma unroll 1
    for (u32 i = 0; i < 32; i += 8) v |= reader_byte(r) << i;
    return v;
}

DEVICE u64 reader_varint(Reader &r) {
    u64 v = 0;
#pragma unroll 1
    for (u32 shift = 0; shift < 64; shift += 7) {
        const u32 b = reader_byte(r);
        if (r.code) return 0;
        if ((shift == 63 && b > 1) || (shift > 0 && b == 0)) break;
        v |= (u64)(b & 0x7f) << shift;
        if (b < 0x80) return v;
    }
    reader_fail(r, STATUS_VARINT);
    return 0;
}

// Skips bytes and returns where they start.
DEVICE u32 reader_take(Reader &r, u64 n) {
    const u32 at = r.at;
    if (n > r.end - r.at) {
        reader_fail(r, STATUS_FIELD);
        return at;
    }
    r.at += (u32)n;
    return at;
}

// A bit string inside a header: where the next bit is, and where the string ends, counted from the blob's start.
struct Bits {
    u64 at, end;
};

// The next 32 bits, whatever they are.
DEVICE u32 bits_peek(Reader &r, const Bits &b) {
    const u32 byte = (u32)(b.at >> 3);
    if (byte - r.window > WINDOW - 8) {
        r.at = byte;
        reader_fetch(r);
    }
    const u32 *words = (const u32 *)r.bytes + ((byte - r.window) >> 2);
    return __funnelshift_r(words[0], words[1], (u32)(b.at & 31));
}

// Goes on by n bits; false, and the reason is told, if there are fewer.
DEVICE bool bits_skip(Reader &r, Bits &b, u32 n) {
    b.at += n;
    if (b.at > b.end) reader_fail(r, STATUS_TABLES);
    return b.at <= b.end;
}

// n < 32 bits.
DEVICE u32 bits_take(Reader &r, Bits &b, u32 n) {
    const u32 v = bits_peek(r, b) & ((1u << n) - 1);
    return bits_skip(r, b, n) ? v : 0;
}

DEVICE u32 bits_gamma(Reader &r, Bits &b) {
    const u32 next = bits_peek(r, b);
    const u32 n = (u32)__ffs((i32)next) - 1;
    if (n > 15) {
        reader_fail(r, STATUS_TABLES);
        return 0;
    }
    if (!bits_skip(r, b, 2 * n + 1)) return 0;
    return (1u << n) + (next >> (n + 1) & ((1u << n) - 1)) - 1;
}

// A table of three numbers, as `Shape::freqs` has it; `weight` is room for 127 numbers.
DEVICE void shaped(Reader &r, Bits &b, u32 log, bool halved, u32 *freq, u64 *weight) {
    const u32 stored = bits_take(r, b, log + 1);
    const u32 ratio = bits_take(r, b, 8), bend = bits_take(r, b, 8);
    if (r.code) return;
    const u64 total = 1ull << log, zero = halved ? 0 : stored;
    if (total < zero + 1) return reader_fail(r, STATUS_TABLES);
    const u64 side = (total - zero - 1) / 2;
    u64 w = 1ull << 24, rr = (u64)ratio << 8, sum = 0;
    for (u32 j = 0; j < 127; ++j) {
        if (lane_of() == 0) weight[j] = w;
        sum += w;
        w = (w * rr) >> 16;
        rr = (rr * bend) >> 7;
        rr = rr < 0xff00 ? rr : 0xff00;
    }
    __syncwarp();
    u32 used = 0;
    for (u32 i = lane_of(); i < 256; i += 32) freq[i] = 0;
    __syncwarp();
    for (u32 j = lane_of(); j < 127; j += 32) {
        const u32 f = (u32)((weight[j] * side + sum / 2) / sum);
        freq[halved ? j : j + 1] = f;
        freq[255 - j] = f;
        used += 2 * f;
    }
    used = warp_sum(used) + 1;
    __syncwarp();
    // What rounding left over, or took too much, is level zero's.
    const i64 centre = (i64)freq[0] + (i64)total - (i64)used;
    if (centre < 1) return reader_fail(r, STATUS_TABLES);
    __syncwarp();
    if (lane_of() == 0) {
        freq[ESCAPE] = 1;
        freq[0] = (u32)centre;
    }
    __syncwarp();
}

// `count` codes, the frequencies of ranks `low`, …; a rank is turned into a symbol by `flip`. Every lane reads the code
// that would start at its own bit; the warp then only has to go from one start to the next.
DEVICE void gammas(Reader &r, Bits &b, u32 low, u32 count, u32 flip, u32 *freq) {
    const u32 lane = lane_of();
    for (u32 done = 0; done < count;) {
        const u32 byte = (u32)(b.at >> 3);
        if (byte - r.window > WINDOW - 12) {
            r.at = byte;
            reader_fetch(r);
        }
        const u32 bit = (u32)(b.at - ((u64)r.window << 3)) + lane;
        const u32 *words = (const u32 *)r.bytes + (bit >> 5);
        const u32 next = __funnelshift_r(words[0], words[1], bit & 31);
        const u32 n = (u32)__ffs((i32)next) - 1;
        const u32 len = n > 15 ? 0 : 2 * n + 1;
        u32 mine = 256, at = 0;
        do {
            if (lane == at) mine = done;
            const u32 by = __shfl_sync(ALL_LANES, len, (i32)at);
            if (by == 0) return reader_fail(r, STATUS_TABLES);
            at += by;
        } while (++done < count && at < 32);
        if (mine < 256) freq[(low + mine) ^ flip] = (1u << n) + (next >> (n + 1) & ((1u << n) - 1)) - 1;
        if (!bits_skip(r, b, at)) return;
    }
}

// A table of counted frequencies.
DEVICE void measured(Reader &r, Bits &b, bool levels, u32 *freq) {
    __syncwarp();
    for (u32 i = lane_of(); i < 256; i += 32) freq[i] = 0;
    __syncwarp();
    u32 escape = 0;
    if (levels) escape = bits_gamma(r, b) & 0xffff;
    const u32 low = bits_take(r, b, 8), high = low + bits_take(r, b, 8);
    if (r.code) return;
    if (high > 255 || (levels && low == 0)) return reader_fail(r, STATUS_TABLES);
    gammas(r, b, low, high + 1 - low, levels ? 0x80 : 0, freq);
    if (levels && lane_of() == 0) freq[ESCAPE] = escape;
    __syncwarp();
}

// Shared memory of `blob_open`'s reading warp.
struct Scratch {
    u8 window[WINDOW + 8];
    u64 weight[128];
    u32 freq[256];
    u32 crc[CRC_TABLE_WORDS];
};

// Reads tables one after the other and leaves the first slot of every symbol. `low` says which classes have low
// bits; null for planes.
DEVICE void read_tables(Reader &r, Work *work, Scratch *s, u32 tables, u32 log, const u8 *low, u32 per_class) {
    const u64 len = reader_varint(r);
    const u64 at = reader_take(r, len);
    if (r.code) return;
    Bits b = {at * 8, (at + len) * 8};
    for (u32 t = 0; t < tables && r.code == 0; ++t) {
        const u32 kind = bits_take(r, b, 2);
        if (r.code) return;
        if (kind == 0 && low) shaped(r, b, log, low[t / per_class] > 0, s->freq, s->weight);
        else if (kind == 1) measured(r, b, low != nullptr, s->freq);
        else if (kind != 2 || t == 0) reader_fail(r, STATUS_TABLES);
        if (r.code) return;
        // Eight symbols a lane.
        u32 sum = 0;
        for (u32 i = 0; i < 8; ++i) sum += s->freq[lane_of() * 8 + i];
        u32 start = warp_before(sum);
        if (warp_sum(sum) != 1u << log) return reader_fail(r, STATUS_TABLES);
        for (u32 i = 0; i < 8; ++i) {
            work->start[t][lane_of() * 8 + i] = (u16)start;
            start += s->freq[lane_of() * 8 + i];
        }
        __syncwarp();
    }
    if ((b.at + 7) / 8 != at + len) reader_fail(r, STATUS_TABLES);
    r.at = at + len;
}

DEVICE void read_levels(Reader &r, Desc *d) {
    if (!is_float(d->dtype)) return reader_fail(r, STATUS_LEVELS);
    const u32 log = reader_byte(r);
    if (r.code) return;
    if (log < LOG_LEAST || log > LOG_MOST) return reader_fail(r, STATUS_TABLE_SIZE);
    double scale;
    if (d->dtype == DTYPE_F64) {
        const u64 lo = reader_u32(r), hi = reader_u32(r);
        scale = __longlong_as_double((i64)(hi << 32 | lo));
    } else {
        scale = (double)__uint_as_float(reader_u32(r));
    }
    if (r.code) return;
    if (!(scale > 0.0) || !(scale <= 1.7976931348623157e308)) return reader_fail(r, STATUS_SCALE);
    const u32 used = reader_byte(r);
    i32 offsets[OFFSETS];
#pragma unroll
    for (u32 i = 0; i < OFFSETS; ++i) offsets[i] = 0;
    const u64 stored = reader_take(r, used);
    if (r.code) return;
    if (used > OFFSETS) return reader_fail(r, STATUS_OFFSETS_COUNT);
    r.at = stored;
#pragma unroll
    for (u32 i = 0; i < OFFSETS; ++i)
        if (i < used) offsets[i] = (i32)(signed char)reader_byte(r);
    const u32 classes = reader_byte(r);
    if (r.code) return;
    u64 width = 1, rows_at = 0, rows_len = 0, cols_at = 0, cols_len = 0;
    u32 row_bits = 0, col_bits = 0;
    __syncwarp();
    for (u32 i = lane_of(); i < sizeof d->class_of_sum; i += 32) d->class_of_sum[i] = 0;
    __syncwarp();
    if (classes != 1) {
        if (classes < 2 || classes > MAX_CLASSES) return reader_fail(r, STATUS_CLASSES);
        width = reader_varint(r);
        if (r.code) return;
        if (width == 0 || width > d->values) return reader_fail(r, STATUS_WIDTH);
        const u32 packed = reader_byte(r);
        row_bits = packed & 15;
        col_bits = packed >> 4;
        if (r.code) return;
        if (row_bits > MAX_SCALE_BITS || col_bits > MAX_SCALE_BITS) return reader_fail(r, STATUS_SCALE_BITS);
        u32 before = 0;
        for (u32 c = 1; c < classes; ++c) {
            const u32 from = reader_byte(r);
            if (r.code) return;
            if (from <= before) return reader_fail(r, STATUS_THRESHOLDS);
            before = from;
            for (u32 i = lane_of(); i < sizeof d->class_of_sum; i += 32)
                if (i >= from) d->class_of_sum[i] = (u8)c;
        }
        const u64 rows = (d->values + width - 1) / width;
        // Products of at most 2^63 and 6; what does not fit the header is refused before it could wrap.
        if (rows > ~0ull / 8 || width > ~0ull / 8) return reader_fail(r, STATUS_FIELD);
        rows_len = (rows * row_bits + 7) / 8;
        rows_at = reader_take(r, rows_len);
        if (r.code) return;
        cols_len = (width * col_bits + 7) / 8;
        cols_at = reader_take(r, cols_len);
        if (r.code) return;
    }
    u32 any_low = 0, over = 0;
    for (u32 c = 0; c < MAX_CLASSES; ++c) {
        const u32 n = c < classes ? reader_byte(r) : 0;
        over |= n > MAX_LOW_BITS;
        any_low |= n > 0;
        if (lane_of() == 0) d->low[c] = (u8)n;
    }
    if (r.code) return;
    if (over) return reader_fail(r, STATUS_LOW_BITS);
    const u32 per_class = d->nu == 0 ? 1 : 2;
    if (lane_of() == 0) {
        d->log = log;
        d->scale = scale;
        d->offsets[0] = 0;
#pragma unroll
        for (u32 i = 0; i < OFFSETS; ++i) d->offsets[i + 1] = offsets[i];
        d->classes = classes;
        d->tables_per_class = per_class;
        d->width = width;
        d->rows_at = rows_at;
        d->rows_len = rows_len;
        d->cols_at = cols_at;
        d->cols_len = cols_len;
        d->row_bits = row_bits;
        d->col_bits = col_bits;
        d->any_low = any_low;
        d->tables = classes * per_class;
        d->table_log = log;
    }
    __syncwarp();
}

DEVICE void read_planes(Reader &r, Desc *d) {
    const u32 coded = reader_byte(r);
    const u32 size = size_of(d->dtype);
    if (r.code) return;
    if (size < 8 && coded >> size != 0) return reader_fail(r, STATUS_PLANE);
    const u32 tables = (u32)__popc(coded);
    if (lane_of() == 0) {
        d->coded = coded;
        d->tables = tables;
        d->table_log = PLANE_LOG;
        d->log = PLANE_LOG;
    }
    __syncwarp();
}

struct OpenArgs {
    // Blobs of this launch, if they are not on the device yet.
    Item items[ITEMS_PER_LAUNCH];
    Item *to;
    Status *status;
    u64 max_bytes;
    u32 first, count, max_dims;
};

// Writes the list of blobs and clears what will be said of them.
KERNEL(64) blob_place(const OpenArgs a) {
    for (u32 i = threadIdx.x; i < a.count; i += blockDim.x) {
        a.to[a.first + i] = a.items[i];
        a.status[a.first + i] = Status{0, 0, 0};
    }
}

// What a header says before its codec's parameters. Returns false where there is no more to read; the reason is
// in the reader or was told.
DEVICE bool read_start(Reader &r, Desc *d, const OpenArgs &a, Status *status) {
    r.at = 5;
    const u32 codec = reader_byte(r), dtype = reader_byte(r), dims = reader_byte(r);
    r.at = FIXED;
    const bool first = lane_of() == 0;
    if (codec >= 16 && codec <= 18) {
        if (first) report(status, STATUS_OTHER_ENGINE, codec);
        return false;
    }
    const u32 size = size_of(dtype);
    if (size == 0) {
        if (first) report(status, STATUS_DTYPE, dtype);
        return false;
    }
    if (dims > a.max_dims) {
        if (first) report(status, STATUS_DIMS, dims, a.max_dims);
        return false;
    }
    u64 bytes = size;
    bool empty = false, over = false;
    for (u32 i = 0; i < dims; ++i) {
        const u64 n = reader_varint(r);
        empty |= n == 0;
        over |= n != 0 && bytes > 0x7fffffffffffffffull / n;
        bytes = over || n == 0 ? bytes : bytes * n;
    }
    if (r.code) return false;
    if (empty) bytes = 0;
    else if (over) reader_fail(r, STATUS_SHAPE);
    if (r.code) return false;
    if (bytes > a.max_bytes) {
        if (first) report(status, STATUS_BYTES, 0, bytes);
        return false;
    }
    const u32 steps = reader_byte(r);
    if (steps > 0) {
        const u32 id = reader_byte(r);
        if (r.code == 0 && first) report(status, STATUS_STEP, id);
        return false;
    }
    if (codec != CODEC_PLANES && codec != CODEC_LEVELS) {
        if (first) report(status, STATUS_CODEC, codec);
        return false;
    }
    u32 nu = 0;
    if (codec == CODEC_LEVELS) {
        if (!is_float(dtype)) reader_fail(r, STATUS_LEVELS);
        nu = reader_byte(r);
        if (r.code) return false;
        if (nu == 1 || nu > 8) {
            if (first) report(status, STATUS_TRELLIS, nu);
            return false;
        }
    }
    const u32 lanes_log = reader_byte(r);
    const u64 per_lane = reader_varint(r);
    if (r.code) return false;
    if (lanes_log > LANES_LOG || per_lane == 0 || per_lane > ((u64)MAX_TILE >> lanes_log)) {
        reader_fail(r, STATUS_GEOMETRY);
        return false;
    }
    if (first) {
        const u32 on_quantiser[9] = TRELLIS_QUANTISER, on_parity[9] = TRELLIS_PARITY;
        d->codec = codec;
        d->dtype = dtype;
        d->values = bytes / size;
        d->lanes = 1u << lanes_log;
        d->steps = (u32)per_lane;
        d->tile_values = per_lane << lanes_log;
        d->nu = nu;
        d->on_quantiser = on_quantiser[nu];
        d->on_parity = on_parity[nu];
        d->classes = 1;
        d->tables_per_class = 1;
        d->any_low = 0;
        d->coded = 0;
    }
    __syncwarp();
    return true;
}

// Checks what the caller wants against what there is.
DEVICE void place_output(const Item &item, Desc *d, Status *status) {
    const bool same = item.dtype == d->dtype;
    const bool converted = d->codec == CODEC_LEVELS && is_float(item.dtype) && size_of(item.dtype) <= 4 &&
                           d->dtype != DTYPE_F64;
    if (item.codec && item.codec != d->codec) return report(status, STATUS_OTHER_CODEC, d->codec);
    if (!same && !converted) return report(status, STATUS_OUTPUT_DTYPE, d->dtype);
    if (item.first > d->values) return report(status, STATUS_ROWS, 0, d->values);
    const u64 rest = d->values - item.first;
    const u64 count = item.count == ~0ull ? rest : item.count;
    if (count > rest) return report(status, STATUS_ROWS, 0, d->values);
    if (count * size_of(item.dtype) != item.out_len)
        return report(status, STATUS_BUFFER, 0, count * size_of(item.dtype));
    d->first = item.first;
    d->end = item.first + count;
    d->first_tile = d->first / d->tile_values;
    d->end_tile = count == 0 ? d->first_tile : (d->end - 1) / d->tile_values + 1;
}

// One block a blob; `place` where the launch brings the list.
DEVICE void open_blob(const OpenArgs &a, bool place) {
    __shared__ __align__(16) Scratch s;
    __shared__ __align__(16) Desc desc;
    __shared__ u32 sums[8];
    // Why to stop before the directory is read, and whether a tile in it has a length that none may have. Two words:
    // some threads are in the directory while others still ask whether to stop.
    __shared__ u32 failed, odd_tile;
    const Item item = place ? a.items[blockIdx.x] : a.to[blockIdx.x];
    Status *status = a.status + blockIdx.x;
    if (place && threadIdx.x == 0) {
        a.to[blockIdx.x] = item;
        *status = Status{0, 0, 0};
    }
    Work *work = work_of(item);
    Desc *d = &desc;
    const u8 *blob = (const u8 *)item.blob;
    const u32 warp = warp_of(), lane = lane_of();

    // 1. What can be said without trusting anything.
    if (threadIdx.x == 0) {
        const u32 size = size_of(item.dtype);
        u32 code = 0, detail = 0;
        u64 need = 0;
        if ((item.blob & 15) || (size && item.out % size)) code = STATUS_ALIGNMENT;
        else if (item.work_len < sizeof(Work)) code = STATUS_WORKSPACE;
        else {
            const u32 magic[1] = {MAGIC};
            const u32 known = item.blob_len < 4 ? (u32)item.blob_len : 4;
            for (u32 i = 0; i < known; ++i)
                if (blob[i] != (u8)(magic[0] >> (8 * i))) code = STATUS_NOT_A_BLOB;
            if (known == 0) code = STATUS_NOT_A_BLOB;
            if (code == 0 && item.blob_len < FIXED) {
                code = STATUS_TRUNCATED;
                need = FIXED;
            }
            if (code == 0 && blob[4] != FORMAT_VERSION) {
                code = STATUS_VERSION;
                detail = blob[4];
            }
            if (code == 0) {
                const u32 len = *(const u32 *)(blob + 8);
                if (len < FIXED + 4) code = STATUS_HEADER_LENGTH;
                else if (len > item.blob_len) {
                    code = STATUS_TRUNCATED;
                    need = len;
                } else if (len % 4 != 0) code = STATUS_HEADER_CHECKSUM;
                else d->header_len = len;
            }
        }
        if (code) report(status, code, detail, need);
        failed = status->code;
        odd_tile = 0;
    }
    crc_fill(s.crc);
    __syncthreads();
    if (failed) return;

    // 2. The header's checksum, a share by each warp.
    const u32 share = crc_share(crc_open(s.crc), (const u32 *)blob, d->header_len / 4 - 1, warp, 8);
    if (lane == 0) sums[warp] = share;
    __syncthreads();

    // 3. Everything before the directory.
    if (warp == 0) {
        u32 sum = 0;
        for (u32 w = 0; w < 8; ++w) sum ^= sums[w];
        Reader r = {blob, 0, (u32)d->header_len - 4, NO_WINDOW, s.window, 0};
        if (sum != *(const u32 *)(blob + d->header_len - 4)) reader_fail(r, STATUS_HEADER_CHECKSUM);
        else if (read_start(r, d, a, status)) {
            const bool levels = d->codec == CODEC_LEVELS;
            if (levels) read_levels(r, d);
            else read_planes(r, d);
            if (r.code == 0)
                read_tables(r, work, &s, d->tables, d->table_log, levels ? d->low : nullptr, d->tables_per_class);
            const u32 padded = (r.at + 3) & ~3u;
            const u64 tiles = (d->values + d->tile_values - 1) / d->tile_values;
            if (r.code == 0) {
                u32 pad = 0;
                for (u32 i = r.at; i < padded; ++i) pad |= reader_byte(r);
                const u32 rest = r.end > padded ? r.end - padded : 0;
                if (pad || r.code || padded > r.end || rest % 8 != 0 || tiles != rest / 8) {
                    r.code = 0;
                    reader_fail(r, STATUS_DIRECTORY);
                }
            }
            if (r.code == 0 && item.work_len < sizeof(Work) + (tiles / RUN + 1) * 8) reader_fail(r, STATUS_WORKSPACE);
            if (lane == 0) {
                d->tiles = tiles;
                d->directory = padded;
            }
        }
        if (lane == 0) {
            if (r.code) report(status, r.code);
            failed = status->code;
        }
    }
    __syncthreads();
    if (failed) return;

    // 4. Where the tiles are.
    const u64 runs = (d->tiles + RUN - 1) / RUN;
    const u32 *lengths = (const u32 *)(blob + d->directory);
    for (u64 run = warp; run < runs; run += 8) {
        u64 sum = 0;
        bool odd = false;
        for (u64 t = run * RUN + lane; t < min(d->tiles, (run + 1) * RUN); t += 32) {
            const u32 len = lengths[2 * t];
            odd |= len % 4 != 0;
            sum += len;
        }
        sum = warp_sum(sum);
        if (lane == 0) work->runs[run] = sum;
        if (odd) odd_tile = 1;
    }
    __syncthreads();
    if (warp == 0) {
        u64 at = d->header_len;
        for (u64 run = 0; run < runs; run += 32) {
            const u64 mine = run + lane < runs ? work->runs[run + lane] : 0;
            const u64 before = warp_before(mine);
            if (run + lane < runs) work->runs[run + lane] = at + before;
            at += warp_sum(mine);
        }
        if (lane == 0) {
            work->runs[runs] = at;
            if (odd_tile) report(status, STATUS_TILE_LENGTH);
            else if (at > item.blob_len) report(status, STATUS_TRUNCATED, 0, at);
            else if (at < item.blob_len) report(status, STATUS_BYTES_AFTER);
            else place_output(item, d, status);
        }
    }
    __syncthreads();
    static_assert(sizeof(Desc) % 4 == 0, "copied by words");
    for (u32 i = threadIdx.x; i < sizeof(Desc) / 4; i += blockDim.x) ((u32 *)&work->desc)[i] = ((const u32 *)d)[i];
}

KERNEL(256) blob_open(const OpenArgs a) { open_blob(a, true); }
KERNEL(256) blob_open_placed(const OpenArgs a) { open_blob(a, false); }
