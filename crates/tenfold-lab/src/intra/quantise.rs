//! The quantiser: one step for a stream, and how the encoder picks levels.
//!
//! Decoding is level times step in integers. Encoding is free: plain rounding where every level costs the
//! same, otherwise the choice of least squared error plus price times bits, greedy in coding order, which
//! is what makes the dead zone around zero as wide as it should be.

use super::levels::{LevelCosts, MAX_LEVEL};
use super::scan::{Form, Known, positions};
use super::transform::{LIMIT, fraction};

/// A quantiser step in 1/256 sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step(u32);

/// Largest step: coarser than the range of the deepest samples.
const MAX_STEP: u32 = 1 << 20;

impl Step {
    /// The step nearest to one in samples, if that is in range.
    pub fn nearest(samples: f64) -> Option<Self> {
        let scaled = (samples * 256.0).round();
        // NaN fails both comparisons.
        if scaled >= 1.0 && scaled <= f64::from(MAX_STEP) { Some(Step(scaled as u32)) } else { None }
    }

    /// As stored.
    pub fn to_stored(self) -> u32 {
        self.0
    }

    /// From what is stored, if in range.
    pub fn from_stored(v: u32) -> Option<Self> {
        (1..=MAX_STEP).contains(&v).then_some(Step(v))
    }

    /// In samples.
    pub fn samples(self) -> f64 {
        f64::from(self.0) / 256.0
    }

    /// The coefficient of a level, at the fraction of its block size.
    pub fn dequantise(self, level: i32, log2: u32) -> i32 {
        let scaled = (i64::from(level) * i64::from(self.0)) << fraction(log2);
        ((scaled + 128) >> 8).clamp(i64::from(-LIMIT), i64::from(LIMIT)) as i32
    }

    /// Coefficients in units of the step.
    fn scale(self, log2: u32) -> f32 {
        (1.0 / (self.samples() * f64::from(1 << fraction(log2)))) as f32
    }
}

/// Nearest levels.
pub(super) fn nearest(coefficients: &[i32], step: Step, log2: u32, levels: &mut [i32]) {
    let scale = step.scale(log2);
    for (level, &c) in levels.iter_mut().zip(coefficients) {
        *level = (c as f32 * scale).round().clamp(-(MAX_LEVEL as f32), MAX_LEVEL as f32) as i32;
    }
}

/// Levels of least squared error plus `lambda` (in units of step²) times bits; returns the bits.
pub(super) fn by_cost(
    coefficients: &[i32],
    step: Step,
    form: Form,
    lambda: f32,
    costs: &LevelCosts,
    levels: &mut [i32],
) -> f32 {
    let n = 1usize << form.log2;
    let scale = step.scale(form.log2);
    let mut known = Known::new();
    let (mut bits, mut cost, mut all_zero) = (0f32, 0f32, 0f32);
    for group in positions(form.log2).chunks_exact(16) {
        let (mut group_bits, mut group_cost, mut group_zero) = (0f32, 0f32, 0f32);
        let mut any = false;
        for p in group {
            let at = usize::from(p.y) * n + usize::from(p.x);
            let size = coefficients[at].abs() as f32 * scale;
            let model = known.model(*p, form);
            let top = ((size + 0.5) as u32).min(MAX_LEVEL);
            let mut best = (f32::INFINITY, 0, 0f32);
            let mut consider = |level: u32| {
                let b = costs.level(model, level);
                let j = (size - level as f32).powi(2) + lambda * b;
                if j < best.0 {
                    best = (j, level, b);
                }
            };
            consider(top);
            if top > 0 {
                consider(top - 1);
            }
            if top == 2 {
                consider(0);
            }
            group_cost += best.0;
            group_bits += best.2;
            group_zero += size * size;
            any |= best.1 > 0;
            known.set(*p, best.1);
            levels[at] = if coefficients[at] < 0 { -(best.1 as i32) } else { best.1 as i32 };
        }
        all_zero += group_zero;
        if n > 4 {
            let [empty, full] = costs.group[known.group_class(group[0])];
            if !any || group_zero + lambda * empty <= group_cost + lambda * full {
                (group_cost, group_bits, any) = (group_zero + lambda * empty, empty, false);
                for p in group {
                    known.set(*p, 0);
                    levels[usize::from(p.y) * n + usize::from(p.x)] = 0;
                }
            } else {
                group_cost += lambda * full;
                group_bits += full;
            }
            known.set_group(group[0], any);
        }
        cost += group_cost;
        bits += group_bits;
    }
    let [empty, full] = costs.any[form.log2 as usize - 2];
    if levels[..n * n].iter().all(|&l| l == 0) || all_zero + lambda * empty <= cost + lambda * full {
        levels[..n * n].fill(0);
        return empty;
    }
    bits + full
}

#[cfg(test)]
mod tests {
    use super::super::bins::Counter;
    use super::super::levels::{LevelContexts, adaptive};
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn steps_are_kept_to_a_256th() {
        assert_eq!(Step::nearest(1.0).map(Step::to_stored), Some(256));
        assert_eq!(Step::nearest(2.501).map(Step::samples), Some(640.0 / 256.0));
        assert_eq!(Step::nearest(0.001), None);
        assert_eq!(Step::from_stored(0), None);
        assert_eq!(Step::from_stored(u32::MAX), None);
    }

    #[test]
    fn rounding_errs_by_half_a_step() {
        let step = Step::nearest(6.3).unwrap();
        for log2 in 2..=5 {
            let one = f64::from(1 << fraction(log2));
            let c: Vec<i32> = (-2000..2000).map(|v| v * 7).collect();
            let mut levels = vec![0; c.len()];
            nearest(&c, step, log2, &mut levels);
            for (c, l) in c.iter().zip(&levels) {
                let error = f64::from(c - step.dequantise(*l, log2)).abs() / one;
                assert!(error <= 3.15 + 0.6 / one, "{c}: {l}, off by {error}");
            }
        }
    }

    #[test]
    fn hostile_levels_stay_in_range() {
        let step = Step::from_stored(MAX_STEP).unwrap();
        assert_eq!(step.dequantise(32_767, 2), LIMIT);
        assert_eq!(step.dequantise(-32_767, 2), -LIMIT);
    }

    #[test]
    fn cost_counts_the_bits_of_the_syntax_and_widens_the_dead_zone() {
        let mut rng = StdRng::seed_from_u64(3);
        let step = Step::nearest(8.0).unwrap();
        for log2 in 2..=5u32 {
            let form = Form { log2, transform: true };
            let area = 1usize << (2 * log2);
            let spread = 12 << fraction(log2);
            let c: Vec<i32> = (0..area).map(|_| rng.random_range(-spread..=spread)).collect();
            let mut contexts = LevelContexts::default();
            let costs = LevelCosts::new(&contexts);
            let (mut plain, mut chosen) = (vec![0; area], vec![0; area]);
            nearest(&c, step, log2, &mut plain);
            let bits = by_cost(&c, step, form, 0.15, &costs, &mut chosen);
            let mut counter = Counter::default();
            adaptive(&mut counter, &mut contexts, form, &mut chosen).unwrap();
            assert!((counter.bits - bits).abs() < 0.01 * bits, "{log2}: {bits} for {}", counter.bits);
            let zeros = |l: &[i32]| l.iter().filter(|&&l| l == 0).count();
            assert!(zeros(&chosen) > zeros(&plain), "{log2}");
            let free = by_cost(&c, step, form, 0.0, &costs, &mut chosen);
            assert!(free > bits && zeros(&chosen) <= zeros(&plain) + area / 50, "{log2}");
        }
    }
}
