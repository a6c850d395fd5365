//! Shares one budget of bytes so that all blobs of a page are quantised about equally, which minimises their error.

use tenfold::engine::Subject;
use tenfold::engine::search::tolerance::{PAGE, SHARES};
use tenfold::engine::search::{Point, Search, Slope, gaussian_step};
use tenfold::{Effort, EncodeOptions, Error, Goal};

use crate::error::Result;

/// How much of a cap one step must fill; else each blob looks for its own.
const FILLED: f64 = 0.95;

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
        // If steps leave the range of f32, only a lossless blob is possible.
        Ok(if bits.is_finite() { bits } else { 16.0 } * self.values as f64 / 8.0)
    }
}

/// Where the search for a common step starts: what Gaussians of the same deviations would need, column by column.
pub(super) fn estimate_step(parts: &[Part<'_>], cap: usize) -> Result<f64> {
    let mut scales = Vec::new();
    for part in parts {
        let own = part.subject.column_scales()?;
        let weight = part.values as f64 / own.len().max(1) as f64;
        scales.extend(own.into_iter().map(|log_scale| (log_scale - part.step.log2(), weight)));
    }
    let values: f64 = parts.iter().map(|p| p.values as f64).sum();
    Ok(gaussian_step(&scales, cap as f64 * 8.0 / values).exp2())
}

/// Encodes all parts within `cap` bytes, with a common step, which is looked for from `start` on.
pub(super) fn encode(parts: &[Part<'_>], effort: Effort, cap: usize, start: f64) -> Result<Vec<Vec<u8>>> {
    let (shares, step) = find_shares(parts, cap, start)?;
    match encode_alike(parts, effort, cap, step)? {
        Some(blobs) => Ok(blobs),
        None => encode_shares(parts, effort, cap, &shares),
    }
}

/// Encodes all parts with one step, if one is found at which they nearly fill `cap` bytes.
fn encode_alike(parts: &[Part<'_>], effort: Effort, cap: usize, start: f64) -> Result<Option<Vec<Vec<u8>>>> {
    let values: f64 = parts.iter().map(|p| p.values as f64).sum();
    let mut best: Option<(usize, Vec<Vec<u8>>)> = None;
    Search::new(PAGE.aim * cap as f64, Slope::bytes(values), &PAGE).run(start, |knob| {
        let encode = |p: &Part<'_>| {
            let goal = Goal::Step(knob * p.step);
            p.subject.encode(&EncodeOptions::new(goal).with_effort(effort).with_threads(1))
        };
        // A step out of range, or values that no step is fine enough for, are for the caps of single blobs to deal with.
        let Ok(blobs) = parts.iter().map(encode).collect::<std::result::Result<Vec<Vec<u8>>, Error>>() else {
            return Ok(None);
        };
        let bytes: usize = blobs.iter().map(Vec::len).sum();
        if bytes <= cap && best.as_ref().is_none_or(|(most, _)| bytes > *most) {
            best = Some((bytes, blobs));
        }
        Ok::<_, crate::Error>(Some(Point { knob, got: bytes as f64 }))
    })?;
    let filled = |bytes: usize| bytes as f64 >= FILLED * cap as f64;
    Ok(best.filter(|(bytes, _)| filled(*bytes)).map(|(_, blobs)| blobs))
}

/// Encodes all parts within `cap` bytes, each within its share.
fn encode_shares(parts: &[Part<'_>], effort: Effort, cap: usize, shares: &[f64]) -> Result<Vec<Vec<u8>>> {
    let total: f64 = shares.iter().sum();
    let goal = |cap: usize| EncodeOptions::new(Goal::MaxBytes(cap)).with_effort(effort).with_threads(1);
    let (mut left, mut open) = (cap, total);
    let mut blobs = vec![Vec::new(); parts.len()];
    // Bytes that one part saves go to those after it; the small ones first, whose headers may need more than their
    // share.
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
        let blob = blob.map_err(|e| restate_cap(e, cap, left))?;
        left -= blob.len();
        open -= shares[at];
        blobs[at] = blob;
    }
    Ok(blobs)
}

/// The step at which all parts together take about `cap` bytes, looked for from `start` on.
pub(super) fn find_step(parts: &[Part<'_>], cap: usize, start: f64) -> Result<f64> {
    Ok(find_shares(parts, cap, start)?.1)
}

/// An error of one blob as one of the page.
fn restate_cap(e: Error, cap: usize, left: usize) -> Error {
    match e {
        Error::DoesNotFit { need, .. } => {
            Error::DoesNotFit { cap: cap as u64, need: (cap - left) as u64 + need }
        }
        e => e,
    }
}

/// Bytes of each part at the common step that takes about `cap` bytes, and that step.
fn find_shares(parts: &[Part<'_>], cap: usize, start: f64) -> Result<(Vec<f64>, f64)> {
    let want = (cap as f64).max(1.0);
    let values: f64 = parts.iter().map(|p| p.values as f64).sum();
    let mut best = (f64::INFINITY, vec![1.0; parts.len()], start);
    Search::new(want, Slope::bytes(values), &SHARES).run(start, |knob| {
        let bytes = parts.iter().map(|p| p.bytes(knob)).collect::<Result<Vec<f64>>>()?;
        let got: f64 = bytes.iter().sum();
        let off = (got / want).ln().abs();
        if off < best.0 {
            best = (off, bytes, knob);
        }
        Ok::<_, crate::Error>(Some(Point { knob, got }))
    })?;
    // Headers count, however little a blob holds.
    let least = |p: &Part<'_>| 64.0 + p.values as f64 * 1e-4;
    let shares = best.1.iter().zip(parts).map(|(b, p)| b.max(least(p))).collect();
    Ok((shares, best.2))
}
