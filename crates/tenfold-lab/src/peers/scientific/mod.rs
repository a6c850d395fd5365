//! Compressors of scientific arrays: they expect smooth fields, and promise bounds on the error.

mod sz3;
mod zfp;

pub use sz3::Sz3;
pub use zfp::{Zfp, ZfpMode};

/// A shape of at most three dimensions above 1, with the same rows: leading dimensions are merged.
fn fold_shape(shape: &[usize]) -> Vec<usize> {
    let mut dims: Vec<usize> = shape.iter().copied().filter(|&d| d != 1).collect();
    while dims.len() > 3 {
        let first = dims.remove(0);
        dims[0] = dims[0].saturating_mul(first);
    }
    if dims.is_empty() {
        dims.push(1);
    }
    dims
}

/// Standard deviation, or where all values are the same their magnitude, so that a tolerance relative to it
/// is positive.
fn spread(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    let size = if deviation > 0.0 { deviation } else { mean.abs() };
    size.max(f64::from(f32::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fold_to_three_dimensions() {
        assert_eq!(fold_shape(&[]), [1]);
        assert_eq!(fold_shape(&[1, 1]), [1]);
        assert_eq!(fold_shape(&[1, 5, 1, 7]), [5, 7]);
        assert_eq!(fold_shape(&[2, 3, 5, 7, 11]), [30, 7, 11]);
        assert_eq!(fold_shape(&[0, 7]), [0, 7]);
    }

    #[test]
    fn spread_is_never_zero() {
        assert_eq!(spread(&[1.0, 3.0]), 1.0);
        assert_eq!(spread(&[-2.0, -2.0]), 2.0);
        assert!(spread(&[0.0]) > 0.0 && spread(&[]) > 0.0);
    }
}
