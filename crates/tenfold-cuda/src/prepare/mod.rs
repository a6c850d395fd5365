//! Transforms on a device.
//!
//! `chain` holds a chain of transforms on a device, `link` one of them, `transforms` does and undoes them, `calls` are
//! encoding and decoding behind them: a tensor is made working values, each transform goes over all of them, and what comes of it is
//! encoded as a tensor of its own. `pages` is the quick way for many pages of bf16 rows behind one basis, `rope` turns rows, `look` and `sizes` look at pages before they are encoded,
//! `pool` moves rows out of blocks and back, `pool_pages` decodes pages of several bases into blocks, `gather` brings together what the host looks at to choose transforms.

mod calls;
mod chain;
mod gather;
mod link;
mod look;
mod pages;
mod pool;
mod pool_pages;
mod rope;
mod sizes;
mod transforms;

pub use calls::{
    decode_prepared, decode_prepared_workspace_len, encode_prepared, encode_prepared_workspace_len,
    undo_chain, undo_chain_input, undo_chain_workspace_len,
};
pub use chain::DeviceChain;
pub(crate) use gather::gather;
pub use look::{PageSeen, look_at_pages, look_at_pages_workspace_len};
pub(crate) use pages::PRODUCT_BYTES;
pub use pages::{
    DeviceBasis, EncodePages, decode_coordinates, decode_pages, decode_pages_workspace_len, encode_pages,
    encode_pages_workspace_len,
};
pub use pool::{DevicePool, PoolLayout};
pub use pool_pages::{PageBlobs, PageSlots, decode_to_pools, decode_to_pools_workspace_len};
pub use sizes::{PageSizes, guess_page_sizes};
