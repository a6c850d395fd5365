//! Rows that take the place of columns. Normative: docs/format.md, 'Transposed'.
//!
//! No row of the tensor can be had from few rows of what was coded, so this transform is done to whole tensors: before all others
//! by [`super::Prepared`], behind all others where tiles are decoded.

use std::ops::Range;

use super::Transform;
use crate::error::Result;
use crate::workers::Workers;

/// Rows of the result that a worker writes at a time: a line of the cache holds values of several.
const ROWS: usize = 32;
/// Rows of the slab that are read together.
const SQUARE: usize = 32;

/// The transforms behind a transposition, if the chain has one.
pub(crate) fn behind_transposition(transforms: &[Transform]) -> Option<&[Transform]> {
    match transforms {
        [Transform::Kept(_), Transform::Transposed, rest @ ..] | [Transform::Transposed, rest @ ..] => {
            Some(rest)
        }
        _ => None,
    }
}

/// Some rows of a matrix, and which of its columns are wanted as rows.
pub(crate) struct Slab<'a> {
    pub(crate) bytes: &'a [u8],
    /// Values of a row.
    pub(crate) line: usize,
    /// Bytes of a value.
    pub(crate) size: usize,
    /// The first row's number.
    pub(crate) first: usize,
    pub(crate) wanted: Range<usize>,
}

impl Slab<'_> {
    /// Writes what the slab has of the wanted columns into `out`, as rows of `width` values.
    pub(crate) fn turn(&self, width: usize, workers: &Workers, out: &mut [u8]) -> Result<()> {
        let pieces = out.chunks_mut((ROWS * width * self.size).max(1)).collect();
        workers.for_pieces(
            pieces,
            || (),
            |(), i, out| {
                let from = self.wanted.start + i * ROWS;
                match self.size {
                    1 => self.turn_piece::<1>(from, width, out),
                    2 => self.turn_piece::<2>(from, width, out),
                    4 => self.turn_piece::<4>(from, width, out),
                    _ => self.turn_piece::<8>(from, width, out),
                }
                Ok(())
            },
        )
    }

    fn turn_piece<const N: usize>(&self, from: usize, width: usize, out: &mut [u8]) {
        let (values, out) = (self.bytes.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
        let rows = values.len() / self.line.max(1);
        for start in (0..rows).step_by(SQUARE) {
            for (c, out) in out.chunks_exact_mut(width).enumerate() {
                for r in start..rows.min(start + SQUARE) {
                    out[self.first + r] = values[r * self.line + from + c];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_make_up_the_transpose() {
        let (rows, cols) = (70, 45);
        let values: Vec<u16> = (0..rows * cols).map(|v| v as u16).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        for wanted in [0..cols, 3..40, 7..8] {
            let mut out = vec![0u16; wanted.len() * rows];
            for first in (0..rows).step_by(33) {
                let bytes = &bytes[first * cols * 2..(first + 33).min(rows) * cols * 2];
                let slab = Slab { bytes, line: cols, size: 2, first, wanted: wanted.clone() };
                slab.turn(rows, &Workers::current_thread(), bytemuck::cast_slice_mut(&mut out)).unwrap();
            }
            for (i, v) in out.iter().enumerate() {
                assert_eq!(*v, values[i % rows * cols + wanted.start + i / rows]);
            }
        }
    }
}
