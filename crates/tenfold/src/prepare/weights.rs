//! Step weights: columns or rows multiplied by powers of two, in eighths of an octave, so that one step of a
//! quantiser is a finer one for some of them. Normative: docs/format.md, 'Weights'.

use super::real::Real;
use crate::error::{Error, Result};

/// 2^(k/8) for k = 0 … 7, rounded to f32.
pub const EIGHTHS: [f32; 8] = [
    f32::from_bits(0x3f80_0000),
    f32::from_bits(0x3f8b_95c2),
    f32::from_bits(0x3f98_37f0),
    f32::from_bits(0x3fa5_fed7),
    f32::from_bits(0x3fb5_04f3),
    f32::from_bits(0x3fc5_672a),
    f32::from_bits(0x3fd7_44fd),
    f32::from_bits(0x3fea_c0c7),
];

/// What is weighted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// A weight for each column of the two-dimensional view.
    Columns,
    /// A weight for each row.
    Rows,
}

/// Weights of columns or rows.
///
/// ```
/// use tenfold::prepare::{Axis, Weights};
/// // The first column counts a hundred times as much as the others: its error is to be a tenth of theirs.
/// let weights = Weights::from_importance(&[100.0, 1.0, 1.0, 1.0])?;
/// assert_eq!(weights.axis(), Axis::Columns);
/// let ratio = f64::from(weights.factor(0) / weights.factor(1));
/// assert!((ratio / 10.0 - 1.0).abs() < 0.05);
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weights {
    axis: Axis,
    /// Eighths of an octave.
    eighths: Vec<i8>,
}

impl Weights {
    /// Weights from whole eighths of an octave: column or row j is multiplied by 2^(`eighths[j]` / 8).
    pub fn new(axis: Axis, eighths: Vec<i8>) -> Self {
        Weights { axis, eighths }
    }

    /// Share of the largest importance that any column or row has at least.
    pub(crate) const LEAST: f64 = 1e-6;

    /// Weights of columns that make an error count by these numbers: a mean square of what each column is
    /// multiplied with (an 'importance matrix') keeps the error of the product small. Only ratios matter; a
    /// millionth of the largest is the least that counts.
    pub fn from_importance(importance: &[f64]) -> Result<Self> {
        Weights::of(Axis::Columns, importance)
    }

    /// The same for columns or rows.
    pub(crate) fn of(axis: Axis, importance: &[f64]) -> Result<Self> {
        if let Some(bad) = importance.iter().find(|v| !v.is_finite() || **v < 0.0) {
            return Err(Error::InvalidArgument(format!(
                "importance must be finite and not negative, but one number is {bad}"
            )));
        }
        let most = importance.iter().fold(0.0f64, |m, &v| m.max(v));
        // All the same if none counts at all.
        let floor = if most > 0.0 { most * Weights::LEAST } else { 1.0 };
        let octaves: Vec<f64> = importance.iter().map(|v| 0.5 * v.max(floor).log2()).collect();
        let mean = octaves.iter().sum::<f64>() / octaves.len().max(1) as f64;
        // Ten octaves between the least and the most: within what a byte holds.
        let eighths = octaves.iter().map(|o| ((o - mean) * 8.0).round() as i8).collect();
        Ok(Weights { axis, eighths })
    }

    /// The same for the transpose.
    pub(crate) fn transposed(&self) -> Weights {
        let axis = match self.axis {
            Axis::Columns => Axis::Rows,
            Axis::Rows => Axis::Columns,
        };
        Weights { axis, eighths: self.eighths.clone() }
    }

    /// What is weighted.
    pub fn axis(&self) -> Axis {
        self.axis
    }

    /// Columns or rows that there are weights for.
    pub fn len(&self) -> usize {
        self.eighths.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.eighths.is_empty()
    }

    /// What column or row `j` is multiplied by.
    pub fn factor(&self, j: usize) -> f32 {
        power(i32::from(self.eighths[j]))
    }

    /// What undoes that.
    pub fn inverse_factor(&self, j: usize) -> f32 {
        power(-i32::from(self.eighths[j]))
    }

    /// Weighs whole rows of `cols` values, the first of which is row `first`.
    pub(super) fn forward<R: Real>(&self, values: &mut [R], cols: usize, first: usize) {
        self.multiply(values, cols, first, |e| power(i32::from(e)));
    }

