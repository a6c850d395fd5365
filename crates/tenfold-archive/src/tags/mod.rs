//! The keys that tenfold adds to a file's `__metadata__`: which tensors are blobs, what they were, and checksums of all that
//! no blob covers. `docs/format.md`, 'Model files', is their specification.
//!
//! | key | value |
//! |---|---|
//! | `tenfold.format` | version of these keys, now `1` |
//! | `tenfold.tensors` | JSON map from the name of each blob to its `dtype` (as in a header) and `shape` |
//! | `tenfold.plain` | JSON map from the name of each other tensor to its checksum |
//! | `tenfold.check` | checksum of the header: metadata and tensors |
//! | `tenfold.data_order` | JSON list: order of the tensors' bytes in the original, as positions in the header; left out where it is the header's order |
//! | `tenfold.scope` | `model` where the lists name the tensors of all shards of a model, not only those of the file; left out otherwise |
//! | `tenfold.delta` | in a delta, what it does; `crate::delta` |
//! | `tenfold.metadata` | with that scope, JSON map: the original's metadata |
//!
//! A flipped bit can hide one key, never two. So format and tensors go together, and so do plain and check: one without
//! the other is damage. Files from before the checksums have neither of the latter two.
//!
//! The header keeps the original's order of names. The bytes do not: tensors left as they were come first,
//! because blobs have odd lengths and loaders want other types aligned.

mod check;
mod read;
mod write;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::safetensors::StoredDtype;

pub use check::checksum;
pub(crate) use check::{tensor_checksum, tensor_hasher};
pub(crate) use read::read;
pub use write::model_tags;
pub(crate) use write::{seal, write};

const PREFIX: &str = "tenfold.";
const FORMAT: &str = "tenfold.format";
const TENSORS: &str = "tenfold.tensors";
const PLAIN: &str = "tenfold.plain";
const CHECK: &str = "tenfold.check";
const DATA_ORDER: &str = "tenfold.data_order";
const SCOPE: &str = "tenfold.scope";
const METADATA: &str = "tenfold.metadata";
/// What makes a file a delta.
pub(crate) const DELTA: &str = "tenfold.delta";
/// The value of [`SCOPE`].
const MODEL: &str = "model";

/// Version of the keys that say how a model is stored.
pub const MODEL_FORMAT: u32 = 1;

/// What a blob was before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Original {
    pub dtype: StoredDtype,
    pub shape: Vec<usize>,
    pub bytes: u64,
}

/// The keys of one shard.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    pub blobs: HashMap<String, Original>,
    /// Checksums of all other tensors; `None` in files from before they had any.
    pub plain: Option<HashMap<String, u32>>,
    /// Order of the original's bytes; positions in the header.
    pub data_order: Vec<usize>,
    /// The original's metadata.
    pub metadata: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct StoredOriginal {
    dtype: String,
    shape: Vec<usize>,
}

/// Whether metadata holds any of our keys.
pub(crate) fn is_tagged(metadata: &[(String, String)]) -> bool {
    metadata.iter().any(|(key, _)| key.starts_with(PREFIX))
}

pub(crate) fn get<'a>(metadata: &'a [(String, String)], key: &str) -> Option<&'a str> {
    metadata.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}
