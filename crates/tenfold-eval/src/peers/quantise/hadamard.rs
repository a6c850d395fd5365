//! The rotation before a quantiser: random signs for the columns, then an orthonormal Hadamard transform
//! of each row in blocks. It spreads outliers over their block. One round makes the magnitudes of a row
//! alike, which suits a uniform quantiser; after a second even a single outlier looks Gaussian.

/// Largest block. Longer rows would only cost time.
const MOST: usize = 4096;

/// Seed of the signs: part of the format of these peers, since a decoder must repeat them.
const SEED: u64 = 0x7465_6e66_6f6c_6421;

/// Rotates each row of `row` values so many times; the last row may be shorter.
pub(super) fn forward(values: &mut [f64], row: usize, rounds: u64) {
    for round in 0..rounds {
        let signs = signs(row.min(values.len()), round);
        for line in values.chunks_mut(row) {
            line.iter_mut().zip(&signs).for_each(|(v, s)| *v *= s);
            transform(line);
        }
    }
}

/// Undoes [`forward`].
pub(super) fn inverse(values: &mut [f64], row: usize, rounds: u64) {
    for round in (0..rounds).rev() {
        let signs = signs(row.min(values.len()), round);
        for line in values.chunks_mut(row) {
            transform(line); // its own inverse
            line.iter_mut().zip(&signs).for_each(|(v, s)| *v *= s);
        }
    }
}

/// Splits a row of any length into blocks of powers of two, largest first, and transforms each.
fn transform(mut line: &mut [f64]) {
    while !line.is_empty() {
        let len = MOST.min(1 << line.len().ilog2());
        let (block, rest) = line.split_at_mut(len);
        butterflies(block);
        line = rest;
    }
}

fn butterflies(block: &mut [f64]) {
    let mut half = 1;
    while half < block.len() {
        for pair in block.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (x, y) in a.iter_mut().zip(b) {
                (*x, *y) = (*x + *y, *x - *y);
            }
        }
        half *= 2;
    }
    let norm = 1.0 / (block.len() as f64).sqrt();
    block.iter_mut().for_each(|v| *v *= norm);
}

/// ±1 for each column from a counter hashed by splitmix64, which needs no state.
fn signs(n: usize, round: u64) -> Vec<f64> {
    let sign = |i: u64| {
        let mut z = (SEED ^ round << 32).wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (z ^ (z >> 31)) & 1 == 0 { 1.0 } else { -1.0 }
    };
    (0..n as u64).map(sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_length_come_back_and_keep_their_energy() {
        for (n, row) in [(1, 1), (7, 7), (96, 33), (100, 33), (3 * 576, 576), (9000, 9000)] {
            let values: Vec<f64> = (0..n).map(|i| f64::from(i * i % 101) - 50.0).collect();
            for rounds in [1, 2] {
                let mut turned = values.clone();
                forward(&mut turned, row, rounds);
                let energy = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
                assert!((energy(&turned) / energy(&values) - 1.0).abs() < 1e-12);
                inverse(&mut turned, row, rounds);
                assert!(
                    values.iter().zip(&turned).all(|(a, b)| (a - b).abs() < 1e-9),
                    "{n} in rows of {row}"
                );
            }
        }
    }

    #[test]
    fn an_outlier_is_spread() {
        let mut values = vec![0.0; 1024];
        values[5] = 32.0;
        let mut again = values.clone();
        forward(&mut values, 1024, 1);
        assert!(values.iter().all(|v| (v.abs() - 1.0).abs() < 1e-12));
        // A Gaussian has a fourth moment of 3.
        forward(&mut again, 1024, 2);
        let fourth = again.iter().map(|v| v.powi(4)).sum::<f64>() / 1024.0;
        assert!((fourth - 3.0).abs() < 0.6, "{fourth}");
    }

    #[test]
    fn signs_are_about_even_and_differ_by_round() {
        let sum: f64 = signs(10_000, 0).iter().sum();
        assert!(sum.abs() < 400.0 && signs(4, 0) == signs(9, 0)[..4], "{sum}");
        let both: f64 = signs(10_000, 0).iter().zip(signs(10_000, 1)).map(|(a, b)| a * b).sum();
        assert!(both.abs() < 400.0, "{both}");
    }
}
