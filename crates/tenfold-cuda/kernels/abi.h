// Made by `make ptx` from `src/abi/`; do not edit.
#pragma once

// Numbers.
// Most dimensions of a tensor that a device encodes: what readers take by default.
#define MAX_DIMS 16
// Threads of a block, at most.
#define ASSEMBLE_THREADS 1024
// Words of a coder's ring in shared memory; half of them leave it at a time.
#define PACK_RING 512
// Blobs that fit the arguments of one launch, and those of which three numbers say all.
#define ITEMS_PER_LAUNCH 48
#define PLACED_PER_LAUNCH 320
// Bytes of workspace for the header and tables of one blob.
#define WORK_BYTES 34816
// Tiles whose lengths are added up together.
#define RUN 64
// Threads of the block that lists blobs, of one that reads a header, and, at most, of one that decodes.
#define PLACE_THREADS 64
#define OPEN_THREADS 256
#define DECODE_THREADS 1024
// Threads of a block that decodes a small blob.
#define SMALL_THREADS 32
// Room for a transform of rotary positions up to the first position.
#define MAX_ROPE 56
// What must stand before a basis: rotary positions or nothing, and the caller sees to them; nothing; known rotary
// positions. Or all transforms are known and the caller undoes them.
#define BEFORE_ANY 0
#define BEFORE_NOTHING 1
#define BEFORE_ROPE 2
#define TRANSFORMS_KNOWN 3
// What is known of levels in pairs: there are none, they all are.
#define PAIRS_NONE 1
#define PAIRS_ALL 2
// What is known of a transposition: there is none, there is one.
#define TRANSPOSED_NO 1
#define TRANSPOSED_YES 2
// Values in the order of the tensor, and in that in which they are coded.
#define ORDER_TENSOR 0
#define ORDER_CODED 1
// Threads of a block that transposes.
#define TRANSPOSE_THREADS 256
// Threads of a block that counts, and, at most, of one that codes or writes.
#define COUNT_THREADS 1024
#define LOSSLESS_THREADS 256
// Threads, at most, of a block that makes whole tiles; bytes of its shared memory that do not depend on tiles, and of
// each warp's besides the low bytes of a tile.
#define WHOLE_THREADS 384
#define WHOLE_SHARED 4608
#define WHOLE_WARP 1168
// Bytes of a block's histograms: several of each plane, so that threads do not wait for each other.
#define COUNT_BYTES 65536
// How far one trial leads to the next.
#define MOVE_BEYOND 1.3
#define MOVE_LEAST 1.6
#define MOVE_FARTHEST 6.0
#define MOVE_CLEAR 0.08
// How a rate answers to a step.
#define SLOPE_KNEE 1.2
#define SLOPE_STEEPEST 2.5
#define SLOPE_FARTHEST 2.0
// Trials on the sample: step and costs in turn, and the step alone.
#define COARSE_NEAR 0.01
#define COARSE_DAMPING 2.0
#define COARSE_SETTLING 3
#define COARSE_ROUNDS 5
#define FINE_NEAR 0.0015
#define FINE_SURE 0.006
#define FINE_DAMPING 1.0
#define FINE_ROUNDS 4
// Full passes: what is aimed at, and what is near enough. Under a cap that is a share of the cap.
#define BYTES_NEAR 0.007
#define CAP_AIM 0.996
#define CAP_SPARE 2.0
#define CAP_NEAR 0.99
#define ERROR_AIM 0.995
#define ERROR_NEAR 0.02
#define PASS_CLOSED 0.002
#define PASS_DAMPING 1.0
#define PASS_LOWER 0.004
#define PASS_LOWEST 0.1
#define PASS_FURTHER 0.97
#define PASS_RETREAT 0.6
#define AT_FINEST 1.001
// Looks at several steps at once.
#define LOOKS_FIRST 3
#define LOOK_FAR 0.6667
#define LOOK_NEAR 0.06
#define LOOK_ROUNDS 3
#define LOOK_BEYOND 1.0
// Goals: a number of bytes, at most so many, an error, one relative to the variance, a step, a bound.
#define GOAL_BYTES 0
#define GOAL_CAP 1
#define GOAL_MSE 2
#define GOAL_NMSE 3
#define GOAL_STEP 4
#define GOAL_BOUND 5
// What a trial is for (`RateArgs.mode`): costs and step on the coarse sample; costs once more where low bits have
// changed; costs from all of the sample; the step alone; reconstruction points; counts for tables.
#define TRIAL_COARSE 0
#define TRIAL_LOW 1
#define TRIAL_COSTS 2
#define TRIAL_STEP 3
#define TRIAL_POINTS 4
#define TRIAL_COUNTS 5
// Ways to group values by their size: rows and columns, rows, columns; each at 1, 2 and 4 scales an octave. From
// `WAY_BASIS` on, columns have the scales that a basis knows, four an octave: with rows, and alone.
#define WAYS 11
#define WAY_BASIS 9
// Values of a window of the sample: 32 lanes of so many ticks.
#define SAMPLE_TICKS 128
#define SAMPLE_WINDOW 4096
// Threads of a block that scans, and rows that each of them reads ahead.
#define SCAN_THREADS 256
#define SCAN_AHEAD 4
// Threads of a block that adds up what others saw.
#define SUM_THREADS 512
// Threads of a block that takes whole windows, one after the other.
#define WINDOW_THREADS 256
// Threads of a block that looks at a few windows: four values of a window each. Where the tensors of a batch keep
// each other's warps busy, fewer will do, except for the first fit.
#define FIT_THREADS 1024
// Magnitudes are told apart by their exponent and the top bits of their mantissa.
#define FIT_SHIFT 17
#define FIT_BINS 16320
// Sums of two scales.
#define SCALE_SUMS 128
// Magnitudes told apart where groups are compared, and copies of their counts.
#define CLASS_BINS 48
#define CLASS_COPIES 4
// Warps of a block that searches a trellis of few states, or of many.
#define TRIAL_NARROW 8
#define TRIAL_WIDE 4
// Windows from which on a part of each will do in trials of all of the sample.
#define TRIAL_THIN 512
// Parts of a window that few states are searched in.
#define TRIAL_PARTS 4
// Shared memory of such blocks.
#define TRIAL_NARROW_SHARED 71680
#define TRIAL_SHARED 88064
// Threads of a block that shares a plan among pages.
#define SHARE_THREADS 256
// Plans that a basis has ready: how many, for pages half an octave larger each, and twice the octaves of the first.
#define PAGE_RUNGS 40
#define PAGE_RUNG_FIRST -12
// Sizes that are guessed for a page: by every second of the plans from this one on.
#define PAGE_SIZES 13
#define PAGE_SIZES_FIRST 2
// Rows of a page that may have scales, at most; bits of one, and that of a row which is as large as the page.
#define PAGE_ROWS 1024
#define PAGE_ROW_BITS 4
#define PAGE_ROW_MIDDLE 8
// Threads of a block that makes up a page, or chooses a plan for one.
#define PAGE_PLAN_THREADS 256
// Steps beyond which a value is stored exactly, by trellises and by scalar quantisers.
#define TRELLIS_MAX_U 100000.0f
#define SCALAR_MAX_U 16000000.0f
// Weight of a bit against a squared step, likewise.
#define LAMBDA_TRELLIS 0.27f
#define LAMBDA_SCALAR 0.3f
// Bytes of the state of a search.
#define RATE_BYTES 53248
// Magnitudes with a cost of their own; larger ones cost as much as the last. And costs of one sign: by class,
// quantiser and magnitude.
#define COST_LEVELS 64
#define COST_SIGN 2048
// Threads of a block, at most, and blocks that a multiprocessor has room for.
#define LEVELS_THREADS 512
#define LEVELS_BLOCKS 2
// Threads of a block that clears what a pass adds to, and of one that makes tables.
#define PASS_THREADS 256
#define TABLES_THREADS 1024
// Steps of a lane's part that a warp searches through, at least.
#define PART_LEAST 256
// Tables of a blob: two a class.
#define LEVELS_SETS 32
// Classes that the levels of pairs may have: as many as there is room for while they are packed.
#define PAIR_CLASSES 8
// Shared memory of a block that searches for levels, that packs them, that writes them, in bytes and without what
// each of its warps takes.
#define SEARCH_SHARED 51200
#define PACK_SHARED 74752
#define WRITE_SHARED 10240
// What a block that packs the levels of a scalar quantiser takes of that, whatever it packs and for each class.
#define PACK_FIXED 144
#define PACK_CLASS 2592
// Bytes of shared memory of a warp that searches through 256 states, and of one that writes.
#define WIDE_WARP_SHARED 2304
#define WRITE_WARP_SHARED 512
// Columns of a factor that are finished together.
#define FACTOR_PANEL 64
// Threads of a block that works on a factor: for its corner and for all of it, and for rows below a corner, a thread each.
#define FACTOR_THREADS 256
#define FACTOR_ROWS 64
// Shared memory of the latter: the corner, and the rows with a gap against bank conflicts.
#define FACTOR_SHARED 66048
// Columns whose errors are fed to those behind them together. Within so many a block adds them up by itself, and products are
// large enough not to wait for memory alone.
#define FEED_PANEL 32
// Threads of a block that feeds: a trellis has one block, in which a warp searches while the others work out costs.
#define FEED_THREADS 1024
#define FEED_SCALAR_THREADS 128
// Steps whose costs are worked out at a time.
#define FEED_CHUNK 32
// Steps that a trellis looks beyond the end of a column, for each bit of its state.
#define FEED_AHEAD 5
// Steps whose decisions fit into shared memory.
#define FEED_STEPS 512
// Shared memory of blocks that feed, beside what a search for levels takes, for all but the wide trellis within the 99 KiB that a
// block has on any device since sm_86: ways through a trellis; costs, two chunks of them;
// values ahead and metrics of a wide trellis; coefficients, values and errors of a scalar quantiser.
#define FEED_PATH_SHARED 16384
#define FEED_TRELLIS_SHARED 49152
#define FEED_WIDE_SHARED 95232
#define FEED_SCALAR_SHARED 38016
// Threads of a block that works on a chain.
#define CHAIN_THREADS 256
// Threads of a block that works on layers.
#define LAYERS_THREADS 256
// Threads of a block that multiplies.
#define MULTIPLY_THREADS 512
// Threads of a block that works on pictures.
#define PICTURES_THREADS 256
// Who shares a centre and a step: everyone, groups of rows, columns; or samples are the elements themselves.
#define PICTURE_TENSOR 0
#define PICTURE_ROWS 1
#define PICTURE_COLUMNS 2
#define PICTURE_BYTES 3
// Threads of a block that moves rows of a pool.
#define POOL_THREADS 256
// Most layers of a pool, whose addresses are arguments.
#define POOL_LAYERS 256
// Tensors that fit the arguments of one launch.
#define DELTAS_PER_LAUNCH 32
// Threads of a block that works on deltas.
#define DELTA_THREADS 256
// Changes that a warp takes at a time: eight a lane, which lie side by side.
#define DELTA_BATCH 256
// Changes whose places in the workspace start at a multiple of this.
#define DELTA_ALIGN 8
// Bytes of a table: the symbol of each slot, then for each symbol its frequency − 1 and, from bit 16 on, its first slot.
#define DELTA_TABLE 5120
// Bytes before the first table: the class of each key.
#define DELTA_CLASSES 256
// Words of raw bits that a warp fetches ahead for each batch.
#define DELTA_FETCHED 128
// Bytes of shared memory that a warp needs: a ring of words, symbols, raw bits.
#define DELTA_WARP 2048
// Changes that a block writes at a time: eight a thread.
#define DELTA_CHUNK 2048
// Tiles that fit the arguments of a launch that checks what a host has decoded.
#define DELTA_CHECKED 64
// How values are told.
#define DELTA_DIFFERENCE 0
#define DELTA_XOR 1
#define DELTA_OVERWRITE 2
// What a tile of the tensor is: old, and to be written, or new already.
#define DELTA_OLD 1
#define DELTA_NEW 2
// Threads of a block: chunks that it hashes, nodes that it merges.
#define FINGERPRINT_THREADS 256
// Words before a tensor at most: dtype, number of dimensions, sixteen dimensions.
#define FINGERPRINT_BEFORE 34

