//! GGUF files as input. Descriptors are parsed in `parse`, quantised blocks become numbers in
//! `dequant`, and `source` offers both as a [`Source`](crate::Source).
//!
//! Quantised tensors are read as f32, not f16: a value is a product of an 11-bit scale and a 4- to 8-bit
//! integer (for the K types of three factors and a difference), which f16 cannot hold exactly.

mod dequant;
mod parse;
mod source;

pub use dequant::Blocks;
pub use source::GgufSource;
