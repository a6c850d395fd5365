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

/// The displacement within reach of least absolute difference, short ones first among equals. Displacements
/// that leave the picture are not looked at.
pub(super) fn search(previous: &Frame, place: Place, original: &[i32]) -> (i8, i8) {
    let mut best = (u32::MAX, 0, (0, 0));
    for dy in -REACH..=REACH {
        for dx in -REACH..=REACH {
            let moved = |v: usize, d: i8| v.checked_add_signed(isize::from(d));
            let Some((x, y)) = moved(place.x, dx).zip(moved(place.y, dy)) else { continue };
            let there = Place { x, y, ..place };
            if previous.holds(there) {
                let found = (difference(previous, there, original), dx.unsigned_abs() + dy.unsigned_abs());
                if found < (best.0, best.1) {
                    best = (found.0, found.1, (dx, dy));
                }
            }
        }
    }
    best.2
}

fn difference(previous: &Frame, place: Place, original: &[i32]) -> u32 {
    let rows = original.chunks_exact(place.side()).enumerate();
    let row = |(j, row): (usize, &[i32])| {
        let there = previous.row(place, j);
        row.iter().zip(there).map(|(a, &b)| a.abs_diff(i32::from(b))).sum::<u32>()
    };
    rows.map(row).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_is_found() {
        let value = |x: usize, y: usize| ((x * x * 31 + y * y * 17 + x * y * 7) % 251) as u16;
        let frame = Frame::from_fn(40, 40, 8, value);
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
        let frame = Frame::from_fn(8, 8, 8, |x, y| (10 * y + x) as u16);
        let mut out = [0; 16];
        predict(&frame, Place { x: 0, y: 4, log2: 2 }, (-3, 7), &mut out);
        assert_eq!(out[..4], [70, 70, 70, 70]);
        predict(&frame, Place { x: 4, y: 0, log2: 2 }, (7, -7), &mut out);
        assert_eq!(out[..4], [7, 7, 7, 7]);
    }
}
