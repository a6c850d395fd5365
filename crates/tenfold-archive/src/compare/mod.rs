//! How far two models differ, tensor by tensor. Either may be compressed; blobs are decoded on the way.

mod sums;

use std::path::Path;

use serde::Serialize;
use tenfold::DecodeOptions;
use tenfold::engine::threads;

use crate::archive::Archive;
use crate::engine::ReadOptions;
use crate::error::{Error, Result};
use crate::progress::Progress;

pub use sums::DiffSums;

/// The difference of one tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TensorDiff {
    /// Its name.
    pub name: String,
    /// Dtype in the first model.
    pub dtype: String,
    /// Shape in the first model.
    pub shape: Vec<usize>,
    /// Number of values.
    pub values: u64,
    /// Whether dtype, shape and every byte agree.
    pub identical: bool,
    /// Mean squared error.
    pub mse: f64,
    /// Mean squared error over the variance in the first model; 0 if both are 0, null (infinite) if only
    /// the variance is.
    pub nmse: f64,
    /// Largest absolute error.
    pub max_error: f64,
    /// Cosine of the angle between the two, 1 if either is zero everywhere and they agree.
    pub cosine: f64,
    /// Values that are NaN or infinite in one model and not the same in the other; left out of the rest.
    pub special_mismatches: u64,
}

/// The difference of two models.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Tensors that both have, in the order of the first.
    pub tensors: Vec<TensorDiff>,
    /// All of them taken as one.
    pub total: TensorDiff,
    /// Names only in the first.
    pub only_in_first: Vec<String>,
    /// Names only in the second.
    pub only_in_second: Vec<String>,
    /// Names in both, but with another shape or a dtype that has no values here (complex, 4- and 6-bit
    /// floats) and other bytes.
    pub not_comparable: Vec<String>,
}

/// Compares two models of any formats that [`compress`](crate::compress) reads, compressed or not.
pub fn compare(
    a: &Path,
    b: &Path,
    options: impl Into<ReadOptions>,
    progress: &dyn Progress,
) -> Result<Comparison> {
    let options = options.into();
    let open = |path| Ok::<_, crate::Error>(Archive::open(path)?.with_engine(options.engine.clone()));
    let (first, second) = (open(a)?, open(b)?);
    let inner = options.inner();
    threads::install(options.decode.threads, || compare_archives(&first, &second, &inner, progress))
        .map_err(Error::Threads)?
}

fn compare_archives(
    first: &Archive,
    second: &Archive,
    options: &DecodeOptions,
    progress: &dyn Progress,
) -> Result<Comparison> {
    let mut out = Comparison {
        tensors: Vec::new(),
        total: DiffSums::default().finish("total", "", &[]),
        only_in_first: Vec::new(),
        only_in_second: Vec::new(),
        not_comparable: Vec::new(),
    };
    let names = second.tensors().iter().map(|tensor| &tensor.name);
    out.only_in_second = names.filter(|name| first.find(name).is_none()).cloned().collect();
    let mut total = DiffSums::default();
    progress.start(first.bytes());
    for (i, tensor) in first.tensors().iter().enumerate() {
        progress.message(&tensor.name);
        let Some(j) = second.find(&tensor.name) else {
            out.only_in_first.push(tensor.name.clone());
            continue;
        };
        let other = &second.tensors()[j];
        if tensor.shape != other.shape {
            out.not_comparable.push(tensor.name.clone());
            continue;
        }
        let (x, y) = (first.read_bytes(i, options)?, second.read_bytes(j, options)?);
        let same = tensor.dtype_name == other.dtype_name && x == y;
        let mut sums = match (tensor.dtype, other.dtype) {
            (Some(p), Some(q)) => DiffSums::measure((p, &x), (q, &y)),
            _ if same => DiffSums::default(),
            _ => {
                out.not_comparable.push(tensor.name.clone());
                continue;
            }
        };
        sums.differ = !same;
        total = total.merge(&sums);
        out.tensors.push(sums.finish(&tensor.name, &tensor.dtype_name, &tensor.shape));
        progress.advance(tensor.bytes);
    }
    out.total = total.finish("total", "", &[]);
    Ok(out)
}
