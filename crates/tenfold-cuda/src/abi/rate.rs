//! The search for how a tensor is quantised: `rate_*.cu`, and the plan that it decides on.

use tenfold::format::{MAX_CLASSES, MAX_SCALE_BITS};

use super::{Address, Const, Each, MAX_DIMS, Rate, kernels, shared_constants, shared_structs};
use crate::status::Status;

shared_constants! {
    /// Goals: a number of bytes, at most so many, an error, one relative to the variance, a step, a bound.
    const GOAL_BYTES: u32 = 0;
    const GOAL_CAP: u32 = 1;
    const GOAL_MSE: u32 = 2;
    const GOAL_NMSE: u32 = 3;
    const GOAL_STEP: u32 = 4;
    const GOAL_BOUND: u32 = 5;
    /// What a trial is for (`RateArgs.mode`): costs and step on the coarse sample; costs once more where low bits have
    /// changed; costs from all of the sample; the step alone; reconstruction points; counts for tables.
    const TRIAL_COARSE: u32 = 0;
    const TRIAL_LOW: u32 = 1;
    const TRIAL_COSTS: u32 = 2;
    const TRIAL_STEP: u32 = 3;
    const TRIAL_POINTS: u32 = 4;
    const TRIAL_COUNTS: u32 = 5;
    /// Ways to group values by their size: rows and columns, rows, columns; each at 1, 2 and 4 scales an octave. From
    /// `WAY_BASIS` on, columns have the scales that a basis knows, four an octave: with rows, and alone.
    const WAYS: u32 = 11;
    const WAY_BASIS: u32 = 9;
    /// Values of a window of the sample: 32 lanes of so many ticks.
    const SAMPLE_TICKS: u64 = 128;
    const SAMPLE_WINDOW: u64 = 32 * SAMPLE_TICKS;
    /// Threads of a block that scans, and rows that each of them reads ahead.
    const SCAN_THREADS: u64 = 256;
    const SCAN_AHEAD: u64 = 4;
    /// Threads of a block that adds up what others saw.
    const SUM_THREADS: u32 = 512;
    /// Threads of a block that takes whole windows, one after the other.
    const WINDOW_THREADS: u32 = 256;
    /// Threads of a block that looks at a few windows: four values of a window each. Where the tensors of a batch keep
    /// each other's warps busy, fewer will do, except for the first fit.
    const FIT_THREADS: u32 = 1024;
    /// Magnitudes are told apart by their exponent and the top bits of their mantissa.
    const FIT_SHIFT: u32 = 17;
    const FIT_BINS: u32 = 0x7f80_0000 >> FIT_SHIFT;
    /// Sums of two scales.
    const SCALE_SUMS: u32 = 2 << MAX_SCALE_BITS;
    /// Magnitudes told apart where groups are compared, and copies of their counts.
    const CLASS_BINS: u32 = 48;
    const CLASS_COPIES: u32 = 4;
    /// Warps of a block that searches a trellis of few states, or of many.
    const TRIAL_NARROW: u32 = 8;
    const TRIAL_WIDE: u32 = 4;
    /// Windows from which on a part of each will do in trials of all of the sample.
    const TRIAL_THIN: u32 = 512;
    /// Parts of a window that few states are searched in.
    const TRIAL_PARTS: u32 = 4;
    /// Shared memory of such blocks.
    const TRIAL_NARROW_SHARED: u32 = 70 << 10;
    const TRIAL_SHARED: u32 = 86 << 10;
    /// Threads of a block that shares a plan among pages.
    const SHARE_THREADS: u32 = 256;
    /// Plans that a basis has ready: how many, for pages half an octave larger each, and twice the octaves of the first.
    const PAGE_RUNGS: u32 = 40;
    const PAGE_RUNG_FIRST: i32 = -12;
    /// Sizes that are guessed for a page: by every second of the plans from this one on.
    const PAGE_SIZES: u32 = 13;
    const PAGE_SIZES_FIRST: u32 = 2;
    /// Rows of a page that may have scales, at most; bits of one, and that of a row which is as large as the page.
    const PAGE_ROWS: u32 = 1024;
    const PAGE_ROW_BITS: u32 = 4;
    const PAGE_ROW_MIDDLE: u32 = 8;
    /// Threads of a block that makes up a page, or chooses a plan for one.
    const PAGE_PLAN_THREADS: u32 = 256;
    /// Steps beyond which a value is stored exactly, by trellises and by scalar quantisers.
    const TRELLIS_MAX_U: f32 = 1e5;
    const SCALAR_MAX_U: f32 = 1.6e7;
    /// Weight of a bit against a squared step, likewise.
    const LAMBDA_TRELLIS: f32 = 0.27;
    const LAMBDA_SCALAR: f32 = 0.30;
    /// Bytes of the state of a search.
    const RATE_BYTES: usize = 52 << 10;
    /// Magnitudes with a cost of their own; larger ones cost as much as the last. And costs of one sign: by class,
    /// quantiser and magnitude.
    const COST_LEVELS: usize = 64;
    const COST_SIGN: usize = MAX_CLASSES * 2 * COST_LEVELS;
}

