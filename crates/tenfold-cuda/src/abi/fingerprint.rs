//! Fingerprints of tensors: `fingerprint.cu`.

use super::{Address, Const, kernels, shared_constants, shared_structs};

shared_constants! {
    /// Threads of a block: chunks that it hashes, nodes that it merges.
    const FINGERPRINT_THREADS: u32 = 256;
    /// Words before a tensor at most: dtype, number of dimensions, sixteen dimensions.
    const FINGERPRINT_BEFORE: usize = 34;
}

shared_structs! {
    /// A tensor, or nodes of its tree, and where the nodes that follow from them go.
    pub(crate) struct FingerprintArgs {
        from: Address<Const<u8>>;
        to: Address<u32>;
        /// Bytes of the tensor; its chunks, or nodes.
        len, count: u64;
        /// What stands before the tensor, and how many bytes of that.
        before: [u32; FINGERPRINT_BEFORE];
        before_len: u32;
        /// How often neighbours are merged.
        levels: u32;
    }
}

kernels! {
    #[grid_constant] Kernel<FingerprintArgs>: fingerprint_chunks, fingerprint_nodes;
}
