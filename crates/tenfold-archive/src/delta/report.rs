//! What a delta does, tensor by tensor: the result of making and of inspecting one.
//!
//! The field names are those of the command line's `--json`; they do not change within a major version.

use serde::Serialize;

use super::file::DeltaFile;
use super::record::How;
use super::write::Content;
use super::{DELTA_FORMAT, Fingerprint};

/// One tensor of the result that is not as the base has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeltaRow {
    /// Its name.
    pub name: String,
    /// How it comes to be: `delta`, `difference` (with loss), `stored` (whole), `copy` (of another name).
    pub how: How,
    /// The base's name of it, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its dtype; that of a difference, for one. Null for a copy.
    pub dtype: Option<String>,
    /// Its shape; null for a copy.
    pub shape: Option<Vec<usize>>,
    /// Number of values; null for a copy.
    pub values: Option<u64>,
    /// Values that change; known of deltas only.
    pub changed: Option<u64>,
    /// Bytes in the delta.
    pub bytes: u64,
}

/// Sums over a delta.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeltaTotals {
    /// Tensors that are not as the base has them.
    pub tensors: usize,
    /// Values that change in those with deltas.
    pub changed: u64,
    /// Bytes in the delta, without its header.
    pub bytes: u64,
}

/// A delta's contents.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeltaReport {
    /// Version of the file.
    pub format: u32,
    /// Fingerprint of the model that it belongs to.
    pub base: String,
    /// Fingerprint of what that becomes.
    pub result: String,
    /// The tensors that change, in the order of their names.
    pub tensors: Vec<DeltaRow>,
    /// Tensors that the result does not have.
    pub removed: Vec<String>,
    /// Whether every bit of the new model comes back.
    pub exact: bool,
    /// Sums.
    pub total: DeltaTotals,
}

impl DeltaReport {
    pub(super) fn new(
        base: Fingerprint,
        result: Fingerprint,
        tensors: Vec<DeltaRow>,
        removed: Vec<String>,
    ) -> Self {
        let total = DeltaTotals {
            tensors: tensors.len(),
            changed: tensors.iter().filter_map(|row| row.changed).sum(),
            bytes: tensors.iter().map(|row| row.bytes).sum(),
        };
        DeltaReport {
            format: DELTA_FORMAT,
            base: base.to_string(),
            result: result.to_string(),
            exact: tensors.iter().all(|row| row.how != How::Difference),
            tensors,
            removed,
            total,
        }
    }
}

impl DeltaFile {
    /// Lists what the delta does.
    pub fn report(&self) -> DeltaReport {
        let row = |change: &super::Change| {
            let meta = change.meta.as_ref();
            DeltaRow {
                name: change.name.clone(),
                how: change.how,
                from: change.from.clone().filter(|from| *from != change.name),
                dtype: meta.map(|meta| meta.dtype_name()),
                shape: meta.map(|meta| meta.shape.clone()),
                values: meta.map(|meta| values(&meta.shape)),
                changed: change.changed,
                bytes: change.bytes,
            }
        };
        let rows = self.changes().iter().map(row).collect();
        DeltaReport::new(self.base(), self.result(), rows, self.removed().to_vec())
    }
}

/// The row of a tensor that is being written.
pub(super) fn row(content: &Content, bytes: u64) -> DeltaRow {
    let meta = content.meta.as_ref();
    DeltaRow {
        name: content.name.clone(),
        how: content.said.how,
        from: content.said.from.clone(),
        dtype: meta.map(|meta| meta.dtype_name()),
        shape: meta.map(|meta| meta.shape.clone()),
        values: meta.map(|meta| values(&meta.shape)),
        changed: content.changed,
        bytes,
    }
}

fn values(shape: &[usize]) -> u64 {
    shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64))
}
