//! The figures of a comparison, from sums that can be taken in parts.

use rayon::prelude::*;
use tenfold::Dtype;

use super::TensorDiff;
use crate::values;

/// Values converted at a time.
const CHUNK: usize = 1 << 16;

/// What is summed up over values; sums of parts add up to the sums of the whole.
#[derive(Debug, Clone, Default)]
pub struct DiffSums {
    pub(super) differ: bool,
    /// All values, and those among them that are finite on both sides.
    values: u64,
    finite: u64,
    mismatches: u64,
    error: f64,
    max_error: f64,
    x: f64,
    xx: f64,
    yy: f64,
    xy: f64,
    /// Sum of squares about the mean, for parts whose means differ.
    spread: f64,
}

impl DiffSums {
    /// Compares the elements of two tensors of one shape.
    pub fn measure(a: (Dtype, &[u8]), b: (Dtype, &[u8])) -> DiffSums {
        let part = |(x, y): (&[u8], &[u8])| {
            let count = x.len() / a.0.size();
            let mut p = vec![0.0; count];
            let mut q = vec![0.0; count];
            values::load(a.0, x, &mut p);
            values::load(b.0, y, &mut q);
            DiffSums::from_values(&p, &q)
        };
        // Gathered in order, so that the result does not depend on the number of threads.
        let parts: Vec<DiffSums> =
            a.1.par_chunks(CHUNK * a.0.size()).zip(b.1.par_chunks(CHUNK * b.0.size())).map(part).collect();
        parts.iter().fold(DiffSums::default(), |sum, part| sum.merge(part))
    }

    fn from_values(x: &[f64], y: &[f64]) -> DiffSums {
        let mut s = DiffSums { values: x.len() as u64, ..DiffSums::default() };
        for (&x, &y) in x.iter().zip(y) {
            if !(x.is_finite() && y.is_finite()) {
                s.mismatches += u64::from(!(x == y || x.is_nan() && y.is_nan()));
                continue;
            }
            s.finite += 1;
            let e = x - y;
            s.error += e * e;
            s.max_error = s.max_error.max(e.abs());
            s.x += x;
            s.xx += x * x;
            s.yy += y * y;
            s.xy += x * y;
        }
        let mean = s.x / s.finite.max(1) as f64;
        s.spread = x
            .iter()
            .zip(y)
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .map(|(x, _)| (x - mean).powi(2))
            .sum();
        s
    }

    /// Adds another part.
    pub fn merge(mut self, other: &DiffSums) -> DiffSums {
        // The spread of a union: of its parts, and of their means about each other (Chan et al.).
        let (n, m) = (self.finite as f64, other.finite as f64);
        if self.finite > 0 && other.finite > 0 {
            let gap = self.x / n - other.x / m;
            self.spread += gap * gap * (n * m / (n + m));
        }
        self.spread += other.spread;
        self.differ |= other.differ;
        self.values += other.values;
        self.finite += other.finite;
        self.mismatches += other.mismatches;
        self.error += other.error;
        self.max_error = self.max_error.max(other.max_error);
        self.x += other.x;
        self.xx += other.xx;
        self.yy += other.yy;
        self.xy += other.xy;
        self
    }

    /// The figures, under the name, dtype and shape of what was compared.
    pub fn finish(&self, name: &str, dtype: &str, shape: &[usize]) -> TensorDiff {
        let n = self.finite.max(1) as f64;
        let nmse = if self.error == 0.0 { 0.0 } else { self.error / self.spread };
        let norms = self.xx.sqrt() * self.yy.sqrt();
        let cosine = if self.error == 0.0 {
            1.0
        } else if norms == 0.0 {
            0.0
        } else {
            (self.xy / norms).clamp(-1.0, 1.0)
        };
        TensorDiff {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            values: self.values,
            identical: !self.differ,
            mse: self.error / n,
            nmse,
            max_error: self.max_error,
            cosine,
            special_mismatches: self.mismatches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_their_definition() {
        let x: Vec<f64> = (0..1000).map(|i| f64::from(i) * 0.01 + 100.0).collect();
        let y: Vec<f64> =
            x.iter().enumerate().map(|(i, x)| x + if i % 2 == 0 { 0.5 } else { -0.25 }).collect();
        let whole = DiffSums::from_values(&x, &y);
        let parts =
            DiffSums::from_values(&x[..300], &y[..300]).merge(&DiffSums::from_values(&x[300..], &y[300..]));
        let mean = x.iter().sum::<f64>() / 1000.0;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1000.0;
        for sums in [whole, parts] {
            let diff = sums.finish("", "", &[]);
            assert!((diff.mse - 0.15625).abs() < 1e-12);
            assert!((diff.nmse - 0.15625 / variance).abs() < 1e-9);
            assert!((diff.max_error - 0.5).abs() < 1e-12);
            assert!(diff.cosine > 0.9999 && diff.cosine < 1.0);
        }
    }

    #[test]
    fn special_values_are_equal_to_themselves_and_counted_otherwise() {
        let inf = f64::INFINITY;
        let diff =
            DiffSums::from_values(&[f64::NAN, inf, inf, 1.0, 2.0], &[f64::NAN, inf, -inf, f64::NAN, 2.0])
                .finish("", "", &[]);
        assert_eq!((diff.special_mismatches, diff.mse, diff.cosine), (2, 0.0, 1.0));
    }
}
