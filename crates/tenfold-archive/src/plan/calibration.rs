//! A calibration: what inputs the weights of a model meet, and what errors in their outputs do to its loss.
//!
//! `docs/format.md`, 'Calibration files', is the specification. Matrices are read when a tensor needs one: those of a large model
//! do not fit into memory together.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use tenfold::calibrated::Curvature;

use crate::error::{Error, Result};
use crate::model::{Item, Model};
use crate::safetensors::StoredDtype;

const FORMAT: &str = "calibration.format";
const LAYERS: &str = "calibration.layers";
const VERSION: &str = "1";
/// Share by which the norm of a weight may differ from the one that was calibrated.
const SAME: f64 = 0.02;

/// What a calibration run knows of the weights of a model.
pub struct Calibration {
    model: Model,
    layers: BTreeMap<String, Layer>,
    tensors: HashMap<String, usize>,
    /// Of curvatures, which take long to find out.
    units: Mutex<HashMap<String, f64>>,
}

/// One weight, as the file describes it.
#[derive(Debug, Clone, Deserialize)]
struct Layer {
    matrix: String,
    rows: usize,
    cols: usize,
    damping: f64,
    norm: f64,
}

impl Calibration {
    /// Opens a file of `tenfold.torch.Calibration`.
    pub fn read(path: &Path) -> Result<Self> {
        let model = Model::open(path)?;
        let metadata = model.shards.iter().flat_map(|shard| &shard.metadata);
        let metadata: BTreeMap<&str, &str> = metadata.map(|(k, v)| (k.as_str(), v.as_str())).collect();
        match metadata.get(FORMAT) {
            Some(&VERSION) => {}
            Some(other) => {
                let what = format!("calibrations of format {other:?}");
                return Err(Error::Unsupported { path: path.to_owned(), what });
            }
            None => {
                return Err(Error::malformed(
                    path,
                    "it is not a calibration: tenfold.torch.Calibration writes one",
                ));
            }
        }
        let text = metadata.get(LAYERS).copied().unwrap_or_default();
        let layers: BTreeMap<String, Layer> =
            serde_json::from_str(text).map_err(|e| Error::malformed(path, format!("{LAYERS}: {e}")))?;
        if layers.is_empty() {
            return Err(Error::malformed(path, "it knows no layers"));
        }
        let tensors = model.items.iter().enumerate().map(|(i, item)| (item.name.clone(), i)).collect();
        let made = Calibration { model, layers, tensors, units: Mutex::default() };
        for (name, layer) in &made.layers {
            made.check_layer(name, layer).map_err(|reason| Error::malformed(path, reason))?;
        }
        Ok(made)
    }

