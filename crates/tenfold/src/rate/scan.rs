//! One pass over a tensor: moments, and the mean magnitude of rows and columns.

use crate::error::Result;
use crate::simd::{Isa, multiversion};
use crate::view::{Dtype, TensorView, load_scaled, value};
use crate::workers::Workers;

/// What the encoder knows about a tensor before it takes a sample.
pub(crate) struct Scan {
    /// Values are counted in this unit, so that any range of f64 fits f32 arithmetic.
    pub unit: f64,
    /// Values that are neither infinite nor NaN.
    pub finite: u64,
    /// Variance about the mean, in units², if it was asked for.
    pub variance: f64,
    /// Whether every finite value is zero.
    pub all_zero: bool,
    /// Largest magnitude, in units.
    pub max: f64,
    /// Values of a row below: columns of the tensor where that makes sense, else a run of values.
    pub width: usize,
    /// Mean magnitude of each row.
    pub rows: Vec<f32>,
    /// Mean magnitude of each column; empty where rows are only runs.
    pub cols: Vec<f32>,
}

/// Length of the runs that replace rows if the tensor has no meaningful ones.
const RUN: usize = 256;
/// Values looked at together.
const BLOCK: usize = 1 << 16;

struct Block {
    rows: Vec<f32>,
    cols: Vec<f32>,
    moments: Moments,
    max: f32,
}

/// Count, mean and sum of squares about the mean: sums of plain squares would cancel where the mean is
/// large.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, other: Moments) {
        let count = self.count + other.count;
        if count > 0.0 {
            let apart = other.mean - self.mean;
            self.squares += other.squares + apart * apart * self.count * other.count / count;
            self.mean += apart * other.count / count;
            self.count = count;
        }
    }
}

/// Scans a tensor of floats; `variance` says whether that is asked for.
pub(crate) fn scan(view: &TensorView<'_>, isa: Isa, workers: &Workers, variance: bool) -> Result<Scan> {
    let wide = view.dtype() == Dtype::F64;
    let unit = if wide { unit_of(common_magnitude(view)) } else { 1.0 };
    let mut scan = scan_in(view, isa, workers, variance, unit)?;
    scan.all_zero = scan.max == 0.0 && (!wide || common_magnitude(view) == 0.0);
    // Squares of very large or small values leave the range of f32: look again in another unit.
    if !wide && scan.max > 0.0 && !(1e-12..1e12).contains(&scan.max) {
        return scan_in(view, isa, workers, variance, unit_of(scan.max));
    }
    Ok(scan)
}

fn scan_in(view: &TensorView<'_>, isa: Isa, workers: &Workers, variance: bool, unit: f64) -> Result<Scan> {
    let n = view.len();
    let tabular = view.rows() >= 8 && (16..=BLOCK).contains(&view.cols());
    let width = if tabular { view.cols() } else { RUN };
    let rows = n.div_ceil(width);
    let per_block = (BLOCK / width).max(8);
    let blocks = workers.map(rows.div_ceil(per_block), Vec::new, |row: &mut Vec<f32>, b| {
        let mut block = Block {
            rows: Vec::with_capacity(per_block),
            cols: vec![0.0; if tabular { width } else { 0 }],
            moments: Moments::default(),
            max: 0.0,
        };
        for r in b * per_block..rows.min((b + 1) * per_block) {
            let (start, end) = (r * width, n.min((r + 1) * width));
            let size = view.dtype().size();
            row.resize(end - start, 0.0);
            load_scaled(isa, view.dtype(), &view.data()[start * size..end * size], unit, row);
            add_row(isa, row, variance, &mut block);
        }
        block
    })?;
    Ok(gather(blocks, n, unit, width, tabular))
}

