//! Matrix products and decompositions, all in f64. The arithmetic is that of `faer`, on one thread; products and solutions are cut
//! into panels of columns that all threads at hand share. The cuts do not depend on the number of threads, so results do not
//! either.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::prelude::default;
use faer::{Accum, MatMut, MatRef, Par};

use crate::error::{Result, invalid};

pub(super) type Mat = faer::Mat<f64>;

/// Columns of an output that a thread makes at once.
const PANEL: usize = 128;

/// Calls `f` with each panel of columns and the number of its first column.
fn for_panels(out: &mut Mat, f: impl Fn(usize, MatMut<'_, f64>) + Sync) {
    fn halve(out: MatMut<'_, f64>, at: usize, f: &(impl Fn(usize, MatMut<'_, f64>) + Sync)) {
        if out.ncols() <= PANEL {
            return f(at, out);
        }
        let middle = out.ncols().div_ceil(PANEL) / 2 * PANEL;
        let (left, right) = out.split_at_col_mut(middle);
        rayon::join(|| halve(left, at, f), || halve(right, at + middle, f));
    }
    halve(out.as_mut(), 0, &f);
}

/// a · b.
pub(super) fn product(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    for_panels(&mut out, |at, panel| {
        let b = b.subcols(at, panel.ncols());
        matmul(panel, Accum::Replace, a, b, 1.0, Par::Seq);
    });
    out
}

/// Adds rowsᵀ · rows to the lower triangle of `sums`; rows lie one after the other.
pub(super) fn add_outer(sums: &mut Mat, rows: &[f64]) {
    let cols = sums.ncols();
    let rows = MatRef::from_row_major_slice(rows, rows.len() / cols.max(1), cols);
    for_panels(sums, |at, panel| {
        let (below, across) = (rows.subcols(at, cols - at).transpose(), rows.subcols(at, panel.ncols()));
        matmul(panel.subrows_mut(at, cols - at), Accum::Add, below, across, 1.0, Par::Seq);
    });
}

/// Eigenvalues of a symmetric matrix, the largest first, none below zero, and its eigenvectors as rows. Signs are such that
/// each row's largest entry is positive.
pub(super) fn decompose(matrix: &Mat) -> Result<(Vec<f64>, Mat)> {
    let n = matrix.nrows();
    let fails = || invalid("the search for eigenvectors of the covariance does not converge");
    if !matrix.is_all_finite() {
        return Err(fails());
    }
    let (mut values, mut vectors) = (Diag::zeros(n), Mat::zeros(n, n));
    let room = self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, default());
    let (mut buffer, into) = (MemBuffer::new(room), Some(vectors.as_mut()));
    let stack = MemStack::new(&mut buffer);
    self_adjoint_evd(matrix.as_ref(), values.as_mut(), into, Par::Seq, stack, default())
        .map_err(|_| fails())?;
    let values = values.column_vector();
    if !values.iter().all(|v| v.is_finite()) {
        return Err(fails());
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let mut rows = Mat::zeros(n, n);
    for (k, &from) in order.iter().enumerate() {
        let vector = vectors.col(from);
        let largest = vector.iter().fold(0.0f64, |m, &v| if v.abs() > m.abs() { v } else { m });
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        rows.row_mut(k).iter_mut().zip(vector.iter()).for_each(|(to, v)| *to = sign * v);
    }
    Ok((order.iter().map(|&k| values[k].max(0.0)).collect(), rows))
}

/// L with L·Lᵀ = matrix, or nothing if the symmetric matrix is not positive.
pub(super) fn cholesky(mut matrix: Mat) -> Option<Mat> {
    let n = matrix.nrows();
    let mut buffer = MemBuffer::new(cholesky_in_place_scratch::<f64>(n, Par::Seq, default()));
    let stack = MemStack::new(&mut buffer);
    cholesky_in_place(matrix.as_mut(), default(), Par::Seq, stack, default()).ok()?;
    for c in 1..n {
        matrix.col_mut(c).subrows_mut(0, c).fill(0.0);
    }
    // A matrix that is not finite has no factor, whatever was found.
    matrix.is_all_finite().then_some(matrix)
}

/// X with L·X = right, for a lower triangle L.
pub(super) fn solve_lower(lower: MatRef<'_, f64>, right: MatMut<'_, f64>) {
    solve_lower_triangular_in_place(lower, right, Par::Seq);
}

/// X with U·X = right, for an upper triangle U.
pub(super) fn solve_upper(upper: MatRef<'_, f64>, right: MatMut<'_, f64>) {
    solve_upper_triangular_in_place(upper, right, Par::Seq);
}

/// matrix⁻¹ · right for a symmetric positive matrix, or nothing if it is not.
pub(super) fn solve(matrix: Mat, mut right: Mat) -> Option<Mat> {
    let lower = cholesky(matrix)?;
    for_panels(&mut right, |_, mut x| {
        solve_lower(lower.as_ref(), x.as_mut());
        solve_upper(lower.transpose(), x);
    });
    Some(right)
}

/// A matrix from rows of f32.
pub(super) fn to_matrix(rows: &[f32], cols: usize) -> Mat {
    Mat::from_fn(rows.len() / cols.max(1), cols, |i, j| f64::from(rows[i * cols + j]))
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
        let off = (a - b).norm_max();
        assert!(off <= tolerance, "off by {off}");
    }

    fn lower_of(matrix: &Mat) -> Mat {
        Mat::from_fn(matrix.nrows(), matrix.ncols(), |i, j| if i < j { 0.0 } else { matrix[(i, j)] })
    }

    /// A symmetric positive matrix of several blocks and a rest.
    fn positive() -> Mat {
        let a = random(2 * PANEL + 7, 3 * PANEL);
        &a * a.transpose()
    }

    #[test]
    fn products_of_many_panels_are_those_of_one() {
        let (a, b) = (random(70, 90), random(90, 2 * PANEL + 3));
        near(&product(a.as_ref(), b.as_ref()), &(&a * &b), 1e-13);
        let rows = random(50, 2 * PANEL + 3);
        let mut sums = Mat::zeros(rows.ncols(), rows.ncols());
        for half in [rows.subrows(0, 20), rows.subrows(20, 30)] {
            let flat: Vec<f64> =
                half.row_iter().flat_map(|row| row.iter().copied().collect::<Vec<_>>()).collect();
            add_outer(&mut sums, &flat);
        }
        near(&lower_of(&sums), &lower_of(&(rows.transpose() * &rows)), 1e-13);
    }

    #[test]
    fn factors_multiply_to_the_matrix_and_solutions_solve() {
        let matrix = positive();
        let lower = cholesky(matrix.clone()).unwrap();
        near(&(&lower * lower.transpose()), &matrix, 1e-12);
        assert_eq!(lower, lower_of(&lower));
        let right = random(matrix.nrows(), PANEL + 5);
        near(&(&matrix * solve(matrix.clone(), right.clone()).unwrap()), &right, 1e-9);
        assert!(cholesky(-matrix).is_none());
    }

    #[test]
    fn eigenvectors_are_orthonormal_and_make_the_matrix_again() {
        let matrix = positive();
        let (values, rows) = decompose(&matrix).unwrap();
        assert!(values.is_sorted_by(|a, b| a >= b));
        near(&(&rows * rows.transpose()), &Mat::identity(values.len(), values.len()), 1e-12);
        let scaled = Mat::from_fn(values.len(), values.len(), |k, c| values[k] * rows[(k, c)]);
        near(&(rows.transpose() * scaled), &matrix, 1e-10);
        assert!(decompose(&Mat::full(3, 3, f64::NAN)).is_err());
    }
}
