//! Tensors out of safetensors files, for measuring.
//!
//! Reads with the `safetensors` crate alone: what is measured here must not depend on this project's
//! own reader.

use std::path::Path;

use anyhow::{Context, Result};
use safetensors::SafeTensors;
use tenfold::{Dtype, Tensor};
use thiserror::Error;

/// A file that is not what it should be.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// A tensor and its name.
#[derive(Debug, Clone)]
pub struct Named {
    /// Name in the file.
    pub name: String,
    /// The tensor, copied out of the file.
    pub tensor: Tensor,
}

/// All float tensors with at least two dimensions and `min_values` values, in the order of their
/// names.
pub fn floats(path: &Path, min_values: usize) -> Result<Vec<Named>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parsed = SafeTensors::deserialize(&bytes)
        .map_err(|e| Malformed(format!("{} is not safetensors: {e}", path.display())))?;
    let mut out = Vec::new();
    for (name, view) in parsed.iter() {
        let Some(dtype) = dtype_of(view.dtype()) else {
            continue;
        };
        let wanted = dtype.is_float() && view.shape().len() >= 2;
        if !wanted || view.data().len() / dtype.size() < min_values {
            continue;
        }
        let tensor = Tensor { dtype, shape: view.shape().to_vec(), data: view.data().to_vec() };
        out.push(Named { name: name.to_string(), tensor });
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(out)
}

fn dtype_of(dtype: safetensors::Dtype) -> Option<Dtype> {
    use safetensors::Dtype as S;
    Some(match dtype {
        S::F64 => Dtype::F64,
        S::F32 => Dtype::F32,
        S::F16 => Dtype::F16,
        S::BF16 => Dtype::Bf16,
        S::F8_E4M3 => Dtype::F8E4M3,
        S::F8_E5M2 => Dtype::F8E5M2,
        _ => return None,
    })
}