    /// Weights that it knows.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.layers.contains_key(name)
    }

    /// What is known of a weight.
    pub(crate) fn curvature(&self, name: &str) -> Result<Option<Arc<Curvature>>> {
        let Some(layer) = self.layers.get(name) else { return Ok(None) };
        let (matrix, shape) = self.numbers(&layer.matrix)?;
        let width = shape[1];
        // Columns of the last block past the matrix are padding.
        let block = |(i, values): (usize, &[f32])| {
            let kept = width.min(layer.cols - i * width);
            values.chunks_exact(width).take(kept).flat_map(|row| &row[..kept]).copied().collect::<Vec<f32>>()
        };
        let blocks = matrix.chunks_exact(width * width).enumerate().map(block).collect();
        let mut found = Curvature::blocks(blocks).map_err(Error::codec(name))?.with_damping(layer.damping);
        if self.tensors.contains_key(&format!("{name}.outputs")) {
            let (outputs, _) = self.numbers(&format!("{name}.outputs"))?;
            let outputs = outputs.into_iter().map(f64::from).collect();
            found = found.with_outputs(outputs).map_err(Error::codec(name))?;
        }
        Ok(Some(Arc::new(found)))
    }

    /// Names all that is known of a weight: for parts of a model that must have been made with the same.
    pub(crate) fn fingerprint(&self, name: &str) -> Result<Option<String>> {
        let Some(layer) = self.layers.get(name) else { return Ok(None) };
        let mut hasher = blake3::Hasher::new();
        hasher.update(&layer.damping.to_le_bytes());
        for tensor in [&layer.matrix, &format!("{name}.outputs")] {
            if let Some(&index) = self.tensors.get(tensor) {
                hasher.update(format!("{:?}", self.model.items[index].shape).as_bytes());
                hasher.update(&self.model.read(index)?);
            }
        }
        Ok(Some(hasher.finalize().to_hex()[..32].to_owned()))
    }

    /// What a step is multiplied by so that one number serves the whole model; 1 for a weight that is not known.
    pub(crate) fn unit(&self, name: &str) -> Result<f64> {
        let known = |units: &HashMap<String, f64>| units.get(name).copied();
        if let Some(unit) = self.units.lock().ok().as_deref().and_then(known) {
            return Ok(unit);
        }
        let unit = match self.curvature(name)? {
            Some(curvature) => curvature.unit().map_err(Error::codec(name))?,
            None => 1.0,
        };
        if let Ok(mut units) = self.units.lock() {
            units.insert(name.to_owned(), unit);
        }
        Ok(unit)
    }

    /// Checks that this is a calibration of a model with these tensors.
    pub(crate) fn check(&self, items: &[Item]) -> Result<()> {
        let mut known = 0;
        for item in items {
            let Some(layer) = self.layers.get(&item.name) else { continue };
            known += 1;
            if item.shape != [layer.rows, layer.cols] {
                return Err(Error::InvalidArgument(format!(
                    "the calibration is of another model: tensor {:?} has the shape [{}, {}] there and {:?} here",
                    item.name, layer.rows, layer.cols, item.shape
                )));
            }
        }
        match self.layers.keys().next() {
            Some(first) if known == 0 => Err(Error::InvalidArgument(format!(
                "the calibration is of another model: it knows {} weights, the first of them {first:?}, and none is here",
                self.len()
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that a weight is the one that was calibrated, by its norm.
    pub(crate) fn check_norm(&self, name: &str, norm: f64) -> Result<()> {
        match self.layers.get(name) {
            Some(layer) if norm.is_finite() && (norm - layer.norm).abs() > SAME * norm.max(layer.norm) => {
                Err(Error::InvalidArgument(format!(
                    "the calibration is of another model: the norm of tensor {name:?} was {:.4e} there and is {norm:.4e} here",
                    layer.norm
                )))
            }
            _ => Ok(()),
        }
    }

    fn check_layer(&self, name: &str, layer: &Layer) -> std::result::Result<(), String> {
        let item = |of: &str| self.tensors.get(of).map(|&i| &self.model.items[i]);
        let matrix =
            item(&layer.matrix).ok_or_else(|| format!("{name:?} names a matrix that is not there"))?;
        let fits = match matrix.shape.as_slice() {
            &[blocks, width, other] => {
                let most = blocks.saturating_mul(width);
                width == other && width > 0 && most >= layer.cols && most - width < layer.cols
            }
            _ => false,
        };
        if !fits || layer.cols == 0 || matrix.dtype != StoredDtype::F32 {
            return Err(format!(
                "the matrix of {name:?} must be blocks of float32 on the diagonal of {} columns, not {:?}",
                layer.cols, matrix.shape
            ));
        }
        if let Some(outputs) = item(&format!("{name}.outputs"))
            && (outputs.shape != [layer.rows] || outputs.dtype != StoredDtype::F32)
        {
            return Err(format!("the outputs of {name:?} must be {} numbers of float32", layer.rows));
        }
        if !(layer.damping >= 0.0 && layer.damping.is_finite()) {
            return Err(format!("the damping of {name:?} must not be negative"));
        }
        Ok(())
    }

    fn numbers(&self, name: &str) -> Result<(Vec<f32>, &[usize])> {
        let missing = || Error::malformed(&self.model.path, format!("tensor {name:?} is missing"));
        let index = *self.tensors.get(name).ok_or_else(missing)?;
        let data = self.model.read(index)?;
        let values = data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        Ok((values, &self.model.items[index].shape))
    }
}

impl fmt::Debug for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calibration of {} weights", self.len())
    }
}
