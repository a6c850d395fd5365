//! Blockwise Hadamard rotation of rows, with random signs first: 'incoherence'.
//!
//! Spreads an outlier over its block and makes values look Gaussian whatever they were; being orthonormal
//! it keeps squared errors as they are. Blocks that a row has no room for are cut into smaller powers of
//! two, so any width works without padding.

use super::real::Real;
use crate::error::{Error, Result};

/// Largest block: 2^14 columns.
const MAX_LOG2: u8 = 14;

/// A rotation: block size and signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hadamard {
    log2: u8,
    seed: u32,
}

impl Hadamard {
    /// Blocks of 2^`log2` columns, 1 to 14; signs from `seed`, all positive for 0.
    ///
    /// ```
    /// use tenfold::prepare::Hadamard;
    /// let rotation = Hadamard::new(3, 7)?;
    /// let mut row = [100.0f64, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    /// rotation.forward(&mut row, 8);
    /// assert!(row.iter().all(|v| (v.abs() - 100.0 / 8f64.sqrt()).abs() < 1e-12));
    /// rotation.inverse(&mut row, 8);
    /// assert!((row[0] - 100.0).abs() < 1e-12);
    /// # Ok::<(), tenfold::Error>(())
    /// ```
    pub fn new(log2: u8, seed: u32) -> Result<Self> {
        if !(1..=MAX_LOG2).contains(&log2) {
            return Err(Error::InvalidArgument(format!(
                "a Hadamard block must have 2^1 to 2^{MAX_LOG2} columns, not 2^{log2}"
            )));
        }
        Ok(Hadamard { log2, seed })
    }

    /// Rotates whole rows of `cols` values.
    pub fn forward<R: Real>(&self, values: &mut [R], cols: usize) {
        let signs = self.signs::<R>(cols);
        for row in values.chunks_exact_mut(cols.max(1)) {
            row.iter_mut().zip(&signs).for_each(|(v, &s)| *v = v.times(s));
            self.rotate(row);
        }
    }

    /// Rotates back.
    pub fn inverse<R: Real>(&self, values: &mut [R], cols: usize) {
        let signs = self.signs::<R>(cols);
        for row in values.chunks_exact_mut(cols.max(1)) {
            self.rotate(row);
            row.iter_mut().zip(&signs).for_each(|(v, &s)| *v = v.times(s));
        }
    }

    /// Its own inverse.
    fn rotate<R: Real>(&self, row: &mut [R]) {
        let mut rest = row;
        while !rest.is_empty() {
            let size = 1usize << rest.len().ilog2().min(u32::from(self.log2));
            let (block, later) = rest.split_at_mut(size);
            butterflies(block);
            rest = later;
        }
    }

    /// log2 of the columns of a block.
    pub fn log2(&self) -> u8 {
        self.log2
    }

    /// One sign a column, the same for all rows: bit 31 of a 32-bit linear congruential generator.
    pub fn signs<R: Real>(&self, cols: usize) -> Vec<R> {
        let mut x = self.seed;
        let next = |_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            R::from_f64(if self.seed != 0 && x >> 31 == 1 { -1.0 } else { 1.0 })
        };
        (0..cols).map(next).collect()
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = vec![self.log2];
        out.extend_from_slice(&self.seed.to_le_bytes());
        out
    }

    pub(super) fn read(content: &[u8]) -> Result<Self> {
        match *content {
            [log2, a, b, c, d] if (1..=MAX_LOG2).contains(&log2) => {
                Ok(Hadamard { log2, seed: u32::from_le_bytes([a, b, c, d]) })
            }
            _ => Err(Error::Corrupt("Hadamard step")),
        }
    }
}

fn butterflies<R: Real>(block: &mut [R]) {
    let mut half = 1;
    while half < block.len() {
        for pair in block.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = a.butterfly(*b);
            }
        }
        half *= 2;
    }
    let norm = R::from_f64(1.0 / (block.len() as f64).sqrt());
    block.iter_mut().for_each(|v| *v = v.times(norm));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_width_comes_back_and_keeps_its_energy() {
        for cols in [1, 2, 3, 7, 64, 100, 576, 1000] {
            for (log2, seed) in [(1, 0), (6, 1), (14, 99)] {
                let values: Vec<f64> = (0..cols * 3).map(|i| ((i * i) as f64 * 0.37).sin()).collect();
                let rotation = Hadamard::new(log2, seed).unwrap();
                let mut turned = values.clone();
                rotation.forward(&mut turned, cols);
                let energy = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
                assert!((energy(&turned) / energy(&values) - 1.0).abs() < 1e-12);
                assert!(cols < 3 || turned != values);
                rotation.inverse(&mut turned, cols);
                assert!(values.iter().zip(&turned).all(|(a, b)| (a - b).abs() < 1e-12));
            }
        }
    }

    #[test]
    fn stored_form_has_one_spelling() {
        let h = Hadamard::new(7, 5).unwrap();
        assert_eq!(Hadamard::read(&h.write()).unwrap(), h);
        assert!(Hadamard::new(0, 5).is_err() && Hadamard::new(15, 5).is_err());
        for bad in [&[][..], &[0, 0, 0, 0, 0], &[15, 0, 0, 0, 0], &[3, 0, 0, 0], &[3, 0, 0, 0, 0, 0]] {
            assert_eq!(Hadamard::read(bad), Err(Error::Corrupt("Hadamard step")));
        }
    }
}
