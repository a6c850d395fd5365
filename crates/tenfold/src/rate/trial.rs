//! Quantises a sample under a plan and estimates the size of the whole.

use super::Target;
use super::encoding::Encoding;
use super::pairing::price_of_counts;
use super::sample::Sample;
use crate::entropy::count::Tally;
use crate::entropy::fit::Counts;
use crate::error::Result;
use crate::levels::{LowBits, Plan, Quantised, TileWork, quantise_tile};
use crate::simd::wide::{WIDTH, Wide};
use crate::simd::{Isa, widen};
use crate::view::Dtype;

/// What a quantised tensor would take.
pub(super) struct Trial {
    pub(super) bytes: f64,
    pub(super) mse: f64,
    pub(super) counts: Vec<Counts>,
}

/// Windows that are counted together.
const GROUP: usize = 4;

/// What quantising some windows gave.
struct Part {
    tally: Tally,
    error: f64,
    /// Bytes of exact values.
    exact: usize,
    finite: usize,
    /// Bits of escapes.
    escapes: f64,
}

impl Trial {
    /// What to hold against [`Encoding::want`].
    pub(super) fn got(&self, target: Target) -> f64 {
        match target {
            Target::Mse(_) => 1.0 / self.mse.max(f64::MIN_POSITIVE),
            _ => self.bytes,
        }
    }
}

impl Encoding<'_> {
    /// Quantises a sample and estimates what the whole would take.
    pub(super) fn trial(&self, plan: &Plan, sample: &Sample) -> Result<Trial> {
        let mut sample_plan = plan.clone();
        sample_plan.geometry = Sample::GEOMETRY;
        sample_plan.paired = false;
        // Counted by groups of windows: a window has fewer values than many tables have entries.
        sample_plan.count = false;
        let tables = plan.class_count() * 2;
        let groups: Vec<_> = sample.windows.chunks(GROUP).collect();
        let parts = self.workers.map(groups.len(), TileWork::default, |work, i| {
            let mut part = Part { tally: Tally::new(tables), error: 0.0, exact: 0, finite: 0, escapes: 0.0 };
            for window in groups[i] {
                let q = quantise_tile(&sample_plan, self.view, *window, work);
                part.tally.add(&q.symbols);
                part.error += q.squared_error;
                part.exact += exact_len(&q, self.view.dtype());
                part.finite += q.measured;
                part.escapes += escape_bits(&q.escapes);
                work.reuse(q);
            }
            part
        })?;
        let mut counts = vec![[0u64; 256]; tables];
        let (mut error, mut exact, mut finite, mut escapes) = (0.0, 0, 0, 0.0);
        for part in parts {
            escapes += part.escapes;
            add(&mut counts, &part.tally.into_counts());
            error += part.error;
            exact += part.exact;
            finite += part.finite;
        }
        let share = self.n() / sample.values as f64;
        let symbols: f64 = counts.iter().map(entropy).sum::<f64>() + low_total(&counts, &plan.low) + escapes;
        let pairs = if plan.paired { price_of_counts(&counts, plan.machine).excess } else { 0.0 };
        let per_value = (symbols + pairs) / sample.values as f64;
        let tables = counts.iter().filter(|c| c.iter().any(|&n| n > 0)).count() as f64
            * if self.view.len() < 1 << 17 { 5.0 } else { 30.0 };
        let classes = plan.classes.as_ref().map_or(0, |map| {
            let mut bytes = Vec::new();
            map.write(&mut bytes);
            bytes.len()
        });
        let bytes = per_value * self.n() / 8.0
            + self.overhead(plan.geometry)
            + tables
            + classes as f64
            + exact as f64 * share;
        Ok(Trial { bytes, mse: error / finite.max(1) as f64, counts })
    }
}

/// Bits of a tile's escaped levels.
pub(super) fn escape_bits(escapes: &[i32]) -> f64 {
    let far = escapes.iter().map(|e| e.unsigned_abs()).max().unwrap_or(0);
    let width = if far < 1 << 7 {
        8.0
    } else if far < 1 << 15 {
        16.0
    } else {
        32.0
    };
    escapes.len() as f64 * width
}