// Structures, each after those that it is made of.
struct Rate;
static_assert(sizeof(Each<u8>) == 16, "size of Each<u8>");
OFFSET(Each<u8>, apart, 8);

// What a device writes for each blob; readable once the stream has passed the call.
//
// Sixteen bytes, as they lie on the device.
struct Status {
    // 0 if all went well, else a [`Code`].
    u32 code;
    // What a code says more: a version, an id.
    u32 detail;
    // Bytes needed, asked for or written.
    u64 size;
};
static_assert(sizeof(Status) == 16, "size of Status");
OFFSET(Status, code, 0); OFFSET(Status, detail, 4); OFFSET(Status, size, 8);

// A blob whose header and tiles' lengths are known.
struct Assembly {
    Each<Status> status;
    // The header up to the padding before the directory, zeros after it up to a multiple of four; and its bytes.
    Each<u32> staged;
    Each<u64> staged_len;
    // Bytes of each tile, a multiple of four.
    Each<u32> lengths;
    // Where each tile starts, counted from the blob's start: made by `assemble_layout`.
    Each<u64> offsets;
    u64 tiles;
    // The blob, at a multiple of 16, and how many bytes there is room for.
    Each<u8> out;
    u64 out_len;
};
static_assert(sizeof(Assembly) == 112, "size of Assembly");
OFFSET(Assembly, status, 0); OFFSET(Assembly, staged, 16); OFFSET(Assembly, staged_len, 32);
OFFSET(Assembly, lengths, 48); OFFSET(Assembly, offsets, 64); OFFSET(Assembly, tiles, 80);
OFFSET(Assembly, out, 88); OFFSET(Assembly, out_len, 104);

// One blob to decode.
struct Item {
    u64 blob, blob_len, out, out_len;
    // Values wanted; a count of ~0 means all from `first` on.
    u64 first, count;
    // Where this blob's part of the workspace is, and how long.
    u64 work, work_len;
    // Dtype of the output.
    u32 dtype;
    // The first block that works on this blob, in kernels that give a blob several.
    u32 block0;
    // The codec it must have; 0 for any.
    u32 codec;
    // Whether its levels are in pairs, and whether it is transposed; 0 if that is not known. In which order values go out.
    u8 pairs, transposed, order, unused;
};
static_assert(sizeof(Item) == 80, "size of Item");
OFFSET(Item, blob, 0); OFFSET(Item, blob_len, 8); OFFSET(Item, out, 16); OFFSET(Item, out_len, 24);
OFFSET(Item, first, 32); OFFSET(Item, count, 40); OFFSET(Item, work, 48); OFFSET(Item, work_len, 56);
OFFSET(Item, dtype, 64); OFFSET(Item, block0, 68); OFFSET(Item, codec, 72); OFFSET(Item, pairs, 76);
OFFSET(Item, transposed, 77); OFFSET(Item, order, 78); OFFSET(Item, unused, 79);

// The transforms behind which values are wanted; all zeros for none.
struct OpenBasis {
    // Columns of the tensor, and behind the transforms; none behind them stands for no transforms.
    u32 columns, rank;
    // The fingerprint of the basis.
    u32 name[4];
    // A packed list of the basis's scales, of `MAX_SCALE_BITS` bits each; 0 for none.
    u64 scales;
    // What must stand before the basis.
    u32 before;
    // For `BEFORE_ROPE`: the transform of rotary positions up to the first position, and where each blob's goes.
    u32 rope_len;
    u8 rope[56];
    u64 *positions;
    // For `TRANSFORMS_KNOWN`: the transforms as they must stand in the header, their number first.
    const u8 *known;
    u64 known_len;
};
static_assert(sizeof(OpenBasis) == 120, "size of OpenBasis");
OFFSET(OpenBasis, columns, 0); OFFSET(OpenBasis, rank, 4); OFFSET(OpenBasis, name, 8);
OFFSET(OpenBasis, scales, 24); OFFSET(OpenBasis, before, 32); OFFSET(OpenBasis, rope_len, 36);
OFFSET(OpenBasis, rope, 40); OFFSET(OpenBasis, positions, 96); OFFSET(OpenBasis, known, 104);
OFFSET(OpenBasis, known_len, 112);

// Blobs whose headers are read.
struct OpenArgs {
    // Blobs of this launch, if they are not on the device yet.
    Item items[48];
    Item *to;
    Status *status;
    u64 max_bytes;
    u32 first, count, max_dims, unused;
    OpenBasis basis;
};
static_assert(sizeof(OpenArgs) == 4000, "size of OpenArgs");
OFFSET(OpenArgs, items, 0); OFFSET(OpenArgs, to, 3840); OFFSET(OpenArgs, status, 3848);
OFFSET(OpenArgs, max_bytes, 3856); OFFSET(OpenArgs, first, 3864); OFFSET(OpenArgs, count, 3868);
OFFSET(OpenArgs, max_dims, 3872); OFFSET(OpenArgs, unused, 3876); OFFSET(OpenArgs, basis, 3880);

// Blobs whose outputs lie one after the other, with a block each: three numbers a blob say all.
struct PlaceArgs {
    Item *to;
    Status *status;
    u64 base, out, out_len, work;
    u32 first, count, dtype, codec;
    // Where the blob is and where its part of the workspace is, in units of 16 bytes; the blob's bytes.
    u32 at[320], work_at[320], len[320];
};
static_assert(sizeof(PlaceArgs) == 3904, "size of PlaceArgs");
OFFSET(PlaceArgs, to, 0); OFFSET(PlaceArgs, status, 8); OFFSET(PlaceArgs, base, 16);
OFFSET(PlaceArgs, out, 24); OFFSET(PlaceArgs, out_len, 32); OFFSET(PlaceArgs, work, 40);
OFFSET(PlaceArgs, first, 48); OFFSET(PlaceArgs, count, 52); OFFSET(PlaceArgs, dtype, 56);
OFFSET(PlaceArgs, codec, 60); OFFSET(PlaceArgs, at, 64); OFFSET(PlaceArgs, work_at, 1344);
OFFSET(PlaceArgs, len, 2624);