    pub(super) fn inverse<R: Real>(&self, values: &mut [R], cols: usize, first: usize) {
        self.multiply(values, cols, first, |e| power(-i32::from(e)));
    }

    fn multiply<R: Real>(&self, values: &mut [R], cols: usize, first: usize, factor: impl Fn(i8) -> f32) {
        let factor = |e: &i8| R::from_f64(f64::from(factor(*e)));
        let rows = values.chunks_exact_mut(cols.max(1));
        match self.axis {
            Axis::Columns => {
                let factors: Vec<R> = self.eighths.iter().map(factor).collect();
                rows.for_each(|row| row.iter_mut().zip(&factors).for_each(|(v, &f)| *v = v.times(f)));
            }
            Axis::Rows => {
                let factors = self.eighths.iter().skip(first).map(factor);
                rows.zip(factors).for_each(|(row, f)| row.iter_mut().for_each(|v| *v = v.times(f)));
            }
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = vec![self.axis as u8];
        out.extend(self.eighths.iter().map(|&e| e as u8));
        out
    }

    /// Reads weights of a tensor of so many columns and rows.
    pub(super) fn read(content: &[u8], cols: usize, rows: usize) -> Result<Self> {
        let corrupt = Error::Corrupt("weights step");
        let (axis, eighths) = match content.split_first() {
            Some((0, rest)) if rest.len() == cols => (Axis::Columns, rest),
            Some((1, rest)) if rest.len() == rows => (Axis::Rows, rest),
            _ => return Err(corrupt),
        };
        Ok(Weights { axis, eighths: eighths.iter().map(|&e| e as i8).collect() })
    }
}

/// 2^(eighths / 8), within half a unit in the last place of an f32.
fn power(eighths: i32) -> f32 {
    let octaves = eighths.div_euclid(8);
    // Exponents from -16 to 16 on a number between 1 and 2: adding to the bits is exact.
    let bits = EIGHTHS[eighths.rem_euclid(8) as usize].to_bits() as i32 + (octaves << 23);
    f32::from_bits(bits as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_powers_of_two_in_eighths() {
        for e in i8::MIN..=i8::MAX {
            let exact = (f64::from(e) / 8.0).exp2();
            assert!((f64::from(power(i32::from(e))) / exact - 1.0).abs() < 6e-8, "{e}");
            assert!((f64::from(power(-i32::from(e))) * exact - 1.0).abs() < 6e-8, "{e}");
        }
    }

    #[test]
    fn weighing_comes_back_and_knows_its_rows() {
        let columns = Weights::new(Axis::Columns, vec![0, 8, -16]);
        let mut v = [1.0f32, 2.0, 4.0, 1.0, 2.0, 4.0];
        columns.forward(&mut v, 3, 5);
        assert_eq!(v, [1.0, 4.0, 1.0, 1.0, 4.0, 1.0]);
        columns.inverse(&mut v, 3, 5);
        assert_eq!(v, [1.0, 2.0, 4.0, 1.0, 2.0, 4.0]);
        let rows = Weights::new(Axis::Rows, vec![0, 8, 16]);
        let mut v = [1.0f64; 4];
        rows.forward(&mut v, 2, 1);
        assert_eq!(v, [2.0, 2.0, 4.0, 4.0]);
    }

    #[test]
    fn importance_becomes_weights_about_one() {
        let weights = Weights::from_importance(&[1.0, 4.0, 0.0, 1e9]).unwrap();
        assert_eq!(weights.eighths.iter().map(|&e| i32::from(e)).sum::<i32>(), 0);
        assert_eq!(weights.eighths[3] - weights.eighths[0], 80, "a millionth is the least");
        assert_eq!(Weights::from_importance(&[0.0; 3]).unwrap().eighths, [0; 3]);
        assert_eq!(Weights::from_importance(&[7.0; 3]).unwrap().eighths, [0; 3]);
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(Weights::from_importance(&[1.0, bad]).is_err());
        }
    }

    #[test]
    fn stored_form_must_fit_the_tensor() {
        let weights = Weights::new(Axis::Rows, vec![1, -2]);
        assert_eq!(Weights::read(&weights.write(), 5, 2).unwrap(), weights);
        for bad in [&[][..], &[2, 1, 1], &[0, 1], &[1, 1], &[1, 1, 1, 1]] {
            assert_eq!(Weights::read(bad, 2, 2), Err(Error::Corrupt("weights step")));
        }
    }
}