pub(super) fn exact_len(q: &Quantised, dtype: Dtype) -> usize {
    if q.exact.is_empty() {
        return 0;
    }
    let mut bytes = Vec::new();
    q.exact.write(dtype.size(), &mut bytes);
    bytes.len()
}

pub(super) fn add(total: &mut [Counts], part: &[Counts]) {
    total.as_flattened_mut().iter_mut().zip(part.as_flattened()).for_each(|(t, p)| *t += p);
}

/// Raw low bits of all counted levels.
pub(super) fn low_total(counts: &[Counts], low: &LowBits) -> f64 {
    let bits = |(i, c): (usize, &Counts)| c.iter().sum::<u64>() as f64 * low.get(i as u8 / 2) as f64;
    counts.iter().enumerate().map(bits).sum()
}

pub(super) fn entropy(counts: &Counts) -> f64 {
    let n: u64 = counts.iter().sum();
    let term = |&c: &u64| if c == 0 { 0.0 } else { c as f64 * (n as f64 / c as f64).log2() };
    counts.iter().map(term).sum()
}

/// Bins of magnitudes, in steps: small ones have one each, larger ones share one an octave.
const NEAR: usize = 512;
const BINS: usize = NEAR + 32;

/// Entropy of a scalar quantiser of spacing 2·step, in bits a value. Signs and what bins do not tell apart are raw bits.
pub(super) fn scalar_entropy(isa: Isa, magnitudes: &[f32], step: f64) -> f64 {
    // Four bins for each, so that equal neighbours do not wait for each other.
    let mut bins = [[0u32; BINS]; 4];
    let mut steps = [0i32; 1024];
    let mut raw = 0.0;
    for values in magnitudes.chunks(steps.len()) {
        let steps = &mut steps[..values.len()];
        if in_steps(isa, values, (0.5 / step) as f32, steps) < NEAR as i32 {
            let (quads, rest) = steps.as_chunks::<4>();
            for quad in quads {
                quad.iter().zip(&mut bins).for_each(|(&k, bins)| bins[k as usize % BINS] += 1);
            }
            rest.iter().for_each(|&k| bins[0][k as usize % BINS] += 1);
            continue;
        }
        for &k in &*steps {
            if k < NEAR as i32 {
                bins[0][k as usize] += 1;
            } else {
                bins[0][NEAR + k.ilog2() as usize % 32] += 1;
                raw += k.ilog2() as f64;
            }
        }
    }
    let n = magnitudes.len().max(1) as f64;
    let total: [u32; BINS] = std::array::from_fn(|i| bins.iter().map(|b| b[i]).sum());
    let signs = magnitudes.len() as u32 - total[0];
    let h: f64 = total.iter().filter(|&&c| c > 0).map(|&c| c as f64 * (n / c as f64).log2()).sum();
    (h + raw + signs as f64) / n
}

widen! { fn in_steps / in_steps_on(magnitudes: &[f32], factor: f32, steps: &mut [i32]) -> i32 }

/// Multiples of a step nearest to magnitudes; returns the largest.
#[inline(always)]
fn in_steps_on<W: Wide>(magnitudes: &[f32], factor: f32, steps: &mut [i32]) -> i32 {
    // Beyond this nothing is told apart, and integers end.
    const MOST: f32 = 2e9;
    let (values, rest) = magnitudes.as_chunks::<WIDTH>();
    let (out, out_rest) = steps.split_at_mut(values.len() * WIDTH);
    let mut most = W::splat_i(0);
    for (k, v) in out.as_chunks_mut::<WIDTH>().0.iter_mut().zip(values) {
        let nearest = W::add(W::mul(W::load(v), W::splat(factor)), W::splat(0.5));
        // Zero times a factor without bounds is not below anything either.
        let at = W::trunc(W::pick(W::lt(nearest, W::splat(MOST)), W::splat(MOST), nearest));
        most = W::max_i(most, at);
        W::store_i(at, k);
    }
    let mut all = [0; WIDTH];
    W::store_i(most, &mut all);
    for (k, v) in out_rest.iter_mut().zip(rest) {
        *k = (v * factor + 0.5).min(MOST) as i32;
        all[0] = all[0].max(*k);
    }
    all.into_iter().fold(0, i32::max)
}
