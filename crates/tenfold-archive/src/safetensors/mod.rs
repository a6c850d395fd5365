//! The safetensors format: one header of JSON, then the tensors' bytes without holes.
//!
//! Headers are read and checked here rather than by the `safetensors` crate's loader, because that one
//! keeps neither the order of the names nor duplicates; its types and its own check are used all the same.

mod dtype;
mod file;
mod header;
mod index;
mod memory;
mod writer;

pub(crate) use dtype::{codec_dtype, dtype_name, parse_dtype, stored_dtype};
pub(crate) use file::{MAX_HEADER, PREFIX, SafetensorsFile};
pub(crate) use header::{Entry, Header, UniqueMap, tensor_bytes};
pub(crate) use index::ShardIndex;
pub(crate) use memory::MemoryFile;
pub(crate) use safetensors::Dtype as StoredDtype;
pub(crate) use writer::{ShardWriter, Slot};
