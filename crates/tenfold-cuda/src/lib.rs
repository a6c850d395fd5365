//! The CUDA engine: the blobs of [`tenfold`], made and read on a GPU at the speed of its memory.
//!
//! [`CudaEngine`] takes and gives host memory. [`decode`] and [`encode`] work on memory of the device: they queue
//! kernels on a caller's stream and neither allocate nor wait. docs/cuda.md shows both.

mod abi;
mod calibrated;
mod codec;
#[doc(hidden)]
pub mod constants;
mod decode;
mod delta;
mod device;
mod driver;
mod encode;
mod engine;
mod error;
mod event;
mod fingerprint;
mod layers;
mod memory;
mod multiply;
mod pictures;
mod pieces;
mod prepare;
mod ptx;
mod status;
mod stream;
mod timing;
mod upload;

pub use codec::DeviceCodec;
pub use decode::{
    DecodeRequest, DecodeSettings, Order, can_convert, can_decode, capabilities, decode, decode_opened,
    decode_workspace_len, lane_values, open,
};
pub use delta::{DeltaApplier, DeltaPlan, DeltaRequest, apply_delta, delta_workspace_len};
pub use device::{Device, DeviceSlice};
pub use driver::{Properties, Stream};
pub use encode::{
    EncodeBatch, EncodeRequest, encode, encode_batch, encode_batch_workspace_len, encode_workspace_len,
};
#[doc(hidden)]
pub use encode::{FixedPlan, encode_fixed, fixed_workspace_len};
pub use engine::CudaEngine;
pub use error::{Error, Result};
pub use event::OwnedEvent;
pub use fingerprint::fingerprints;
pub use memory::{Buffer, Memory, Pinned, Taken};
pub use multiply::{MultiplyRequest, multiply};
#[doc(hidden)]
pub use multiply::{SquareProduct, multiply_squares};
pub use pictures::{Luma, PictureValues, Samples, Sharing, Specials, store_picture};
pub use prepare::{
    DeviceBasis, DeviceChain, DevicePool, EncodePages, PageBlobs, PageSeen, PageSizes, PageSlots, PoolLayout,
    decode_coordinates, decode_pages, decode_pages_workspace_len, decode_prepared,
    decode_prepared_workspace_len, decode_to_pools, decode_to_pools_workspace_len, encode_pages,
    encode_pages_workspace_len, encode_prepared, encode_prepared_workspace_len, guess_page_sizes,
    look_at_pages, look_at_pages_workspace_len, undo_chain, undo_chain_input, undo_chain_workspace_len,
};
pub use status::{Code, Status};
pub use stream::OwnedStream;
pub use timing::Timer;
pub use upload::Upload;

/// Compiles the examples of the page with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cuda.md")]
struct Page;
