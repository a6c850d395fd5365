//! Integer DCT of 4, 8, 16 and 32.
//!
//! The matrices are the orthonormal DCT-II times 4096/√n, rounded: finer than those of H.265 and with the
//! same advantage, that the mean has an exact factor and two passes scale by a power of two, 2²⁴/n. Only
//! integers touch what the decoder must repeat. Coefficients carry [`fraction`] bits below the sample so
//! that every size has the same headroom: 12-bit residuals give coefficients below 2¹⁸, and with rows of
//! absolute sum at most 4096 or so all sums stay below 2³¹. Hostile coefficients are clamped to that range.

use std::sync::LazyLock;

/// Coefficients and intermediate values of the inverse stay within ± this.
pub(super) const LIMIT: i32 = (1 << 18) - 1;

/// Largest block.
pub(super) const MAX_SIDE: usize = 32;

/// Samples of the largest block.
pub(super) const MAX_AREA: usize = MAX_SIDE * MAX_SIDE;

static MATRICES: LazyLock<[Vec<i32>; 4]> = LazyLock::new(|| [2, 3, 4, 5].map(matrix));

/// Row k holds the k-th basis function.
fn matrix(log2: u32) -> Vec<i32> {
    let n = 1usize << log2;
    let value = |k: usize, i: usize| {
        let angle = std::f64::consts::PI * k as f64 * (2 * i + 1) as f64 / (2 * n) as f64;
        let norm: f64 = if k == 0 { 1.0 } else { 2.0 };
        (4096.0 / n as f64 * norm.sqrt() * angle.cos()).round() as i32
    };
    (0..n * n).map(|at| value(at / n, at % n)).collect()
}

fn matrix_of(log2: u32) -> &'static [i32] {
    &MATRICES[log2 as usize - 2]
}

/// Bits below the sample of the coefficients of a block.
pub(super) fn fraction(log2: u32) -> u32 {
    6 - log2
}

/// Coefficients of a square block of residuals, at [`fraction`] bits below the sample.
pub(super) fn forward(residual: &[i32], log2: u32, out: &mut [i32]) {
    let n = 1usize << log2;
    let m = matrix_of(log2);
    let mut half = [0i32; MAX_AREA];
    // Columns first: half[k][x] = Σ m[k][y]·residual[y][x].
    product(m, residual, n, &mut half, false);
    half[..n * n].iter_mut().for_each(|v| *v = round_shift(*v, 6));
    transpose(&mut half, n);
    product(m, &half, n, out, false);
    // Of the 24 − log2 bits of both passes 6 − log2 stay: the fraction.
    out[..n * n].iter_mut().for_each(|v| *v = round_shift(*v, 12));
    transpose(out, n);
}

/// Residuals of a block of coefficients.
pub(super) fn inverse(coefficients: &[i32], log2: u32, out: &mut [i32]) {
    let n = 1usize << log2;
    let m = matrix_of(log2);
    let (mut input, mut half) = ([0i32; MAX_AREA], [0i32; MAX_AREA]);
    // What both passes and the fraction put on, in two parts that keep the first within the limit.
    let (first, second) = (12 - log2, 18 - log2);
    for (to, from) in input[..n * n].iter_mut().zip(coefficients) {
        *to = (*from).clamp(-LIMIT, LIMIT);
    }
    product(m, &input, n, &mut half, true);
    half[..n * n].iter_mut().for_each(|v| *v = round_shift(*v, first).clamp(-LIMIT, LIMIT));
    transpose(&mut half, n);
    product(m, &half, n, out, true);
    out[..n * n].iter_mut().for_each(|v| *v = round_shift(*v, second));
    transpose(out, n);
}

/// The DCT coefficients of a block in units of a sample, for people to look at. `None` if the side is not
/// 4, 8, 16 or 32 or the block is not square.
pub fn coefficients(residual: &[i32], side: usize) -> Option<Vec<f64>> {
    let fits = [4, 8, 16, 32].contains(&side) && residual.len() == side * side;
    if !fits || residual.iter().any(|r| r.abs() > 4095) {
        return None;
    }
    let log2 = side.trailing_zeros();
    let mut out = [0i32; MAX_AREA];
    forward(residual, log2, &mut out);
    Some(out[..side * side].iter().map(|&c| f64::from(c) / f64::from(1 << fraction(log2))).collect())
}

