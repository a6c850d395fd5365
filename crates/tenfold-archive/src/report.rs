//! What a file holds, tensor by tensor: the result of compressing and of inspecting.
//!
//! The field names are those of the command line's `--json`; they do not change within a major version.

use std::path::PathBuf;

use serde::Serialize;
use tenfold::format::BlobInfo;

/// One tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TensorRow {
    /// Its name.
    pub name: String,
    /// File that holds it.
    pub file: String,
    /// Dtype of the original.
    pub dtype: String,
    /// Shape of the original.
    pub shape: Vec<usize>,
    /// Number of values.
    pub values: u64,
    /// How it is stored: `none` (as it was), or the codec of its blob.
    pub codec: &'static str,
    /// Goal that it was compressed with; only known right after compressing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Predicted rise of the model's loss in nats a token, where it was compressed with a calibration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Bytes of the original.
    pub original_bytes: u64,
    /// Bytes in the file.
    pub stored_bytes: u64,
    /// Bits stored for each value; 0 for an empty tensor.
    pub bits_per_value: f64,
    /// Original bytes over stored bytes; 1 for an empty tensor.
    pub ratio: f64,
    /// Step of the quantiser, where there is one.
    pub step: Option<f64>,
    /// States of the trellis, where there is one; 1 is a scalar quantiser.
    pub states: Option<u32>,
    /// Classes of statistics, where there are any.
    pub classes: Option<u32>,
    /// What was done to the values before they were coded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<&'static str>,
    /// Bytes of each layer, where the blob has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<u64>,
    /// Independent tiles of the blob.
    pub tiles: Option<u64>,
    /// Samples of pictures that hold no value, over those that do, where there are pictures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<f64>,
}

impl TensorRow {
    pub(crate) fn new(name: &str, file: &str, dtype: String, shape: &[usize]) -> Self {
        TensorRow {
            name: name.to_owned(),
            file: file.to_owned(),
            dtype,
            shape: shape.to_vec(),
            values: shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64)),
            codec: "none",
            goal: None,
            loss: None,
            original_bytes: 0,
            stored_bytes: 0,
            bits_per_value: 0.0,
            ratio: 1.0,
            step: None,
            states: None,
            classes: None,
            transforms: Vec::new(),
            layers: Vec::new(),
            tiles: None,
            padding: None,
        }
    }

    pub(crate) fn with_sizes(mut self, original: u64, stored: u64) -> Self {
        self.original_bytes = original;
        self.stored_bytes = stored;
        self.bits_per_value = if self.values == 0 { 0.0 } else { stored as f64 * 8.0 / self.values as f64 };
        self.ratio = ratio(original, stored);
        self
    }

    pub(crate) fn with_loss(mut self, loss: Option<f64>) -> Self {
        self.loss = loss;
        self
    }

    pub(crate) fn with_blob(mut self, info: &BlobInfo) -> Self {
        self.codec = info.codec.name();
        self.step = info.step;
        self.states = info.states;
        self.classes = info.classes;
        self.transforms = info.transforms.iter().map(tenfold::prepare::Transform::name).collect();
        self.layers = info.layers.clone();
        self.tiles = Some(info.tiles);
        self.padding = info.padding();
        self
    }

    /// Whether the tensor is stored as a blob.
    pub fn is_compressed(&self) -> bool {
        self.tiles.is_some()
    }
}

/// Sums over the tensors of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Tensors.
    pub tensors: usize,
    /// Values.
    pub values: u64,
    /// Bytes of the originals.
    pub original_bytes: u64,
    /// Bytes in the file.
    pub stored_bytes: u64,
    /// Bits stored for each value.
    pub bits_per_value: f64,
    /// Original bytes over stored bytes.
    pub ratio: f64,
}

/// A model's tensors, and their sums.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The tensors, in the order of the file.
    pub tensors: Vec<TensorRow>,
    /// Sums over the tensors that are compressed.
    pub compressed: Totals,
    /// Sums over all tensors.
    pub total: Totals,
    /// Files of the input folder that were left out of the output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<PathBuf>,
}

impl Report {
    /// Predicted rise of the model's loss in nats a token, if any tensor was compressed with a calibration.
    pub fn loss(&self) -> Option<f64> {
        let known: Vec<f64> = self.tensors.iter().filter_map(|row| row.loss).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    pub(crate) fn new(tensors: Vec<TensorRow>) -> Self {
        let compressed = Totals::sum(tensors.iter().filter(|row| row.is_compressed()));
        let total = Totals::sum(&tensors);
        Report { tensors, compressed, total, left_out: Vec::new() }
    }
}

impl Totals {
    fn sum<'a>(rows: impl IntoIterator<Item = &'a TensorRow>) -> Self {
        let (mut tensors, mut values, mut original_bytes, mut stored_bytes) = (0, 0u64, 0u64, 0u64);
        for row in rows {
            tensors += 1;
            values = values.saturating_add(row.values);
            original_bytes = original_bytes.saturating_add(row.original_bytes);
            stored_bytes = stored_bytes.saturating_add(row.stored_bytes);
        }
        let bits_per_value = if values == 0 { 0.0 } else { stored_bytes as f64 * 8.0 / values as f64 };
        Totals {
            tensors,
            values,
            original_bytes,
            stored_bytes,
            bits_per_value,
            ratio: ratio(original_bytes, stored_bytes),
        }
    }
}

fn ratio(original: u64, stored: u64) -> f64 {
    if stored == 0 { 1.0 } else { original as f64 / stored as f64 }
}
