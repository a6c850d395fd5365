//! How much errors count: a symmetric positive matrix M for rows, so that an error e costs eᵀ·M·e.
//!
//! For keys M is the mean of q·qᵀ over the queries of a head, for values what the output projection makes of an error.
//! Both are made of blocks on the diagonal, one for each head.

use faer::MatRef;
use rayon::prelude::*;

use super::algebra::{Mat, cholesky, solve_upper};
use crate::error::{Error, Result, invalid};

/// Default addition to the diagonal, as a fraction of its mean: directions that the sample found harmless still count.
/// Chosen with ten contexts of a real model as the sample.
pub const RIDGE: f64 = 0.03;
/// How far a block may be from symmetric, next to its largest entry.
const ASYMMETRY: f64 = 1e-3;

/// Blocks of one size along the diagonal.
///
/// ```
/// use tenfold_kv::basis::Metric;
/// // The second column counts four times as much as the first.
/// assert_eq!(Metric::from_columns(&[1.0, 4.0])?.cols(), 2);
/// assert!(Metric::from_blocks(2, &[1.0, 2.0, 2.0, 1.0]).is_err()); // not positive
/// # Ok::<(), tenfold_kv::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Metric {
    size: usize,
    /// Cholesky factors of the blocks, row by row.
    factors: Vec<f64>,
}

impl Metric {
    /// A weight for each column.
    pub fn from_columns(weights: &[f64]) -> Result<Self> {
        Metric::from_blocks(1, weights)
    }

    /// Blocks of `size` × `size` numbers, one after the other, each row by row.
    pub fn from_blocks(size: usize, values: &[f64]) -> Result<Self> {
        Metric::with_ridge(size, values, RIDGE)
    }

    /// The same with `ridge` times the diagonal's mean added to the diagonal.
    pub fn with_ridge(size: usize, values: &[f64], ridge: f64) -> Result<Self> {
        if !(ridge.is_finite() && ridge >= 0.0) {
            return Err(invalid("the ridge of a metric must be finite and not negative"));
        }
        let area = size.saturating_mul(size);
        if size == 0 || values.is_empty() || !values.len().is_multiple_of(area) {
            return Err(invalid(format!("{} numbers do not make blocks of {size}×{size}", values.len())));
        }
        if values.iter().any(|v| !v.is_finite()) {
            return Err(invalid("a metric must hold finite numbers only"));
        }
        let blocks = values.len() / area;
        let mean = (0..blocks).flat_map(|b| (0..size).map(move |i| b * area + i * size + i));
        let mean = mean.map(|i| values[i]).sum::<f64>() / (blocks * size) as f64;
        let mut factors = Vec::with_capacity(values.len());
        for block in values.chunks_exact(area) {
            let block = MatRef::from_row_major_slice(block, size, size);
            let most = block.norm_max();
            let off = (0..size).flat_map(|i| (0..i).map(move |j| (i, j)));
            if off.clone().any(|(i, j)| (block[(i, j)] - block[(j, i)]).abs() > ASYMMETRY * most) {
                return Err(invalid("a metric must be symmetric"));
            }
            let ridged = Mat::from_fn(size, size, |i, j| {
                0.5 * (block[(i, j)] + block[(j, i)]) + if i == j { ridge * mean } else { 0.0 }
            });
            let l = cholesky(ridged).ok_or_else(|| invalid("a metric must be positive definite"))?;
            l.row_iter().for_each(|row| factors.extend(row.iter()));
        }
        Ok(Metric { size, factors })
    }

    /// Blocks of several metrics of one size, one after the other.
    pub fn join(parts: &[Metric]) -> Result<Self> {
        let size = parts.first().map_or(0, |m| m.size);
        if size == 0 || parts.iter().any(|m| m.size != size) {
            return Err(invalid("metrics of layers that share a basis must have blocks of the same size"));
        }
        Ok(Metric { size, factors: parts.iter().flat_map(|m| m.factors.iter().copied()).collect() })
    }

    /// Columns that it is for.
    pub fn cols(&self) -> usize {
        self.factors.len() / self.size
    }

