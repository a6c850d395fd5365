//! A patch of a tensor: groups of rows and blocks of columns spread over it, and what can quickly be said of it. Chains are tried
//! on this, because a whole tensor takes too long.

use super::Transform;
use super::runs::{Gather, Runs};
use crate::error::Result;
use crate::simd::{Isa, multiversion};
use crate::view::{Dtype, load_scaled, value};

/// Values of a patch, about; a tensor of up to twice as many is taken whole.
const VALUES: usize = 1 << 15;
/// Rows that are taken together, so that differences of neighbours show, and columns, so that rotations do.
const GROUP: usize = 8;
const BLOCK: usize = 128;

/// Some rows and columns of a tensor.
pub(super) struct Patch {
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// In units; 0 for what is not finite.
    pub(super) values: Vec<f32>,
    /// A power of two near the largest magnitude, so that any range fits f32.
    pub(super) unit: f64,
    /// Whether all values are finite.
    pub(super) finite: bool,
}

/// How values hang together: as they are, and behind means of columns.
pub(super) struct Ties {
    /// Bits a value that means of columns would save a fine quantiser.
    pub(super) means: f64,
    /// How much of a column's square its neighbour tells, from 0 to 1, on average.
    pub(super) columns: [f64; 2],
    /// Correlation of neighbouring rows.
    pub(super) rows: [f64; 2],
}

impl Patch {
    /// The patch of a tensor of floats, of so many rows and columns.
    pub(super) fn new(dtype: Dtype, (rows, cols): (usize, usize), gather: &Gather<'_>) -> Result<Patch> {
        let few = rows * cols <= 2 * VALUES;
        let wanted = if few { cols } else { VALUES / wanted_rows(rows, cols) };
        let (rows, cols) = (rows_of_patch(rows, cols), Runs::spread(cols, wanted, BLOCK));
        let (values, unit, finite) = load(dtype, &gather(rows, cols)?);
        Ok(Patch { rows: rows.count(), cols: cols.count(), values, unit, finite })
    }

    /// Every fourth group of rows, or all if there are few.
    pub(super) fn thin(&self) -> Vec<f32> {
        let every = if self.values.len() < VALUES / 2 { 1 } else { 4 };
        self.values.chunks(self.cols * GROUP).step_by(every).flatten().copied().collect()
    }

    /// What transforms that keep the columns make of it.
    pub(super) fn behind(&self, chain: &[Transform]) -> Vec<f32> {
        let mut values = self.values.clone();
        for transform in chain {
            transform.forward(&mut values, self.cols, 0);
        }
        values
    }

    /// How the values hang together.
    pub(super) fn ties(&self) -> Ties {
        let cols = self.cols;
        let mut sums = Sums {
            values: vec![0.0; cols],
            squares: vec![0.0; cols],
            next: vec![0.0; cols],
            below: vec![0.0; cols],
        };
        for (i, row) in self.values.chunks_exact(cols).enumerate() {
            let below = self.values.get((i + 1) * cols..(i + 2) * cols).filter(|_| (i + 1) % GROUP != 0);
            add_row(Isa::detect(), row, below.unwrap_or(&[]), &mut sums);
        }
        let (n, pairs) = (self.rows as f64, (self.rows - self.rows.div_ceil(GROUP)) as f64);
        let least = sums.squares.iter().sum::<f64>() / n / cols as f64 * 1e-12;
        let mean = |j: usize| sums.values[j] / n;
        let square = |j: usize, behind: f64| (sums.squares[j] / n - behind * mean(j).powi(2)).max(least);
        let (mut means, mut columns, mut squares, mut products) = (0.0, [0f64; 2], [0f64; 2], [0f64; 2]);
        for j in 0..cols {
            // Even noise has a mean, of a share of its variance that is taken off.
            means += 0.5 * (square(j, 0.0) / square(j, 1.0) / (1.0 + 1.0 / n)).log2();
            for (k, behind) in [0.0, 1.0].into_iter().enumerate() {
                squares[k] += square(j, behind);
                products[k] += sums.below[j] / pairs.max(1.0) - behind * mean(j).powi(2);
                if j + 1 < cols {
                    let product = sums.next[j] / n - behind * mean(j) * mean(j + 1);
                    columns[k] += product * product / square(j, behind) / square(j + 1, behind) - 1.0 / n;
                }
            }
        }
        let shares = |k: usize| products[k] / squares[k];
        let columns = columns.map(|c| c / cols as f64);
        Ties { means: means / cols as f64, columns, rows: [shares(0), shares(1)] }
    }
}

/// By column: sums of values, of squares, of products with the next column and with the next row.
struct Sums {
    values: Vec<f64>,
    squares: Vec<f64>,
    next: Vec<f64>,
    below: Vec<f64>,
}

multiversion! { fn add_row / add_row_inner(row: &[f32], below: &[f32], sums: &mut Sums) }

#[inline(always)]
fn add_row_inner(row: &[f32], below: &[f32], sums: &mut Sums) {
    for ((sum, square), &v) in sums.values.iter_mut().zip(&mut sums.squares).zip(row) {
        *sum += f64::from(v);
        *square += f64::from(v) * f64::from(v);
    }
    let products = |sums: &mut [f64], other: &[f32]| {
        sums.iter_mut().zip(row.iter().zip(other)).for_each(|(s, (&v, &w))| *s += f64::from(v * w));
    };
    products(&mut sums.next, row.get(1..).unwrap_or(&[]));
    products(&mut sums.below, below);
}

