//! The index of a sharded model: `*.safetensors.index.json`, a map from tensor names to shard files.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::header::UniqueMap;
use crate::error::{Error, Result};

/// Longest index that is read.
const MAX_INDEX: u64 = 256 << 20;

/// Longest name of a shard in bytes: no file system in use takes more.
const MAX_NAME: usize = 255;

/// A parsed index. What else it holds besides the weight map is kept as it is.
#[derive(Debug, Clone)]
pub(crate) struct ShardIndex {
    /// File name of the index itself.
    pub file_name: String,
    /// Tensor names and their shard files, in the index's order.
    pub weight_map: Vec<(String, String)>,
    other: Map<String, Value>,
}

#[derive(Deserialize)]
struct Raw {
    weight_map: UniqueMap<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl ShardIndex {
    /// Reads an index. Shard names that lead out of its folder are refused.
    pub fn read(path: &Path) -> Result<Self> {
        let size = std::fs::metadata(path).map_err(Error::io(path))?.len();
        if size > MAX_INDEX {
            return Err(Error::malformed(path, format!("an index of {size} bytes is too large to be one")));
        }
        let text = std::fs::read(path).map_err(Error::io(path))?;
        ShardIndex::parse(&text, path)
    }

    /// The same for an index that is in memory. `path` names it in errors, and lends its file name.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let raw: Raw = serde_json::from_slice(text)
            .map_err(|e| Error::malformed(path, format!("the index is not valid: {e}")))?;
        for (tensor, shard) in &raw.weight_map.0 {
            let mut parts = Path::new(shard).components();
            let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
            if !plain || shard.contains(['/', '\\', '\0']) || shard.len() > MAX_NAME {
                return Err(Error::malformed(
                    path,
                    format!(
                        "the index places tensor {tensor:?} in {shard:?}, which is not a plain file name"
                    ),
                ));
            }
        }
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(ShardIndex { file_name, weight_map: raw.weight_map.0, other: raw.other })
    }

    /// The shard files, sorted by name, each once.
    pub fn shard_names(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.weight_map.iter().map(|(_, shard)| shard).collect();
        names.into_iter().cloned().collect()
    }

    /// The same index for files of another size.
    pub fn to_json(&self, total_size: u64) -> Result<Vec<u8>, serde_json::Error> {
        let mut root = self.other.clone();
        match root.get_mut("metadata") {
            Some(Value::Object(metadata)) => {
                metadata.insert("total_size".into(), json!(total_size));
            }
            _ => {
                root.insert("metadata".into(), json!({ "total_size": total_size }));
            }
        }
        let weights: Map<String, Value> =
            self.weight_map.iter().map(|(tensor, shard)| (tensor.clone(), json!(shard))).collect();
        root.insert("weight_map".into(), Value::Object(weights));
        let mut text = serde_json::to_vec_pretty(&root)?;
        text.push(b'\n');
        Ok(text)
    }
}
