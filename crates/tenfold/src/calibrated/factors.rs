//! What feedback needs of a curvature: how much the error of each column counts once the columns behind it answer to it, and
//! how they answer.
//!
//! With H = V·D·Vᵀ, V upper triangular with ones on its diagonal, the loss of an error δ of a row is Σ D[k] · (Σ V[j][k]·δ[j])²
//! over j ≤ k. So column k is quantised with Σ V[j][k]·δ[j], j < k, added to it: what is then left of its term is its own rounding
//! error, which counts D[k]. This is the same as feeding errors by the factor of H⁻¹ (GPTQ) but needs no inverse.

use std::sync::Arc;

use super::cholesky;
use super::curvature::{Curvature, Inputs};
use super::steps::Steps;
use crate::error::Result;
use crate::workers::Workers;

/// Factors of a curvature, and the steps that follow from them.
pub(crate) struct Factors {
    /// One for each block of the diagonal, in the order of columns.
    pub(crate) blocks: Vec<Block>,
    pub(crate) steps: Arc<Steps>,
}

/// Columns that answer to each other's errors.
pub(crate) struct Block {
    pub(crate) first: usize,
    pub(crate) cols: usize,
    /// In row k: what an error of one in column j < k, both weighted, adds to column k.
    pub(crate) feed: Vec<f32>,
}

impl Factors {
    pub(super) fn new(curvature: &Curvature, workers: &Workers) -> Result<Factors> {
        let mut blocks = Vec::new();
        let mut counts = Vec::with_capacity(curvature.cols());
        for inputs in curvature.inputs() {
            let first = counts.len();
            let feed = factor(inputs, curvature, first, &mut counts, workers)?;
            blocks.push(Block { first, cols: inputs.cols(), feed });
        }
        let steps = curvature.steps(&counts)?;
        let columns = steps.column_factors();
        for block in &mut blocks {
            let factors = &columns[block.first..block.first + block.cols];
            for (k, row) in block.feed.chunks_exact_mut(block.cols.max(1)).enumerate() {
                row[..k].iter_mut().zip(factors).for_each(|(v, f)| *v *= factors[k] / f);
            }
        }
        Ok(Factors { blocks, steps })
    }
}

/// Factors one block: appends D to `counts` and returns the transpose of V.
fn factor(
    inputs: &Inputs,
    curvature: &Curvature,
    first: usize,
    counts: &mut Vec<f64>,
    workers: &Workers,
) -> Result<Vec<f32>> {
    let (n, floor) = (inputs.cols(), inputs.floor());
    // From the last column to the first, so that the lower factor of this is the upper one of H.
    let mut a: Vec<f64> = inputs.values().iter().rev().map(|&v| f64::from(v)).collect();
    for j in 0..n {
        a[j * n + j] = (a[j * n + j] * (1.0 + curvature.damping())).max(floor);
    }
    if let Some(row) = cholesky::factor(&mut a, n, workers)? {
        return Err(curvature.not_positive_definite(first + n - 1 - row));
    }
    // V[j][k] = L[n−1−j][n−1−k] / L[n−1−k][n−1−k].
    let pivot = |k: usize| a[(n - 1 - k) * (n + 1)];
    counts.extend((0..n).map(|k| pivot(k).powi(2)));
    let mut feed = vec![0f32; n * n];
    for (k, row) in feed.chunks_exact_mut(n.max(1)).enumerate() {
        let by = 1.0 / pivot(k);
        row[..k].iter_mut().enumerate().for_each(|(j, v)| *v = (a[(n - 1 - j) * n + n - 1 - k] * by) as f32);
    }
    Ok(feed)
}
