//! What lossy peers take in and give out: finite floats of a shape.

use tenfold::{Dtype, Tensor, TensorView};

use super::PeerError;
use crate::values::to_f64;

/// All values, if they are floats, finite and within the range of f32, which is what decoders return.
pub(super) fn finite(view: &TensorView<'_>) -> Result<Vec<f64>, PeerError> {
    to_f64(view)
        .filter(|v| v.iter().all(|x| x.abs() <= f64::from(f32::MAX)))
        .ok_or_else(|| PeerError::Unsupported("only finite floats in the range of f32".to_string()))
}

/// Length of a row: the last dimension, at least 1.
pub(super) fn row_len(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(1).max(1)
}

/// Largest magnitude as an f32 that is positive, so that it can divide.
pub(super) fn unit(values: &[f64]) -> f32 {
    values.iter().fold(0f64, |m, v| m.max(v.abs())).max(f64::from(f32::MIN_POSITIVE)) as f32
}

/// A tensor of f32.
pub(super) fn tensor(shape: Vec<usize>, values: impl IntoIterator<Item = f32>) -> Tensor {
    let data = values.into_iter().flat_map(f32::to_le_bytes).collect();
    Tensor { dtype: Dtype::F32, shape, data }
}

/// An error about bytes.
pub(super) fn corrupt(why: impl Into<String>) -> PeerError {
    PeerError::Corrupt(why.into())
}
