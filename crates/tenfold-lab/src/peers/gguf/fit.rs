//! Scales of small blocks by least squares: rounding under several candidate scales, each followed by the
//! scale that is best for the integers it gave.
//!
//! Errors count equally. The public quantisers weigh large values more, for the sake of a model's output;
//! a race over squared error would hold that against them.

/// Candidates lie this far apart, in units of the largest integer.
const APART: f32 = 0.1;

/// The scale for x ≈ s·q with integers from `low` to `high`. Negative if the largest value is better held
/// by `low`, which reaches one step further.
pub(super) fn scale(x: &[f32], low: i8, high: i8) -> f32 {
    let most = x.iter().fold(0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
    if most == 0.0 {
        return 0.0;
    }
    let mut best = (0.0, 0.0);
    for step in -9i8..=9 {
        for end in [f32::from(low), f32::from(high)] {
            let mut inverse = (end + f32::from(step) * APART) / most;
            // The second pass rounds under the scale that the first pass found.
            for _ in 0..2 {
                let (s, gain) = refit(x, inverse, low, high);
                if gain > best.0 {
                    best = (gain, s);
                }
                if s == 0.0 {
                    break;
                }
                inverse = 1.0 / s;
            }
        }
    }
    best.1
}

/// Best scale for the integers under an inverse scale, and the squared error it saves against zeros.
fn refit(x: &[f32], inverse: f32, low: i8, high: i8) -> (f32, f32) {
    let (mut xq, mut qq) = (0.0, 0.0);
    for &v in x {
        let q = (v * inverse).round().clamp(f32::from(low), f32::from(high));
        xq += v * q;
        qq += q * q;
    }
    if qq > 0.0 { (xq / qq, xq * xq / qq) } else { (0.0, 0.0) }
}

/// Scale and minimum for x ≈ s·q − m with integers from 0 to `high`, s and m not negative.
pub(super) fn scale_and_min(x: &[f32], high: u8) -> (f32, f32) {
    let (low, top) = x.iter().fold((0f32, f32::MIN), |(l, t), &v| (l.min(v), t.max(v)));
    if top <= low {
        return (0.0, -low); // all the same, and not positive
    }
    let mut best = (f32::MAX, (0.0, -low));
    for step in -10i8..=10 {
        let mut pair = ((top - low) / (f32::from(high) + f32::from(step) * APART).max(0.5), -low);
        for _ in 0..3 {
            let error = error(x, pair, high);
            if error < best.0 {
                best = (error, pair);
            }
            pair = refit_pair(x, pair, high);
        }
    }
    best.1
}

/// Nearest integer under a scale and a minimum.
pub(super) fn integer(v: f32, (scale, min): (f32, f32), high: u8) -> u8 {
    if scale > 0.0 { ((v + min) / scale).round().clamp(0.0, f32::from(high)) as u8 } else { 0 }
}

/// Squared error under a scale and a minimum.
pub(super) fn error(x: &[f32], pair: (f32, f32), high: u8) -> f32 {
    x.iter().map(|&v| (pair.0 * f32::from(integer(v, pair, high)) - pair.1 - v).powi(2)).sum()
}

/// Least squares over both, for the integers that the old pair gives.
fn refit_pair(x: &[f32], pair: (f32, f32), high: u8) -> (f32, f32) {
    let (mut q1, mut q2, mut x1, mut xq) = (0.0, 0.0, 0.0, 0.0);
    for &v in x {
        let q = f32::from(integer(v, pair, high));
        q1 += q;
        q2 += q * q;
        x1 += v;
        xq += v * q;
    }
    let n = x.len() as f32;
    let determinant = n * q2 - q1 * q1;
    if determinant <= 0.0 {
        return pair;
    }
    let scale = (n * xq - q1 * x1) / determinant;
    let min = (scale * q1 - x1) / n;
    // A minimum above zero cannot be stored; without one the scale is best alone.
    let (scale, min) = if min < 0.0 { (xq / q2, 0.0) } else { (scale, min) };
    if scale > 0.0 { (scale, min) } else { pair }
}