// Blobs whose tiles are decoded.
struct TilesArgs {
    const Item *items;
    Status *status;
    u32 count, blocks;
    // Dynamic shared memory of a block.
    u32 shared;
    // Whether to check checksums.
    u32 check;
    // Shared memory of an earlier launch, whose blocks have done what they had room for, or 0; and whether a later
    // one does what these have no room for.
    u32 above, more;
    // Blocks that the kernel for small blobs gives each; for others, whether it came before them. 0 if there is none.
    u32 small, unused;
};
static_assert(sizeof(TilesArgs) == 48, "size of TilesArgs");
OFFSET(TilesArgs, items, 0); OFFSET(TilesArgs, status, 8); OFFSET(TilesArgs, count, 16);
OFFSET(TilesArgs, blocks, 20); OFFSET(TilesArgs, shared, 24); OFFSET(TilesArgs, check, 28);
OFFSET(TilesArgs, above, 32); OFFSET(TilesArgs, more, 36); OFFSET(TilesArgs, small, 40);
OFFSET(TilesArgs, unused, 44);

// Elements of a transposed tensor to put back: rows as long as the columns that its opened blob has become columns.
struct TransposeArgs {
    const Item *item;
    // What was said of the decoding so far.
    const Status *status;
    const void *from;
    void *to;
    // Bytes of all elements.
    u64 len;
};
static_assert(sizeof(TransposeArgs) == 40, "size of TransposeArgs");
OFFSET(TransposeArgs, item, 0); OFFSET(TransposeArgs, status, 8); OFFSET(TransposeArgs, from, 16);
OFFSET(TransposeArgs, to, 24); OFFSET(TransposeArgs, len, 32);

// What is known of the planes of a tensor: which have a table, which are one byte throughout as far as a sample
// says, and whether a tile turned out to have a byte that the sample had not.
struct Tabled {
    u32 coded, constant, missed, unused;
    // Tiles that warps of `lossless_whole` have taken in the first pass and in the second.
    u32 taken[2];
};
static_assert(sizeof(Tabled) == 24, "size of Tabled");
OFFSET(Tabled, coded, 0); OFFSET(Tabled, constant, 4); OFFSET(Tabled, missed, 8); OFFSET(Tabled, unused, 12);
OFFSET(Tabled, taken, 16);

// What every kernel of a lossless encoder takes.
struct LosslessArgs {
    Assembly assembly;
    const u8 *data;
    u64 values, tile_values;
    // How often each byte occurs in each plane; the same in a sample, or null where there is none.
    u64 *counts, *sampled;
    // Symbols as they are pushed, by plane.
    uint2 *entries;
    Tabled *tabled;
    // Head of each plane of each tile; and a slot for each of them, states first.
    u32 *heads;
    u8 *slots;
    u64 slot_bytes;
    u32 slot_words, staged_room, lanes, ticks, dtype, dims;
    // Set for the second pass over a tensor that was sampled: it does nothing unless the sample had missed a byte.
    u32 again;
    // Whether `lossless_whole` makes the tiles of planes that suit it.
    u32 whole;
    // Of so many bytes of a large tensor one is looked at before all are counted.
    u64 every;
    // What `lossless_whole` knows of the ends of tiles, in the first pass and in the second.
    u64 *ends;
    u64 shape[16];
};
static_assert(sizeof(LosslessArgs) == 368, "size of LosslessArgs");
OFFSET(LosslessArgs, assembly, 0); OFFSET(LosslessArgs, data, 112); OFFSET(LosslessArgs, values, 120);
OFFSET(LosslessArgs, tile_values, 128); OFFSET(LosslessArgs, counts, 136); OFFSET(LosslessArgs, sampled, 144);
OFFSET(LosslessArgs, entries, 152); OFFSET(LosslessArgs, tabled, 160); OFFSET(LosslessArgs, heads, 168);
OFFSET(LosslessArgs, slots, 176); OFFSET(LosslessArgs, slot_bytes, 184); OFFSET(LosslessArgs, slot_words, 192);
OFFSET(LosslessArgs, staged_room, 196); OFFSET(LosslessArgs, lanes, 200); OFFSET(LosslessArgs, ticks, 204);
OFFSET(LosslessArgs, dtype, 208); OFFSET(LosslessArgs, dims, 212); OFFSET(LosslessArgs, again, 216);
OFFSET(LosslessArgs, whole, 220); OFFSET(LosslessArgs, every, 224); OFFSET(LosslessArgs, ends, 232);
OFFSET(LosslessArgs, shape, 240);

// What one block saw of the tensor.
struct ScanPart {
    double mean, squares;
    u64 finite;
    float max;
    u32 pad;
};
static_assert(sizeof(ScanPart) == 32, "size of ScanPart");
OFFSET(ScanPart, mean, 0); OFFSET(ScanPart, squares, 8); OFFSET(ScanPart, finite, 16);
OFFSET(ScanPart, max, 24); OFFSET(ScanPart, pad, 28);

// A tensor to encode, and what to reach.
struct Encoding {
    Each<const u8> data;
    // Elements, in row-major order, and those of a row.
    u64 values, cols;
    u32 dtype, goal;
    // Bytes, mean squared error, step or bound, as the goal says.
    double target;
    // log2 of the trellis's states; 0 for a scalar quantiser.
    u32 nu;
    // Lanes of a tile, ticks of a lane; values of a tile, and tiles.
    u32 lanes, ticks;
    u64 tile_values, tiles;
    // Where the blob goes.
    Each<u8> out;
    u32 dims;
    u64 shape[16];
    // What the header says of a tensor that transforms have made of another: its dtype, and the transforms with
    // their number; no bytes for none.
    u32 header_dtype, transforms_len;
    const u8 *header_transforms;
    // Scales of the columns that the last transform knows, a byte each; none where it knows none.
    const u8 *scales;
    // Each tensor's own position among the transforms, of which there are few bytes then; none where they have no
    // position. And where in the header it goes in place of a byte, and where the length of its transform is.
    Each<const u64> positions;
    u32 position_at, length_at;
    // Whether levels may be coded in pairs.
    u32 may_pair, unused;
};
static_assert(sizeof(Encoding) == 288, "size of Encoding");
OFFSET(Encoding, data, 0); OFFSET(Encoding, values, 16); OFFSET(Encoding, cols, 24);
OFFSET(Encoding, dtype, 32); OFFSET(Encoding, goal, 36); OFFSET(Encoding, target, 40);
OFFSET(Encoding, nu, 48); OFFSET(Encoding, lanes, 52); OFFSET(Encoding, ticks, 56);
OFFSET(Encoding, tile_values, 64); OFFSET(Encoding, tiles, 72); OFFSET(Encoding, out, 80);
OFFSET(Encoding, dims, 96); OFFSET(Encoding, shape, 104); OFFSET(Encoding, header_dtype, 232);
OFFSET(Encoding, transforms_len, 236); OFFSET(Encoding, header_transforms, 240); OFFSET(Encoding, scales, 248);
OFFSET(Encoding, positions, 256); OFFSET(Encoding, position_at, 272); OFFSET(Encoding, length_at, 276);
OFFSET(Encoding, may_pair, 280); OFFSET(Encoding, unused, 284);

// What is decided of one tensor. `rate_*` kernels write it, `levels_*` kernels quantise and write by it.
struct Plan {
    // Machine in use: `encoding.nu`, or 0 where the trellis cannot hold the values or the goal is a bound.
    u32 nu;
    // Its feedback on the quantiser and on the parity.
    u32 on_quantiser, on_parity;
    // 1/64 step as the header stores it (an f32 unless the dtype is f64), and the step.
    double scale, step;
    // 1/step, by which values are multiplied (f64: divided by the step).
    float factor;
    // Values beyond this many steps are stored exactly.
    float max_u;
    // Weight of a bit.
    float lambda;
    // 1: to the nearest level, every value checked against `bound`, misses stored exactly.
    u32 bounded;
    double bound;
    i32 offsets[16];
    // Class map; `width` and `classes` are 1 where there is none. Scales are one byte each.
    u32 classes, row_bits, col_bits, any_low;
    u64 width, rows, row_scale, col_scale;
    u8 thresholds[16];
    u8 class_of_sum[128];
    u8 low[16];
    // log2 of the sum of a table's frequencies.
    u32 log;
    // λ·bits by sign (positive first), class, quantiser and magnitude.
    float cost[4096];
    // 1: nothing to quantise, all zeros and what is stored exactly.
    u32 trivial;
    // 1 once a full pass has met the goal or no further one will: later passes do nothing.
    u32 done;
    // What the last pass over the whole tensor gave: `levels_*` writes it, `rate_*` judges it. Errors are in squared
    // steps.
    u64 bytes;
    double squared_error;
    u64 finite;
    // 1 for a plan that pages have together; and where the header has the scale then, in bytes.
    u32 common, scale_at;
    // Whether levels are coded in pairs, and the bits a value that this is thought to cost.
    u32 paired;
    float pair_bits;
};
static_assert(sizeof(Plan) == 16768, "size of Plan");
OFFSET(Plan, nu, 0); OFFSET(Plan, on_quantiser, 4); OFFSET(Plan, on_parity, 8); OFFSET(Plan, scale, 16);
OFFSET(Plan, step, 24); OFFSET(Plan, factor, 32); OFFSET(Plan, max_u, 36); OFFSET(Plan, lambda, 40);
OFFSET(Plan, bounded, 44); OFFSET(Plan, bound, 48); OFFSET(Plan, offsets, 56); OFFSET(Plan, classes, 120);
OFFSET(Plan, row_bits, 124); OFFSET(Plan, col_bits, 128); OFFSET(Plan, any_low, 132); OFFSET(Plan, width, 136);
OFFSET(Plan, rows, 144); OFFSET(Plan, row_scale, 152); OFFSET(Plan, col_scale, 160);
OFFSET(Plan, thresholds, 168); OFFSET(Plan, class_of_sum, 184); OFFSET(Plan, low, 312); OFFSET(Plan, log, 328);
OFFSET(Plan, cost, 332); OFFSET(Plan, trivial, 16716); OFFSET(Plan, done, 16720); OFFSET(Plan, bytes, 16728);
OFFSET(Plan, squared_error, 16736); OFFSET(Plan, finite, 16744); OFFSET(Plan, common, 16752);
OFFSET(Plan, scale_at, 16756); OFFSET(Plan, paired, 16760); OFFSET(Plan, pair_bits, 16764);

