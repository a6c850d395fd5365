//! Matrix products and decompositions, all in f64, through `faer`.

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::prelude::Solve;
use faer::{Accum, Mat, MatMut, MatRef, Par, Side};

use crate::error::{Result, invalid};

/// As many threads as the pool at hand has.
fn threads() -> Par {
    Par::rayon(0)
}

/// a · b.
pub(super) fn product(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(&mut out, Accum::Replace, a, b, 1.0, threads());
    out
}

/// Adds rowsᵀ · rows to the lower triangle of `sums`.
pub(super) fn add_outer(sums: MatMut<'_, f64>, rows: MatRef<'_, f64>) {
    let full = BlockStructure::Rectangular;
    let lower = BlockStructure::TriangularLower;
    triangular::matmul(sums, lower, Accum::Add, rows.transpose(), full, rows, full, 1.0, threads());
}

/// Eigenvalues of a symmetric matrix whose lower triangle is given, the largest first, none below zero, and its
/// eigenvectors as rows. Signs are such that each row's largest entry is positive.
pub(super) fn eigen(matrix: MatRef<'_, f64>) -> Result<(Vec<f64>, Mat<f64>)> {
    let n = matrix.nrows();
    let found = matrix
        .self_adjoint_eigen(Side::Lower)
        .map_err(|e| invalid(format!("the covariance has no eigenvectors: {e:?}")))?;
    let (values, vectors) = (found.S().column_vector(), found.U());
    let mut signs = vec![1.0f64; n];
    for (j, sign) in signs.iter_mut().enumerate() {
        let largest =
            (0..n).map(|i| vectors[(i, j)]).fold(0.0f64, |m, v| if v.abs() > m.abs() { v } else { m });
        *sign = if largest < 0.0 { -1.0 } else { 1.0 };
    }
    let rows = Mat::from_fn(n, n, |k, c| vectors[(c, n - 1 - k)] * signs[n - 1 - k]);
    Ok(((0..n).map(|k| values[n - 1 - k].max(0.0)).collect(), rows))
}

/// L with L·Lᵀ = matrix, or nothing if the matrix is not positive.
pub(super) fn cholesky(matrix: MatRef<'_, f64>) -> Option<Mat<f64>> {
    let found = matrix.llt(Side::Lower).ok()?;
    let l = found.L();
    let n = matrix.nrows();
    Some(Mat::from_fn(n, n, |i, j| if j <= i { l[(i, j)] } else { 0.0 }))
}

/// matrix⁻¹ · right for a symmetric positive matrix, or nothing if it is not.
pub(super) fn solve(matrix: MatRef<'_, f64>, right: MatRef<'_, f64>) -> Option<Mat<f64>> {
    let found = matrix.llt(Side::Lower).ok()?;
    Some(found.solve(right))
}

/// A matrix from rows of f32.
pub(super) fn wide(rows: &[f32], cols: usize) -> Mat<f64> {
    Mat::from_fn(rows.len() / cols.max(1), cols, |i, j| f64::from(rows[i * cols + j]))
}

/// Rows of f32 from a matrix.
pub(super) fn narrow(matrix: MatRef<'_, f64>) -> Vec<f32> {
    let (rows, cols) = (matrix.nrows(), matrix.ncols());
    (0..rows).flat_map(|i| (0..cols).map(move |j| matrix[(i, j)] as f32)).collect()
}
