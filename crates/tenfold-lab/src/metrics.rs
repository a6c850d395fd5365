//! How far decoded values lie from the original, and how far a coder is from the Gaussian bound.
//!
//! [`Fidelity`] adds up over chunks and over tensors, so one type serves a slice, a tensor too large
//! to widen at once, and a whole model file.

use tenfold::TensorView;

use crate::values::read_f64;

/// Values widened at a time.
const CHUNK: usize = 1 << 16;

/// Sums over pairs of original and decoded values. Positions where the original is NaN or infinite
/// count in `specials` and in nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Fidelity {
    /// Pairs with a finite original.
    pub values: u64,
    /// Positions with a NaN or an infinity in the original.
    pub specials: u64,
    /// Specials that did not come back as they were (any NaN stands for any NaN).
    pub lost_specials: u64,
    /// Sum of (original − decoded)².
    pub squared_error: f64,
    /// Largest |original − decoded|.
    pub max_error: f64,
    mean: f64,
    deviation: f64,
    energy_original: f64,
    energy_decoded: f64,
    product: f64,
}

impl Fidelity {
    /// Compares two slices. If their lengths differ the error is infinite.
    pub fn new(original: &[f64], decoded: &[f64]) -> Self {
        let mut total = Fidelity::default();
        if original.len() != decoded.len() {
            total.max_error = f64::INFINITY;
            total.squared_error = f64::INFINITY;
        }
        for (a, b) in original.chunks(CHUNK).zip(decoded.chunks(CHUNK)) {
            total.absorb(Fidelity::from_chunk(a, b));
        }
        total
    }

    /// Compares two float tensors of equal length, of any float dtypes; `None` if they are not that.
    pub fn between(original: &TensorView<'_>, decoded: &TensorView<'_>) -> Option<Self> {
        let floats = original.dtype().is_float() && decoded.dtype().is_float();
        if !floats || original.len() != decoded.len() {
            return None;
        }
        let (mut a, mut b) = (vec![0.0; CHUNK], vec![0.0; CHUNK]);
        let mut total = Fidelity::default();
        for start in (0..original.len()).step_by(CHUNK) {
            let n = CHUNK.min(original.len() - start);
            read_f64(original, start, &mut a[..n]);
            read_f64(decoded, start, &mut b[..n]);
            total.absorb(Fidelity::from_chunk(&a[..n], &b[..n]));
        }
        Some(total)
    }

    fn from_chunk(original: &[f64], decoded: &[f64]) -> Self {
        let mut f = Fidelity::default();
        let mut sum = 0.0;
        for (&x, &y) in original.iter().zip(decoded) {
            if !x.is_finite() {
                f.specials += 1;
                f.lost_specials += u64::from(!(x == y || x.is_nan() && y.is_nan()));
                continue;
            }
            // A NaN where a number stood must not hide: it counts as an infinite error.
            let e = if y.is_finite() { x - y } else { f64::INFINITY };
            f.values += 1;
            sum += x;
            f.squared_error += e * e;
            f.max_error = f.max_error.max(e.abs());
            f.energy_original += x * x;
            f.energy_decoded += y * y;
            f.product += x * y;
        }
        f.mean = if f.values == 0 { 0.0 } else { sum / f.values as f64 };
        // A second pass about the mean: Σx² − n·mean² would cancel for tensors far from zero.
        f.deviation = original.iter().filter(|x| x.is_finite()).map(|x| (x - f.mean).powi(2)).sum();
        f
    }

    /// Adds another part of the same tensor.
    fn absorb(&mut self, other: Fidelity) {
        let (n, m) = (self.values as f64, other.values as f64);
        if m > 0.0 {
            let shift = other.mean - self.mean;
            self.deviation += shift * shift * n * m / (n + m);
            self.mean += shift * m / (n + m);
        }
        self.add_sums(other);
    }

    /// Adds another tensor: errors and deviations sum up, each tensor's variance staying about its own
    /// mean. The result is what 'over the file' means.
    pub fn add_tensor(&mut self, other: Fidelity) {
        let n = (self.values + other.values) as f64;
        if n > 0.0 {
            self.mean += (other.mean - self.mean) * other.values as f64 / n;
        }
        self.add_sums(other);
    }

    fn add_sums(&mut self, other: Fidelity) {
        self.values += other.values;
        self.specials += other.specials;
        self.lost_specials += other.lost_specials;
        self.squared_error += other.squared_error;
        self.max_error = self.max_error.max(other.max_error);
        self.deviation += other.deviation;
        self.energy_original += other.energy_original;
        self.energy_decoded += other.energy_decoded;
        self.product += other.product;
    }

