//! Matrix products and decompositions, all in f64. The arithmetic is that of `nalgebra`, whose products are fast and whose
//! solvers go column by column; here both are cut into blocks, so that products do the work, on all threads at hand. The
//! cuts do not depend on the number of threads, so results do not either.

use nalgebra::{Cholesky, DMatrix, DMatrixView, DMatrixViewMut, Dyn, SymmetricEigen};
use rayon::prelude::*;

use crate::error::{Result, invalid};

pub(super) type Mat = DMatrix<f64>;

/// Columns of an output that a thread makes at once.
const PANEL: usize = 128;
/// Rows that are solved for at once.
const BLOCK: usize = 64;

/// Calls `f` with each panel of columns and the number of its first column.
fn for_panels(out: &mut Mat, f: impl Fn(usize, DMatrixViewMut<'_, f64>) + Sync) {
    let rows = out.nrows().max(1);
    out.as_mut_slice().par_chunks_mut(PANEL * rows).enumerate().for_each(|(i, panel)| {
        let cols = panel.len() / rows;
        f(i * PANEL, DMatrixViewMut::from_slice(panel, rows, cols));
    });
}

/// a · b.
pub(super) fn product(a: &Mat, b: &Mat) -> Mat {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    for_panels(&mut out, |at, mut panel| panel.gemm(1.0, a, &b.columns(at, panel.ncols()), 0.0));
    out
}

/// Adds rowsᵀ · rows to the lower triangle of `sums`; rows lie one after the other.
pub(super) fn add_outer(sums: &mut Mat, rows: &[f64]) {
    let cols = sums.ncols();
    let count = rows.len() / cols.max(1);
    let transposed = DMatrixView::from_slice(rows, cols, count);
    let rows: DMatrixView<'_, f64, Dyn, Dyn> =
        DMatrixView::from_slice_with_strides(rows, count, cols, cols, 1);
    for_panels(sums, |at, mut panel| {
        let width = panel.ncols();
        let (below, across) = (transposed.rows(at, cols - at), rows.columns(at, width));
        panel.rows_mut(at, cols - at).gemm(1.0, &below, &across, 1.0);
    });
}

/// Eigenvalues of a symmetric matrix, the largest first, none below zero, and its eigenvectors as rows. Signs are such that
/// each row's largest entry is positive.
pub(super) fn decompose(matrix: Mat) -> Result<(Vec<f64>, Mat)> {
    let n = matrix.nrows();
    let found = SymmetricEigen::try_new(matrix, f64::EPSILON, 64 * n.max(16))
        .filter(|found| found.eigenvalues.iter().all(|v| v.is_finite()))
        .ok_or_else(|| invalid("the search for eigenvectors of the covariance does not converge"))?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| found.eigenvalues[b].total_cmp(&found.eigenvalues[a]));
    let mut rows = Mat::zeros(n, n);
    for (k, &from) in order.iter().enumerate() {
        let vector = found.eigenvectors.column(from);
        let largest = vector.iter().fold(0.0f64, |m, &v| if v.abs() > m.abs() { v } else { m });
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        rows.row_mut(k).iter_mut().zip(&vector).for_each(|(to, v)| *to = sign * v);
    }
    Ok((order.iter().map(|&k| found.eigenvalues[k].max(0.0)).collect(), rows))
}

/// L with L·Lᵀ = matrix, or nothing if the symmetric matrix is not positive.
pub(super) fn cholesky(mut matrix: Mat) -> Option<Mat> {
    let n = matrix.nrows();
    for at in (0..n).step_by(BLOCK) {
        let width = BLOCK.min(n - at);
        let (done, mut now) = matrix.columns_range_pair_mut(0..at, at..at + width);
        let across = done.rows(at, width).transpose();
        now.rows_mut(at, n - at).gemm(-1.0, &done.rows(at, n - at), &across, 1.0);
        let corner = Cholesky::new(now.rows(at, width).into_owned())?.unpack();
        // X·Lᵀ = B is L·Xᵀ = Bᵀ.
        let mut below = now.rows(at + width, n - at - width).transpose();
        corner.solve_lower_triangular_mut(&mut below);
        now.rows_mut(at, width).copy_from(&corner);
        now.rows_mut(at + width, n - at - width).tr_copy_from(&below);
    }
    matrix.fill_upper_triangle(0.0, 1);
    Some(matrix)
}

