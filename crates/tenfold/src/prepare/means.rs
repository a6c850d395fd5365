//! Means of columns, taken off before and added behind. Normative: docs/format.md, 'Means'.

use super::real::Real;
use crate::error::{Error, Result};

/// A number to take off each column.
///
/// ```
/// use tenfold::prepare::Means;
/// let means = Means::measure(&[10.0f32, -3.0, 10.5, -3.2], 2);
/// assert_eq!(means.values(), [10.25, -3.09375]); // as bf16 has it
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Means {
    /// Each a bf16, or an f32 where that was too coarse for some column.
    values: Vec<f32>,
    wide: bool,
}

impl Means {
    /// These numbers, rounded to bf16.
    pub fn new(values: &[f32]) -> Self {
        Means { values: values.iter().map(|&v| half::bf16::from_f32(v).to_f32()).collect(), wide: false }
    }

    /// The means of columns of whole rows. Kept in f32 if, rounded to bf16, one would miss by more than a quarter of its
    /// column's deviation.
    pub fn measure<R: Real>(values: &[R], cols: usize) -> Self {
        let mut sums = Sums::new(cols);
        sums.add(values);
        sums.means()
    }

    /// What is taken off.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    pub(super) fn forward<R: Real>(&self, values: &mut [R], cols: usize) {
        self.add(values, cols, -1.0);
    }

    pub(super) fn inverse<R: Real>(&self, values: &mut [R], cols: usize) {
        self.add(values, cols, 1.0);
    }

    fn add<R: Real>(&self, values: &mut [R], cols: usize, sign: f64) {
        let means: Vec<R> = self.values.iter().map(|&m| R::from_f64(sign * f64::from(m))).collect();
        for row in values.chunks_exact_mut(cols.max(1)) {
            row.iter_mut().zip(&means).for_each(|(v, &m)| *v = v.plus(m));
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = vec![if self.wide { 4 } else { 2 }];
        for v in &self.values {
            match self.wide {
                true => out.extend_from_slice(&v.to_le_bytes()),
                false => out.extend_from_slice(&half::bf16::from_f32(*v).to_le_bytes()),
            }
        }
        out
    }

    /// Reads the means of a tensor of so many columns.
    pub(super) fn read(content: &[u8], cols: usize) -> Result<Self> {
        let corrupt = Error::Corrupt("means step");
        let (wide, values) = match content.split_first() {
            Some((2, rest)) if rest.len().checked_div(2) == Some(cols) && rest.len() % 2 == 0 => {
                let near = |b: &[u8; 2]| half::bf16::from_le_bytes(*b).to_f32();
                (false, rest.as_chunks::<2>().0.iter().map(near).collect::<Vec<f32>>())
            }
            Some((4, rest)) if rest.len().checked_div(4) == Some(cols) && rest.len() % 4 == 0 => {
                (true, rest.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
            }
            _ => return Err(corrupt),
        };
        if values.iter().any(|v| !v.is_finite()) {
            return Err(corrupt);
        }
        Ok(Means { values, wide })
    }
}

/// What of whole rows their means are made of, column by column.
#[derive(Clone)]
pub(super) struct Sums {
    /// Finite values, their sum, the sum of their squares.
    columns: Vec<(f64, f64, f64)>,
    rows: u64,
    /// The largest finite magnitude.
    pub(super) largest: f64,
}

impl Sums {
    pub(super) fn new(cols: usize) -> Sums {
        Sums { columns: vec![(0.0, 0.0, 0.0); cols.max(1)], rows: 0, largest: 0.0 }
    }

    /// Adds whole rows.
    pub(super) fn add<R: Real>(&mut self, values: &[R]) {
        for row in values.chunks_exact(self.columns.len()) {
            self.rows += 1;
            for ((n, sum, squares), v) in self.columns.iter_mut().zip(row) {
                let v = v.wide();
                let (one, v) = if v.is_finite() { (1.0, v) } else { (0.0, 0.0) };
                *n += one;
                *sum += v;
                *squares += v * v;
                self.largest = self.largest.max(v.abs());
            }
        }
    }

    /// Adds what others have summed up.
    pub(super) fn join(&mut self, other: &Sums) {
        for (mine, other) in self.columns.iter_mut().zip(&other.columns) {
            *mine = (mine.0 + other.0, mine.1 + other.1, mine.2 + other.2);
        }
        self.rows += other.rows;
        self.largest = self.largest.max(other.largest);
    }

    /// All values.
    pub(super) fn values(&self) -> f64 {
        self.rows as f64 * self.columns.len() as f64
    }

    /// Finite values.
    pub(super) fn finite(&self) -> f64 {
        self.columns.iter().map(|c| c.0).sum()
    }

    /// Means as [`Means::measure`] has them.
    pub(super) fn means(&self) -> Means {
        // Within what a bf16 holds.
        let mean = |(n, sum, _): &(f64, f64, f64)| (sum / n.max(1.0)).clamp(-3e38, 3e38) as f32;
        let exact: Vec<f32> = self.columns.iter().map(mean).collect();
        let near = Means::new(&exact);
        let missed = self.columns.iter().zip(exact.iter().zip(&near.values)).any(
            |((n, _, squares), (exact, near))| {
                let exact = f64::from(*exact);
                let variance = (squares / n.max(1.0) - exact * exact).max(0.0);
                (exact - f64::from(*near)).powi(2) > variance / 16.0
            },
        );
        if missed { Means { values: exact, wide: true } } else { near }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_come_off_and_back() {
        let values: Vec<f64> = (0..60).map(|i| f64::from(i % 3 * 100) + f64::from(i).sin()).collect();
        let means = Means::measure(&values, 3);
        let mut turned = values.clone();
        means.forward(&mut turned, 3);
        assert!(turned.iter().all(|v| v.abs() < 2.0));
        means.inverse(&mut turned, 3);
        assert!(values.iter().zip(&turned).all(|(a, b)| (a - b).abs() < 1e-12));
        assert_eq!(Means::read(&means.write(), 3).unwrap(), means);
    }

    #[test]
    fn a_mean_that_dwarfs_its_deviation_is_kept_wide() {
        let values: Vec<f32> = (0..64).map(|i| 1000.3 + (i as f32 * 0.7).sin() * 0.01).collect();
        let means = Means::measure(&values, 1);
        assert!(means.wide && means.write().len() == 5);
        assert!(!Means::measure(&[1.0f32, 3.0], 1).wide);
        assert_eq!(Means::measure(&[f32::NAN, 3.0], 1).values(), [3.0]);
    }

    #[test]
    fn stored_form_must_fit_the_tensor() {
        let nan = [&[4][..], &f32::NAN.to_le_bytes()].concat();
        for bad in [&[][..], &[2], &[2, 0], &[2, 0, 0, 0], &[4, 0, 0], &[3, 0, 0, 0], &nan] {
            assert_eq!(Means::read(bad, 1), Err(Error::Corrupt("means step")));
        }
    }
}
