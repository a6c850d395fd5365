//! What every input format looks like to the rest of the crate.

use std::borrow::Cow;
use std::collections::BTreeMap;

use tenfold::Dtype;

use crate::error::Result;

/// One tensor of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Element type of what [`Source::read`] returns.
    pub dtype: Dtype,
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// Bytes of what [`Source::read`] returns.
    pub bytes: u64,
}

/// A file (or a set of shards) that holds named tensors.
pub trait Source: Send + Sync {
    /// The tensors, in file order. Names are unique; sizes have been checked against the file.
    fn tensors(&self) -> &[TensorInfo];

    /// Key/value metadata of the file.
    fn metadata(&self) -> &BTreeMap<String, String>;

    /// The bytes of tensor `index`: little-endian, row-major, borrowed from a memory map where possible.
    fn read(&self, index: usize) -> Result<Cow<'_, [u8]>>;
}
