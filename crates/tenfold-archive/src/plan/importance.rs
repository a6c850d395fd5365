//! Importance of columns: how much an error in each column of a matrix counts, from a calibration run.
//!
//! For a matrix that multiplies activations, the mean square of the activations that meet a column says how much an
//! error in that column weighs in the product. Quantisers take finer steps where that is large.

use std::collections::BTreeMap;
use std::path::Path;

use tenfold::prepare::{Transform, Weights};

use crate::error::{Error, Result};
use crate::model::{Item, Model};
use crate::safetensors::codec_dtype;
use crate::values;

/// Endings of what llama.cpp's `llama-imatrix` writes for a tensor: sums of squares, and what to divide them by.
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// Step weights of columns, by tensor.
///
/// ```
/// use tenfold_archive::Importance;
/// let importance = Importance::new([("layers.0.up.weight".to_owned(), vec![1.0, 4.0, 0.5])])?;
/// assert_eq!(importance.len(), 1);
/// # Ok::<(), tenfold_archive::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Importance {
    weights: BTreeMap<String, Weights>,
}

impl Importance {
    /// From the mean squares of what each column of a tensor is multiplied with, by the tensor's name. Only ratios within
    /// a tensor matter.
    pub fn new(mean_squares: impl IntoIterator<Item = (String, Vec<f64>)>) -> Result<Self> {
        let mut weights = BTreeMap::new();
        for (name, squares) in mean_squares {
            let of = Weights::from_importance(&squares).map_err(Error::codec(&name))?;
            weights.insert(name, of);
        }
        Ok(Importance { weights })
    }

    /// From a safetensors file that has, under the name of each tensor, a vector of as many numbers as the tensor has
    /// columns; or from an importance matrix of llama.cpp, a GGUF file that has `NAME.in_sum2` and `NAME.counts`.
    pub fn read(path: &Path) -> Result<Self> {
        let model = Model::open(path)?;
        let mut vectors = BTreeMap::new();
        for (index, item) in model.items.iter().enumerate() {
            let matrix = item.name.ends_with(SUMS) || item.name.ends_with(COUNTS);
            let cols = item.shape.last().copied().unwrap_or(1);
            // Before it is read: this may be a model, and a large one.
            if !matrix && item.values() != cols as u64 {
                let (name, shape) = (&item.name, &item.shape);
                let reason = format!(
                    "{name:?} has shape {shape:?}; importance must be a vector of one number a column"
                );
                return Err(Error::malformed(path, reason));
            }
            vectors.insert(item.name.as_str(), (item, read_numbers(&model, index)?));
        }
        let mut found = Vec::new();
        for (name, (item, numbers)) in &vectors {
            if let Some(of) = name.strip_suffix(SUMS) {
                let counts = vectors.get(format!("{of}{COUNTS}").as_str());
                let (_, counts) = counts
                    .ok_or_else(|| Error::malformed(path, format!("it has {name:?} but not {of}{COUNTS}")))?;
                found.push((of.to_owned(), mean(item, numbers, counts)));
            } else if !name.ends_with(COUNTS) {
                found.push(((*name).to_owned(), numbers.clone()));
            }
        }
        if found.is_empty() {
            return Err(Error::malformed(path, "it holds no tensor, so no importance"));
        }
        Importance::new(found)
    }

    /// Tensors that there are weights for.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// What to do to a tensor before it is quantised, if it is one of these.
    pub(crate) fn weights(&self, name: &str) -> Option<Transform> {
        self.weights.get(name).cloned().map(Transform::Weights)
    }

    /// Checks that some tensor is of this model, and that those that are fit.
    pub(crate) fn check(&self, items: &[Item]) -> Result<()> {
        let mut known = 0;
        for item in items {
            let Some(weights) = self.weights.get(&item.name) else { continue };
            known += 1;
            let cols = item.shape.last().copied().unwrap_or(1);
            if weights.len() != cols {
                return Err(Error::InvalidArgument(format!(
                    "the importance of tensor {:?} has {} numbers, but the tensor has {cols} columns",
                    item.name,
                    weights.len()
                )));
            }
        }
        match self.weights.keys().next() {
            Some(first) if known == 0 => Err(Error::InvalidArgument(format!(
                "none of the {} tensors with importance is in the model; the first of them is {first:?}",
                self.len()
            ))),
            _ => Ok(()),
        }
    }
}

/// All elements of a tensor.
fn read_numbers(model: &Model, index: usize) -> Result<Vec<f64>> {
    let item = &model.items[index];
    let dtype = codec_dtype(item.dtype).filter(|dtype| dtype.is_float()).ok_or_else(|| {
        Error::malformed(&model.path, format!("the importance of {:?} must be floats", item.name))
    })?;
    let data = model.read(index)?;
    let mut out = vec![0.0; data.len() / dtype.size()];
    values::load(dtype, &data, &mut out);
    Ok(out)
}

/// Means of a matrix of llama.cpp: a row of sums and a count for each expert, one of which may have seen nothing. The
/// experts of a tensor share their columns here.
fn mean(sums: &Item, numbers: &[f64], counts: &[f64]) -> Vec<f64> {
    let cols = sums.shape.last().copied().unwrap_or(1).max(1);
    let total: f64 = counts.iter().sum();
    let column = |j: usize| numbers.iter().skip(j).step_by(cols).sum::<f64>() / total.max(1.0);
    (0..cols).map(column).collect()
}
