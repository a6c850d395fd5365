// Headers, read and checked by a block for each blob: what the kernels that decode have to know of it.
//
// Nothing else can start before this is done, so it is made to be short: one warp reads while the others add up what
// has to be added up. Reading does not wait for the checksum; a wrong one is told instead of all that was found.

#include "pairs.cuh"
#include "blob.cuh"
#include "header_read.cuh"
#include "header_sums.cuh"
#include "tables_read.cuh"

// Writes the list of blobs and clears what will be said of them.
KERNEL(PLACE_THREADS) blob_place(const OpenArgs a) {
    for (u32 i = threadIdx.x; i < a.count; i += blockDim.x) {
        a.to[a.first + i] = a.items[i];
        a.status[a.first + i] = Status{0, 0, 0};
    }
}

// The same for blobs of which three numbers say all.
KERNEL(PLACE_THREADS) blob_place_pages(const PlaceArgs a) {
    for (u32 i = threadIdx.x; i < a.count; i += blockDim.x) {
        const u32 number = a.first + i;
        Item item;
        item.blob = a.base + (u64)a.at[i] * 16;
        item.blob_len = a.len[i];
        item.out = a.out + number * a.out_len;
        item.out_len = a.out_len;
        item.first = 0;
        item.count = ~0ull;
        item.work = a.work + (u64)a.work_at[i] * 16;
        // As the launch code has it.
        item.work_len = (WORK_BYTES + ((u64)a.len[i] / 8 / RUN + 2) * 8 + 15) & ~15ull;
        item.dtype = a.dtype;
        item.block0 = number;
        item.codec = a.codec;
        item.pairs = item.transposed = item.order = item.unused = 0;
        a.to[number] = item;
        a.status[number] = Status{0, 0, 0};
    }
}

// Fetches the first piece of a blob and checks what can be said without trusting anything; returns the length of the
// header. All lanes of a warp take part.
DEVICE u32 open_window(Reader &r, const Item &item) {
    const u32 size = header_size_of(item.dtype);
    reader_check(r, (item.blob & 15) || (size && (item.out & (size - 1))), STATUS_ALIGNMENT);
    reader_check(r, item.work_len < sizeof(Work), STATUS_WORKSPACE);
    if (lane_of() == 0) {
        header_window.blob = (const u8 *)item.blob;
        header_window.end = r.code ? 0 : (u32)min(item.blob_len & ~3ull, (u64)WINDOW);
    }
    __syncwarp();
    window_fetch(0);
    if (r.code) return 0;
    const u32 magic[1] = {MAGIC};
    u32 start = header_window.words[0], known = ~0u;
    if (item.blob_len < 4) {
        start = 0;
        known = (1u << 8 * (u32)item.blob_len) - 1;
#pragma unroll 1
        for (u32 i = 0; i < (u32)item.blob_len; ++i) start |= (u32)((const u8 *)item.blob)[i] << 8 * i;
    }
    const u32 version = header_window.words[1] & 0xff, len = header_window.words[2];
    reader_check(r, ((start ^ magic[0]) & known) != 0 || known == 0, STATUS_NOT_A_BLOB);
    reader_size(r, item.blob_len < FIXED, STATUS_TRUNCATED, FIXED);
    reader_detail(r, version != FORMAT_VERSION, STATUS_VERSION, version);
    reader_check(r, len < FIXED + 4, STATUS_HEADER_LENGTH);
    reader_size(r, len > item.blob_len, STATUS_TRUNCATED, len);
    reader_check(r, len % 4 != 0, STATUS_HEADER_CHECKSUM);
    return len;
}

// Checks that the directory starts where the tables end.
DEVICE void check_directory(Reader &r, const Desc *d, const Item &item) {
    const u32 pad = (0u - r.at) & 3;
    const bool zeros = ((u32)reader_peek(r) & ((1u << 8 * pad) - 1)) == 0;
    const u32 padded = r.at + pad, rest = r.end > padded ? r.end - padded : 0;
    reader_check(r, !zeros || padded > r.end || rest % 8 != 0 || d->tiles != rest / 8, STATUS_DIRECTORY);
    reader_check(r, item.work_len < sizeof(Work) + (d->tiles / RUN + 1) * 8, STATUS_WORKSPACE);
}

