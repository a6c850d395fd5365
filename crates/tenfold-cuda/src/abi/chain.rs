//! Transforms of a whole tensor: `chain.cu`, and `basis.cu` for rows of bf16.

use super::{Address, Const, Void, kernels, shared_constants, shared_structs};

shared_constants! {
    /// Threads of a block that works on a chain.
    const CHAIN_THREADS: u32 = 256;
}

shared_structs! {
    /// Rotary positions: which columns are turned, and how far.
    pub(crate) struct Turning {
        /// Radians of each pair from one position to the next.
        frequencies: Address<Const<f64>>;
        /// Rows lie in runs of `run` rows. Run i starts at position `starts[i mod count]`; each row after is one further.
        starts: Address<Const<u64>>;
        count, run: u64;
        /// The tensor's row that is the first one here.
        first: u64;
        /// Columns of a head, and pairs of it that are turned.
        head, half: u32;
        /// Whether a pair is of neighbours, and whether to turn back.
        neighbours, back: u32;
    }

    /// What every kernel of a chain takes. Each says what it makes of `kind`, `by` and `count`.
    pub(crate) struct ChainArgs {
        /// Rows, and where they go: the same place unless a kernel says otherwise.
        from: Address<Const<Void>>;
        to: Address<Void>;
        /// Numbers of the transform.
        table: Address<Const<Void>>;
        /// Rows, and the tensor's row that is the first of them.
        rows, first: u64;
        columns, kind, by, count: u32;
        turning: Turning;
    }

    /// A run of kept elements.
    pub(crate) struct ChainKept {
        start, bits: u64;
        len, unused: u32;
    }

    /// Elements of some rows and columns to bring together. Runs are numbered and placed as `Runs` of the core does it.
    pub(crate) struct GatherArgs {
        from: Address<Const<Void>>;
        to: Address<Void>;
        /// Bytes of a row there, and of an element.
        row, size: u64;
        /// Runs of rows: how many there are, how many are taken, and rows of a run. Then those of columns.
        rows_of, rows_take, rows_len: u64;
        cols_of, cols_take, cols_len: u64;
    }

    /// Rows of bf16 to turn.
    pub(crate) struct BasisArgs {
        /// Rows, and where they go, which may be the same place.
        from: Address<Const<u16>>;
        to: Address<u16>;
        rows: u64;
        columns, unused: u32;
        turning: Turning;
    }
}

kernels! {
    ByReal<ChainArgs>: chain_load, chain_store, chain_transpose, chain_add, chain_weigh, chain_differ, chain_sum, chain_turn,
        chain_hadamard, chain_cosines, chain_power;
    Kernel<ChainArgs>: chain_product_8, chain_keep;
    Kernel<GatherArgs>: chain_gather;
    Kernel<BasisArgs>: basis_turn;
}
