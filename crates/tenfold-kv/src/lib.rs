//! Keys, values and hidden states of language models.
//!
//! Channels of a key-value cache have means of their own and move together. [`basis`] finds from captured rows what they
//! have in common and keeps it in a file beside the model, so that no blob has to say it again. [`page`] makes pages of keys
//! and values that keep to their size, [`RowCodec`] blobs of hidden states.
#![deny(unsafe_code)]

pub mod basis;
mod error;
pub mod page;
mod rows;

pub use error::{Error, Result};
pub use rows::RowCodec;

/// Compiles and runs the examples of the documentation with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kv.md")]
struct Documentation;
