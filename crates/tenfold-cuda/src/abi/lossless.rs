//! Lossless tiles: `lossless_count.cu`, `lossless_encode.cu`, `lossless_whole.cu`, `lossless_write.cu`.

use super::{Address, Assembly, Const, MAX_DIMS, Uint2, kernels, shared_constants, shared_structs};

shared_constants! {
    /// Threads of a block that counts, and, at most, of one that codes or writes.
    const COUNT_THREADS: u32 = 1024;
    const LOSSLESS_THREADS: u32 = 256;
    /// Threads, at most, of a block that makes whole tiles; bytes of its shared memory that do not depend on tiles, and of
    /// each warp's besides the low bytes of a tile.
    const WHOLE_THREADS: u32 = 384;
    const WHOLE_SHARED: usize = 256 * 16 + 512;
    const WHOLE_WARP: usize = 1024 + 144;
    /// Bytes of a block's histograms: several of each plane, so that threads do not wait for each other.
    const COUNT_BYTES: usize = 64 << 10;
}

shared_structs! {
    /// What is known of the planes of a tensor: which have a table, which are one byte throughout as far as a sample
    /// says, and whether a tile turned out to have a byte that the sample had not.
    pub(crate) struct Tabled {
        coded, constant, missed, unused: u32;
        /// Tiles that warps of `lossless_whole` have taken in the first pass and in the second.
        taken: [u32; 2];
    }

    /// What every kernel of a lossless encoder takes.
    pub(crate) struct LosslessArgs {
        assembly: Assembly;
        data: Address<Const<u8>>;
        values, tile_values: u64;
        /// How often each byte occurs in each plane; the same in a sample, or null where there is none.
        counts, sampled: Address<u64>;
        /// Symbols as they are pushed, by plane.
        entries: Address<Uint2>;
        tabled: Address<Tabled>;
        /// Head of each plane of each tile; and a slot for each of them, states first.
        heads: Address<u32>;
        slots: Address<u8>;
        slot_bytes: u64;
        slot_words, staged_room, lanes, ticks, dtype, dims: u32;
        /// Set for the second pass over a tensor that was sampled: it does nothing unless the sample had missed a byte.
        again: u32;
        /// Whether `lossless_whole` makes the tiles of planes that suit it.
        whole: u32;
        /// Of so many bytes of a large tensor one is looked at before all are counted.
        every: u64;
        /// What `lossless_whole` knows of the ends of tiles, in the first pass and in the second.
        ends: Address<u64>;
        shape: [u64; MAX_DIMS];
    }
}

kernels! {
    Kernel<LosslessArgs>: lossless_count_begin, lossless_encode_tables, lossless_whole_tiles, lossless_layout;
    BySize<LosslessArgs>: lossless_count_sample, lossless_count, lossless_encode_tiles, lossless_write;
}
