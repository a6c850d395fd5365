//! Prediction of a block from the previous picture.

use super::block::Place;
use super::frame::Frame;

/// How far a block may have moved, in samples each way.
pub(super) const REACH: i8 = 7;

/// Writes the block of the previous picture so far to the right and down; beyond its edges, the edges.
pub(super) fn predict(previous: &Frame, place: Place, (dx, dy): (i8, i8), out: &mut [i32]) {
    let n = place.side();
    let clamp =
        |v: usize, d: i8, i: usize, end: usize| (v + i).saturating_add_signed(isize::from(d)).min(end - 1);
    for (j, row) in out[..n * n].chunks_exact_mut(n).enumerate() {
        let y = clamp(place.y, dy, j, previous.height());
        for (i, to) in row.iter_mut().enumerate() {
            *to = i32::from(previous.at(clamp(place.x, dx, i, previous.width()), y));
        }
    }
}

/// The displacement within reach of least absolute difference, short ones first among equals.
pub(super) fn search(previous: &Frame, place: Place, original: &[i32]) -> (i8, i8) {
    let n = place.side();
    let mut block = [0i32; super::transform::MAX_AREA];
    let mut best = (u32::MAX, 0, (0, 0));
    for dy in -REACH..=REACH {
        for dx in -REACH..=REACH {
            predict(previous, place, (dx, dy), &mut block);
            let difference: u32 = original.iter().zip(&block[..n * n]).map(|(a, b)| a.abs_diff(*b)).sum();
            let length = dx.unsigned_abs() + dy.unsigned_abs();
            if (difference, length) < (best.0, best.1) {
                best = (difference, length, (dx, dy));
            }
        }
    }
    best.2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_is_found() {
        let value = |x: usize, y: usize| ((x * x * 31 + y * y * 17 + x * y * 7) % 251) as u16;
        let frame = Frame::of(40, 40, 8, |x, y| value(x, y));
        let place = Place { x: 12, y: 16, log2: 3 };
        for (dx, dy) in [(0, 0), (3, -5), (-7, 7)] {
            let shifted = |v: usize, d: i8| v.checked_add_signed(isize::from(d)).unwrap();
            let original: Vec<i32> =
                (0..64).map(|i| i32::from(value(shifted(12 + i % 8, dx), shifted(16 + i / 8, dy)))).collect();
            assert_eq!(search(&frame, place, &original), (dx, dy));
            let mut out = [0; 64];
            predict(&frame, place, (dx, dy), &mut out);
            assert_eq!(out[..], original);
        }
    }

    #[test]
    fn edges_continue() {
        let frame = Frame::of(8, 8, 8, |x, y| (10 * y + x) as u16);
        let mut out = [0; 16];
        predict(&frame, Place { x: 0, y: 4, log2: 2 }, (-3, 7), &mut out);
        assert_eq!(out[..4], [70, 70, 70, 70]);
        predict(&frame, Place { x: 4, y: 0, log2: 2 }, (7, -7), &mut out);
        assert_eq!(out[..4], [7, 7, 7, 7]);
    }
}
