//! Error of decoded tensors, and a list of what failed.

use super::{Sample, decode, to_reals};
use tenfold::{Effort, Goal};

/// Mean squared difference over the finite values of `a`.
pub fn mse(a: &[f64], b: &[f64]) -> f64 {
    let finite = a.iter().zip(b).filter(|(a, _)| a.is_finite());
    let (n, sum) = finite.fold((0.0, 0.0), |(n, s), (a, b)| (n + 1.0, s + (a - b).powi(2)));
    sum / f64::max(n, 1.0)
}

/// Largest difference over the finite values of `a`.
pub fn max_error(a: &[f64], b: &[f64]) -> f64 {
    let worst = |m: f64, e: f64| if e > m || e.is_nan() { e } else { m };
    a.iter().zip(b).filter(|(a, _)| a.is_finite()).map(|(a, b)| (a - b).abs()).fold(0.0, worst)
}

/// Variance of the finite values, in two passes.
pub fn variance(a: &[f64]) -> f64 {
    let finite: Vec<f64> = a.iter().copied().filter(|v| v.is_finite()).collect();
    let n = finite.len().max(1) as f64;
    let mean = finite.iter().sum::<f64>() / n;
    finite.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n
}

/// Bits a value of a blob and the mean squared error over the variance.
pub fn measure(sample: &Sample, blob: &[u8]) -> (f64, f64) {
    let (a, b) = (sample.reals(), to_reals(sample.dtype, &decode(blob).data));
    (blob.len() as f64 * 8.0 / sample.len() as f64, mse(&a, &b) / variance(&a))
}

/// Failures of a test, told all at once.
#[derive(Default)]
pub struct Faults {
    checked: usize,
    faults: Vec<String>,
}

impl Faults {
    pub fn check(&mut self, ok: bool, say: impl FnOnce() -> String) {
        self.checked += 1;
        if !ok {
            self.faults.push(say());
        }
    }

    /// The blob of a sample, or a fault.
    pub fn encode(&mut self, s: &Sample, goal: Goal, effort: Effort) -> Option<Vec<u8>> {
        let result = s.try_encode(goal, effort);
        self.check(result.is_ok(), || {
            format!("{} {goal:?} {effort:?}: {}", s.name(), result.as_ref().unwrap_err())
        });
        result.ok()
    }

    pub fn done(self) {
        assert!(self.checked > 0, "nothing was checked");
        let shown = self.faults.iter().take(60).cloned().collect::<Vec<_>>().join("\n  ");
        assert!(self.faults.is_empty(), "{} of {} failed:\n  {shown}", self.faults.len(), self.checked);
    }
}
