//! The rotation before a quantiser: random signs for the columns, then an orthonormal Hadamard transform
//! of each row in blocks. It spreads outliers over their block. One round makes the magnitudes of a row
//! alike, which suits a uniform quantiser; after a second even a single outlier looks Gaussian.

use tenfold::prepare::Hadamard;

use super::super::PeerError;

/// Largest block, 4096 columns: larger ones would only cost time.
const LOG2: u8 = 12;

/// Rotates each row of `row` values so many times.
pub(super) fn forward(values: &mut [f64], row: usize, rounds: u32) -> Result<(), PeerError> {
    for seed in 1..=rounds {
        Hadamard::new(LOG2, seed)?.forward(values, row);
    }
    Ok(())
}

/// Undoes [`forward`].
pub(super) fn inverse(values: &mut [f64], row: usize, rounds: u32) -> Result<(), PeerError> {
    for seed in (1..=rounds).rev() {
        Hadamard::new(LOG2, seed)?.inverse(values, row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_back_and_two_make_an_outlier_gaussian() {
        let mut values = vec![0.0; 2 * 1024];
        values[5] = 32.0;
        values[1030] = 32.0;
        let (before, mut once) = (values.clone(), values.clone());
        forward(&mut once, 1024, 1).unwrap();
        assert!(once.iter().all(|v| (v.abs() - 1.0).abs() < 1e-12));
        // A Gaussian has a fourth moment of 3.
        forward(&mut values, 1024, 2).unwrap();
        let fourth = values.iter().map(|v| v.powi(4)).sum::<f64>() / 2048.0;
        assert!((fourth - 3.0).abs() < 0.6, "{fourth}");
        inverse(&mut values, 1024, 2).unwrap();
        assert!(before.iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-9));
    }
}