// What is known of a whole tensor: how its state of a search starts. Magnitudes are in units.
struct Seen {
    double unit, max, variance;
    u64 finite;
};
static_assert(sizeof(Seen) == 32, "size of Seen");
OFFSET(Seen, unit, 0); OFFSET(Seen, max, 8); OFFSET(Seen, variance, 16); OFFSET(Seen, finite, 24);

// What every kernel of a search takes, the same but for `mode` and `pass`.
struct RateArgs {
    Encoding encoding;
    Each<Plan> plan;
    Each<Rate> rate;
    Each<Status> status;
    // Mean magnitudes by piece of a row and by band of rows, what blocks saw, and logarithms of the means.
    Each<float> row_parts, col_parts;
    Each<ScanPart> parts;
    Each<float> row_logs, col_logs;
    Each<u8> row_scale, col_scale;
    Each<float> sample;
    Each<u8> sample_class;
    // Rows that statistics are kept of: the tensor's own, or runs of values.
    u64 width, rows;
    u32 tabular;
    // A block of `rate_scan` takes `band_rows` rows and one of `stripes` stripes; 2^`row_threads` threads read a
    // row's part together.
    u32 stripes, bands, band_rows, row_threads;
    // The first way to try.
    u32 first_way;
    // Windows there are, those in the sample, and the distance between those of trials and of the smallest subset.
    u32 windows, taken, coarse_stride, fine_stride, few_stride;
    // What the trial is for, and which pass of how many is judged.
    u32 mode, pass, passes;
    // Passes in which the step is looked for; those after them only keep to a limit.
    u32 search_passes;
    // Values of what tables are made for: the tensor's, or those of one of the pages that it is made of.
    u64 table_values;
    // What is known of these pages, so many bytes apart; none for none.
    const Rate *pages;
    u64 pages_apart;
};
static_assert(sizeof(RateArgs) == 584, "size of RateArgs");
OFFSET(RateArgs, encoding, 0); OFFSET(RateArgs, plan, 288); OFFSET(RateArgs, rate, 304);
OFFSET(RateArgs, status, 320); OFFSET(RateArgs, row_parts, 336); OFFSET(RateArgs, col_parts, 352);
OFFSET(RateArgs, parts, 368); OFFSET(RateArgs, row_logs, 384); OFFSET(RateArgs, col_logs, 400);
OFFSET(RateArgs, row_scale, 416); OFFSET(RateArgs, col_scale, 432); OFFSET(RateArgs, sample, 448);
OFFSET(RateArgs, sample_class, 464); OFFSET(RateArgs, width, 480); OFFSET(RateArgs, rows, 488);
OFFSET(RateArgs, tabular, 496); OFFSET(RateArgs, stripes, 500); OFFSET(RateArgs, bands, 504);
OFFSET(RateArgs, band_rows, 508); OFFSET(RateArgs, row_threads, 512); OFFSET(RateArgs, first_way, 516);
OFFSET(RateArgs, windows, 520); OFFSET(RateArgs, taken, 524); OFFSET(RateArgs, coarse_stride, 528);
OFFSET(RateArgs, fine_stride, 532); OFFSET(RateArgs, few_stride, 536); OFFSET(RateArgs, mode, 540);
OFFSET(RateArgs, pass, 544); OFFSET(RateArgs, passes, 548); OFFSET(RateArgs, search_passes, 552);
OFFSET(RateArgs, table_values, 560); OFFSET(RateArgs, pages, 568); OFFSET(RateArgs, pages_apart, 576);

// One plan for many pages.
struct ShareArgs {
    // Of a page; `rate` and `plan` are each page's own.
    RateArgs page;
    // Of all together.
    Rate *rate;
    Plan *plan;
    const u32 *freq;
    u64 *counts;
    const u32 *header;
    const u64 *header_len;
    // A page's header.
    Each<u32> page_header;
    Each<u64> page_header_len;
    Each<Status> pass;
    u32 pages;
};
static_assert(sizeof(ShareArgs) == 688, "size of ShareArgs");
OFFSET(ShareArgs, page, 0); OFFSET(ShareArgs, rate, 584); OFFSET(ShareArgs, plan, 592);
OFFSET(ShareArgs, freq, 600); OFFSET(ShareArgs, counts, 608); OFFSET(ShareArgs, header, 616);
OFFSET(ShareArgs, header_len, 624); OFFSET(ShareArgs, page_header, 632);
OFFSET(ShareArgs, page_header_len, 648); OFFSET(ShareArgs, pass, 664); OFFSET(ShareArgs, pages, 680);

// Pages to make up, one after the other: rows of columns whose deviations a basis tells, a byte each.
struct PageModelArgs {
    float *to;
    const u8 *scales;
    u32 rows, columns;
};
static_assert(sizeof(PageModelArgs) == 24, "size of PageModelArgs");
OFFSET(PageModelArgs, to, 0); OFFSET(PageModelArgs, scales, 8); OFFSET(PageModelArgs, rows, 16);
OFFSET(PageModelArgs, columns, 20);

// What a look at a page has found.
struct PageFound {
    float cost;
    u32 inside;
};
static_assert(sizeof(PageFound) == 8, "size of PageFound");
OFFSET(PageFound, cost, 0); OFFSET(PageFound, inside, 4);

// Coordinates of pages to look at, one page after the other.
struct PageLookArgs {
    const float *coordinates;
    // A byte for each: whether a part of the basis lacks it. None for none.
    const u8 *outside;
    PageFound *seen;
    // Of each page, what its steps are multiplied by. None for none.
    const double *steps;
    // Of a page.
    u64 rows;
    double step;
    u32 rank, unused;
};
static_assert(sizeof(PageLookArgs) == 56, "size of PageLookArgs");
OFFSET(PageLookArgs, coordinates, 0); OFFSET(PageLookArgs, outside, 8); OFFSET(PageLookArgs, seen, 16);
OFFSET(PageLookArgs, steps, 24); OFFSET(PageLookArgs, rows, 32); OFFSET(PageLookArgs, step, 40);
OFFSET(PageLookArgs, rank, 48); OFFSET(PageLookArgs, unused, 52);

// Coordinates of pages whose sizes are guessed, one page after the other.
struct PageSizesArgs {
    const float *coordinates;
    // Of columns, a byte each.
    const u8 *scales;
    const Plan *plans;
    // Bits of a blob beside its symbols, by plan; none where those are looked for.
    const float *beside;
    // Of each page its mean magnitude, then bits by plan.
    float *sizes;
    // Of a page.
    u64 rows;
    u32 rank;
    // Bytes of what a blob says of transforms.
    u32 transforms;
};
static_assert(sizeof(PageSizesArgs) == 56, "size of PageSizesArgs");
OFFSET(PageSizesArgs, coordinates, 0); OFFSET(PageSizesArgs, scales, 8); OFFSET(PageSizesArgs, plans, 16);
OFFSET(PageSizesArgs, beside, 24); OFFSET(PageSizesArgs, sizes, 32); OFFSET(PageSizesArgs, rows, 40);
OFFSET(PageSizesArgs, rank, 48); OFFSET(PageSizesArgs, transforms, 52);

// A page, and plans that are ready.
struct PagePlanArgs {
    Encoding encoding;
    Each<Plan> plan;
    Each<Status> status;
    // Plans to choose from, or where one is put.
    const Plan *plans;
    Each<Plan> kept;
    // What each page's step is multiplied by. None for none.
    Each<const double> steps;
    // Room for the scales of a page's rows.
    Each<u8> row_scale;
};
static_assert(sizeof(PagePlanArgs) == 376, "size of PagePlanArgs");
OFFSET(PagePlanArgs, encoding, 0); OFFSET(PagePlanArgs, plan, 288); OFFSET(PagePlanArgs, status, 304);
OFFSET(PagePlanArgs, plans, 320); OFFSET(PagePlanArgs, kept, 328); OFFSET(PagePlanArgs, steps, 344);
OFFSET(PagePlanArgs, row_scale, 360);