// Checks what the caller wants against what there is.
DEVICE void place_output(Reader &r, const Item &item, Desc *d) {
    const bool same = item.dtype == d->dtype;
    const bool converted = d->codec == CODEC_LEVELS && is_float(item.dtype) && header_size_of(item.dtype) <= 4 &&
                           d->dtype != DTYPE_F64;
    const bool inside = item.first <= d->values;
    const u64 rest = d->values - item.first;
    const u64 count = item.count == ~0ull ? rest : item.count;
    const u64 bytes = count * header_size_of(item.dtype);
    const bool other = (item.codec && item.codec != d->codec) || (item.pairs && item.pairs != (d->paired ? PAIRS_ALL : PAIRS_NONE));
    const bool turned = item.transposed && item.transposed != (d->transposed ? TRANSPOSED_YES : TRANSPOSED_NO);
    // In the tensor's order, any of a transposed tensor's values may be in any tile.
    const bool across = d->transposed && item.order == ORDER_TENSOR, some = item.first != 0 || count != d->values;
    reader_detail(r, other, STATUS_OTHER_CODEC, d->codec);
    reader_check(r, turned, STATUS_OTHER_ORDER);
    reader_detail(r, !same && !converted, STATUS_OUTPUT_DTYPE, d->dtype);
    reader_size(r, !inside || count > rest, STATUS_ROWS, d->values);
    reader_size(r, bytes != item.out_len, STATUS_BUFFER, bytes);
    reader_detail(r, across && some, STATUS_STEP, TRANSFORM_TRANSPOSED);
    if (r.code) return;
    const u64 end = item.first + count;
    // All values are wanted most often, and divisions take long.
    const u64 first_tile = item.first == 0 ? 0 : header_quotient(item.first, d->tile_values);
    u64 end_tile = first_tile;
    if (count != 0) end_tile = end == d->values ? d->tiles : header_quotient(end - 1, d->tile_values) + 1;
    __syncwarp();
    if (lane_of() == 0) {
        d->first = item.first;
        d->end = end;
        d->across = across && d->columns ? header_quotient(d->values, d->columns) : 0;
        d->first_tile = first_tile;
        d->end_tile = end_tile;
    }
    __syncwarp();
}

// A warp's share of the header's checksum.
DEVICE void open_checksum(HeaderSums *sums, const u32 *words, const Desc *d, u32 part) {
    const u32 count = (u32)d->header_len / 4 - 1, stored = part == 0 ? words[count] : 0;
    const u32 share = sums_crc(sums, words, count, part);
    if (lane_of() == 0) sums->crc[part] = share ^ stored;
}

// Nothing that a damaged header says counts.
DEVICE void open_verdict(Reader &r, const HeaderSums *sums) {
    u32 crc = 0;
    for (u32 i = 0; i < SUM_WARPS; ++i) crc ^= sums->crc[i];
    if (crc != 0) r = Reader{0, 0, STATUS_HEADER_CHECKSUM, 0, 0};
}

// Tables of pairs in the place of those of levels. All threads of a block take part.
DEVICE void open_pairs(Work *work, const Desc *d) {
    __shared__ PairFold folds[TABLES];
    const u32 warps = blockDim.x / 32;
#pragma unroll 1
    for (u32 t = warp_of(); t < d->tables; t += warps) pair_fold(folds + t, work->start[t], d->log);
    __syncthreads();
#pragma unroll 1
    for (u32 t = warp_of(); t < d->classes * 4; t += warps) {
        // A scalar quantiser is both.
        PairFold *of = folds + t / 4 * d->tables_per_class;
        const u32 both = d->tables_per_class - 1;
        pair_table(work->start[t], of, both, d->log, t % 4, d->on_quantiser, d->on_parity);
    }
    __syncthreads();
}

