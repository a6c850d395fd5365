// A blob on the device: what its header says, as `blob_open` leaves it for the kernels that decode.
#pragma once

#include "base.cuh"

#define TABLES (2 * MAX_CLASSES)

// Bytes from which on a header is long, and words of a piece of such a one.
#define LONG_HEADER (32 << 10)
#define HEADER_PIECE 4096

// Transforms that are undone as values are decoded: weights of columns and of rows, means of columns as bf16 or f32. A blob has
// each once at most.
#define UNDO_NOTHING 0
#define UNDO_COLUMNS 1
#define UNDO_ROWS 2
#define UNDO_MEANS 3
#define UNDO_WIDE_MEANS 4
#define MAX_UNDONE 3

// What a header says. Offsets count from the blob's start.
struct Desc {
    // Levels that are coded in pairs are levels, and `paired`.
    u32 codec, dtype, paired;
    // Columns between two scales of the class map, where pairs are taken for values; else 1.
    u32 apart;
    u64 values, header_len;
    u32 lanes, ticks;
    u64 tile_values, tiles, directory;
    // The values wanted, and the tiles that hold them.
    u64 first, end, first_tile, end_tile;
    // Levels.
    u32 nu, on_quantiser, on_parity, log;
    double scale;
    i32 offsets[16];
    u32 classes, tables_per_class;
    u64 width, rows_at, rows_len, cols_at, cols_len;
    u32 row_bits, col_bits;
    u8 class_of_sum[2 << MAX_SCALE_BITS];
    u8 low[MAX_CLASSES];
    u32 any_low;
    // Transforms: whether there are any; columns of the tensor; what is undone and where its numbers are, in the order in which
    // it is undone; where runs of kept elements are, and how many.
    u32 prepared, kept;
    u64 columns;
    u32 undone_at[MAX_UNDONE], undone_kind[MAX_UNDONE];
    u32 kept_at;
    // Whether rows and columns have changed places; columns are those behind that.
    u32 transposed;
    // Where values go to their places in the tensor one by one, because they are coded column by column: its columns; else 0.
    u64 across;
    // Planes: which have a table.
    u32 coded;
    // Tables that there are, and log2 of their slots.
    u32 tables, table_log;
};

// Four bytes of a header, wherever they start; at least as many are behind them.
DEVICE u32 header_word(const u8 *blob, u32 at) {
    const u32 *words = (const u32 *)(blob + (at & ~3u));
    return __funnelshift_r(words[0], words[1], at % 4 * 8);
}

// Pieces that a header's checksum is left to the kernels that decode in; 0 where it is short.
DEVICE u32 header_pieces(const Desc *d) {
    return d->header_len > LONG_HEADER ? (u32)((d->header_len / 4 - 1 + HEADER_PIECE - 1) / HEADER_PIECE) : 0;
}

// A blob's part of the workspace.
struct Work {
    Desc desc;
    // A long header's checksum, which is left to the kernels that decode: what the pieces that are done come to, and
    // how many are not.
    u32 header_sum, header_left;
    // Whether a kernel for tiles of one kind came upon one of another.
    u32 rest;
    // Whether the kernel for small blobs has done this one.
    u32 small;
    // First slot of each symbol; of the tables of pairs, four a class, where levels are paired.
    u16 start[2 * TABLES][256];
    // Where each run of tiles starts, counted from the blob's start; one more for the end.
    u64 runs[1];
};

static_assert(sizeof(Work) <= WORK_BYTES, "as the launch code reckons");

DEVICE Work *work_of(const Item &item) { return (Work *)item.work; }

// The item that a block works on, and which of its blocks this is.
struct Place {
    u32 item, part, parts;
};

DEVICE Place place_of(const Item *items, u32 count, u32 blocks) {
    if (blocks == count) return Place{blockIdx.x, 0, 1};
    u32 low = 0, high = count;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (items[middle].block0 <= blockIdx.x) low = middle;
        else high = middle;
    }
    const u32 first = items[low].block0;
    const u32 next = low + 1 < count ? items[low + 1].block0 : blocks;
    return Place{low, blockIdx.x - first, next - first};
}

// Where a tile lies. All lanes of a warp take part.
struct TileAt {
    const u8 *bytes;
    u32 len, crc;
};

DEVICE TileAt tile_at(const Item &item, const Work *work, u64 tile) {
    const u8 *blob = (const u8 *)item.blob;
    const uint2 *directory = (const uint2 *)(blob + work->desc.directory);
    const u64 run = tile / RUN;
    const u32 before = (u32)(tile % RUN), lane = lane_of();
    u64 sum = 0;
    const u32 *lengths = (const u32 *)directory;
    if (lane < before) sum += lengths[2 * (run * RUN + lane)];
    if (lane + 32 < before) sum += lengths[2 * (run * RUN + lane + 32)];
    sum = warp_sum(sum) + work->runs[run];
    const u32 len = lengths[2 * tile];
    // A blob may have changed since it was opened; a tile without bytes is an error to whoever decodes it.
    const bool inside = sum <= item.blob_len && len <= item.blob_len - sum;
    return TileAt{blob + (inside ? sum : 0), inside ? len : 0, lengths[2 * tile + 1]};
}