// What is kept of a tile between packing and writing it.
struct LevelsTile {
    // Words of the stream; levels without a slot, and the largest of their high parts.
    u32 words, escapes, far, low_bits, exact_runs, exact_bytes, flags, spare;
};
static_assert(sizeof(LevelsTile) == 32, "size of LevelsTile");
OFFSET(LevelsTile, words, 0); OFFSET(LevelsTile, escapes, 4); OFFSET(LevelsTile, far, 8);
OFFSET(LevelsTile, low_bits, 12); OFFSET(LevelsTile, exact_runs, 16); OFFSET(LevelsTile, exact_bytes, 20);
OFFSET(LevelsTile, flags, 24); OFFSET(LevelsTile, spare, 28);

// What a warp adds up over all that it quantises: squared steps of error, and finite values.
struct LevelsSum {
    double error;
    u64 finite;
};
static_assert(sizeof(LevelsSum) == 16, "size of LevelsSum");
OFFSET(LevelsSum, error, 0); OFFSET(LevelsSum, finite, 8);

// What every kernel of a pass takes.
struct LevelsPass {
    Encoding encoding;
    Each<Plan> plan;
    // Of this pass alone: a blob that is still too large is no failure.
    Each<Status> pass;
    // A code a value, as a trellis left it, in groups of four ticks.
    Each<u16> codes;
    // Decisions of a search, `warp_decisions` bytes a warp.
    Each<u8> decisions;
    u64 warp_decisions;
    // Warps that share a tile in a search through few states, and the steps of each lane that one takes, a multiple
    // of four.
    u32 parts, part_ticks;
    // A slot of words a tile, filled from its end.
    Each<u16> words;
    u32 slot_words;
    // Escapes of a tile that are kept; where there are more, they are looked for again.
    u32 escape_room;
    // States of the lanes, and the last escapes of each tile.
    Each<u32> states;
    Each<i32> escapes;
    Each<LevelsTile> tiles;
    // Bytes of each tile, and where it starts in the blob.
    Each<u32> lengths;
    Each<u64> starts;
    // Counts and frequencies by set and symbol.
    Each<u64> counts;
    Each<u32> freq;
    // First slots of the symbols of pairs, four tables a class.
    Each<u16> pairs;
    Each<LevelsSum> sums;
    u32 sum_count;
    // Whether to measure the error of what a decoder will see.
    u32 measure;
    // The header on its way, the room for it and for all but its lists of scales, and its length.
    Each<u32> header;
    u64 header_room, header_front;
    Each<u64> header_len;
};
static_assert(sizeof(LevelsPass) == 592, "size of LevelsPass");
OFFSET(LevelsPass, encoding, 0); OFFSET(LevelsPass, plan, 288); OFFSET(LevelsPass, pass, 304);
OFFSET(LevelsPass, codes, 320); OFFSET(LevelsPass, decisions, 336); OFFSET(LevelsPass, warp_decisions, 352);
OFFSET(LevelsPass, parts, 360); OFFSET(LevelsPass, part_ticks, 364); OFFSET(LevelsPass, words, 368);
OFFSET(LevelsPass, slot_words, 384); OFFSET(LevelsPass, escape_room, 388); OFFSET(LevelsPass, states, 392);
OFFSET(LevelsPass, escapes, 408); OFFSET(LevelsPass, tiles, 424); OFFSET(LevelsPass, lengths, 440);
OFFSET(LevelsPass, starts, 456); OFFSET(LevelsPass, counts, 472); OFFSET(LevelsPass, freq, 488);
OFFSET(LevelsPass, pairs, 504); OFFSET(LevelsPass, sums, 520); OFFSET(LevelsPass, sum_count, 536);
OFFSET(LevelsPass, measure, 540); OFFSET(LevelsPass, header, 544); OFFSET(LevelsPass, header_room, 560);
OFFSET(LevelsPass, header_front, 568); OFFSET(LevelsPass, header_len, 576);

// What kernels around a pass take.
struct LevelsTurn {
    LevelsPass levels;
    // What the caller is told.
    Each<Status> status;
    // Whether the host may queue another pass: it is told by the status's `detail` if one is wanted.
    u32 more, unused;
};
static_assert(sizeof(LevelsTurn) == 616, "size of LevelsTurn");
OFFSET(LevelsTurn, levels, 0); OFFSET(LevelsTurn, status, 592); OFFSET(LevelsTurn, more, 608);
OFFSET(LevelsTurn, unused, 612);

// What kernels that put tiles in their places take.
struct LevelsWrite {
    LevelsPass pass;
    Assembly assembly;
};
static_assert(sizeof(LevelsWrite) == 704, "size of LevelsWrite");
OFFSET(LevelsWrite, pass, 0); OFFSET(LevelsWrite, assembly, 592);

// A plan as the host gives it, for tests.
struct LevelsFixed {
    Each<Plan> plan;
    Each<u64> counts;
    double step, bound;
    u64 width, rows, row_scale, col_scale;
    u32 dtype, nu, bounded, classes, row_bits, col_bits, log, paired;
    float max_u, lambda;
    i32 offsets[16];
    u8 thresholds[16], low[16];
};
static_assert(sizeof(LevelsFixed) == 216, "size of LevelsFixed");
OFFSET(LevelsFixed, plan, 0); OFFSET(LevelsFixed, counts, 16); OFFSET(LevelsFixed, step, 32);
OFFSET(LevelsFixed, bound, 40); OFFSET(LevelsFixed, width, 48); OFFSET(LevelsFixed, rows, 56);
OFFSET(LevelsFixed, row_scale, 64); OFFSET(LevelsFixed, col_scale, 72); OFFSET(LevelsFixed, dtype, 80);
OFFSET(LevelsFixed, nu, 84); OFFSET(LevelsFixed, bounded, 88); OFFSET(LevelsFixed, classes, 92);
OFFSET(LevelsFixed, row_bits, 96); OFFSET(LevelsFixed, col_bits, 100); OFFSET(LevelsFixed, log, 104);
OFFSET(LevelsFixed, paired, 108); OFFSET(LevelsFixed, max_u, 112); OFFSET(LevelsFixed, lambda, 116);
OFFSET(LevelsFixed, offsets, 120); OFFSET(LevelsFixed, thresholds, 184); OFFSET(LevelsFixed, low, 200);

// What factoring takes.
struct FactorArgs {
    // E[x·xᵀ] of so many columns, and the matrix that is factored in place: from the last column to the first.
    const float *inputs;
    double *matrix;
    u64 cols, first;
    // What the diagonal is multiplied by, and what it is at least.
    double damping, floor;
    // The first row without a positive pivot and one, or 0.
    u32 *bad;
    // Square roots of what errors of columns count; what columns are multiplied by.
    double *pivots;
    const float *factors;
    // In row k: what an error of one in column j < k adds to column k.
    float *feed;
};
static_assert(sizeof(FactorArgs) == 80, "size of FactorArgs");
OFFSET(FactorArgs, inputs, 0); OFFSET(FactorArgs, matrix, 8); OFFSET(FactorArgs, cols, 16);
OFFSET(FactorArgs, first, 24); OFFSET(FactorArgs, damping, 32); OFFSET(FactorArgs, floor, 40);
OFFSET(FactorArgs, bad, 48); OFFSET(FactorArgs, pivots, 56); OFFSET(FactorArgs, factors, 64);
OFFSET(FactorArgs, feed, 72);

// A matrix to weigh: elements of a dtype, row by row.
struct FeedLoadArgs {
    const void *from;
    float *to;
    // What columns and rows are multiplied by; none for rows that are left as they are.
    const float *columns, *rows;
    // Whether any working value is not finite.
    u32 *bad;
    u32 outputs, inputs, kind;
    // Whether columns come one after the other.
    u32 turned;
};
static_assert(sizeof(FeedLoadArgs) == 56, "size of FeedLoadArgs");
OFFSET(FeedLoadArgs, from, 0); OFFSET(FeedLoadArgs, to, 8); OFFSET(FeedLoadArgs, columns, 16);
OFFSET(FeedLoadArgs, rows, 24); OFFSET(FeedLoadArgs, bad, 32); OFFSET(FeedLoadArgs, outputs, 40);
OFFSET(FeedLoadArgs, inputs, 44); OFFSET(FeedLoadArgs, kind, 48); OFFSET(FeedLoadArgs, turned, 52);

// Two tensors of a dtype, and what they differ by.
struct FeedOffArgs {
    const void *original, *instead;
    float *off;
    // Its product with E[x·xᵀ], and where the sum of both, multiplied, goes for each row.
    const float *product;
    double *sums;
    u64 rows, columns;
    u32 kind, unused;
};
static_assert(sizeof(FeedOffArgs) == 64, "size of FeedOffArgs");
OFFSET(FeedOffArgs, original, 0); OFFSET(FeedOffArgs, instead, 8); OFFSET(FeedOffArgs, off, 16);
OFFSET(FeedOffArgs, product, 24); OFFSET(FeedOffArgs, sums, 32); OFFSET(FeedOffArgs, rows, 40);
OFFSET(FeedOffArgs, columns, 48); OFFSET(FeedOffArgs, kind, 56); OFFSET(FeedOffArgs, unused, 60);

