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
pub mod carry;
mod coordinates;
mod decode;
mod engine;
mod entropy;
mod error;
mod facade;
pub mod format;
mod inspect;
mod layers;
mod levels;
mod lossless;
mod options;
mod policy;
pub mod prepare;
mod quant;
mod rate;
pub mod search;
mod simd;
mod stop;
mod subject;
mod view;
mod workers;

pub use blob::Parts;
pub use coordinates::Coordinates;
pub use engine::{Cpu, Engine};
pub use error::{Error, ErrorKind, Result};
pub use facade::{
    decode, decode_into, decode_rows, decode_rows_into, encode, encode_into, encode_parts, inspect,
    inspect_native, max_encoded_len, max_layered_len, verify,
};
pub use inspect::{BlobInfo, Codec};
pub use options::{DecodeOptions, Effort, EncodeOptions, Goal, Limits};
pub use policy::{Coded, Outcome, TINY, meet_goal};
pub use stop::Stop;
pub use subject::{Subject, estimate_bits, estimate_bits_prepared};
pub use view::{Dtype, Element, Tensor, TensorView};

/// Version of the bitstream that this build writes, and the newest it reads.
pub const FORMAT_VERSION: u8 = 1;
