//! What a part file says of itself and of its blobs. It is one key of the file's metadata, in JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Part;
use crate::error::{Error, Result};
use crate::plan::{Action, CompressOptions};
use crate::safetensors::StoredDtype;
use crate::tags;

const KEY: &str = "tenfold.part";

/// Of one part file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub number: usize,
    pub of: usize,
    tensors: BTreeMap<String, Entry>,
}

/// Of one blob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Checksum of the tensor that it was made of: dtype, shape and values.
    pub source: u32,
    /// Fingerprint of how it was made: goal, effort, transforms, calibration, engine, version.
    pub how: String,
    /// Checksum of the blob.
    pub blob: u32,
    /// What it is predicted to cost the model, with a calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// The entry of a blob that was just made of a tensor with the checksum `source`.
pub(super) fn entry(
    name: &str,
    action: Action,
    options: &CompressOptions,
    source: u32,
    blob: &[u8],
    loss: Option<f64>,
) -> Result<Entry> {
    Ok(Entry { source, how: how(name, action, options)?, blob: blob_sum(blob), loss })
}

/// Fingerprint of everything that decides the bytes of a tensor's blob, but the tensor.
pub(super) fn how(name: &str, action: Action, options: &CompressOptions) -> Result<String> {
    let calibration = options.calibration.as_ref().map(|calibration| calibration.fingerprint(name));
    let text = format!(
        "{} {} {action:?} {:?} {:?} {:?} {:?}",
        env!("CARGO_PKG_VERSION"),
        options.engine.name(),
        options.preparation(name),
        options.residual,
        options.minor,
        calibration.transpose()?.flatten(),
    );
    Ok(blake3::hash(text.as_bytes()).to_hex()[..32].to_owned())
}

pub(super) fn blob_sum(blob: &[u8]) -> u32 {
    tags::tensor_checksum(StoredDtype::U8, &[blob.len()], blob)
}

impl Record {
    pub fn new(part: Part) -> Record {
        Record { number: part.number, of: part.of, tensors: BTreeMap::new() }
    }

    pub fn add(&mut self, name: &str, entry: Entry) {
        self.tensors.insert(name.to_owned(), entry);
    }

    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.tensors.get(name)
    }

    pub fn to_metadata(&self, path: &Path) -> Result<Vec<(String, String)>> {
        let text = serde_json::to_string(self).map_err(|e| Error::malformed(path, e.to_string()))?;
        Ok(vec![(KEY.to_owned(), text)])
    }

    pub fn from_metadata(metadata: &[(String, String)], path: &Path) -> Result<Record> {
        let text =
            tags::get(metadata, KEY).ok_or_else(|| Error::malformed(path, "it is not a part of a model"))?;
        serde_json::from_str(text).map_err(|e| Error::malformed(path, format!("its record is damaged: {e}")))
    }
}
