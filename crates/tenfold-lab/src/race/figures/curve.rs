//! A curve of one coder on one tensor: ln NMSE over bits, straight between measured points.
//!
//! A Gaussian's bound is a straight line in these coordinates and real curves run beside it, so straight
//! pieces are close. Nothing is said beyond the first and the last point.

use super::filter_rows;
use crate::race::run::Row;

/// Points that no other point of the same coder beats in both bits and error, bits rising and error
/// falling: what somebody who may choose the setting gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    points: Vec<(f64, f64)>,
    /// Fewest bits at which everything came back.
    exact: Option<f64>,
}

/// The curve of a family on a tensor.
pub(crate) fn curve(rows: &[Row], input: usize, family: &str) -> Curve {
    let points = filter_rows(rows, input, family).filter_map(|r| r.measured.as_ref());
    Curve::new(points.filter_map(|m| Some((m.bits, m.nmse?))))
}

impl Curve {
    /// A curve through pairs of bits and NMSE in any order.
    pub fn new(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let (exact, mut inexact): (Vec<_>, Vec<_>) = pairs.partition(|p| p.1 <= 0.0);
        let exact = exact.into_iter().map(|p| p.0).min_by(f64::total_cmp);
        inexact.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (bits, nmse) in inexact {
            if points.last().is_none_or(|last| nmse.ln() < last.1) {
                points.push((bits, nmse.ln()));
            }
        }
        Curve { points, exact }
    }

    /// Error at a rate: its logarithm, minus infinity where everything comes back. `None` outside the points.
    pub fn ln_nmse_at(&self, bits: f64) -> Option<f64> {
        if self.exact.is_some_and(|exact| exact <= bits) {
            return Some(f64::NEG_INFINITY);
        }
        between(self.points.iter().copied(), bits)
    }

    /// Bits that an error takes. `None` outside the points.
    pub fn bits_at(&self, ln_nmse: f64) -> Option<f64> {
        between(self.points.iter().rev().map(|&(bits, error)| (error, bits)), ln_nmse)
    }

    /// Pairs of bits and ln NMSE.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }
}

/// Straight lines between points whose first coordinate rises.
fn between(points: impl Iterator<Item = (f64, f64)>, x: f64) -> Option<f64> {
    let mut last: Option<(f64, f64)> = None;
    for (px, py) in points {
        if px == x {
            return Some(py);
        }
        if px > x {
            let (lx, ly) = last?;
            return Some(ly + (py - ly) * (x - lx) / (px - lx));
        }
        last = Some((px, py));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A coder `gap` bits above the Gaussian bound.
    fn parallel(gap: f64, bits: &[f64]) -> Curve {
        Curve::new(bits.iter().map(|&b| (b, (-2.0 * (b - gap)).exp2())))
    }

    #[test]
    fn parallels_to_the_bound_are_met_exactly() {
        let curve = parallel(0.25, &[4.0, 1.0, 2.0]);
        for bits in [1.0, 1.3, 2.0, 3.7, 4.0] {
            let ln = (-2.0 * (bits - 0.25)) * std::f64::consts::LN_2;
            assert!((curve.ln_nmse_at(bits).unwrap() - ln).abs() < 1e-12);
            assert!((curve.bits_at(ln).unwrap() - bits).abs() < 1e-12);
        }
    }

    #[test]
    fn nothing_is_extrapolated() {
        let curve = parallel(0.1, &[1.5, 3.0]);
        for bits in [1.49, 3.01, f64::NAN] {
            assert_eq!(curve.ln_nmse_at(bits), None);
        }
        assert_eq!(curve.bits_at(0.0), None);
        assert_eq!(curve.bits_at(-100.0), None);
        assert_eq!(Curve::new([].into_iter()).ln_nmse_at(2.0), None);
        let single = parallel(0.1, &[2.0]);
        assert_eq!(single.ln_nmse_at(2.0).is_some(), single.ln_nmse_at(2.1).is_none());
    }

    #[test]
    fn beaten_points_do_not_count() {
        // 3 bits with more error than 2.5 bits; two settings at 2 bits.
        let curve = Curve::new([(2.0, 0.1), (2.0, 0.2), (2.5, 0.05), (3.0, 0.07), (4.0, 0.01)].into_iter());
        assert_eq!(curve.points().iter().map(|p| p.0).collect::<Vec<_>>(), [2.0, 2.5, 4.0]);
        assert_eq!(curve.bits_at(0.1f64.ln()), Some(2.0));
    }

    #[test]
    fn an_exact_point_wins_from_its_bits_on() {
        let curve = Curve::new([(2.0, 0.1), (6.0, 0.0), (4.0, 0.01)].into_iter());
        assert_eq!(curve.ln_nmse_at(7.0), Some(f64::NEG_INFINITY));
        assert_eq!(curve.ln_nmse_at(5.0), None);
        assert!(curve.ln_nmse_at(3.0).unwrap().is_finite());
    }
}
