//! What the tests share: seeded tensors, an independent reading of every float type, measures of error.
#![allow(dead_code, unused_imports)] // every test file uses its own part
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod blobs;
mod data;
mod floats;
mod measure;

pub use blobs::{forge, parts, seal, small_blobs};
pub use data::{KINDS, Kind, Random, SMOOTH, Sample, real_tensors};
pub use floats::{specials, to_bytes, to_reals};
pub use measure::{Faults, max_error, measure, mse, variance};
use tenfold::{DecodeOptions, Dtype, Effort};

pub const FLOATS: [Dtype; 6] =
    [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::F8E4M3, Dtype::F8E5M2];
pub const EFFORTS: [Effort; 3] = [Effort::Fast, Effort::Balanced, Effort::Best];

/// Decodes with default options.
pub fn decode(blob: &[u8]) -> tenfold::Tensor {
    tenfold::decode(blob, &DecodeOptions::default()).unwrap()
}
