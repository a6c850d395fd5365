//! Rows times a matrix, the work of a basis.
//!
//! Rows are taken eight at a time, so that what is read of the matrix serves eight of them, and columns in strips that
//! stay in registers. Sums run over the matrix's rows in their order, whatever the machine: one machine's results are
//! another's.

use super::real::Real;
use crate::simd::{Isa, multiversion};

/// Rows done together.
const ROWS: usize = 8;
/// Columns done together.
const STRIP: usize = 32;

type Strip = [[f32; STRIP]; ROWS];

/// `out[r][c] = start[c] + Σ rows[r][i] · matrix[i][from + c]`, where `out` has rows of `start.len()` columns and the
/// matrix rows of `stride`.
pub(super) fn product<R: Real>(
    rows: &[R],
    matrix: &[f32],
    stride: usize,
    from: usize,
    start: &[f32],
    out: &mut [R],
) {
    let (inner, cols) = (matrix.len() / stride.max(1), start.len());
    if inner == 0 || cols == 0 {
        return;
    }
    if let (Ok(rows), Ok(out)) = (bytemuck::try_cast_slice(rows), bytemuck::try_cast_slice_mut(out))
        && size_of::<R>() == size_of::<f32>()
    {
        return product_f32(rows, matrix, stride, from, start, out);
    }
    // Few tensors are of f64.
    for (row, out) in rows.chunks_exact(inner).zip(out.chunks_exact_mut(cols)) {
        out.iter_mut().zip(start).for_each(|(o, &s)| *o = R::from_f64(f64::from(s)));
        for (&a, m) in row.iter().zip(matrix.chunks_exact(stride)).filter(|(a, _)| a.wide() != 0.0) {
            let m = &m[from..from + cols];
            out.iter_mut().zip(m).for_each(|(o, &v)| *o = o.plus(a.times(R::from_f64(f64::from(v)))));
        }
    }
}

fn product_f32(rows: &[f32], matrix: &[f32], stride: usize, from: usize, start: &[f32], out: &mut [f32]) {
    let isa = Isa::detect();
    let (inner, cols) = (matrix.len() / stride, start.len());
    // Factors of eight rows side by side, each with the place of the matrix's row; weak components are zeros nearly
    // everywhere, and what is zero in all eight rows is left out.
    let mut factors: Vec<([f32; ROWS], usize)> = Vec::with_capacity(inner);
    for (rows, out) in rows.chunks(ROWS * inner).zip(out.chunks_mut(ROWS * cols)) {
        factors.clear();
        let count = rows.len() / inner;
        for i in 0..inner {
            let mut eight = [0f32; ROWS];
            eight.iter_mut().zip(rows[i..].iter().step_by(inner)).for_each(|(e, &v)| *e = v);
            if eight.iter().any(|&v| v != 0.0) {
                factors.push((eight, i * stride + from));
            }
        }
        for c in (0..cols).step_by(STRIP) {
            let width = STRIP.min(cols - c);
            let mut sums: Strip = [[0.0; STRIP]; ROWS];
            sums.iter_mut().for_each(|s| s[..width].copy_from_slice(&start[c..c + width]));
            if width == STRIP {
                strip(isa, &factors, &matrix[c..], &mut sums);
            } else {
                edge(&factors, &matrix[c..], width, &mut sums);
            }
            for (r, sums) in sums.iter().enumerate().take(count) {
                out[r * cols + c..][..width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

multiversion! { fn strip / strip_inner(factors: &[([f32; ROWS], usize)], matrix: &[f32], sums: &mut Strip) }

#[inline(always)]
fn strip_inner(factors: &[([f32; ROWS], usize)], matrix: &[f32], sums: &mut Strip) {
    let mut s = *sums;
    for (a, at) in factors {
        let Some(m) = matrix.get(*at..).and_then(|m| m.first_chunk::<STRIP>()) else { return };
        for r in 0..ROWS {
            for c in 0..STRIP {
                s[r][c] += a[r] * m[c];
            }
        }
    }
    *sums = s;
}

/// A strip that is not full.
fn edge(factors: &[([f32; ROWS], usize)], matrix: &[f32], width: usize, sums: &mut Strip) {
    for (a, at) in factors {
        let m = &matrix[*at..*at + width];
        for (s, &a) in sums.iter_mut().zip(a) {
            s.iter_mut().zip(m).for_each(|(s, &v)| *s += a * v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_sums_in_order() {
        for (rows, inner, stride, from, cols) in
            [(1, 1, 1, 0, 1), (3, 5, 40, 3, 33), (8, 64, 64, 0, 64), (19, 7, 100, 10, 70)]
        {
            let a: Vec<f32> =
                (0..rows * inner).map(|i| if i % 3 == 0 { 0.0 } else { (i as f32).sin() }).collect();
            let m: Vec<f32> = (0..inner * stride).map(|i| (i as f32 * 0.7).cos()).collect();
            let start: Vec<f32> = (0..cols).map(|i| i as f32).collect();
            let mut out = vec![0f32; rows * cols];
            product(&a, &m, stride, from, &start, &mut out);
            for r in 0..rows {
                for c in 0..cols {
                    let mut sum = start[c];
                    (0..inner).for_each(|i| sum += a[r * inner + i] * m[i * stride + from + c]);
                    assert_eq!(out[r * cols + c], sum, "row {r}, column {c} of {rows} × {inner} × {cols}");
                }
            }
            let wide: Vec<f64> = a.iter().map(|&v| f64::from(v)).collect();
            let mut out64 = vec![0f64; rows * cols];
            product(&wide, &m, stride, from, &start, &mut out64);
            assert!(out.iter().zip(&out64).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-4));
        }
    }
}
