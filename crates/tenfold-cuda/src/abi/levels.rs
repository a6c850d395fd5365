//! Lossy tiles: `levels_*.cu` of the encoder.

use tenfold::format::MAX_CLASSES;

use super::{Assembly, Each, Encoding, Plan, kernels, shared_constants, shared_structs};
use crate::status::Status;

shared_constants! {
    /// Threads of a block, at most, and blocks that a multiprocessor has room for.
    const LEVELS_THREADS: u32 = 512;
    const LEVELS_BLOCKS: u32 = 2;
    /// Threads of a block that clears what a pass adds to, and of one that makes tables.
    const PASS_THREADS: u32 = 256;
    const TABLES_THREADS: u32 = 1024;
    /// Steps of a lane's part that a warp searches through, at least.
    const PART_LEAST: u32 = 256;
    /// Tables of a blob: two a class.
    const LEVELS_SETS: usize = 2 * MAX_CLASSES;
    /// Classes that the levels of pairs may have: as many as there is room for while they are packed.
    const PAIR_CLASSES: usize = MAX_CLASSES / 2;
    /// Shared memory of a block that searches for levels, that packs them, that writes them, in bytes and without what
    /// each of its warps takes.
    const SEARCH_SHARED: usize = 50 << 10;
    const PACK_SHARED: usize = 73 << 10;
    const WRITE_SHARED: usize = 10 << 10;
    /// What a block that packs the levels of a scalar quantiser takes of that, whatever it packs and for each class.
    const PACK_FIXED: usize = 144;
    const PACK_CLASS: usize = 2592;
    /// Bytes of shared memory of a warp that searches through 256 states, and of one that writes.
    const WIDE_WARP_SHARED: usize = 2304;
    const WRITE_WARP_SHARED: usize = 512;
}

shared_structs! {
    /// What is kept of a tile between packing and writing it.
    pub(crate) struct LevelsTile {
        /// Words of the stream; levels without a slot, and the largest of their high parts.
        words, escapes, far, low_bits, exact_runs, exact_bytes, flags, spare: u32;
    }

    /// What a warp adds up over all that it quantises: squared steps of error, and finite values.
    pub(crate) struct LevelsSum {
        error: f64;
        finite: u64;
    }

    /// What every kernel of a pass takes.
    pub(crate) struct LevelsPass {
        encoding: Encoding;
        plan: Each<Plan>;
        /// Of this pass alone: a blob that is still too large is no failure.
        pass: Each<Status>;
        /// A code a value, as a trellis left it, in groups of four ticks.
        codes: Each<u16>;
        /// Decisions of a search, `warp_decisions` bytes a warp.
        decisions: Each<u8>;
        warp_decisions: u64;
        /// Warps that share a tile in a search through few states, and the steps of each lane that one takes, a multiple
        /// of four.
        parts, part_ticks: u32;
        /// A slot of words a tile, filled from its end.
        words: Each<u16>;
        slot_words: u32;
        /// Escapes of a tile that are kept; where there are more, they are looked for again.
        escape_room: u32;
        /// States of the lanes, and the last escapes of each tile.
        states: Each<u32>;
        escapes: Each<i32>;
        tiles: Each<LevelsTile>;
        /// Bytes of each tile, and where it starts in the blob.
        lengths: Each<u32>;
        starts: Each<u64>;
        /// Counts and frequencies by set and symbol.
        counts: Each<u64>;
        freq: Each<u32>;
        /// First slots of the symbols of pairs, four tables a class.
        pairs: Each<u16>;
        sums: Each<LevelsSum>;
        sum_count: u32;
        /// Whether to measure the error of what a decoder will see.
        measure: u32;
        /// The header on its way, the room for it and for all but its lists of scales, and its length.
        header: Each<u32>;
        header_room, header_front: u64;
        header_len: Each<u64>;
    }

    /// What kernels around a pass take.
    pub(crate) struct LevelsTurn {
        levels: LevelsPass;
        /// What the caller is told.
        status: Each<Status>;
        /// Whether the host may queue another pass: it is told by the status's `detail` if one is wanted.
        more, unused: u32;
    }

    /// What kernels that put tiles in their places take.
    pub(crate) struct LevelsWrite {
        pass: LevelsPass;
        assembly: Assembly;
    }

    /// A plan as the host gives it, for tests.
    pub(crate) struct LevelsFixed {
        plan: Each<Plan>;
        counts: Each<u64>;
        step, bound: f64;
        width, rows, row_scale, col_scale: u64;
        dtype, nu, bounded, classes, row_bits, col_bits, log, paired: u32;
        max_u, lambda: f32;
        offsets: [i32; 16];
        thresholds, low: [u8; MAX_CLASSES];
    }
}

kernels! {
    #[grid_constant] ByFloat<LevelsPass>: levels_count, levels_trellis, levels_wide, levels_pack;
    #[grid_constant] Kernel<LevelsPass>: levels_tables;
    #[grid_constant] ByFloat<LevelsWrite>: levels_write;
    Kernel<LevelsTurn>: levels_pass_open, levels_pass_begin, levels_pass_end, levels_pass_close;
    Kernel<LevelsFixed>: levels_fixed_plan, levels_fixed_costs;
}
