//! What a quantiser would make of a patch: a scalar one, with ideal tables for values of like expected size. Of what one tensor takes
//! that says little, of which of two chains takes less nearly all.

use crate::simd::{Isa, multiversion};

/// Distance from the middle between two levels up to which a value goes to the lower one, as a search by rate and error does.
const DEAD: f32 = 0.12;
/// Magnitudes with a bin of their own; larger ones share those of their octave.
const NEAR: usize = 48;
const BINS: usize = NEAR + 32;
/// Scales of a row or a column, two an octave.
const SCALES: usize = 32;
/// Bits that a row's scale takes, or a column's, and those of a table.
const SCALE_BITS: f64 = 3.0;
const TABLE_BITS: f64 = 40.0;
/// What a bit more saves of the squared error, in steps: 2 ln 2 of a fine quantiser's, which is a third.
const SLOPE: f64 = 0.46;

type Hist = [u32; BINS];

/// Bits and error of a patch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// Bits a value.
    pub(super) bits: f64,
    /// Squared error a value, in steps.
    error: f64,
}

impl Trial {
    /// Quantises rows of `cols` values out of a tensor of `whole` rows and columns.
    pub(super) fn new(values: &[f32], cols: usize, whole: (usize, usize), step: f64) -> Trial {
        let isa = Isa::detect();
        // 1. Mean magnitudes of rows and columns; bins of levels.
        let mut columns = vec![0f32; cols];
        let mut rows = Vec::with_capacity(values.len() / cols);
        let mut bins = vec![0u8; values.len()];
        let mut error = 0.0;
        for (row, bins) in values.chunks_exact(cols).zip(bins.chunks_exact_mut(cols)) {
            let mut sums = Sums { size: 0.0, error: 0.0 };
            quantise(isa, row, (0.5 / step) as f32, bins, &mut columns, &mut sums);
            rows.push(sums.size);
            error += f64::from(sums.error);
        }

        // 2. What is counted of each class, a class being a sum of scales.
        let (row_scales, col_scales) = (scales(&rows), scales(&columns));
        let mut classes: Vec<Hist> = vec![[0; BINS]; 2 * SCALES];
        for (row, bins) in row_scales.iter().zip(bins.chunks_exact(cols)) {
            col_scales
                .iter()
                .zip(bins)
                .for_each(|(col, &bin)| classes[(row + col) as usize][bin as usize] += 1);
        }

        // 3. Bits with classes or without, whichever takes fewer; signs, and what bins leave open.
        let mut all = [0u32; BINS];
        classes.iter().for_each(|class| all.iter_mut().zip(class).for_each(|(a, c)| *a += c));
        let n = values.len() as f64;
        let tables = classes.iter().filter(|class| class.iter().any(|&c| c > 0)).count() as f64;
        let side = SCALE_BITS / whole.0 as f64
            + (SCALE_BITS + tables * TABLE_BITS / whole.0 as f64) / whole.1 as f64;
        let bits = (classes.iter().map(entropy).sum::<f64>() / n + side).min(entropy(&all) / n);
        let open = |(bin, &count): (usize, &u32)| {
            let below = bin.saturating_sub(NEAR) as f64;
            f64::from(count) * if bin == 0 { 0.0 } else { 1.0 + below }
        };
        Trial { bits: bits + all.iter().enumerate().map(open).sum::<f64>() / n, error: error / n }
    }

    /// Bits with those added that would bring the error down to none: of two trials at a step, the one with less is better.
    pub(super) fn cost(self) -> f64 {
        self.bits + self.error / SLOPE
    }
}

/// Sums over a row.
struct Sums {
    size: f32,
    error: f32,
}

multiversion! { fn quantise / quantise_inner(row: &[f32], per_level: f32, bins: &mut [u8], columns: &mut [f32], sums: &mut Sums) }

#[inline(always)]
fn quantise_inner(row: &[f32], per_level: f32, bins: &mut [u8], columns: &mut [f32], sums: &mut Sums) {
    // Sixteen sums side by side.
    let (mut size, mut error, mut far) = ([0f32; 16], [0f32; 16], 0u8);
    let mut one = |l: usize, v: f32, bin: &mut u8, column: &mut f32| {
        let v = v.abs();
        // In levels, which are two steps apart.
        let u = v * per_level;
        let k = (u + (0.5 - DEAD)).min(1e9) as i32;
        *bin = k.min(255) as u8;
        far = far.max(*bin);
        error[l] += (u - k as f32) * (u - k as f32);
        size[l] += v;
        *column += v;
    };
    let (values, rest) = row.as_chunks::<16>();
    let (near, last) = bins.as_chunks_mut::<16>();
    let (sizes, others) = columns.as_chunks_mut::<16>();
    for ((v, bin), column) in values.iter().zip(near).zip(sizes) {
        for l in 0..16 {
            one(l, v[l], &mut bin[l], &mut column[l]);
        }
    }
    for (l, ((v, bin), column)) in rest.iter().zip(last).zip(others).enumerate() {
        one(l, *v, bin, column);
    }
    sums.size = size.iter().sum();
    sums.error = 4.0 * error.iter().sum::<f32>();
    if usize::from(far) >= NEAR {
        for (v, bin) in row.iter().zip(bins).filter(|(_, bin)| usize::from(**bin) >= NEAR) {
            *bin = NEAR as u8 + ((v.abs() * per_level).min(1e9) as u32).max(1).ilog2() as u8;
        }
    }
}

/// Logarithms of sizes, from that of the largest down.
fn scales(sizes: &[f32]) -> Vec<u8> {
    let top = sizes.iter().copied().fold(f32::MIN_POSITIVE, f32::max).log2();
    let scale = |s: &f32| SCALES as f32 - 1.0 + 2.0 * (s.max(f32::MIN_POSITIVE).log2() - top);
    sizes.iter().map(|s| scale(s).round().max(0.0) as u8).collect()
}

/// Bits of what was counted.
fn entropy(counts: &Hist) -> f64 {
    let n = counts.iter().sum::<u32>() as f64;
    counts.iter().filter(|&&c| c > 0).map(|&c| c as f64 * (n / c as f64).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finer_steps_take_more_bits_and_leave_less_error() {
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        let values: Vec<f32> = (0..1 << 14).map(|_| uniform() + uniform() + uniform() + uniform()).collect();
        let at = |step: f64| Trial::new(&values, 64, (256, 64), step);
        let (coarse, fine) = (at(0.2), at(0.1));
        assert!((fine.bits - coarse.bits - 1.0).abs() < 0.15, "{} {}", coarse.bits, fine.bits);
        // A third, and what the wider bin of zero adds.
        assert!((fine.error - 0.39).abs() < 0.03 && (coarse.error - 0.39).abs() < 0.05);
        // Half of the columns a hundred times as small: told apart, they cost next to nothing.
        let mixed: Vec<f32> =
            values.iter().enumerate().map(|(i, v)| if i % 2 == 0 { *v } else { *v / 100.0 }).collect();
        let mixed = Trial::new(&mixed, 64, (256, 64), 0.1);
        assert!(mixed.bits < 0.55 * fine.bits, "{} {}", mixed.bits, fine.bits);
        assert!(mixed.cost() < fine.cost());
    }
}
