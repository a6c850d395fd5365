//! Blockwise cosine transform of rows: what video codecs do to a picture's blocks. Normative: docs/format.md, 'DCT'.

use super::real::Real;
use crate::error::{Error, Result};

/// Blocks of 4 to 32 columns.
const LOG2: std::ops::RangeInclusive<u8> = 2..=5;

/// An orthonormal cosine transform of blocks of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dct {
    log2: u8,
}

impl Dct {
    /// Blocks of 2^`log2` columns, 2 to 5. Where a row has no room for one, the next has the largest power of two of what is
    /// left.
    ///
    /// ```
    /// use tenfold::prepare::Dct;
    /// let mut row = [5.0f64; 8];
    /// Dct::new(3)?.forward(&mut row, 8);
    /// assert!((row[0] - 5.0 * 8f64.sqrt()).abs() < 1e-12 && row[1..].iter().all(|v| v.abs() < 1e-12));
    /// # Ok::<(), tenfold::Error>(())
    /// ```
    pub fn new(log2: u8) -> Result<Self> {
        if !LOG2.contains(&log2) {
            return Err(Error::InvalidArgument(format!(
                "a DCT block must have 4 to 32 columns, not 2^{log2}"
            )));
        }
        Ok(Dct { log2 })
    }

    /// log2 of the columns of a block.
    pub fn log2(&self) -> u8 {
        self.log2
    }

    /// Transforms whole rows of `cols` values.
    pub fn forward<R: Real>(&self, values: &mut [R], cols: usize) {
        self.each(values, cols, &self.matrices(false));
    }

    /// Transforms back.
    pub fn inverse<R: Real>(&self, values: &mut [R], cols: usize) {
        self.each(values, cols, &self.matrices(true));
    }

    /// What blocks of 1, 2, 4, … columns are multiplied by, row by row, up to the largest.
    pub fn matrices<R: Real>(&self, inverse: bool) -> Vec<Vec<R>> {
        let of = |log2: u8| {
            let n = 1usize << log2;
            let matrix = cosines(n);
            let at = |k: usize| if inverse { k % n * n + k / n } else { k };
            (0..n * n).map(|k| R::from_f64(matrix[at(k)])).collect()
        };
        (0..=self.log2).map(of).collect()
    }

    /// Multiplies every block by the matrix of its size.
    fn each<R: Real>(&self, values: &mut [R], cols: usize, matrices: &[Vec<R>]) {
        let mut out = vec![R::from_f64(0.0); 1 << self.log2];
        for row in values.chunks_exact_mut(cols.max(1)) {
            let mut rest = row;
            while !rest.is_empty() {
                let log2 = rest.len().ilog2().min(u32::from(self.log2));
                let (block, later) = rest.split_at_mut(1 << log2);
                let matrix = &matrices[log2 as usize];
                for (o, line) in out.iter_mut().zip(matrix.chunks_exact(block.len())) {
                    *o =
                        line.iter().zip(&*block).fold(R::from_f64(0.0), |sum, (&m, &v)| sum.plus(m.times(v)));
                }
                block.copy_from_slice(&out[..block.len()]);
                rest = later;
            }
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        vec![self.log2]
    }

    pub(super) fn read(content: &[u8]) -> Result<Self> {
        match *content {
            [log2] if LOG2.contains(&log2) => Ok(Dct { log2 }),
            _ => Err(Error::Corrupt("DCT step")),
        }
    }
}

/// The matrix of a block: row k is the cosine of frequency k.
fn cosines(n: usize) -> Vec<f64> {
    let entry = |k: usize, i: usize| {
        let norm = if k == 0 { 1.0 } else { 2.0f64 } / n as f64;
        norm.sqrt() * (std::f64::consts::PI * (2 * i + 1) as f64 * k as f64 / (2 * n) as f64).cos()
    };
    (0..n * n).map(|at| entry(at / n, at % n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_width_comes_back_and_keeps_its_energy() {
        for cols in [1, 2, 3, 7, 33, 64, 100] {
            for log2 in LOG2 {
                let values: Vec<f64> = (0..cols * 3).map(|i| ((i * i) as f64 * 0.37).sin()).collect();
                let dct = Dct::new(log2).unwrap();
                let mut turned = values.clone();
                dct.forward(&mut turned, cols);
                let energy = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
                assert!((energy(&turned) / energy(&values) - 1.0).abs() < 1e-12);
                dct.inverse(&mut turned, cols);
                assert!(values.iter().zip(&turned).all(|(a, b)| (a - b).abs() < 1e-12));
            }
        }
    }

    #[test]
    fn stored_form_has_one_spelling() {
        let dct = Dct::new(4).unwrap();
        assert_eq!(Dct::read(&dct.write()).unwrap(), dct);
        assert!(Dct::new(1).is_err() && Dct::new(6).is_err());
        for bad in [&[][..], &[1], &[6], &[3, 0]] {
            assert_eq!(Dct::read(bad), Err(Error::Corrupt("DCT step")));
        }
    }
}