    /// Mean of the original.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Variance of the original about its mean; 0 without values.
    pub fn variance(&self) -> f64 {
        self.over_values(self.deviation)
    }

    /// Mean squared error; 0 without values.
    pub fn mse(&self) -> f64 {
        self.over_values(self.squared_error)
    }

    /// Mean squared error over the variance; 0 for an exact copy, infinite for an inexact constant.
    pub fn nmse(&self) -> f64 {
        if self.squared_error == 0.0 { 0.0 } else { self.squared_error / self.deviation }
    }

    /// Cosine of the angle between original and decoded; 1 if both are zero.
    pub fn cosine(&self) -> f64 {
        let norms = (self.energy_original * self.energy_decoded).sqrt();
        if norms > 0.0 {
            self.product / norms
        } else if self.energy_original == self.energy_decoded {
            1.0
        } else {
            0.0
        }
    }

    /// Bits above the Gaussian bound, see [`gap_bits`].
    pub fn gap(&self, bits: f64) -> f64 {
        gap_bits(bits, self.nmse())
    }

    fn over_values(&self, sum: f64) -> f64 {
        if self.values == 0 { 0.0 } else { sum / self.values as f64 }
    }
}

/// Bits a value spent above the rate-distortion function of a Gaussian of the same variance,
/// R(D) = ½·log2(variance/MSE). Below zero is possible: real tensors are not Gaussian.
pub fn gap_bits(bits: f64, nmse: f64) -> f64 {
    bits + 0.5 * nmse.log2()
}

/// Mean squared error.
pub fn mse(original: &[f64], decoded: &[f64]) -> f64 {
    Fidelity::new(original, decoded).mse()
}

/// Mean squared error over the variance of the original about its mean.
pub fn nmse(original: &[f64], decoded: &[f64]) -> f64 {
    Fidelity::new(original, decoded).nmse()
}

/// Middle value; 0 for none. The mean of the two middle ones for an even number.
pub fn median(samples: &[f64]) -> f64 {
    let mut s = samples.to_vec();
    s.sort_by(f64::total_cmp);
    match s.len() {
        0 => 0.0,
        n if n % 2 == 1 => s[n / 2],
        n => (s[n / 2 - 1] + s[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Errors 1, 0, −2, 1; mean 2.5; deviations 2.25 + 0.25 + 0.25 + 2.25 = 5.
        let (x, y) = ([1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 5.0, 3.0]);
        let f = Fidelity::new(&x, &y);
        assert_eq!(f.mse(), 1.5);
        assert_eq!(f.variance(), 1.25);
        assert_eq!(f.nmse(), 1.2);
        assert_eq!(f.max_error, 2.0);
        // (0 + 4 + 15 + 12) / √(30 · 38)
        assert!((f.cosine() - 31.0 / 1140f64.sqrt()).abs() < 1e-15);
        assert!((f.gap(2.0) - (2.0 - 0.5 * (1.25f64 / 1.5).log2())).abs() < 1e-15);
        assert_eq!((mse(&x, &y), nmse(&x, &y)), (1.5, 1.2));
    }

    #[test]
    fn on_the_bound_the_gap_is_zero() {
        assert_eq!(gap_bits(2.0, 1.0 / 16.0), 0.0);
        assert_eq!(gap_bits(3.0, 1.0 / 16.0), 1.0);
    }

    #[test]
    fn chunks_add_up_to_the_whole() {
        let x: Vec<f64> = (0..3 * CHUNK + 17).map(|i| 1e6 + (i % 101) as f64).collect();
        let y: Vec<f64> = x.iter().map(|v| v + 0.5).collect();
        let f = Fidelity::new(&x, &y);
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.len() as f64;
        assert!((f.variance() / variance - 1.0).abs() < 1e-9);
        assert!((f.mean() - mean).abs() < 1e-6);
        assert_eq!(f.mse(), 0.25);
    }

    #[test]
    fn a_file_keeps_each_tensors_own_mean() {
        let mut total = Fidelity::new(&[0.0, 2.0], &[0.0, 1.0]);
        total.add_tensor(Fidelity::new(&[100.0, 102.0], &[100.0, 101.0]));
        assert_eq!(total.variance(), 1.0);
        assert_eq!(total.nmse(), 0.5);
    }

    #[test]
    fn specials_stay_apart() {
        let f = Fidelity::new(&[f64::NAN, f64::INFINITY, 1.0, 3.0], &[f64::NAN, 0.0, 1.0, 3.0]);
        assert_eq!((f.values, f.specials, f.lost_specials), (2, 2, 1));
        assert_eq!(f.nmse(), 0.0);
        assert_eq!(Fidelity::new(&[1.0], &[f64::NAN]).max_error, f64::INFINITY);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
