//! Feedback of errors along the columns of a matrix: `factor.cu`, `feed_*.cu`.

use super::{Address, Const, LevelsPass, Void, kernels, shared_constants, shared_structs};

shared_constants! {
    /// Columns of a factor that are finished together.
    const FACTOR_PANEL: u32 = 64;
    /// Threads of a block that works on a factor: for its corner and for all of it, and for rows below a corner, a thread each.
    const FACTOR_THREADS: u32 = 256;
    const FACTOR_ROWS: u32 = 64;
    /// Shared memory of the latter: the corner, and the rows with a gap against bank conflicts.
    const FACTOR_SHARED: u32 = FACTOR_PANEL * FACTOR_PANEL * 8 + FACTOR_PANEL * (FACTOR_ROWS + 1) * 8;
    /// Columns whose errors are fed to those behind them together. Within so many a block adds them up by itself, and products are
    /// large enough not to wait for memory alone.
    const FEED_PANEL: u32 = 32;
    /// Threads of a block that feeds: a trellis has one block, in which a warp searches while the others work out costs.
    const FEED_THREADS: u32 = 1024;
    const FEED_SCALAR_THREADS: u32 = 128;
    /// Steps whose costs are worked out at a time.
    const FEED_CHUNK: u32 = 32;
    /// Steps that a trellis looks beyond the end of a column, for each bit of its state.
    const FEED_AHEAD: u32 = 5;
    /// Steps whose decisions fit into shared memory.
    const FEED_STEPS: u32 = 512;
    /// Shared memory of blocks that feed, beside what a search for levels takes, for all but the wide trellis within the 99 KiB that a
    /// block has on any device since sm_86: ways through a trellis; costs, two chunks of them;
    /// values ahead and metrics of a wide trellis; coefficients, values and errors of a scalar quantiser.
    const FEED_PATH_SHARED: u32 = FEED_STEPS * 32;
    const FEED_TRELLIS_SHARED: u32 = FEED_PATH_SHARED + 2 * FEED_CHUNK * 32 * 16;
    const FEED_WIDE_SHARED: u32 = FEED_PATH_SHARED + 8 * FEED_AHEAD * 32 * 4 + FEED_THREADS / 32 * 2304;
    const FEED_SCALAR_SHARED: u32 = (1 + FEED_SCALAR_THREADS / 32 * 2) * FEED_PANEL * 33 * 4;
}

shared_structs! {
    /// What factoring takes.
    pub(crate) struct FactorArgs {
        /// E[x·xᵀ] of so many columns, and the matrix that is factored in place: from the last column to the first.
        inputs: Address<Const<f32>>;
        matrix: Address<f64>;
        cols, first: u64;
        /// What the diagonal is multiplied by, and what it is at least.
        damping, floor: f64;
        /// The first row without a positive pivot and one, or 0.
        bad: Address<u32>;
        /// Square roots of what errors of columns count; what columns are multiplied by.
        pivots: Address<f64>;
        factors: Address<Const<f32>>;
        /// In row k: what an error of one in column j < k adds to column k.
        feed: Address<f32>;
    }

    /// A matrix to weigh: elements of a dtype, row by row.
    pub(crate) struct FeedLoadArgs {
        from: Address<Const<Void>>;
        to: Address<f32>;
        /// What columns and rows are multiplied by; none for rows that are left as they are.
        columns, rows: Address<Const<f32>>;
        /// Whether any working value is not finite.
        bad: Address<u32>;
        outputs, inputs, kind: u32;
        /// Whether columns come one after the other.
        turned: u32;
    }

    /// Two tensors of a dtype, and what they differ by.
    pub(crate) struct FeedOffArgs {
        original, instead: Address<Const<Void>>;
        off: Address<f32>;
        /// Its product with E[x·xᵀ], and where the sum of both, multiplied, goes for each row.
        product: Address<Const<f32>>;
        sums: Address<f64>;
        rows, columns: u64;
        kind, unused: u32;
    }

    /// Columns that are quantised one after the other.
    pub(crate) struct FeedArgs {
        levels: LevelsPass;
        /// The weighted matrix as it is, and with the errors that are fed to it: what is encoded.
        values: Address<Const<f32>>;
        fed: Address<f32>;
        /// Of these columns: column by column, or by output.
        errors: Address<f32>;
        /// In row k: what an error of one in column j < k adds to column k, both counted from the block's first.
        feed: Address<Const<f32>>;
        feed_cols: u64;
        /// States of lanes between columns, decisions of a wide trellis, and ways through one that are too long for shared memory.
        states, decisions, path: Address<u32>;
        /// The block's first column and the one behind it; the first of these and the one behind them.
        block, block_end, first, end: u32;
        outputs, inputs: u32;
        /// Whether columns come one after the other.
        turned, unused: u32;
    }
}

kernels! {
    Kernel<FactorArgs>: factor_damp, factor_corner, factor_below, factor_pivots, factor_turn;
    Kernel<FeedLoadArgs>: feed_load;
    Kernel<FeedOffArgs>: feed_off, feed_sum;
    #[grid_constant] Kernel<FeedArgs>: feed_scalar, feed_trellis, feed_wide;
}