// Columns that are quantised one after the other.
struct FeedArgs {
    LevelsPass levels;
    // The weighted matrix as it is, and with the errors that are fed to it: what is encoded.
    const float *values;
    float *fed;
    // Of these columns: column by column, or by output.
    float *errors;
    // In row k: what an error of one in column j < k adds to column k, both counted from the block's first.
    const float *feed;
    u64 feed_cols;
    // States of lanes between columns, decisions of a wide trellis, and ways through one that are too long for shared memory.
    u32 *states, *decisions, *path;
    // The block's first column and the one behind it; the first of these and the one behind them.
    u32 block, block_end, first, end;
    u32 outputs, inputs;
    // Whether columns come one after the other.
    u32 turned, unused;
};
static_assert(sizeof(FeedArgs) == 688, "size of FeedArgs");
OFFSET(FeedArgs, levels, 0); OFFSET(FeedArgs, values, 592); OFFSET(FeedArgs, fed, 600);
OFFSET(FeedArgs, errors, 608); OFFSET(FeedArgs, feed, 616); OFFSET(FeedArgs, feed_cols, 624);
OFFSET(FeedArgs, states, 632); OFFSET(FeedArgs, decisions, 640); OFFSET(FeedArgs, path, 648);
OFFSET(FeedArgs, block, 656); OFFSET(FeedArgs, block_end, 660); OFFSET(FeedArgs, first, 664);
OFFSET(FeedArgs, end, 668); OFFSET(FeedArgs, outputs, 672); OFFSET(FeedArgs, inputs, 676);
OFFSET(FeedArgs, turned, 680); OFFSET(FeedArgs, unused, 684);

// Rotary positions: which columns are turned, and how far.
struct Turning {
    // Radians of each pair from one position to the next.
    const double *frequencies;
    // Rows lie in runs of `run` rows. Run i starts at position `starts[i mod count]`; each row after is one further.
    const u64 *starts;
    u64 count, run;
    // The tensor's row that is the first one here.
    u64 first;
    // Columns of a head, and pairs of it that are turned.
    u32 head, half;
    // Whether a pair is of neighbours, and whether to turn back.
    u32 neighbours, back;
};
static_assert(sizeof(Turning) == 56, "size of Turning");
OFFSET(Turning, frequencies, 0); OFFSET(Turning, starts, 8); OFFSET(Turning, count, 16);
OFFSET(Turning, run, 24); OFFSET(Turning, first, 32); OFFSET(Turning, head, 40); OFFSET(Turning, half, 44);
OFFSET(Turning, neighbours, 48); OFFSET(Turning, back, 52);

// What every kernel of a chain takes. Each says what it makes of `kind`, `by` and `count`.
struct ChainArgs {
    // Rows, and where they go: the same place unless a kernel says otherwise.
    const void *from;
    void *to;
    // Numbers of the transform.
    const void *table;
    // Rows, and the tensor's row that is the first of them.
    u64 rows, first;
    u32 columns, kind, by, count;
    Turning turning;
};
static_assert(sizeof(ChainArgs) == 112, "size of ChainArgs");
OFFSET(ChainArgs, from, 0); OFFSET(ChainArgs, to, 8); OFFSET(ChainArgs, table, 16);
OFFSET(ChainArgs, rows, 24); OFFSET(ChainArgs, first, 32); OFFSET(ChainArgs, columns, 40);
OFFSET(ChainArgs, kind, 44); OFFSET(ChainArgs, by, 48); OFFSET(ChainArgs, count, 52);
OFFSET(ChainArgs, turning, 56);

// A run of kept elements.
struct ChainKept {
    u64 start, bits;
    u32 len, unused;
};
static_assert(sizeof(ChainKept) == 24, "size of ChainKept");
OFFSET(ChainKept, start, 0); OFFSET(ChainKept, bits, 8); OFFSET(ChainKept, len, 16);
OFFSET(ChainKept, unused, 20);

// Elements of some rows and columns to bring together. Runs are numbered and placed as `Runs` of the core does it.
struct GatherArgs {
    const void *from;
    void *to;
    // Bytes of a row there, and of an element.
    u64 row, size;
    // Runs of rows: how many there are, how many are taken, and rows of a run. Then those of columns.
    u64 rows_of, rows_take, rows_len;
    u64 cols_of, cols_take, cols_len;
};
static_assert(sizeof(GatherArgs) == 80, "size of GatherArgs");
OFFSET(GatherArgs, from, 0); OFFSET(GatherArgs, to, 8); OFFSET(GatherArgs, row, 16);
OFFSET(GatherArgs, size, 24); OFFSET(GatherArgs, rows_of, 32); OFFSET(GatherArgs, rows_take, 40);
OFFSET(GatherArgs, rows_len, 48); OFFSET(GatherArgs, cols_of, 56); OFFSET(GatherArgs, cols_take, 64);
OFFSET(GatherArgs, cols_len, 72);

// Rows of bf16 to turn.
struct BasisArgs {
    // Rows, and where they go, which may be the same place.
    const u16 *from;
    u16 *to;
    u64 rows;
    u32 columns, unused;
    Turning turning;
};
static_assert(sizeof(BasisArgs) == 88, "size of BasisArgs");
OFFSET(BasisArgs, from, 0); OFFSET(BasisArgs, to, 8); OFFSET(BasisArgs, rows, 16);
OFFSET(BasisArgs, columns, 24); OFFSET(BasisArgs, unused, 28); OFFSET(BasisArgs, turning, 32);

// What every kernel of layers takes.
struct LayersArgs {
    // Elements or working values, and where the result goes, which may be the place of the first.
    const void *first, *second;
    void *to;
    u64 count;
    // Of the elements.
    u32 dtype, unused;
};
static_assert(sizeof(LayersArgs) == 40, "size of LayersArgs");
OFFSET(LayersArgs, first, 0); OFFSET(LayersArgs, second, 8); OFFSET(LayersArgs, to, 16);
OFFSET(LayersArgs, count, 24); OFFSET(LayersArgs, dtype, 32); OFFSET(LayersArgs, unused, 36);

// What multiplying takes.
struct MultiplyArgs {
    // Rows one after the other, a number for each column, one for each row or none, and where a number for each row goes.
    const void *matrix, *vector, *bias;
    void *to;
    u32 rows, columns;
};
static_assert(sizeof(MultiplyArgs) == 40, "size of MultiplyArgs");
OFFSET(MultiplyArgs, matrix, 0); OFFSET(MultiplyArgs, vector, 8); OFFSET(MultiplyArgs, bias, 16);
OFFSET(MultiplyArgs, to, 24); OFFSET(MultiplyArgs, rows, 32); OFFSET(MultiplyArgs, columns, 36);

// One picture, and the elements that its samples stand for.
struct PictureArgs {
    // The first sample; lines are `pitch` bytes apart.
    const u8 *luma;
    // The element of the first value that is wanted.
    void *to;
    // Centre and step of each part, a bf16 each.
    const u32 *parts;
    // The checksum.
    u32 *check;
    // Factors of centres and of steps.
    double base, unit;
    // Number of the first value in the tensor, columns of that, and rows of a group.
    u64 first, columns, group;
    u32 pitch, width, height, depth;
    // Samples before the first value that is wanted, and how many are wanted.
    u32 skip, count;
    // Of the elements, and who shares a centre and a step.
    u32 dtype, scaling;
};
static_assert(sizeof(PictureArgs) == 104, "size of PictureArgs");
OFFSET(PictureArgs, luma, 0); OFFSET(PictureArgs, to, 8); OFFSET(PictureArgs, parts, 16);
OFFSET(PictureArgs, check, 24); OFFSET(PictureArgs, base, 32); OFFSET(PictureArgs, unit, 40);
OFFSET(PictureArgs, first, 48); OFFSET(PictureArgs, columns, 56); OFFSET(PictureArgs, group, 64);
OFFSET(PictureArgs, pitch, 72); OFFSET(PictureArgs, width, 76); OFFSET(PictureArgs, height, 80);
OFFSET(PictureArgs, depth, 84); OFFSET(PictureArgs, skip, 88); OFFSET(PictureArgs, count, 92);
OFFSET(PictureArgs, dtype, 96); OFFSET(PictureArgs, scaling, 100);

// An element that no sample holds.
struct PictureSpecial {
    u64 at, bits;
};
static_assert(sizeof(PictureSpecial) == 16, "size of PictureSpecial");
OFFSET(PictureSpecial, at, 0); OFFSET(PictureSpecial, bits, 8);

// Such elements of the dtype `from`, to be put among those of `dtype`.
struct SpecialArgs {
    void *to;
    const PictureSpecial *specials;
    u32 count, from, dtype, unused;
};
static_assert(sizeof(SpecialArgs) == 32, "size of SpecialArgs");
OFFSET(SpecialArgs, to, 0); OFFSET(SpecialArgs, specials, 8); OFFSET(SpecialArgs, count, 16);
OFFSET(SpecialArgs, from, 20); OFFSET(SpecialArgs, dtype, 24); OFFSET(SpecialArgs, unused, 28);

