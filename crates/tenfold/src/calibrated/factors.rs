//! What feedback needs of a curvature: how much the error of each column counts once the columns behind it answer to it, and
//! how they answer.
//!
//! With H = V·D·Vᵀ, V upper triangular with ones on its diagonal, the loss of an error δ of a row is Σ D[k] · (Σ V[j][k]·δ[j])²
//! over j ≤ k. So column k is quantised with Σ V[j][k]·δ[j], j < k, added to it: what is then left of its term is its own rounding
//! error, which counts D[k]. This is the same as feeding errors by the factor of H⁻¹ (GPTQ) but needs no inverse.

use super::cholesky;
use super::curvature::{Curvature, Inputs};
use super::feed::Order;
use crate::error::{Error, Result};
use crate::prepare::{Axis, Transform, Weights};
use crate::workers::Workers;

/// Share of the mean of the diagonal that a channel counts at least: one that was never active has a step all the same.
const FLOOR: f64 = 1e-9;

/// Factors of a curvature, and the steps that follow from them.
pub(crate) struct Factors {
    /// One for each block of the diagonal, in the order of columns.
    pub(crate) blocks: Vec<Block>,
    columns: Weights,
    /// None where errors of all rows count much the same.
    rows: Option<Weights>,
    /// log2 of what a squared error of weighted values counts, halved.
    octaves: f64,
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
            let feed = factor(inputs, curvature.damping(), first, &mut counts, workers)?;
            blocks.push(Block { first, cols: inputs.cols, feed });
        }
        let columns = Weights::of(Axis::Columns, &counts)?;
        let mut octaves = mean_octaves(&counts);
        for block in &mut blocks {
            let factors: Vec<f32> =
                (block.first..block.first + block.cols).map(|j| columns.factor(j)).collect();
            for (k, row) in block.feed.chunks_exact_mut(block.cols.max(1)).enumerate() {
                row[..k].iter_mut().zip(&factors).for_each(|(v, f)| *v *= factors[k] / f);
            }
        }
        let rows = match curvature.outputs() {
            Some(outputs) => {
                let rows = Weights::of(Axis::Rows, outputs)?;
                let (mean, each) = (mean_log(outputs), mean_octaves(outputs));
                // Half an octave of importance is worth a bit a value; a weight is a byte a row.
                let pays = (mean - each) * curvature.cols() as f64 > 8.0;
                octaves += if pays { each } else { mean };
                pays.then_some(rows)
            }
            None => None,
        };
        Ok(Factors { blocks, columns, rows, octaves })
    }

    /// The transforms for a blob of this order: a transposition, if it needs one, then the weights.
    pub(crate) fn transforms(&self, order: Order) -> Vec<Transform> {
        let weights = std::iter::once(&self.columns).chain(&self.rows);
        match order {
            Order::Rows => weights.map(|w| Transform::Weights(w.clone())).collect(),
            Order::Columns => {
                let turned = weights.map(|w| Transform::Weights(w.transposed()));
                std::iter::once(Transform::Transposed).chain(turned).collect()
            }
        }
    }

    /// Steps of weighted values that are this times the same number have the same loss for a bit, in any tensor.
    pub(super) fn unit(&self) -> f64 {
        (-self.octaves).exp2()
    }
}

/// Half the mean logarithm, as [`Weights::of`] takes it off.
fn mean_octaves(counts: &[f64]) -> f64 {
    let most = counts.iter().fold(0.0f64, |m, &v| m.max(v));
    let floor = if most > 0.0 { most * Weights::LEAST } else { 1.0 };
    0.5 * counts.iter().map(|v| v.max(floor).log2()).sum::<f64>() / counts.len().max(1) as f64
}

/// Half the logarithm of the mean.
fn mean_log(counts: &[f64]) -> f64 {
    let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
    if mean > 0.0 { 0.5 * mean.log2() } else { 0.0 }
}

/// Factors one block: appends D to `counts` and returns the transpose of V.
fn factor(
    inputs: &Inputs,
    damping: f64,
    first: usize,
    counts: &mut Vec<f64>,
    workers: &Workers,
) -> Result<Vec<f32>> {
    let n = inputs.cols;
    let mean = (0..n).map(|j| f64::from(inputs.values[j * n + j])).sum::<f64>() / n.max(1) as f64;
    let floor = if mean > 0.0 { mean * FLOOR } else { 1.0 };
    // From the last column to the first, so that the lower factor of this is the upper one of H.
    let mut a: Vec<f64> = inputs.values.iter().rev().map(|&v| f64::from(v)).collect();
    for j in 0..n {
        a[j * n + j] = (a[j * n + j] * (1.0 + damping)).max(floor);
    }
    if let Some(row) = cholesky::factor(&mut a, n, workers)? {
        return Err(Error::InvalidArgument(format!(
            "E[x·xᵀ] is not positive definite at column {}, even with a damping of {damping}: it is no mean of products of inputs",
            first + n - 1 - row
        )));
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
