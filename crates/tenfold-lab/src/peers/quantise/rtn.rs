//! Round to nearest: the plain quantiser of most low-bit model files.
//!
//! A group of neighbouring values, or the whole tensor, shares a scale from its largest magnitude
//! (asymmetric: a scale and a minimum from its range). No search: that is what round to nearest means.

use super::super::header::Cursor;
use super::super::{PeerError, plain};
use super::{Codes, side};

/// Round to nearest with a number of bits and a group size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtn {
    /// Bits of a code, 2 to 8.
    pub bits: u8,
    /// Values of a group; 32, 64 and 128 are usual, 0 is the whole tensor.
    pub group: u16,
    /// Symmetric about zero (a scale a group) or from minimum to maximum (a scale and a minimum).
    pub symmetric: bool,
}

impl Rtn {
    pub(super) fn check(&self) -> Result<(), PeerError> {
        if (2..=8).contains(&self.bits) {
            return Ok(());
        }
        Err(PeerError::Unsupported(format!("round to nearest at {} bits", self.bits)))
    }

    pub(super) fn name(&self) -> String {
        let group = if self.group == 0 { "tensor".to_string() } else { format!("g{}", self.group) };
        format!("int{} {group}{}", self.bits, if self.symmetric { "" } else { " asym" })
    }

    /// Bits of scales for each value.
    pub(super) fn side_bits(&self) -> f64 {
        if self.group == 0 {
            return 0.0;
        }
        if self.symmetric { 16.0 / f64::from(self.group) } else { 32.0 / f64::from(self.group) }
    }

    /// Scale and minimum of a group, before they are rounded for storage.
    fn range(&self, group: &[f64]) -> (f64, f64) {
        if self.symmetric {
            let top = group.iter().fold(0f64, |m, v| m.max(v.abs()));
            (top / f64::from(self.top()), 0.0)
        } else {
            let (lo, hi) = group.iter().fold((f64::MAX, f64::MIN), |(l, h), &v| (l.min(v), h.max(v)));
            ((hi - lo) / f64::from(self.most()), lo)
        }
    }

    /// The largest symmetric code: −top to top, so that zero is a code.
    fn top(&self) -> u8 {
        self.most() / 2
    }

    /// The largest code of so many bits.
    fn most(&self) -> u8 {
        u8::MAX >> (8 - self.bits)
    }

    /// The code that stands for the value zero (symmetric) or the minimum.
    fn origin(&self) -> u8 {
        if self.symmetric { self.top() } else { 0 }
    }

    fn group_len(&self, n: usize) -> usize {
        if self.group == 0 { n.max(1) } else { usize::from(self.group) }
    }

    pub(super) fn quantise(&self, values: &[f64]) -> Codes {
        let unit = plain::unit(values);
        let (mut scales, mut minima) = (Vec::new(), Vec::new());
        let mut codes = Vec::with_capacity(values.len());
        let origin = f64::from(self.origin());
        let most = if self.symmetric { self.top() * 2 } else { self.most() };
        for group in values.chunks(self.group_len(values.len())) {
            let (scale, lo) = self.range(group);
            // Values are rounded against what the decoder will see, so the side values are rounded first.
            let (scale, lo) = (side::round_to_half(scale, unit), side::round_to_half(lo, unit));
            scales.push(scale);
            minima.push(lo);
            let (scale, lo) = (side::value(scale, unit), side::value(lo, unit));
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let code = |&v: &f64| ((v - lo) * inverse + origin).round().clamp(0.0, f64::from(most)) as u8;
            codes.extend(group.iter().map(code));
        }
        let mut stored = unit.to_le_bytes().to_vec();
        side::put(&mut stored, &scales);
        if !self.symmetric {
            side::put(&mut stored, &minima);
        }
        Codes { codes, side: stored }
    }

    /// Bytes of side values for `n` values.
    pub(super) fn side_len(&self, n: usize) -> usize {
        4 + n.div_ceil(self.group_len(n)) * if self.symmetric { 2 } else { 4 }
    }

    pub(super) fn restore(&self, codes: &[u8], side: &[u8]) -> Result<Vec<f64>, PeerError> {
        let mut cursor = Cursor(side);
        let unit = cursor.f32()?;
        let len = self.group_len(codes.len());
        let groups = codes.len().div_ceil(len);
        let scales = side::take(&mut cursor, groups, unit)?;
        let minima = if self.symmetric { vec![0.0; groups] } else { side::take(&mut cursor, groups, unit)? };
        let origin = f64::from(self.origin());
        let mut out = Vec::with_capacity(codes.len());
        for (group, (scale, lo)) in codes.chunks(len).zip(scales.iter().zip(&minima)) {
            out.extend(group.iter().map(|&c| lo + scale * (f64::from(c) - origin)));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Fidelity;
    use crate::synth::{self, Shape};

    fn gaussian(scale: f32) -> Vec<f64> {
        synth::values(Shape::Gaussian, scale, 12_800, 3).iter().map(|&v| f64::from(v)).collect()
    }

    #[test]
    fn errors_stay_within_half_a_step_at_any_magnitude() {
        for scale in [1e-30, 1e-9, 1.0, 1e30] {
            let values = gaussian(scale);
            for symmetric in [false, true] {
                for (bits, group) in [(4, 32u16), (3, 64), (8, 128), (6, 0)] {
                    let rtn = Rtn { bits, group, symmetric };
                    let q = rtn.quantise(&values);
                    assert_eq!(q.side.len(), rtn.side_len(values.len()));
                    assert!(q.codes.iter().all(|c| u32::from(*c) < 1 << bits));
                    let back = rtn.restore(&q.codes, &q.side).unwrap();
                    // The range of a group is at most ±6 σ; f16 side values shift the ends a little.
                    let step = 12.0 * f64::from(scale) / f64::from(rtn.most());
                    let worst = Fidelity::new(&values, &back).max_error;
                    assert!(worst < step, "{rtn:?}: {worst} against {step}");
                }
            }
        }
    }

    #[test]
    fn gap_is_what_the_literature_has() {
        // About 0.93–0.98 bits at 4.25 bits on Gaussian data in groups of 128.
        let values = gaussian(1.0);
        let rtn = Rtn { bits: 4, group: 128, symmetric: false };
        let q = rtn.quantise(&values);
        let back = rtn.restore(&q.codes, &q.side).unwrap();
        let gap = Fidelity::new(&values, &back).gap(4.0 + rtn.side_bits());
        assert!((0.85..1.05).contains(&gap), "{gap}");
    }

    #[test]
    fn constants_and_zeros_are_exact_enough() {
        for symmetric in [false, true] {
            let rtn = Rtn { bits: 3, group: 32, symmetric };
            for v in [0.0, -0.5, 7.25] {
                let q = rtn.quantise(&[v; 40]);
                let back = rtn.restore(&q.codes, &q.side).unwrap();
                assert!(back.iter().all(|b| (b - v).abs() <= v.abs() * 1e-3), "{rtn:?} {v}: {}", back[0]);
            }
        }
    }
}