// What moves between a pool and rows.
struct PoolArgs {
    // Where each layer starts.
    u64 bases[256];
    // The slot of each token.
    const u64 *slots;
    void *rows;
    u64 tokens;
    // Slots of the pool, fewer than 2^32.
    u64 slot_count;
    // Bytes from a block, a token and a head to the next.
    u64 block_stride, token_stride, head_stride;
    // Layers, and tokens of a block.
    u32 layers, block;
    // Heads of a token that lie apart, and units of one.
    u32 heads, head;
    // Bytes of a unit: 16, 4, 2 or 1. Where rows are bf16 and the pool is not, its elements: 8 or 1.
    u32 unit;
    // Dtype of the pool where rows are bf16; 0 where they are what the pool has.
    u32 dtype;
};
static_assert(sizeof(PoolArgs) == 2128, "size of PoolArgs");
OFFSET(PoolArgs, bases, 0); OFFSET(PoolArgs, slots, 2048); OFFSET(PoolArgs, rows, 2056);
OFFSET(PoolArgs, tokens, 2064); OFFSET(PoolArgs, slot_count, 2072); OFFSET(PoolArgs, block_stride, 2080);
OFFSET(PoolArgs, token_stride, 2088); OFFSET(PoolArgs, head_stride, 2096); OFFSET(PoolArgs, layers, 2104);
OFFSET(PoolArgs, block, 2108); OFFSET(PoolArgs, heads, 2112); OFFSET(PoolArgs, head, 2116);
OFFSET(PoolArgs, unit, 2120); OFFSET(PoolArgs, dtype, 2124);

// The same for keys, rows of bf16 that are turned on the way: units of eight elements, all heads apart.
struct TurnedPoolArgs {
    PoolArgs pool;
    Turning turning;
};
static_assert(sizeof(TurnedPoolArgs) == 2184, "size of TurnedPoolArgs");
OFFSET(TurnedPoolArgs, pool, 0); OFFSET(TurnedPoolArgs, turning, 2128);

// A tile that changes something.
struct DeltaTile {
    // Where its bytes are in the blob; its first value in the tensor; where its changes start in the workspace.
    u64 at, start, first;
    // Sums over old and new values.
    u64 before, after;
    // Bytes and their checksum.
    u32 len, crc;
    // Values, and how many of them change.
    u32 values, changes;
    // Tables of the gaps and of the first class of values.
    u32 gap_table, value_table;
    u32 way;
    // Words of the two streams.
    u32 gap_words, value_words, unused;
};
static_assert(sizeof(DeltaTile) == 80, "size of DeltaTile");
OFFSET(DeltaTile, at, 0); OFFSET(DeltaTile, start, 8); OFFSET(DeltaTile, first, 16);
OFFSET(DeltaTile, before, 24); OFFSET(DeltaTile, after, 32); OFFSET(DeltaTile, len, 40);
OFFSET(DeltaTile, crc, 44); OFFSET(DeltaTile, values, 48); OFFSET(DeltaTile, changes, 52);
OFFSET(DeltaTile, gap_table, 56); OFFSET(DeltaTile, value_table, 60); OFFSET(DeltaTile, way, 64);
OFFSET(DeltaTile, gap_words, 68); OFFSET(DeltaTile, value_words, 72); OFFSET(DeltaTile, unused, 76);

// A tensor and its delta.
struct DeltaItem {
    u64 blob, blob_len;
    void *to;
    // Classes and tables; tiles.
    const u8 *tables;
    const DeltaTile *tiles;
    // The workspace: places and values of changes, and a word a tile.
    u32 *places;
    void *values;
    u32 *states;
    Status *status;
    u32 tile_count, table_count;
    // The first block that decodes this delta, and the first that writes it; so many write a tile.
    u32 decode0, write0, writers, unused;
    // log2 of the lanes; where the key of a value is and which of its bits count; whether values are floats.
    u32 lanes_log, key_low, key_mask, floats;
};
static_assert(sizeof(DeltaItem) == 112, "size of DeltaItem");
OFFSET(DeltaItem, blob, 0); OFFSET(DeltaItem, blob_len, 8); OFFSET(DeltaItem, to, 16);
OFFSET(DeltaItem, tables, 24); OFFSET(DeltaItem, tiles, 32); OFFSET(DeltaItem, places, 40);
OFFSET(DeltaItem, values, 48); OFFSET(DeltaItem, states, 56); OFFSET(DeltaItem, status, 64);
OFFSET(DeltaItem, tile_count, 72); OFFSET(DeltaItem, table_count, 76); OFFSET(DeltaItem, decode0, 80);
OFFSET(DeltaItem, write0, 84); OFFSET(DeltaItem, writers, 88); OFFSET(DeltaItem, unused, 92);
OFFSET(DeltaItem, lanes_log, 96); OFFSET(DeltaItem, key_low, 100); OFFSET(DeltaItem, key_mask, 104);
OFFSET(DeltaItem, floats, 108);

// Deltas of tensors whose elements have one size.
struct DeltaArgs {
    DeltaItem items[32];
    u32 count, blocks;
    // Tables that have room in a block's shared memory.
    u32 room, unused;
};
static_assert(sizeof(DeltaArgs) == 3600, "size of DeltaArgs");
OFFSET(DeltaArgs, items, 0); OFFSET(DeltaArgs, count, 3584); OFFSET(DeltaArgs, blocks, 3588);
OFFSET(DeltaArgs, room, 3592); OFFSET(DeltaArgs, unused, 3596);

// Tiles that a host has decoded, into pinned memory.
struct DeltaCheckArgs {
    DeltaItem item;
    // Places and values there, from those on that the workspace has from `first` on.
    u64 places, values, first;
    u32 tiles[64];
};
static_assert(sizeof(DeltaCheckArgs) == 392, "size of DeltaCheckArgs");
OFFSET(DeltaCheckArgs, item, 0); OFFSET(DeltaCheckArgs, places, 112); OFFSET(DeltaCheckArgs, values, 120);
OFFSET(DeltaCheckArgs, first, 128); OFFSET(DeltaCheckArgs, tiles, 136);

// A tensor, or nodes of its tree, and where the nodes that follow from them go.
struct FingerprintArgs {
    const u8 *from;
    u32 *to;
    // Bytes of the tensor; its chunks, or nodes.
    u64 len, count;
    // What stands before the tensor, and how many bytes of that.
    u32 before[34];
    u32 before_len;
    // How often neighbours are merged.
    u32 levels;
};
static_assert(sizeof(FingerprintArgs) == 176, "size of FingerprintArgs");
OFFSET(FingerprintArgs, from, 0); OFFSET(FingerprintArgs, to, 8); OFFSET(FingerprintArgs, len, 16);
OFFSET(FingerprintArgs, count, 24); OFFSET(FingerprintArgs, before, 32);
OFFSET(FingerprintArgs, before_len, 168); OFFSET(FingerprintArgs, levels, 172);

