//! Steps of columns and rows: what feedback stores of a curvature, as weights.

use super::curvature::Curvature;
use super::feed::Order;
use crate::error::Result;
use crate::prepare::{Axis, Transform, Weights};

/// Weights of a matrix's columns and rows, so that one step serves all values.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps {
    columns: Weights,
    /// None where errors of all rows count much the same.
    rows: Option<Weights>,
    /// log2 of what a squared error of weighted values counts, halved.
    octaves: f64,
}

impl Steps {
    /// From what an error of each column counts once the columns behind it answer to it.
    pub(super) fn new(curvature: &Curvature, counts: &[f64]) -> Result<Steps> {
        let columns = Weights::of(Axis::Columns, counts)?;
        let mut octaves = mean_octaves(counts);
        let rows = match curvature.outputs() {
            Some(outputs) => {
                let outputs = damp(outputs, curvature.damping());
                let rows = Weights::of(Axis::Rows, &outputs)?;
                let (mean, each) = (mean_log(&outputs), mean_octaves(&outputs));
                // Half an octave of importance is worth a bit a value; a weight is a byte a row.
                let pays = (mean - each) * curvature.cols() as f64 > 8.0;
                octaves += if pays { each } else { mean };
                pays.then_some(rows)
            }
            None => None,
        };
        Ok(Steps { columns, rows, octaves })
    }

    /// What each column is multiplied by.
    pub fn column_factors(&self) -> Vec<f32> {
        (0..self.columns.len()).map(|j| self.columns.factor(j)).collect()
    }

    /// What each row is multiplied by; nothing where rows are left as they are.
    pub fn row_factors(&self) -> Option<Vec<f32>> {
        self.rows.as_ref().map(|rows| (0..rows.len()).map(|i| rows.factor(i)).collect())
    }

    /// The transforms for a blob of this order: a transposition, if it needs one, then the weights.
    pub fn transforms(&self, order: Order) -> Vec<Transform> {
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
    pub fn unit(&self) -> f64 {
        (-self.octaves).exp2()
    }
}

/// E[g²] drawn to its mean, which stays. Gradients say what small errors do: an attention head that is sure of itself has next to
/// none, and would get steps at which it is lost.
fn damp(outputs: &[f64], damping: f64) -> Vec<f64> {
    let mean = outputs.iter().sum::<f64>() / outputs.len().max(1) as f64;
    outputs.iter().map(|v| (v + damping * mean) / (1.0 + damping)).collect()
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
