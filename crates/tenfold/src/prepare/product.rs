//! Rows times a matrix, the work of a basis.
//!
//! Rows are taken eight at a time, so that what is read of the matrix serves eight of them, and columns in strips that
//! stay in registers. Of the matrix, a slab of few rows at a time serves all columns of many rows, while it is in the
//! cache: a strip of all its rows would be spread over as many pages of memory. Sums run over the matrix's rows in their order,
//! whatever the machine: one machine's results are another's.

use std::ops::Range;

use super::real::Real;
use crate::simd::wide::{WIDTH, Wide};
use crate::simd::{Isa, widen};

/// Rows done together.
const ROWS: usize = 8;
/// Columns done together.
const STRIP: usize = 32;
/// Rows of the matrix that are done before any after them.
const SLAB: usize = 64;
/// Rows that a slab serves, in groups of `ROWS`.
const GROUPS: usize = 8;

type Strip = [[f32; STRIP]; ROWS];
/// Factors of eight rows, and where the row of the matrix that they are for starts.
type Factor = ([f32; ROWS], usize);

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
    let (inner, cols) = (matrix.len() / stride, start.len());
    for (rows, out) in rows.chunks(GROUPS * ROWS * inner).zip(out.chunks_mut(GROUPS * ROWS * cols)) {
        out.chunks_exact_mut(cols).for_each(|row| row.copy_from_slice(start));
        add(rows, inner, matrix, (stride, from), cols, out);
    }
}

/// `out[r][c] += Σ rows[r][i] · matrix[i][c]`, where rows have `inner` factors and the matrix as many rows.
pub(crate) fn accumulate(rows: &[f32], inner: usize, matrix: &[f32], out: &mut [f32]) {
    if rows.is_empty() || matrix.is_empty() {
        return;
    }
    let cols = matrix.len() / inner;
    for (rows, out) in rows.chunks(GROUPS * ROWS * inner).zip(out.chunks_mut(GROUPS * ROWS * cols)) {
        add(rows, inner, matrix, (cols, 0), cols, out);
    }
}

/// Adds the product of at most `GROUPS · ROWS` rows and a matrix to `out`.
fn add(
    rows: &[f32],
    inner: usize,
    matrix: &[f32],
    (stride, from): (usize, usize),
    cols: usize,
    out: &mut [f32],
) {
    let isa = Isa::detect();
    let mut factors: [Vec<Factor>; GROUPS] = std::array::from_fn(|_| Vec::with_capacity(SLAB));
    for slab in (0..inner).step_by(SLAB) {
        let slab = slab..inner.min(slab + SLAB);
        for (factors, rows) in factors.iter_mut().zip(rows.chunks(ROWS * inner)) {
            gather(rows, inner, slab.clone(), |i| i * stride + from, factors);
        }
        for c in (0..cols).step_by(STRIP) {
            let width = STRIP.min(cols - c);
            for (factors, out) in factors.iter().zip(out.chunks_mut(ROWS * cols)) {
                add_strip(isa, factors, &matrix[c..], (c, width), cols, out);
            }
        }
    }
}

/// Factors of up to eight rows side by side, each with the place of the matrix's row; weak components are zeros nearly
/// everywhere, and what is zero in all eight rows is left out.
fn gather(
    rows: &[f32],
    inner: usize,
    slab: Range<usize>,
    place: impl Fn(usize) -> usize,
    factors: &mut Vec<Factor>,
) {
    factors.clear();
    for i in slab {
        let mut eight = [0f32; ROWS];
        eight.iter_mut().zip(rows[i..].iter().step_by(inner)).for_each(|(e, &v)| *e = v);
        if eight.iter().any(|&v| v != 0.0) {
            factors.push((eight, place(i)));
        }
    }
}

/// Adds what a slab of the matrix gives to columns `at.0` and on, `at.1` of them, of up to eight rows.
fn add_strip(isa: Isa, factors: &[Factor], matrix: &[f32], at: (usize, usize), cols: usize, out: &mut [f32]) {
    let (c, width) = at;
    if factors.is_empty() {
        return;
    }
    let mut sums: Strip = [[0.0; STRIP]; ROWS];
    for (sums, row) in sums.iter_mut().zip(out.chunks_exact(cols)) {
        sums[..width].copy_from_slice(&row[c..c + width]);
    }
    if width == STRIP {
        strip(isa, factors, matrix, &mut sums);
    } else {
        edge(factors, matrix, width, &mut sums);
    }
    for (sums, row) in sums.iter().zip(out.chunks_exact_mut(cols)) {
        row[c..c + width].copy_from_slice(&sums[..width]);
    }
}

widen! { fn strip / strip_on(factors: &[Factor], matrix: &[f32], sums: &mut Strip) }

/// Eight sums at a time, which is what registers hold, with columns as lanes: left to itself the compiler takes the rows.
#[inline(always)]
fn strip_on<W: Wide>(factors: &[Factor], matrix: &[f32], sums: &mut Strip) {
    for half in 0..STRIP / WIDTH {
        let mut s = sums.each_ref().map(|row| W::load(&row.as_chunks::<WIDTH>().0[half]));
        for (a, at) in factors {
            let m = matrix.get(at + half * WIDTH..).and_then(|m| m.first_chunk::<WIDTH>());
            let Some(m) = m.map(W::load) else { return };
            for r in 0..ROWS {
                s[r] = W::add(s[r], W::mul(W::splat(a[r]), m));
            }
        }
        for (s, row) in s.into_iter().zip(sums.iter_mut()) {
            W::store(s, &mut row.as_chunks_mut::<WIDTH>().0[half]);
        }
    }
}

/// A strip that is not full.
fn edge(factors: &[Factor], matrix: &[f32], width: usize, sums: &mut Strip) {
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
        for (rows, inner, stride, from, cols) in [
            (1, 1, 1, 0, 1),
            (3, 5, 40, 3, 33),
            (8, 64, 64, 0, 64),
            (19, 7, 100, 10, 70),
            (70, 130, 100, 4, 96),
        ] {
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
