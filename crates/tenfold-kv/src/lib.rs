//! Keys, values and hidden states of language models.
//!
//! Channels of a key-value cache have means of their own and are correlated. [`basis`] finds that structure in captured
//! rows and keeps it in a file beside the model, so that no blob has to repeat it. [`page`] makes pages of keys and
//! values within a number of bytes, [`RowCodec`] blobs of hidden states. With the feature `cuda`, `device` decodes pages on a GPU.
#![deny(unsafe_code)]

pub mod basis;
#[cfg(feature = "cuda")]
pub mod device;
mod error;
pub mod page;
mod rows;

pub use error::{Error, Result};
pub use rows::RowCodec;

/// Compiles and runs the examples of the documentation with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kv.md")]
struct Documentation;
