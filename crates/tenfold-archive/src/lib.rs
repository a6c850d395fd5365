//! Model files: safetensors in and out, GGUF and npy in. This crate streams tensors between files and
//! the codec; it knows nothing of the inside of a blob.

mod error;
pub mod gguf;
pub mod npy;
mod pread;
pub mod source;

pub use error::{Error, Result};
pub use source::{Source, TensorInfo};
