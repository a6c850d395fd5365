//! Rows of a paged pool: `pool.cu`.

use super::{Address, Const, Turning, Void, kernels, shared_constants, shared_structs};

shared_constants! {
    /// Threads of a block that moves rows of a pool.
    const POOL_THREADS: u32 = 256;
    /// Most layers of a pool, whose addresses are arguments.
    const POOL_LAYERS: u32 = 256;
}

shared_structs! {
    /// What moves between a pool and rows.
    pub(crate) struct PoolArgs {
        /// Where each layer starts.
        bases: [u64; POOL_LAYERS as usize];
        /// The slot of each token.
        slots: Address<Const<u64>>;
        rows: Address<Void>;
        tokens: u64;
        /// Slots of the pool, fewer than 2^32.
        slot_count: u64;
        /// Bytes from a block, a token and a head to the next.
        block_stride, token_stride, head_stride: u64;
        /// Layers, and tokens of a block.
        layers, block: u32;
        /// Heads of a token that lie apart, and units of one.
        heads, head: u32;
        /// Bytes of a unit: 16, 4, 2 or 1. Where rows are bf16 and the pool is not, its elements: 8 or 1.
        unit: u32;
        /// Dtype of the pool where rows are bf16; 0 where they are what the pool has.
        dtype: u32;
    }

    /// The same for keys, rows of bf16 that are turned on the way: units of eight elements, all heads apart.
    pub(crate) struct TurnedPoolArgs {
        pool: PoolArgs;
        turning: Turning;
    }
}

kernels! {
    #[grid_constant] Kernel<PoolArgs>: pool_gather, pool_scatter;
    #[grid_constant] Kernel<TurnedPoolArgs>: pool_scatter_turned;
}
