//! The keys that tenfold adds to a file's `__metadata__`: which tensors are blobs, and what they were.
//!
//! | key | value |
//! |---|---|
//! | `tenfold.format` | version of these keys, now `1` |
//! | `tenfold.scope` | `model` where the next key names blobs of all shards of a model, not only those of the file; left out otherwise |
//! | `tenfold.tensors` | JSON map from the name of each blob to its `dtype` (as in a header) and `shape` |
//! | `tenfold.data_order` | JSON list: order of the tensors' bytes in the original, as positions in the header; left out where it is the header's order |
//!
//! The header keeps the original's order of names. The bytes do not: tensors left as they were come first,
//! because blobs have odd lengths and loaders want other types aligned.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::{Item, Shard};
use crate::safetensors::{StoredDtype, UniqueMap, parse_dtype, tensor_bytes};

const PREFIX: &str = "tenfold.";
const FORMAT: &str = "tenfold.format";
const TENSORS: &str = "tenfold.tensors";
const DATA_ORDER: &str = "tenfold.data_order";
const SCOPE: &str = "tenfold.scope";

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
    metadata.iter().any(|(key, _)| key == FORMAT)
}

/// Adds our keys to a shard's metadata. `blob` says which of its tensors become blobs.
pub(crate) fn write(
    shard: &Shard,
    items: &[Item],
    blob: impl Fn(usize) -> bool,
) -> Result<Vec<(String, String)>> {
    let cannot =
        |e: serde_json::Error| Error::malformed(&shard.path, format!("metadata cannot be written: {e}"));
    let mut tensors = serde_json::Map::new();
    for index in shard.items.clone().filter(|&index| blob(index)) {
        let item = &items[index];
        let original = StoredOriginal { dtype: item.dtype.to_string(), shape: item.shape.clone() };
        tensors.insert(item.name.clone(), serde_json::to_value(original).map_err(cannot)?);
    }
    let mut metadata = shard.metadata.clone();
    metadata.push((FORMAT.into(), MODEL_FORMAT.to_string()));
    metadata.push((TENSORS.into(), serde_json::to_string(&tensors).map_err(cannot)?));
    if !shard.data_order.iter().copied().eq(0..shard.data_order.len()) {
        metadata.push((DATA_ORDER.into(), serde_json::to_string(&shard.data_order).map_err(cannot)?));
    }
    Ok(metadata)
}

/// Reads our keys; `None` if the shard has none.
pub(crate) fn read(shard: &Shard, items: &[Item]) -> Result<Option<Tags>> {
    let path = &shard.path;
    let get = |key: &str| shard.metadata.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    let Some(version) = get(FORMAT) else {
        return Ok(None);
    };
    if version != MODEL_FORMAT.to_string() {
        return Err(Error::Unsupported {
            path: path.clone(),
            what: format!(
                "file format {version:?} (this build reads \"{MODEL_FORMAT}\"); use a newer tenfold"
            ),
        });
    }
    // Writers that give every shard the same metadata name blobs that lie in other files.
    let whole_model = get(SCOPE) == Some("model");
    let bad =
        |what: &str, e: serde_json::Error| Error::malformed(path, format!("{what} in the metadata: {e}"));
    let stored: UniqueMap<StoredOriginal> =
        serde_json::from_str(get(TENSORS).unwrap_or("{}")).map_err(|e| bad(TENSORS, e))?;
    let names: HashMap<&str, &Item> =
        items[shard.items.clone()].iter().map(|item| (item.name.as_str(), item)).collect();
    let mut blobs = HashMap::with_capacity(stored.0.len());
    for (name, original) in stored.0 {
        if whole_model && !names.contains_key(name.as_str()) {
            continue;
        }
        let original = check_blob(path, &name, names.get(name.as_str()).copied(), original)?;
        blobs.insert(name, original);
    }
    let count = shard.items.len();
    let data_order: Vec<usize> = match get(DATA_ORDER) {
        Some(text) => serde_json::from_str(text).map_err(|e| bad(DATA_ORDER, e))?,
        None => (0..count).collect(),
    };
    if !is_permutation(&data_order, count) {
        return Err(Error::malformed(path, format!("{DATA_ORDER} does not list every tensor once")));
    }
    let metadata = shard.metadata.iter().filter(|(key, _)| !key.starts_with(PREFIX)).cloned().collect();
    Ok(Some(Tags { blobs, data_order, metadata }))
}

fn check_blob(path: &Path, name: &str, item: Option<&Item>, original: StoredOriginal) -> Result<Original> {
    let bad = |reason: String| Error::malformed(path, format!("tensor {name:?} {reason}"));
    let item = item.ok_or_else(|| bad("is listed as compressed but is not there".into()))?;
    if item.dtype != StoredDtype::U8 || item.shape.len() != 1 {
        return Err(bad("is listed as compressed but does not hold plain bytes".into()));
    }
    let StoredOriginal { dtype, shape } = original;
    let dtype =
        parse_dtype(&dtype).ok_or_else(|| bad(format!("was of dtype {dtype:?}, which is unknown")))?;
    let bytes =
        tensor_bytes(dtype, &shape).ok_or_else(|| bad(format!("was of shape {shape:?}: too large")))?;
    Ok(Original { dtype, shape, bytes })
}

fn is_permutation(order: &[usize], count: usize) -> bool {
    let mut seen = vec![false; count];
    let once = order.iter().all(|&i| match seen.get_mut(i) {
        Some(seen) => !std::mem::replace(seen, true),
        None => false,
    });
    once && order.len() == count
}