// One block a blob; `place` where the launch brings the list.
DEVICE void open_blob(const OpenArgs &a, bool place) {
    __shared__ __align__(16) TablesRead tables;
    __shared__ __align__(16) HeaderSums sums;
    __shared__ __align__(16) Desc desc;
    // Whether there is a header to sum up, and whether there is room for the directory that it speaks of; whether the
    // checksum of a long one is left to the kernels that decode; whether all before the tables could be read.
    __shared__ u32 there, fits, left, whole;
    // Whether some run of kept elements is wrong.
    __shared__ u32 odd_kept;
    const Item &item = place ? a.items[blockIdx.x] : a.to[blockIdx.x];
    Work *work = work_of(item);
    Desc *d = &desc;
    const u32 warp = warp_of(), lane = lane_of(), part = warp - 1;
    const u32 *words = (const u32 *)item.blob;
    Reader r = {0, 0, 0, 0, 0};
    Runs runs = {0, 0, 0, 0};

    // 1. How long the header is, and how many tiles there are.
    if (warp == 0) {
        if (lane == 0) {
            open_basis = a.basis;
            if (item.work_len >= sizeof(Work)) {
                work->header_left = 0;
                // Of no kernel's business until all is known to be well.
                work->desc.codec = 0;
            }
            if (a.basis.before == BEFORE_ROPE) a.basis.positions[blockIdx.x] = 0;
        }
        const u32 len = open_window(r, item);
        const bool header = r.code == 0;
        if (header) {
            r.end = len - 4;
            if (lane == 0) {
                header_window.end = len - 4;
                d->header_len = len;
                d->kept = 0;
                d->transposed = 0;
                odd_kept = 0;
            }
            __syncwarp();
            read_start(r, d, a.max_bytes, a.max_dims);
        }
        if (lane == 0) {
            there = header;
            fits = r.code == 0 && d->tiles <= (len - 4 - FIXED) / 8 &&
                   item.work_len >= sizeof(Work) + (d->tiles / RUN + 1) * 8;
        }
    } else {
        sums_prepare(&sums, part);
        if (place && threadIdx.x == 32) a.to[blockIdx.x] = item;
    }
    __syncthreads();

    // 2. Parameters; beside that the checksum, and where the tiles are.
    if (warp == 0) {
        if (r.code == 0) {
            if (d->codec == CODEC_LEVELS) read_levels(r, d);
            else read_planes(r, d);
        }
        if (r.code == 0) tables_open(r, &tables);
        const bool readable = r.code == 0;
        if (r.code == 0) check_directory(r, d, item);
        if (lane == 0) whole = readable;
    } else if (there) {
        if (header_pieces(d) == 0) open_checksum(&sums, words, d, part);
        if (d->kept > 0 && kept_odd((const u8 *)words, d, part * 32 + lane, SUM_WARPS * 32)) odd_kept = 1;
        if (fits) runs = sums_directory(&sums, words + d->directory / 4, (u32)d->tiles, work->runs, part);
    }
    __syncthreads();

    // 3. Tables.
    if (whole) tables_read(&tables, (const u8 *)item.blob, work, d);
    __syncthreads();
    if (whole && d->paired && !tables.bad && !tables.odd) open_pairs(work, d);

    // 4. What came of it. The checksum of a long header is done here where no kernel will decode.
    const bool late = there && header_pieces(d) > 0;
    if (warp != 0) {
        if (fits) sums_place(runs, d->header_len + sums_before(&sums, part), work->runs);
        if (!late) return;
        __syncthreads();
        if (left) return;
        open_checksum(&sums, words, d, part);
        __syncthreads();
        return;
    }
    if (there) {
        u32 odd = 0;
        for (u32 i = 0; i < SUM_WARPS; ++i) odd |= sums.odd[i];
        // Tables come before the directory.
        if (whole && (tables.bad || tables.odd)) r = Reader{0, 0, STATUS_TABLES, 0, 0};
        // And steps before all that could go wrong once they were read.
        if (d->kept > 0 && odd_kept) r = Reader{0, 0, STATUS_KEPT, 0, 0};
        if (!late) open_verdict(r, &sums);
        const u64 end = d->header_len + sums_before(&sums, SUM_WARPS);
        reader_check(r, odd != 0, STATUS_TILE_LENGTH);
        reader_size(r, end > item.blob_len, STATUS_TRUNCATED, end);
        reader_check(r, end < item.blob_len, STATUS_BYTES_AFTER);
        if (r.code == 0) {
            if (lane == 0) work->runs[(d->tiles + RUN - 1) / RUN] = end;
            place_output(r, item, d);
        }
    }
    if (late) {
        const bool leave = r.code == 0 && d->first_tile < d->end_tile;
        if (lane == 0) left = leave;
        __syncthreads();
        if (!leave) {
            __syncthreads();
            open_verdict(r, &sums);
        }
    }
    if (lane == 0) a.status[blockIdx.x] = Status{r.code, r.detail, r.code == STATUS_DIMS ? a.max_dims : r.size};
    static_assert(sizeof(Desc) % 4 == 0, "copied by words");
    if (r.code) return;
    if (lane == 0) {
        work->header_sum = 0;
        work->header_left = header_pieces(d);
        work->rest = 0;
        work->small = 0;
    }
#pragma unroll 1
    for (u32 i = lane; i < sizeof(Desc) / 4; i += 32) ((u32 *)&work->desc)[i] = ((const u32 *)d)[i];
}

// Four blocks a multiprocessor: pages are opened by the thousand.
KERNEL(OPEN_THREADS, 4) blob_open(const OpenArgs a) { open_blob(a, true); }
KERNEL(OPEN_THREADS, 4) blob_open_placed(const OpenArgs a) { open_blob(a, false); }
