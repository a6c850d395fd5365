//! Quantises a sample under a plan and estimates the size of the whole.

use super::Target;
use super::encoding::Encoding;
use super::pairing::price_of_counts;
use super::sample::Sample;
use crate::entropy::fit::Counts;
use crate::error::Result;
use crate::levels::{LowBits, Plan, Quantised, TileWork, quantise_tile};
use crate::view::Dtype;

/// What a quantised tensor would take.
pub(super) struct Trial {
    pub(super) bytes: f64,
    pub(super) mse: f64,
    pub(super) counts: Vec<Counts>,
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
        let tiles = self.workers.map(sample.windows.len(), TileWork::default, |work, i| {
            let q = quantise_tile(&sample_plan, self.view, sample.windows[i], work);
            let exact = exact_len(&q, self.view.dtype());
            (q.counts, q.squared_error, exact, q.measured, escape_bits(&q.escapes))
        })?;
        let mut counts = vec![[0u64; 256]; plan.class_count() * 2];
        let (mut error, mut exact, mut finite, mut escapes) = (0.0, 0, 0, 0.0);
        for (c, e, x, f, s) in &tiles {
            escapes += s;
            add(&mut counts, c);
            error += e;
            exact += x;
            finite += f;
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

/// Entropy of a scalar quantiser of spacing 2·step, in bits a value.
pub(super) fn scalar_entropy(values: &[(usize, f32)], step: f64) -> f64 {
    // Magnitudes beyond the bins are counted by octave, with the bits below the leading one on top.
    const NEAR: usize = 512;
    let mut bins = [0u32; NEAR + 32];
    let factor = (0.5 / step) as f32;
    let mut raw = 0.0;
    let mut signs = 0u32;
    for &(_, v) in values {
        let k = (v.abs() * factor + 0.5).min(4e9) as u32;
        signs += (k > 0) as u32;
        if (k as usize) < NEAR {
            bins[k as usize] += 1;
        } else {
            bins[NEAR + k.ilog2() as usize % 32] += 1;
            raw += k.ilog2() as f64;
        }
    }
    let n = values.len().max(1) as f64;
    let h: f64 = bins.iter().filter(|&&c| c > 0).map(|&c| c as f64 * (n / c as f64).log2()).sum();
    (h + raw + signs as f64) / n
}
