//! Cholesky's factor of a symmetric matrix, in f64.
//!
//! Each row is computed by one worker, its sums in a fixed order: the number of threads changes no bit.

use crate::error::Result;
use crate::simd::{Isa, multiversion};
use crate::workers::Workers;

/// Columns that are finished together.
const PANEL: usize = 32;
/// Rows that share what is read of a panel.
const ROWS: usize = 4;
/// Rows of a piece of work.
const PIECE: usize = 32;

/// Replaces the lower triangle of `a`, which has `n` rows of `n` numbers, by L with a = L·Lᵀ; the rest is left alone. Returns
/// the first row that has no positive pivot, if there is one.
pub(super) fn factor(a: &mut [f64], n: usize, workers: &Workers) -> Result<Option<usize>> {
    let isa = Isa::detect();
    // The panel's rows so far, transposed; columns that are not there stay 0.
    let mut panel = Vec::new();
    for first in (0..n).step_by(PANEL) {
        let width = PANEL.min(n - first);
        panel.clear();
        panel.resize(first * PANEL, 0.0);
        for (c, row) in a[first * n..].chunks_exact(n).take(width).enumerate() {
            panel.iter_mut().skip(c).step_by(PANEL).zip(row).for_each(|(p, &v)| *p = v);
        }
        let (above, below) = a.split_at_mut((first + width) * n);
        let corner = &mut above[first * n..];
        take_off(isa, &panel, corner, n, first);
        if let Some(row) = factor_corner(corner, n, first, width) {
            return Ok(Some(first + row));
        }
        let corner = &*corner;
        workers.for_pieces(
            below.chunks_mut(PIECE * n).collect(),
            || (),
            |(), _, rows| {
                take_off(isa, &panel, rows, n, first);
                rows.chunks_exact_mut(n).for_each(|row| solve(corner, n, first, width, row));
                Ok(())
            },
        )?;
    }
    Ok(None)
}

multiversion! { fn take_off / take_off_inner(panel: &[f64], rows: &mut [f64], n: usize, first: usize) }

/// Takes off each row's columns from `first` on what the columns before them account for.
#[inline(always)]
fn take_off_inner(panel: &[f64], rows: &mut [f64], n: usize, first: usize) {
    let panel = panel.as_chunks::<PANEL>().0;
    let width = PANEL.min(n - first);
    let mut groups = rows.chunks_exact_mut(ROWS * n);
    for group in &mut groups {
        let mut sums = [[0f64; PANEL]; ROWS];
        for (t, p) in panel.iter().enumerate() {
            for r in 0..ROWS {
                let v = group[r * n + t];
                for c in 0..PANEL {
                    sums[r][c] += v * p[c];
                }
            }
        }
        for (row, sums) in group.chunks_exact_mut(n).zip(&sums) {
            row[first..first + width].iter_mut().zip(sums).for_each(|(v, s)| *v -= s);
        }
    }
    for row in groups.into_remainder().chunks_exact_mut(n) {
        let mut sums = [0f64; PANEL];
        for (p, &v) in panel.iter().zip(&*row) {
            for c in 0..PANEL {
                sums[c] += v * p[c];
            }
        }
        row[first..first + width].iter_mut().zip(sums).for_each(|(v, s)| *v -= s);
    }
}

/// Factors the rows of a panel that cross its own columns.
fn factor_corner(corner: &mut [f64], n: usize, first: usize, width: usize) -> Option<usize> {
    for r in 0..width {
        let (done, row) = corner.split_at_mut(r * n);
        solve(done, n, first, r, row);
        let squares: f64 = row[first..first + r].iter().map(|v| v * v).sum();
        let pivot = row[first + r] - squares;
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Some(r);
        }
        row[first + r] = pivot.sqrt();
    }
    None
}

/// Divides the columns of a row that belong to a panel by the panel's triangle.
fn solve(corner: &[f64], n: usize, first: usize, width: usize, row: &mut [f64]) {
    for c in 0..width {
        let (of, pivot) = (&corner[c * n + first..][..c], corner[c * n + first + c]);
        let sum: f64 = of.iter().zip(&row[first..]).map(|(a, b)| a * b).sum();
        row[first + c] = (row[first + c] - sum) / pivot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A·Aᵀ plus a little on the diagonal, for a matrix of noise.
    fn positive(n: usize) -> Vec<f64> {
        let a: Vec<f64> = (0..n * n).map(|i| ((i * 7919 % 1013) as f64 * 0.37).sin()).collect();
        let dot = |r: usize, c: usize| (0..n).map(|t| a[r * n + t] * a[c * n + t]).sum::<f64>();
        (0..n * n).map(|i| dot(i / n, i % n) + if i / n == i % n { 0.5 } else { 0.0 }).collect()
    }

    #[test]
    fn the_factor_times_itself_is_the_matrix() {
        for n in [1, 2, 31, 32, 33, 100] {
            let a = positive(n);
            let mut l = a.clone();
            assert_eq!(factor(&mut l, n, &Workers::current_thread()).unwrap(), None);
            for r in 0..n {
                for c in 0..=r {
                    let product: f64 = (0..=c).map(|t| l[r * n + t] * l[c * n + t]).sum();
                    assert!((product - a[r * n + c]).abs() < 1e-9 * n as f64, "{r}, {c} of {n}");
                }
            }
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let n = 150;
        let mut one = positive(n);
        let mut many = one.clone();
        factor(&mut one, n, &Workers::current_thread()).unwrap();
        factor(&mut many, n, &Workers::new(3, &Default::default()).unwrap()).unwrap();
        assert_eq!(one, many);
    }

    #[test]
    fn what_is_not_positive_definite_is_found() {
        let n = 70;
        let mut a = positive(n);
        a[40 * n + 40] = -1.0;
        assert_eq!(factor(&mut a, n, &Workers::current_thread()).unwrap(), Some(40));
        assert_eq!(factor(&mut [f64::NAN], 1, &Workers::current_thread()).unwrap(), Some(0));
    }
}
