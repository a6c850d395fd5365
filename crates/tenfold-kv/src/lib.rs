//! Keys, values and hidden states of language models.
//!
//! Channels of a key-value cache have means of their own and move together. [`basis`] finds from captured rows what they
//! have in common and keeps it in a file beside the model, so that no blob has to say it again.
#![deny(unsafe_code)]

pub mod basis;
mod error;
pub mod page;

pub use error::{Error, Result};

/// Compiles and runs the examples of the documentation with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kv.md")]
struct Documentation;