/// Elements in units, the unit, and whether all are finite.
fn load(dtype: Dtype, data: &[u8]) -> (Vec<f32>, f64, bool) {
    let isa = Isa::detect();
    let mut values = vec![0f32; data.len() / dtype.size()];
    let finite_of = |v: f64| if v.is_finite() { v.abs() } else { 0.0 };
    let (most, finite) = match dtype {
        Dtype::F64 => {
            let wide = || data.chunks_exact(8).map(|b| value(dtype, b));
            (wide().map(finite_of).fold(0.0, f64::max), wide().all(f64::is_finite))
        }
        _ => {
            load_scaled(isa, dtype, data, 1.0, &mut values);
            let most = f32::from_bits(largest(isa, &values));
            match most.is_finite() {
                true => (f64::from(most), true),
                false => (values.iter().map(|&v| finite_of(v.into())).fold(0.0, f64::max), false),
            }
        }
    };
    let unit = if most.is_normal() { 2f64.powi(most.log2() as i32) } else { 1.0 };
    match dtype {
        Dtype::F64 => load_scaled(isa, dtype, data, unit, &mut values),
        // A power of two, and its inverse is one too.
        _ if (1e-30..1e30).contains(&unit) => scale(isa, &mut values, (1.0 / unit) as f32),
        _ => values.iter_mut().for_each(|v| *v = (f64::from(*v) / unit) as f32),
    }
    if !finite {
        values.iter_mut().filter(|v| !v.is_finite()).for_each(|v| *v = 0.0);
    }
    (values, unit, finite)
}

multiversion! { fn largest / largest_inner(values: &[f32]) -> u32 }

/// Bits of the largest magnitude; what is not finite is larger than all that is.
#[inline(always)]
fn largest_inner(values: &[f32]) -> u32 {
    values.iter().fold(0, |most, v| most.max(v.to_bits() & 0x7fff_ffff))
}

multiversion! { fn scale / scale_inner(values: &mut [f32], by: f32) }

#[inline(always)]
fn scale_inner(values: &mut [f32], by: f32) {
    values.iter_mut().for_each(|v| *v *= by);
}

/// About as many rows as columns, if there are; all of a small tensor.
fn wanted_rows(rows: usize, cols: usize) -> usize {
    if rows * cols <= 2 * VALUES { rows } else { VALUES.isqrt().max(VALUES / cols).min(rows) }
}

/// Rows of a tensor that its patch is part of.
pub(super) fn rows_of_patch(rows: usize, cols: usize) -> Runs {
    Runs::spread(rows, wanted_rows(rows, cols), GROUP)
}

#[cfg(test)]
mod tests {
    use super::super::runs::gather_from;
    use super::*;
    use crate::view::TensorView;

    fn patch(view: &TensorView<'_>) -> Patch {
        Patch::new(view.dtype(), (view.rows(), view.cols()), &gather_from(view)).unwrap()
    }

    fn noise(n: usize) -> impl Iterator<Item = f32> {
        let mut state = 1u64;
        (0..n).map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
    }

    #[test]
    fn a_patch_is_made_of_the_tensor() {
        let mut values: Vec<f32> = (0..1 << 20).map(|i| i as f32).collect();
        let of = |values: &[f32]| patch(&TensorView::from_slice(values, &[1024, 1024]).unwrap());
        let Patch { rows, cols, values: some, unit, finite } = of(&values);
        assert!(finite && (VALUES / 2..VALUES * 2).contains(&(rows * cols)), "{rows} x {cols}");
        // Neighbours in a block are neighbours, and so are rows in a group.
        assert_eq!(f64::from(some[1] - some[0]) * unit, 1.0);
        assert_eq!(f64::from(some[cols] - some[0]) * unit, 1024.0);
        values.fill(f32::NAN);
        assert!(!of(&values).finite);
        // Any range.
        let far: Vec<f64> = values.iter().enumerate().map(|(i, _)| 1e300 * (i as f64).sin()).collect();
        let far = patch(&TensorView::from_slice(&far, &[1024, 1024]).unwrap());
        assert!(far.finite && far.values.iter().any(|v| v.abs() > 1.0 && v.abs() < 4.0));
    }

    #[test]
    fn ties_are_seen_where_there_are_some() {
        let of = |values: Vec<f32>| patch(&TensorView::from_slice(&values, &[256, 64]).unwrap()).ties();
        let plain = of(noise(1 << 14).collect());
        assert!(plain.means.abs() < 0.01 && plain.columns[0] < 0.05 && plain.rows[0] < 0.2);
        let means = of(noise(1 << 14).enumerate().map(|(i, v)| v + (i % 64 * 37 % 64) as f32).collect());
        assert!(means.means > 3.0 && means.columns[1] < 0.05, "{} {}", means.means, means.columns[1]);
        let waves = |across: f32, down: f32| {
            of((0..1 << 14).map(|i| ((i % 64) as f32 * across + (i / 64) as f32 * down).sin()).collect())
        };
        assert!(waves(0.05, 0.7).columns[1] > 0.9);
        assert!(waves(0.7, 0.05).rows[1] > 0.9);
    }
}
