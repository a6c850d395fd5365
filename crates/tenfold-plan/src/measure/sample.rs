//! Tensors to measure with: pieces of real ones by kind, or made-up values.

use std::f64::consts::TAU;
use std::path::Path;

use tenfold::engine::SharedEngine;
use tenfold::{DecodeOptions, Dtype, Tensor};
use tenfold_archive::Archive;

use crate::error::{Error, Result};

/// Fewest dimensions and values of a tensor that is worth coding, as in `tenfold compress`.
const LEAST: (usize, usize) = (2, 4096);

/// Tensors of one kind, which are sent the same way.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Kind {
    /// Name for people: the dtype and what the tensors are.
    pub name: String,
    /// Tensors of this kind.
    pub tensors: usize,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes of a piece that is coded and sent at once.
    pub chunk: u64,
    /// Whether lossy goals apply.
    pub floats: bool,
    /// Pieces to measure with; none where the kind is not worth coding.
    pub chunks: Vec<Tensor>,
}

/// What a file or folder holds, by kind. Pieces are at most `chunk` bytes (but one row) and `limit` bytes together.
pub fn kinds(path: &Path, engine: &SharedEngine, chunk: u64, limit: u64) -> Result<Vec<Kind>> {
    let archive = Archive::open(path)?.with_engine(engine.clone());
    let mut kinds: Vec<Kind> = Vec::new();
    for (index, tensor) in archive.tensors().iter().enumerate() {
        let values = tensor.shape.iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let coded = tensor.dtype.is_some() && tensor.shape.len() >= LEAST.0 && values >= LEAST.1;
        let name = format!("{} {}", tensor.dtype_name, if coded { "matrices" } else { "small" });
        let at = kinds.iter().position(|kind| kind.name == name).unwrap_or_else(|| {
            let floats = tensor.dtype.is_some_and(Dtype::is_float);
            kinds.push(Kind { name, tensors: 0, bytes: 0, chunk: 0, floats, chunks: Vec::new() });
            kinds.len() - 1
        });
        let kind = &mut kinds[at];
        kind.tensors += 1;
        kind.bytes += tensor.bytes;
        let have: u64 = kind.chunks.iter().map(|c| c.data.len() as u64).sum();
        if !coded || have >= limit {
            continue;
        }
        let cols = tensor.shape.last().copied().unwrap_or(1).max(1);
        let rows = values / cols;
        let row = (tensor.bytes / rows.max(1) as u64).max(1);
        // In range: no more than the rows that there are.
        let piece = (chunk / row).clamp(1, rows as u64) as usize;
        let read = archive.read_rows(index, 0..piece, &DecodeOptions::default())?;
        kind.chunks.push(read);
    }
    for kind in &mut kinds {
        let sampled: u64 = kind.chunks.iter().map(|c| c.data.len() as u64).sum();
        let mean = if kind.chunks.is_empty() {
            kind.bytes / kind.tensors.max(1) as u64
        } else {
            sampled / kind.chunks.len() as u64
        };
        kind.chunk = mean.max(1);
    }
    if kinds.is_empty() {
        return Err(Error::InvalidArgument(format!("{}: there are no tensors to send", path.display())));
    }
    Ok(kinds)
}

/// A tensor of this dtype and shape with values of N(0, 1), in pieces of at most `chunk` bytes (but one row), up to `limit`
/// bytes.
pub fn made_up(dtype: Dtype, shape: &[usize], chunk: u64, limit: u64) -> Result<Kind> {
    if !dtype.is_float() {
        return Err(Error::InvalidArgument(format!(
            "made-up values are floats, not {dtype}; name a file instead"
        )));
    }
    let values = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|n| *n > 0);
    let bytes = values.and_then(|n| n.checked_mul(dtype.size()));
    let Some((values, bytes)) = values.zip(bytes) else {
        return Err(Error::InvalidArgument(format!("a tensor of shape {shape:?} cannot be sent")));
    };
    let cols = shape.last().copied().unwrap_or(1);
    let rows = values / cols;
    let row = (cols * dtype.size()) as u64;
    // In range: no more than the rows that there are.
    let piece = (chunk / row).clamp(1, rows as u64) as usize;
    let count = (limit / (row * piece as u64)).clamp(1, rows.div_ceil(piece) as u64);
    let mut normal = Normal { state: 0x5eed, spare: None };
    let mut chunks = Vec::new();
    for _ in 0..count {
        let numbers: Vec<f64> = (0..piece * cols).map(|_| normal.next()).collect();
        chunks.push(Tensor::from_f64(dtype, &[piece, cols], &numbers)?);
    }
    Ok(Kind {
        name: format!(
            "{dtype} {}, values of N(0, 1)",
            shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
        ),
        tensors: 1,
        bytes: bytes as u64,
        chunk: row * piece as u64,
        floats: true,
        chunks,
    })
}

/// Normal deviates: Box–Muller over splitmix64, the same in each run.
struct Normal {
    state: u64,
    spare: Option<f64>,
}

impl Normal {
    fn next(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let angle = TAU * self.uniform();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON / 2.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn made_up_values_are_normal_and_come_in_pieces() {
        let kind = made_up(Dtype::F32, &[1000, 100], 40_000, 1 << 20).unwrap();
        assert_eq!((kind.bytes, kind.chunk, kind.chunks.len()), (400_000, 40_000, 10));
        let all: Vec<f32> = kind.chunks.iter().flat_map(|c| c.to_vec::<f32>().unwrap()).collect();
        let mean = all.iter().sum::<f32>() / all.len() as f32;
        let var = all.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / all.len() as f32;
        assert!(mean.abs() < 0.02 && (var - 1.0).abs() < 0.02, "{mean} {var}");
        let token = made_up(Dtype::Bf16, &[1, 576], 4 << 20, 1 << 20).unwrap();
        assert_eq!((token.bytes, token.chunk, token.chunks.len()), (1152, 1152, 1));
        assert!(made_up(Dtype::I32, &[4], 4, 4).is_err());
        assert!(made_up(Dtype::F32, &[0, 4], 4, 4).is_err());
        assert!(made_up(Dtype::F32, &[usize::MAX, 4], 4, 4).is_err());
    }
}