/// matrix⁻¹ · right for a symmetric positive matrix, or nothing if it is not.
pub(super) fn solve(matrix: Mat, mut right: Mat) -> Option<Mat> {
    let lower = cholesky(matrix)?;
    let upper = lower.transpose();
    let n = lower.nrows();
    for_panels(&mut right, |_, mut x| {
        for at in (0..n).step_by(BLOCK) {
            let width = BLOCK.min(n - at);
            let (done, mut now) = x.rows_range_pair_mut(0..at, at..at + width);
            now.gemm(-1.0, &lower.view((at, 0), (width, at)), &done, 1.0);
            lower.view((at, at), (width, width)).solve_lower_triangular_mut(&mut now);
        }
        for at in (0..n).step_by(BLOCK).rev() {
            let end = n.min(at + BLOCK);
            let (mut now, done) = x.rows_range_pair_mut(at..end, end..n);
            now.gemm(-1.0, &upper.view((at, end), (end - at, n - end)), &done, 1.0);
            upper.view((at, at), (end - at, end - at)).solve_upper_triangular_mut(&mut now);
        }
    });
    Some(right)
}

/// A matrix from rows of f32.
pub(super) fn to_matrix(rows: &[f32], cols: usize) -> Mat {
    Mat::from_row_iterator(rows.len() / cols.max(1), cols, rows.iter().map(|&v| f64::from(v)))
}

/// Rows of f32 from a matrix.
pub(super) fn to_floats(matrix: &Mat) -> Vec<f32> {
    matrix.row_iter().flat_map(|row| row.iter().map(|&v| v as f32).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without a pattern, between −0.5 and 0.5.
    fn random(rows: usize, cols: usize) -> Mat {
        let mut state = 88172645463325252u64;
        Mat::from_fn(rows, cols, |_, _| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        })
    }

    fn near(a: &Mat, b: &Mat, tolerance: f64) {
        let off = (a - b).amax();
        assert!(off <= tolerance, "off by {off}");
    }

    /// A symmetric positive matrix of several blocks and a rest.
    fn positive() -> Mat {
        let a = random(2 * BLOCK + 7, 3 * BLOCK);
        &a * a.transpose()
    }

    #[test]
    fn products_of_many_panels_are_those_of_one() {
        let (a, b) = (random(70, 90), random(90, 2 * PANEL + 3));
        near(&product(&a, &b), &(&a * &b), 1e-13);
        let rows = random(50, 2 * PANEL + 3);
        let mut sums = Mat::zeros(rows.ncols(), rows.ncols());
        for half in [rows.rows(0, 20), rows.rows(20, 30)] {
            add_outer(&mut sums, half.transpose().as_slice());
        }
        near(&sums.lower_triangle(), &(rows.transpose() * &rows).lower_triangle(), 1e-13);
    }

    #[test]
    fn factors_multiply_to_the_matrix_and_solutions_solve() {
        let matrix = positive();
        let lower = cholesky(matrix.clone()).unwrap();
        near(&(&lower * lower.transpose()), &matrix, 1e-12);
        assert_eq!(lower, lower.lower_triangle());
        let right = random(matrix.nrows(), PANEL + 5);
        near(&(&matrix * solve(matrix.clone(), right.clone()).unwrap()), &right, 1e-9);
        assert!(cholesky(-matrix).is_none());
    }

    #[test]
    fn eigenvectors_are_orthonormal_and_make_the_matrix_again() {
        let matrix = positive();
        let (values, rows) = decompose(matrix.clone()).unwrap();
        assert!(values.is_sorted_by(|a, b| a >= b));
        near(&(&rows * rows.transpose()), &Mat::identity(values.len(), values.len()), 1e-12);
        let scaled = Mat::from_fn(values.len(), values.len(), |k, c| values[k] * rows[(k, c)]);
        near(&(rows.transpose() * scaled), &matrix, 1e-10);
        assert!(decompose(Mat::from_element(3, 3, f64::NAN)).is_err());
    }
}
