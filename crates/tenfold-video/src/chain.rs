//! The transforms before samples are made and behind them: whole rows, in f64, some rows at a time.
//!
//! Normative: docs/format.md, 'Transforms'.

use rayon::prelude::*;
use tenfold::prepare::Transform;

/// Values worked on at a time.
const PIECE: usize = 1 << 16;

fn width_of(transforms: &[Transform], cols: usize) -> usize {
    transforms.iter().fold(cols, |cols, transform| transform.width(cols))
}

/// Does a chain to whole rows; also returns the squared error that no codec behind can make good, because a basis has fewer
/// vectors than rows have columns.
pub(crate) fn forward(transforms: &[Transform], values: Vec<f64>, cols: usize) -> (Vec<f64>, f64) {
    if transforms.is_empty() || values.is_empty() {
        return (values, 0.0);
    }
    let rows = rows_of_piece(cols);
    let piece = |(i, part): (usize, &[f64])| {
        let (mut part, mut width, mut lost) = (part.to_vec(), cols, 0.0);
        for transform in transforms {
            let before = if transform.width(width) < width { part.clone() } else { Vec::new() };
            transform.forward(&mut part, width, i * rows);
            if !before.is_empty() {
                lost += lost_by(transform, &before, &part, width, i * rows);
            }
            width = transform.width(width);
        }
        (part, lost)
    };
    let parts: Vec<(Vec<f64>, f64)> = values.par_chunks(rows * cols).enumerate().map(piece).collect();
    let lost = parts.iter().map(|part| part.1).sum();
    (parts.into_iter().flat_map(|part| part.0).collect(), lost)
}

/// The squared error of rows that come back as good as they can. A basis says so itself from the power of its coordinates, but its
/// vectors are rounded, and a thousandth of the power is more than some goals allow.
fn lost_by(transform: &Transform, before: &[f64], behind: &[f64], cols: usize, first: usize) -> f64 {
    let mut back = behind.to_vec();
    transform.inverse(&mut back, cols, first);
    before.iter().zip(&back).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Undoes a chain: `values` are whole rows as samples have them, the first of which is row `first` of the tensor, which has `cols`
/// columns.
pub(crate) fn inverse(transforms: &[Transform], values: Vec<f64>, cols: usize, first: usize) -> Vec<f64> {
    let width = width_of(transforms, cols);
    if transforms.is_empty() || values.is_empty() || width == 0 {
        return values;
    }
    let rows = rows_of_piece(cols);
    let piece = |(i, part): (usize, &[f64])| {
        let mut part = part.to_vec();
        undo(transforms, &mut part, cols, first + i * rows);
        // Only a forged blob leaves the range of numbers; what comes of that is finite all the same.
        part.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = 0.0);
        part
    };
    let parts: Vec<Vec<f64>> = values.par_chunks(rows * width).enumerate().map(piece).collect();
    parts.concat()
}

fn undo(transforms: &[Transform], values: &mut Vec<f64>, cols: usize, first: usize) {
    if let Some((transform, rest)) = transforms.split_first() {
        undo(rest, values, transform.width(cols), first);
        transform.inverse(values, cols, first);
    }
}

fn rows_of_piece(cols: usize) -> usize {
    (PIECE / cols.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tenfold::prepare::{Axis, Basis, Dct, Hadamard, Means, Rotation, Weights};

    #[test]
    fn rows_come_back_wherever_they_start() {
        let (rows, cols) = (3000, 64);
        let values: Vec<f64> = (0..rows * cols).map(|i| (i as f64 * 0.7).sin() + (i % cols) as f64).collect();
        let unit = |k: usize| (0..cols).map(move |c| if c == k { 1.0 } else { 0.0 });
        let vectors: Vec<f32> = (0..cols).rev().flat_map(unit).collect();
        let basis = Arc::new(Basis::orthonormal(&vec![0.25; cols], &vectors).unwrap());
        let weights = (0..rows).map(|r| (r % 40) as i8 - 20).collect();
        let chain = [
            Transform::Means(Means::measure(&values, cols)),
            Transform::Weights(Weights::new(Axis::Rows, weights)),
            Transform::Basis(Rotation::named(&basis)),
            Transform::Hadamard(Hadamard::new(4, 3).unwrap()),
            Transform::Dct(Dct::new(3).unwrap()),
        ];
        let (there, lost) = forward(&chain, values.clone(), cols);
        assert!(lost < 1e-6 && there.iter().zip(&values).any(|(a, b)| (a - b).abs() > 1.0));
        for first in [0, 1, 1500] {
            let back = inverse(&chain, there[first * cols..].to_vec(), cols, first);
            assert!(back.iter().zip(&values[first * cols..]).all(|(a, b)| (a - b).abs() < 1e-4), "{first}");
        }
    }

    #[test]
    fn what_a_short_basis_leaves_out_is_told() {
        let basis = Arc::new(Basis::orthonormal(&[0.0; 2], &[1.0, 0.0]).unwrap());
        let chain = [Transform::Basis(Rotation::named(&basis))];
        let (there, lost) = forward(&chain, vec![1.0, 2.0, 3.0, 4.0], 2);
        assert_eq!(there, [1.0, 3.0]);
        assert!((lost - 20.0).abs() < 1e-9, "{lost}");
        assert_eq!(inverse(&chain, there, 2, 0), [1.0, 0.0, 3.0, 0.0]);
        assert_eq!(forward(&chain, Vec::new(), 2), (Vec::new(), 0.0));
        assert!(inverse(&chain, Vec::new(), 2, 0).is_empty());
    }
}
