//! Layers of working values: `layers.cu`.

use super::{Address, Const, Void, kernels, shared_constants, shared_structs};

shared_constants! {
    /// Threads of a block that works on layers.
    const LAYERS_THREADS: u32 = 256;
}

shared_structs! {
    /// What every kernel of layers takes.
    pub(crate) struct LayersArgs {
        /// Elements or working values, and where the result goes, which may be the place of the first.
        first, second: Address<Const<Void>>;
        to: Address<Void>;
        count: u64;
        /// Of the elements.
        dtype, unused: u32;
    }
}

kernels! {
    ByReal<LayersArgs>: layers_add, layers_subtract;
    Kernel<LayersArgs>: layers_widen, layers_round, layers_largest;
}
