// Headers, read and checked by a block for each blob: what the kernels that decode have to know of it.

#include "blob.cuh"
#include "crc.cuh"
#include "header_read.cuh"
#include "tables_read.cuh"

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
        else if (read_start(r, d, a.max_bytes, a.max_dims, status)) {
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
