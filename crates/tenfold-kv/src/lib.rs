//! Keys, values and hidden states of language models.
#![deny(unsafe_code)]

mod error;
pub mod page;

pub use error::{Error, Result};
