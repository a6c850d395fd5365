//! Tensors as pictures: H.264, H.265 and AV1 behind tenfold's goals and in tenfold's blobs.
#![deny(unsafe_code)]

pub mod codec;
mod error;

pub use error::{Error, Result};
