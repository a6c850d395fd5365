//! A codec for the tensors of large models: weights, KV cache, activations, gradients.
//!
//! One bitstream from lossless down to less than one bit a value. State a [`Goal`], get a blob: a
//! self-describing, checksummed byte string for one tensor.
//!
//! ```
//! use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};
//! let values: Vec<f32> = (0..8192).map(|i| (i as f32 * 0.7).sin()).collect();
//! let view = TensorView::from_slice(&values, &[64, 128])?;
//! let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Bits(4.0)))?;
//! assert!(blob.len() <= 8192 / 2 + 82); // 4 bits a value, within 2 %
//! let tensor = tenfold::decode(&blob, &DecodeOptions::default())?;
//! assert_eq!(tensor.shape, [64, 128]);
//! # Ok::<(), tenfold::Error>(())
//! ```
#![deny(unsafe_code)]

mod blob;
pub mod calibrated;
mod decode;
pub mod delta;
pub mod engine;
mod entropy;
mod error;
pub mod format;
mod goal;
mod levels;
mod lossless;
mod options;
pub mod prepare;
mod quant;
mod rate;
mod simd;
mod view;
mod workers;

use std::ops::Range;

use engine::{Cpu, Engine, Limits, Result};
use format::BlobInfo;

pub use error::Error;
pub use options::{DecodeOptions, Effort, EncodeOptions, Goal};
pub use rate::EncodePlan;
pub use view::{Dtype, Tensor, TensorView};

/// Encodes a tensor into a new blob.
///
/// Integers and booleans take [`Goal::Lossless`] only. A goal that a lossless blob meets with fewer bytes is met losslessly.
/// [`engine::Cpu`] does the same into memory of the caller.
pub fn encode(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
    Cpu.encode(view, options)
}

/// Decodes a blob into a new tensor. [`engine::Cpu`] does the same into memory of the caller.
pub fn decode(blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
    Cpu.decode(blob, options)
}

/// Decodes rows `rows` of the two-dimensional view; only the tiles that hold them are read. The result has shape
/// `[rows.len(), cols]`.
///
/// ```
/// use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};
/// let values: Vec<f32> = (0..4096).map(|i| i as f32).collect();
/// let view = TensorView::from_slice(&values, &[64, 64])?;
/// let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Lossless))?;
/// let rows = tenfold::decode_rows(&blob, 10..12, &DecodeOptions::default())?;
/// assert_eq!(rows.to_vec::<f32>()?, values[640..768]);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn decode_rows(blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
    Cpu.decode_rows(blob, rows, options)
}

/// Reads a blob's header; decodes nothing.
pub fn inspect(blob: &[u8]) -> Result<BlobInfo> {
    // Nothing is allocated for the tensor itself, so its size is no concern here.
    BlobInfo::read(blob, &Limits::default().with_max_bytes(u64::MAX))
}