    /// The metric of some columns, which must be whole blocks.
    pub fn part(&self, range: std::ops::Range<usize>) -> Result<Self> {
        if !range.start.is_multiple_of(self.size) || !range.len().is_multiple_of(self.size) {
            return Err(invalid(format!("columns {range:?} cut a block of the metric")));
        }
        let factors = self.factors.get(range.start * self.size..range.end * self.size);
        let factors = factors.ok_or_else(|| invalid(format!("columns {range:?} are outside the metric")))?;
        Ok(Metric { size: self.size, factors: factors.to_vec() })
    }

    /// Diagonal of M: what a lone error in a column costs.
    pub fn diagonal(&self) -> Vec<f64> {
        self.factors.chunks_exact(self.size).map(|row| row.iter().map(|v| v * v).sum()).collect()
    }

    /// The factors' lower triangles, for storing.
    pub(super) fn pack(&self) -> Vec<f32> {
        let rows = self.factors.chunks_exact(self.size).enumerate();
        rows.flat_map(|(c, row)| row[..=c % self.size].iter().map(|&v| v as f32)).collect()
    }

    /// The metric of `cols` columns from packed factors; `None` if they are invalid.
    pub(super) fn unpack(packed: &[f32], size: usize, cols: usize) -> Result<Self> {
        let fits =
            size > 0 && cols.is_multiple_of(size) && packed.len() == cols / size * (size * (size + 1) / 2);
        if !fits || packed.iter().any(|v| !v.is_finite()) {
            return Err(Error::Malformed("a metric and its basis have different columns".into()));
        }
        let mut factors = vec![0.0; cols * size];
        let mut from = packed.iter();
        for (c, row) in factors.chunks_exact_mut(size).enumerate() {
            row[..=c % size].iter_mut().zip(&mut from).for_each(|(to, &v)| *to = f64::from(v));
        }
        Ok(Metric { size, factors })
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// One row times L, in plain arithmetic in a fixed order.
    pub(super) fn see(&self, row: &mut [f64]) {
        for (part, l) in self.blocks(row) {
            // Column c of L has nothing above its diagonal, so what is still needed has not been replaced.
            for c in 0..part.len() {
                part[c] = (c..part.len()).fold(0.0, |sum, i| sum + part[i] * l[i * part.len() + c]);
            }
        }
    }

    /// One row times L⁻¹, likewise.
    pub(super) fn unsee(&self, row: &mut [f64]) {
        for (part, l) in self.blocks(row) {
            for c in (0..part.len()).rev() {
                let known = (c + 1..part.len()).fold(0.0, |sum, i| sum + part[i] * l[i * part.len() + c]);
                part[c] = (part[c] - known) / l[c * part.len() + c];
            }
        }
    }

    /// Parts of a row with the factors that they meet.
    fn blocks<'r>(&'r self, row: &'r mut [f64]) -> impl Iterator<Item = (&'r mut [f64], &'r [f64])> {
        row.chunks_exact_mut(self.size).zip(self.factors.chunks_exact(self.size * self.size))
    }

    /// rows · L.
    pub(super) fn multiply(&self, rows: &Mat) -> Mat {
        self.map_blocks(rows, |block, l| block * l)
    }

    /// rows · Lᵀ.
    pub(super) fn multiply_transposed(&self, rows: &Mat) -> Mat {
        self.map_blocks(rows, |block, l| block * l.transpose())
    }

    /// rows · L⁻¹.
    pub(super) fn divide(&self, rows: &Mat) -> Mat {
        self.map_blocks(rows, |block, l| {
            let mut out = block.to_owned();
            // X·L = B is Lᵀ·Xᵀ = Bᵀ.
            solve_upper(l.transpose(), out.as_mut().transpose_mut());
            out
        })
    }

    /// Applies a function to each block of columns.
    fn map_blocks(&self, rows: &Mat, f: impl Fn(MatRef<'_, f64>, MatRef<'_, f64>) -> Mat + Sync) -> Mat {
        let size = self.size;
        let blocks: Vec<Mat> = (0..self.cols() / size)
            .into_par_iter()
            .map(|b| {
                let l = &self.factors[b * size * size..][..size * size];
                f(rows.subcols(b * size, size), MatRef::from_row_major_slice(l, size, size))
            })
            .collect();
        Mat::from_fn(rows.nrows(), rows.ncols(), |i, j| blocks[j / size][(i, j % size)])
    }
}