/// Adds blocks in order, so the result does not depend on the threads.
fn gather(blocks: Vec<Block>, n: usize, unit: f64, width: usize, tabular: bool) -> Scan {
    let mut scan = Scan {
        unit,
        finite: 0,
        variance: 0.0,
        all_zero: false,
        max: 0.0,
        width,
        rows: Vec::with_capacity(n.div_ceil(width)),
        cols: vec![0.0; if tabular { width } else { 0 }],
    };
    let mut moments = Moments::default();
    for b in blocks {
        moments.add(b.moments);
        scan.max = scan.max.max(b.max as f64);
        scan.rows.extend(b.rows);
        scan.cols.iter_mut().zip(b.cols).for_each(|(c, v)| *c += v);
    }
    let rows = scan.rows.len().max(1) as f32;
    scan.cols.iter_mut().for_each(|c| *c /= rows);
    scan.finite = moments.count as u64;
    scan.variance = moments.squares / moments.count.max(1.0);
    scan
}

multiversion! { fn add_row / add_row_inner(row: &mut [f32], variance: bool, block: &mut Block) }

#[inline(always)]
fn add_row_inner(row: &mut [f32], variance: bool, block: &mut Block) {
    // Sixteen sums side by side; each is short enough for f32.
    let (mut sum, mut abs, mut max, mut bad) = ([0f32; 16], [0f32; 16], [0f32; 16], [0u32; 16]);
    let mut add = |l: usize, v: &mut f32| {
        let ok = v.abs() < f32::INFINITY;
        *v = if ok { *v } else { 0.0 };
        bad[l] += !ok as u32;
        sum[l] += *v;
        abs[l] += v.abs();
        max[l] = if v.abs() > max[l] { v.abs() } else { max[l] };
    };
    let (chunks, rest) = row.as_chunks_mut::<16>();
    for c in chunks {
        for l in 0..16 {
            add(l, &mut c[l]);
        }
    }
    for (l, v) in rest.iter_mut().enumerate() {
        add(l, v);
    }
    let total = |a: &[f32; 16]| a.iter().map(|&v| v as f64).sum::<f64>();
    let bad = bad.iter().sum::<u32>() as f64;
    let count = row.len() as f64 - bad;
    let mean = total(&sum) / count.max(1.0);

    // The row is in the nearest cache now; a second look costs little. What was not finite is zero and
    // would add the mean's square, which is taken off again.
    let mut about_mean = 0.0;
    if variance {
        let about = mean as f32;
        let mut squares = [0f32; 16];
        let (chunks, rest) = row.as_chunks::<16>();
        for c in chunks {
            for l in 0..16 {
                squares[l] += (c[l] - about) * (c[l] - about);
            }
        }
        let rest: f64 = rest.iter().map(|v| ((v - about) as f64).powi(2)).sum();
        let off = about as f64 - mean;
        about_mean = total(&squares) + rest - bad * (about as f64).powi(2) - count * off * off;
    }
    block.moments.add(Moments { count, mean, squares: about_mean.max(0.0) });

    for (c, v) in block.cols.iter_mut().zip(row.iter()) {
        *c += v.abs();
    }
    block.rows.push((total(&abs) / row.len().max(1) as f64) as f32);
    block.max = max.iter().fold(block.max, |a, &b| if b > a { b } else { a });
}

/// A magnitude of f64 values that all but a few do not exceed by much: 0 if there are only zeros. Outliers
/// beyond the range of an f32 in that unit are stored exactly.
fn common_magnitude(view: &TensorView<'_>) -> f64 {
    let stride = (view.len() / (1 << 16)).max(1);
    let values = |stride: usize| {
        let v = view.data().chunks_exact(8).step_by(stride).map(|b| value(Dtype::F64, b).abs());
        v.filter(|v| v.is_finite() && *v > 0.0)
    };
    let mut some: Vec<f64> = values(stride).collect();
    match some.len() {
        0 => values(1).fold(0.0, f64::max),
        n => *some.select_nth_unstable_by(n - 1 - n / 100, f64::total_cmp).1,
    }
}

/// A power of two near a magnitude.
fn unit_of(max: f64) -> f64 {
    if max.is_normal() { 2f64.powi(max.log2() as i32) } else { 1.0 }
}
