//! One budget of bytes, shared out so that all blobs of a page are quantised about equally: that is what makes their error
//! smallest.

use tenfold::engine::Subject;
use tenfold::{Effort, EncodeOptions, Error, Goal};

use crate::error::Result;

/// Steps that are tried before shares are settled.
const TRIES: usize = 6;
/// How near to the budget is near enough: shares matter, the size is kept by the blobs themselves.
const NEAR: f64 = 0.02;

/// A blob to be.
pub(super) struct Part<'a> {
    pub subject: Subject<'a>,
    /// Values of the tensor.
    pub values: usize,
    /// Its step over the common one.
    pub step: f64,
}

impl Part<'_> {
    fn bytes(&self, step: f64) -> Result<f64> {
        let bits = self.subject.estimate_bits(step * self.step, Effort::Fast)?;
        // Where steps leave the range of f32, only a lossless blob is left.
        Ok(if bits.is_finite() { bits } else { 16.0 } * self.values as f64 / 8.0)
    }
}

/// Encodes all parts within `cap` bytes. `hint` is a step that may be about right; the one that shares were made with comes back.
pub(super) fn encode(
    parts: &[Part<'_>],
    effort: Effort,
    cap: usize,
    hint: Option<f64>,
) -> Result<(Vec<Vec<u8>>, f64)> {
    let (shares, step) = shares(parts, cap as f64, hint)?;
    let total: f64 = shares.iter().sum();
    let goal = |cap: usize| EncodeOptions::new(Goal::MaxBytes(cap)).with_effort(effort).with_threads(1);
    let (mut left, mut open) = (cap, total);
    let mut blobs = vec![Vec::new(); parts.len()];
    // What one part leaves goes to those after it; the small ones first, whose headers may need more than their share.
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|&a, &b| shares[a].total_cmp(&shares[b]));
    for (i, &at) in order.iter().enumerate() {
        let last = i + 1 == order.len();
        let share = if last { left } else { ((left as f64 * shares[at] / open) as usize).min(left) } & !3;
        let blob = match parts[at].subject.encode(&goal(share)) {
            Err(Error::DoesNotFit { need, .. }) if !last && (need as usize) < left => {
                parts[at].subject.encode(&goal(need as usize))
            }
            other => other,
        };
        let blob = blob.map_err(|e| whole(e, cap, left))?;
        left -= blob.len();
        open -= shares[at];
        blobs[at] = blob;
    }
    Ok((blobs, step))
}

/// The step at which all parts together take about `cap` bytes.
pub(super) fn common_step(parts: &[Part<'_>], cap: usize, hint: Option<f64>) -> Result<f64> {
    Ok(shares(parts, cap as f64, hint)?.1)
}

/// An error of one blob as one of the page.
fn whole(e: Error, cap: usize, left: usize) -> Error {
    match e {
        Error::DoesNotFit { need, .. } => {
            Error::DoesNotFit { cap: cap as u64, need: (cap - left) as u64 + need }
        }
        e => e,
    }
}

/// Bytes of each part at a common step that takes about `budget`.
fn shares(parts: &[Part<'_>], budget: f64, hint: Option<f64>) -> Result<(Vec<f64>, f64)> {
    let values: f64 = parts.iter().map(|p| p.values as f64).sum();
    let at = |step: f64| parts.iter().map(|p| p.bytes(step)).collect::<Result<Vec<f64>>>();
    let mut step = hint.unwrap_or(1.0);
    let mut bracket = (0.0f64, f64::INFINITY);
    let mut best = (f64::INFINITY, vec![1.0; parts.len()], step);
    // A first page may be far from the hint: sizes then halve and double slowly, so that there are more tries.
    let tries = if hint.is_some() { TRIES } else { 4 * TRIES };
    for _ in 0..tries {
        let bytes = at(step)?;
        let total: f64 = bytes.iter().sum();
        let off = (total / budget.max(1.0)).ln().abs();
        if off < best.0 {
            best = (off, bytes, step);
        }
        if off < NEAR {
            break;
        }
        if total > budget {
            bracket.0 = step
        } else {
            bracket.1 = step
        }
        // One octave of the step is about a bit for each value that is not zero.
        let bits = (total - budget) * 8.0 / values;
        step *= (bits.clamp(-8.0, 8.0) * 1.2).exp2();
        if !(bracket.0 < step && step < bracket.1) {
            step = match bracket {
                (low, high) if low > 0.0 && high.is_finite() => (low * high).sqrt(),
                (low, _) if low > 0.0 => low * 4.0,
                (_, high) => high / 4.0,
            };
        }
        if !step.is_normal() || bracket.1 < bracket.0 * 1.02 {
            break;
        }
    }
    // Headers count, however little there is to say.
    let least = |p: &Part<'_>| 64.0 + p.values as f64 * 1e-4;
    let shares = best.1.iter().zip(parts).map(|(b, p)| b.max(least(p))).collect();
    Ok((shares, best.2))
}