/// out = m·x, or mᵀ·x. Whole rows of x at a time, so that the inner loop is one of vectors; rows that the
/// quantiser left empty cost nothing.
fn product(m: &[i32], x: &[i32], n: usize, out: &mut [i32], transposed: bool) {
    out[..n * n].fill(0);
    for (i, row) in x[..n * n].chunks_exact(n).enumerate() {
        if row.iter().all(|&v| v == 0) {
            continue;
        }
        for (k, sums) in out[..n * n].chunks_exact_mut(n).enumerate() {
            let factor = if transposed { m[i * n + k] } else { m[k * n + i] };
            for (sum, v) in sums.iter_mut().zip(row) {
                *sum += factor * v;
            }
        }
    }
}

fn transpose(x: &mut [i32], n: usize) {
    for y in 1..n {
        for c in 0..y {
            x.swap(y * n + c, c * n + y);
        }
    }
}

fn round_shift(v: i32, bits: u32) -> i32 {
    (v + (1 << (bits - 1))) >> bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn matrices_are_nearly_orthonormal() {
        for log2 in 2..=5 {
            let (n, m) = (1usize << log2, matrix_of(log2));
            for a in 0..n {
                for b in 0..n {
                    let dot: i32 = (0..n).map(|i| m[a * n + i] * m[b * n + i]).sum();
                    let exact = if a == b { 1.0 } else { 0.0 };
                    let error = f64::from(dot) / f64::from(1 << (24 - log2)) - exact;
                    assert!(error.abs() < 0.006, "{n}: rows {a} and {b} are off by {error}");
                }
            }
        }
    }

    #[test]
    fn residuals_come_back() {
        let mut rng = StdRng::seed_from_u64(1);
        for log2 in 2..=5 {
            let area = 1usize << (2 * log2);
            let (mut c, mut back) = ([0; MAX_AREA], [0; MAX_AREA]);
            let mut worst = 0;
            for _ in 0..20 {
                let x: Vec<i32> = (0..area).map(|_| rng.random_range(-255..=255)).collect();
                forward(&x, log2, &mut c);
                inverse(&c, log2, &mut back);
                worst = x.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(worst, i32::max);
                let energy = |v: &[i32]| v[..area].iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
                let ratio = energy(&c) / energy(&x) / f64::from(1 << (2 * fraction(log2)));
                assert!((ratio - 1.0).abs() < 0.01, "{log2}: energy times {ratio}");
            }
            // A percent of a residual at most, and rounding.
            assert!(worst <= 3, "{log2}: {worst}");
        }
    }

    #[test]
    fn a_constant_is_one_coefficient() {
        for log2 in 2..=5 {
            let (side, area) = (1usize << log2, 1usize << (2 * log2));
            let c = coefficients(&vec![100; area], side).unwrap();
            assert_eq!(c[0], 100.0 * side as f64);
            assert!(c[1..].iter().all(|&v| v == 0.0), "{side}: {c:?}");
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        // A debug build panics on overflow.
        for log2 in 2..=5 {
            let area = 1usize << (2 * log2);
            let mut out = [0; MAX_AREA];
            for sign in [-1, 1] {
                forward(&vec![sign * 4095; area], log2, &mut out);
                assert!(out[0].abs() <= LIMIT, "{}", out[0]);
                inverse(&vec![sign * i32::MAX; area], log2, &mut out);
                let alternating: Vec<i32> =
                    (0..area).map(|i| sign * if i.count_ones() % 2 == 0 { LIMIT } else { -LIMIT }).collect();
                inverse(&alternating, log2, &mut out);
            }
        }
    }

    #[test]
    fn only_blocks_have_coefficients() {
        assert!(coefficients(&[0; 25], 5).is_none());
        assert!(coefficients(&[0; 15], 4).is_none());
        assert!(coefficients(&[5000; 16], 4).is_none());
    }
}
