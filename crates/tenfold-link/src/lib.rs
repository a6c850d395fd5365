//! Models over the wire: send, fetch and check them while both ends compute.
//!
//! [`pipeline`] joins stages (read, encode, send, receive, decode) by bounded queues. With the feature `http`, `serve` offers a folder
//! over HTTP and `pull` fetches from there, from any web server, and from files.
//! This crate is about when things happen; how a tensor is coded it does not know.
#![deny(unsafe_code)]

mod error;
#[cfg(feature = "http")]
mod ranges;

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod interrupt;
#[cfg(feature = "http")]
mod manifest;
#[cfg(feature = "http")]
pub mod pull;
#[cfg(feature = "http")]
pub mod serve;

pub use error::{Error, Result};
#[cfg(feature = "http")]
pub use interrupt::on_interrupt;
#[cfg(feature = "http")]
pub use manifest::{FileEntry, MANIFEST, Manifest, TensorEntry};
pub use tenfold_pipeline as pipeline;
