//! A matrix times a vector: `multiply.cu`.

use super::{Address, Const, Void, kernels, shared_constants, shared_structs};

shared_constants! {
    /// Threads of a block that multiplies.
    const MULTIPLY_THREADS: u32 = 512;
}

shared_structs! {
    /// What multiplying takes.
    pub(crate) struct MultiplyArgs {
        /// Rows one after the other, a number for each column, one for each row or none, and where a number for each row goes.
        matrix, vector, bias: Address<Const<Void>>;
        to: Address<Void>;
        rows, columns: u32;
    }
}

kernels! {
    Kernel<MultiplyArgs>: multiply_bf16, multiply_f16;
}
