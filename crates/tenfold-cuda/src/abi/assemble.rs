//! Putting a blob together: `assemble.cu`.

use super::{Each, kernels, shared_constants, shared_structs};
use crate::status::Status;

shared_constants! {
    /// Most dimensions of a tensor that a device encodes: what readers take by default.
    const MAX_DIMS: usize = 16;
    /// Threads of a block, at most.
    const ASSEMBLE_THREADS: u32 = 1024;
    /// Words of a coder's ring in shared memory; half of them leave it at a time.
    const PACK_RING: usize = 512;
}

shared_structs! {
    /// A blob whose header and tiles' lengths are known.
    pub(crate) struct Assembly {
        status: Each<Status>;
        /// The header up to the padding before the directory, zeros after it up to a multiple of four; and its bytes.
        staged: Each<u32>;
        staged_len: Each<u64>;
        /// Bytes of each tile, a multiple of four.
        lengths: Each<u32>;
        /// Where each tile starts, counted from the blob's start: made by `assemble_layout`.
        offsets: Each<u64>;
        tiles: u64;
        /// The blob, at a multiple of 16, and how many bytes there is room for.
        out: Each<u8>;
        out_len: u64;
    }
}

kernels! {
    Kernel<Assembly>: assemble_layout, assemble_seal;
}