// Kernels.
extern "C" __global__ void assemble_layout(const Assembly a);
extern "C" __global__ void assemble_seal(const Assembly a);
extern "C" __global__ void blob_place(const OpenArgs a);
extern "C" __global__ void blob_open(const OpenArgs a);
extern "C" __global__ void blob_open_placed(const OpenArgs a);
extern "C" __global__ void blob_place_pages(const PlaceArgs a);
extern "C" __global__ void levels_decode_1(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void levels_decode_2(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void levels_decode_4(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void levels_decode_8(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void pairs_decode_1(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void pairs_decode_2(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void pairs_decode_4(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void pairs_decode_8(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void lossless_decode_1(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void lossless_decode_2(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void lossless_decode_4(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void lossless_decode_8(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void levels_small(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void lossless_halves(const GRID_CONSTANT TilesArgs a);
extern "C" __global__ void transpose_1(const TransposeArgs a);
extern "C" __global__ void transpose_2(const TransposeArgs a);
extern "C" __global__ void transpose_4(const TransposeArgs a);
extern "C" __global__ void transpose_8(const TransposeArgs a);
extern "C" __global__ void lossless_count_begin(const LosslessArgs a);
extern "C" __global__ void lossless_encode_tables(const LosslessArgs a);
extern "C" __global__ void lossless_whole_tiles(const LosslessArgs a);
extern "C" __global__ void lossless_layout(const LosslessArgs a);
extern "C" __global__ void lossless_count_sample_1(const LosslessArgs a);
extern "C" __global__ void lossless_count_sample_2(const LosslessArgs a);
extern "C" __global__ void lossless_count_sample_4(const LosslessArgs a);
extern "C" __global__ void lossless_count_sample_8(const LosslessArgs a);
extern "C" __global__ void lossless_count_1(const LosslessArgs a);
extern "C" __global__ void lossless_count_2(const LosslessArgs a);
extern "C" __global__ void lossless_count_4(const LosslessArgs a);
extern "C" __global__ void lossless_count_8(const LosslessArgs a);
extern "C" __global__ void lossless_encode_tiles_1(const LosslessArgs a);
extern "C" __global__ void lossless_encode_tiles_2(const LosslessArgs a);
extern "C" __global__ void lossless_encode_tiles_4(const LosslessArgs a);
extern "C" __global__ void lossless_encode_tiles_8(const LosslessArgs a);
extern "C" __global__ void lossless_write_1(const LosslessArgs a);
extern "C" __global__ void lossless_write_2(const LosslessArgs a);
extern "C" __global__ void lossless_write_4(const LosslessArgs a);
extern "C" __global__ void lossless_write_8(const LosslessArgs a);
extern "C" __global__ void rate_scan_f8_e4m3(const RateArgs a);
extern "C" __global__ void rate_scan_f8_e5m2(const RateArgs a);
extern "C" __global__ void rate_scan_f16(const RateArgs a);
extern "C" __global__ void rate_scan_bf16(const RateArgs a);
extern "C" __global__ void rate_scan_f32(const RateArgs a);
extern "C" __global__ void rate_scan_f64(const RateArgs a);
extern "C" __global__ void rate_scan_open(const RateArgs a);
extern "C" __global__ void rate_scan_exponents(const RateArgs a);
extern "C" __global__ void rate_scan_unit(const RateArgs a);
extern "C" __global__ void rate_scan_sum(const RateArgs a);
extern "C" __global__ void rate_scan_rows(const RateArgs a);
extern "C" __global__ void rate_scan_cols_few(const RateArgs a);
extern "C" __global__ void rate_scan_cols(const RateArgs a);
extern "C" __global__ void rate_fit_sample(const RateArgs a);
extern "C" __global__ void rate_fit_first(const RateArgs a);
extern "C" __global__ void rate_fit_low(const RateArgs a);
extern "C" __global__ void rate_classes_try(const RateArgs a);
extern "C" __global__ void rate_classes_apply(const RateArgs a);
extern "C" __global__ void rate_trial_narrow(const RateArgs a);
extern "C" __global__ void rate_trial_wide(const RateArgs a);
extern "C" __global__ void rate_judge_pass(const RateArgs a);
extern "C" __global__ void rate_share_scale(const ShareArgs a);
extern "C" __global__ void rate_share_open(const ShareArgs a);
extern "C" __global__ void rate_share_counts(const ShareArgs a);
extern "C" __global__ void rate_share_begin(const ShareArgs a);
extern "C" __global__ void rate_share_step(const ShareArgs a);
extern "C" __global__ void rate_share_header(const ShareArgs a);
extern "C" __global__ void page_model(const PageModelArgs a);
extern "C" __global__ void page_plan(const PagePlanArgs a);
extern "C" __global__ void page_plan_keep(const PagePlanArgs a);
extern "C" __global__ void page_look(const PageLookArgs a);
extern "C" __global__ void page_sizes(const PageSizesArgs a);
extern "C" __global__ void levels_count_f8_e4m3(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_count_f8_e5m2(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_count_f16(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_count_bf16(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_count_f32(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_count_f64(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_trellis_f8_e4m3(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_trellis_f8_e5m2(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_trellis_f16(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_trellis_bf16(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_trellis_f32(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_trellis_f64(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_wide_f8_e4m3(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_wide_f8_e5m2(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_wide_f16(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_wide_bf16(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_wide_f32(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_wide_f64(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_pack_f8_e4m3(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_pack_f8_e5m2(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_pack_f16(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_pack_bf16(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_pack_f32(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_pack_f64(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_tables(const GRID_CONSTANT LevelsPass a);
extern "C" __global__ void levels_write_f8_e4m3(const GRID_CONSTANT LevelsWrite a);
extern "C" __global__ void levels_write_f8_e5m2(const GRID_CONSTANT LevelsWrite a);
extern "C" __global__ void levels_write_f16(const GRID_CONSTANT LevelsWrite a);
extern "C" __global__ void levels_write_bf16(const GRID_CONSTANT LevelsWrite a);
extern "C" __global__ void levels_write_f32(const GRID_CONSTANT LevelsWrite a);
extern "C" __global__ void levels_write_f64(const GRID_CONSTANT LevelsWrite a);
extern "C" __global__ void levels_pass_open(const LevelsTurn a);
extern "C" __global__ void levels_pass_begin(const LevelsTurn a);
extern "C" __global__ void levels_pass_end(const LevelsTurn a);
extern "C" __global__ void levels_pass_close(const LevelsTurn a);
extern "C" __global__ void levels_fixed_plan(const LevelsFixed a);
extern "C" __global__ void levels_fixed_costs(const LevelsFixed a);
extern "C" __global__ void factor_damp(const FactorArgs a);
extern "C" __global__ void factor_corner(const FactorArgs a);
extern "C" __global__ void factor_below(const FactorArgs a);
extern "C" __global__ void factor_pivots(const FactorArgs a);
extern "C" __global__ void factor_turn(const FactorArgs a);
extern "C" __global__ void feed_load(const FeedLoadArgs a);
extern "C" __global__ void feed_off(const FeedOffArgs a);
extern "C" __global__ void feed_sum(const FeedOffArgs a);
extern "C" __global__ void feed_scalar(const GRID_CONSTANT FeedArgs a);
extern "C" __global__ void feed_trellis(const GRID_CONSTANT FeedArgs a);
extern "C" __global__ void feed_wide(const GRID_CONSTANT FeedArgs a);
extern "C" __global__ void chain_load_4(const ChainArgs a);
extern "C" __global__ void chain_load_8(const ChainArgs a);
extern "C" __global__ void chain_store_4(const ChainArgs a);
extern "C" __global__ void chain_store_8(const ChainArgs a);
extern "C" __global__ void chain_transpose_4(const ChainArgs a);
extern "C" __global__ void chain_transpose_8(const ChainArgs a);
extern "C" __global__ void chain_add_4(const ChainArgs a);
extern "C" __global__ void chain_add_8(const ChainArgs a);
extern "C" __global__ void chain_weigh_4(const ChainArgs a);
extern "C" __global__ void chain_weigh_8(const ChainArgs a);
extern "C" __global__ void chain_differ_4(const ChainArgs a);
extern "C" __global__ void chain_differ_8(const ChainArgs a);
extern "C" __global__ void chain_sum_4(const ChainArgs a);
extern "C" __global__ void chain_sum_8(const ChainArgs a);
extern "C" __global__ void chain_turn_4(const ChainArgs a);
extern "C" __global__ void chain_turn_8(const ChainArgs a);
extern "C" __global__ void chain_hadamard_4(const ChainArgs a);
extern "C" __global__ void chain_hadamard_8(const ChainArgs a);
extern "C" __global__ void chain_cosines_4(const ChainArgs a);
extern "C" __global__ void chain_cosines_8(const ChainArgs a);
extern "C" __global__ void chain_power_4(const ChainArgs a);
extern "C" __global__ void chain_power_8(const ChainArgs a);
extern "C" __global__ void chain_product_8(const ChainArgs a);
extern "C" __global__ void chain_keep(const ChainArgs a);
extern "C" __global__ void chain_gather(const GatherArgs a);
extern "C" __global__ void basis_turn(const BasisArgs a);
extern "C" __global__ void layers_add_4(const LayersArgs a);
extern "C" __global__ void layers_add_8(const LayersArgs a);
extern "C" __global__ void layers_subtract_4(const LayersArgs a);
extern "C" __global__ void layers_subtract_8(const LayersArgs a);
extern "C" __global__ void layers_widen(const LayersArgs a);
extern "C" __global__ void layers_round(const LayersArgs a);
extern "C" __global__ void layers_largest(const LayersArgs a);
extern "C" __global__ void multiply_bf16(const MultiplyArgs a);
extern "C" __global__ void multiply_f16(const MultiplyArgs a);
extern "C" __global__ void pictures_values(const PictureArgs a);
extern "C" __global__ void pictures_check(const PictureArgs a);
extern "C" __global__ void pictures_specials(const SpecialArgs a);
extern "C" __global__ void pool_gather(const GRID_CONSTANT PoolArgs a);
extern "C" __global__ void pool_scatter(const GRID_CONSTANT PoolArgs a);
extern "C" __global__ void pool_scatter_turned(const GRID_CONSTANT TurnedPoolArgs a);
extern "C" __global__ void delta_start(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_decode_1(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_decode_2(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_decode_4(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_decode_8(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_write_1(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_write_2(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_write_4(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_write_8(const GRID_CONSTANT DeltaArgs a);
extern "C" __global__ void delta_check_1(const GRID_CONSTANT DeltaCheckArgs a);
extern "C" __global__ void delta_check_2(const GRID_CONSTANT DeltaCheckArgs a);
extern "C" __global__ void delta_check_4(const GRID_CONSTANT DeltaCheckArgs a);
extern "C" __global__ void delta_check_8(const GRID_CONSTANT DeltaCheckArgs a);
extern "C" __global__ void fingerprint_chunks(const GRID_CONSTANT FingerprintArgs a);
extern "C" __global__ void fingerprint_nodes(const GRID_CONSTANT FingerprintArgs a);