shared_structs! {
    /// What one block saw of the tensor.
    pub(crate) struct ScanPart {
        mean, squares: f64;
        finite: u64;
        max: f32;
        pad: u32;
    }

    /// A tensor to encode, and what to reach.
    pub(crate) struct Encoding {
        data: Each<Const<u8>>;
        /// Elements, in row-major order, and those of a row.
        values, cols: u64;
        dtype, goal: u32;
        /// Bytes, mean squared error, step or bound, as the goal says.
        target: f64;
        /// log2 of the trellis's states; 0 for a scalar quantiser.
        nu: u32;
        /// Lanes of a tile, ticks of a lane; values of a tile, and tiles.
        lanes, ticks: u32;
        tile_values, tiles: u64;
        /// Where the blob goes.
        out: Each<u8>;
        dims: u32;
        shape: [u64; MAX_DIMS];
        /// What the header says of a tensor that transforms have made of another: its dtype, and the transforms with
        /// their number; no bytes for none.
        header_dtype, transforms_len: u32;
        header_transforms: Address<Const<u8>>;
        /// Scales of the columns that the last transform knows, a byte each; none where it knows none.
        scales: Address<Const<u8>>;
        /// Each tensor's own position among the transforms, of which there are few bytes then; none where they have no
        /// position. And where in the header it goes in place of a byte, and where the length of its transform is.
        positions: Each<Const<u64>>;
        position_at, length_at: u32;
        /// Whether levels may be coded in pairs.
        may_pair, unused: u32;
    }

    /// What is decided of one tensor. `rate_*` kernels write it, `levels_*` kernels quantise and write by it.
    pub(crate) struct Plan {
        /// Machine in use: `encoding.nu`, or 0 where the trellis cannot hold the values or the goal is a bound.
        nu: u32;
        /// Its feedback on the quantiser and on the parity.
        on_quantiser, on_parity: u32;
        /// 1/64 step as the header stores it (an f32 unless the dtype is f64), and the step.
        scale, step: f64;
        /// 1/step, by which values are multiplied (f64: divided by the step).
        factor: f32;
        /// Values beyond this many steps are stored exactly.
        max_u: f32;
        /// Weight of a bit.
        lambda: f32;
        /// 1: to the nearest level, every value checked against `bound`, misses stored exactly.
        bounded: u32;
        bound: f64;
        offsets: [i32; 16];
        /// Class map; `width` and `classes` are 1 where there is none. Scales are one byte each.
        classes, row_bits, col_bits, any_low: u32;
        width, rows, row_scale, col_scale: u64;
        thresholds: [u8; MAX_CLASSES];
        class_of_sum: [u8; SCALE_SUMS as usize];
        low: [u8; MAX_CLASSES];
        /// log2 of the sum of a table's frequencies.
        log: u32;
        /// λ·bits by sign (positive first), class, quantiser and magnitude.
        cost: [f32; 2 * COST_SIGN];
        /// 1: nothing to quantise, all zeros and what is stored exactly.
        trivial: u32;
        /// 1 once a full pass has met the goal or no further one will: later passes do nothing.
        done: u32;
        /// What the last pass over the whole tensor gave: `levels_*` writes it, `rate_*` judges it. Errors are in squared
        /// steps.
        bytes: u64;
        squared_error: f64;
        finite: u64;
        /// 1 for a plan that pages have together; and where the header has the scale then, in bytes.
        common, scale_at: u32;
        /// Whether levels are coded in pairs, and the bits a value that this is thought to cost.
        paired: u32;
        pair_bits: f32;
    }

    /// What is known of a whole tensor: how its state of a search starts. Magnitudes are in units.
    pub(crate) struct Seen: Debug {
        unit, max, variance: f64;
        finite: u64;
    }

    /// What every kernel of a search takes, the same but for `mode` and `pass`.
    pub(crate) struct RateArgs {
        encoding: Encoding;
        plan: Each<Plan>;
        rate: Each<Rate>;
        status: Each<Status>;
        /// Mean magnitudes by piece of a row and by band of rows, what blocks saw, and logarithms of the means.
        row_parts, col_parts: Each<f32>;
        parts: Each<ScanPart>;
        row_logs, col_logs: Each<f32>;
        row_scale, col_scale: Each<u8>;
        sample: Each<f32>;
        sample_class: Each<u8>;
        /// Rows that statistics are kept of: the tensor's own, or runs of values.
        width, rows: u64;
        tabular: u32;
        /// A block of `rate_scan` takes `band_rows` rows and one of `stripes` stripes; 2^`row_threads` threads read a
        /// row's part together.
        stripes, bands, band_rows, row_threads: u32;
        /// The first way to try.
        first_way: u32;
        /// Windows there are, those in the sample, and the distance between those of trials and of the smallest subset.
        windows, taken, coarse_stride, fine_stride, few_stride: u32;
        /// What the trial is for, and which pass of how many is judged.
        mode, pass, passes: u32;
        /// Passes in which the step is looked for; those after them only keep to a limit.
        search_passes: u32;
        /// Values of what tables are made for: the tensor's, or those of one of the pages that it is made of.
        table_values: u64;
        /// What is known of these pages, so many bytes apart; none for none.
        pages: Address<Const<Rate>>;
        pages_apart: u64;
    }

    /// One plan for many pages.
    pub(crate) struct ShareArgs {
        /// Of a page; `rate` and `plan` are each page's own.
        page: RateArgs;
        /// Of all together.
        rate: Address<Rate>;
        plan: Address<Plan>;
        freq: Address<Const<u32>>;
        counts: Address<u64>;
        header: Address<Const<u32>>;
        header_len: Address<Const<u64>>;
        /// A page's header.
        page_header: Each<u32>;
        page_header_len: Each<u64>;
        pass: Each<Status>;
        pages: u32;
    }

    /// Pages to make up, one after the other: rows of columns whose deviations a basis tells, a byte each.
    pub(crate) struct PageModelArgs {
        to: Address<f32>;
        scales: Address<Const<u8>>;
        rows, columns: u32;
    }

    /// What a look at a page has found.
    pub(crate) struct PageFound {
        cost: f32;
        inside: u32;
    }

    /// Coordinates of pages to look at, one page after the other.
    pub(crate) struct PageLookArgs {
        coordinates: Address<Const<f32>>;
        /// A byte for each: whether a part of the basis lacks it. None for none.
        outside: Address<Const<u8>>;
        seen: Address<PageFound>;
        /// Of each page, what its steps are multiplied by. None for none.
        steps: Address<Const<f64>>;
        /// Of a page.
        rows: u64;
        step: f64;
        rank, unused: u32;
    }

    /// Coordinates of pages whose sizes are guessed, one page after the other.
    pub(crate) struct PageSizesArgs {
        coordinates: Address<Const<f32>>;
        /// Of columns, a byte each.
        scales: Address<Const<u8>>;
        plans: Address<Const<Plan>>;
        /// Bits of a blob beside its symbols, by plan; none where those are looked for.
        beside: Address<Const<f32>>;
        /// Of each page its mean magnitude, then bits by plan.
        sizes: Address<f32>;
        /// Of a page.
        rows: u64;
        rank: u32;
        /// Bytes of what a blob says of transforms.
        transforms: u32;
    }

    /// A page, and plans that are ready.
    pub(crate) struct PagePlanArgs {
        encoding: Encoding;
        plan: Each<Plan>;
        status: Each<Status>;
        /// Plans to choose from, or where one is put.
        plans: Address<Const<Plan>>;
        kept: Each<Plan>;
        /// What each page's step is multiplied by. None for none.
        steps: Each<Const<f64>>;
        /// Room for the scales of a page's rows.
        row_scale: Each<u8>;
    }
}

kernels! {
    ByFloat<RateArgs>: rate_scan;
    Kernel<RateArgs>: rate_scan_open, rate_scan_exponents, rate_scan_unit, rate_scan_sum, rate_scan_rows,
        rate_scan_cols_few, rate_scan_cols, rate_fit_sample, rate_fit_first, rate_fit_low, rate_classes_try,
        rate_classes_apply, rate_trial_narrow, rate_trial_wide, rate_judge_pass;
    Kernel<ShareArgs>: rate_share_scale, rate_share_open, rate_share_counts, rate_share_begin, rate_share_step,
        rate_share_header;
    Kernel<PageModelArgs>: page_model;
    Kernel<PagePlanArgs>: page_plan, page_plan_keep;
    Kernel<PageLookArgs>: page_look;
    Kernel<PageSizesArgs>: page_sizes;
}
