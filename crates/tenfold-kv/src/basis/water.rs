//! Reverse water-filling: how a Gaussian source of many variances shares out its bits.
//!
//! Components above the level get ½·log2(variance / level) bits and an error of the level; those below get none.

/// Bits a value, over `cols` columns, at a level.
pub fn rate(variances: &[f64], cols: usize, level: f64) -> f64 {
    let bits = |v: &f64| if *v > level { 0.5 * (v / level).log2() } else { 0.0 };
    variances.iter().map(bits).sum::<f64>() / cols.max(1) as f64
}

/// Squared error a value at a level.
pub fn distortion(variances: &[f64], cols: usize, level: f64) -> f64 {
    variances.iter().map(|v| v.min(level)).sum::<f64>() / cols.max(1) as f64
}

/// The level at which so many bits a value are spent; 0 if nothing varies.
///
/// ```
/// use tenfold_kv::basis::{level, rate};
/// let variances = [16.0, 1.0, 0.01];
/// let theta = level(&variances, 3, 1.0);
/// assert!((rate(&variances, 3, theta) - 1.0).abs() < 1e-9);
/// ```
pub fn level(variances: &[f64], cols: usize, bits: f64) -> f64 {
    let mut sorted: Vec<f64> = variances.iter().copied().filter(|v| *v > 0.0).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    // With the k largest above the level, the level's logarithm follows from their sum.
    let mut sum = 0.0;
    let mut found = 0.0;
    for (k, v) in sorted.iter().enumerate() {
        sum += v.log2();
        found = ((sum - 2.0 * bits * cols as f64) / (k + 1) as f64).exp2();
        if sorted.get(k + 1).is_none_or(|next| *next <= found) {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_spend_the_bits_they_were_asked_for() {
        let variances: Vec<f64> = (0..50).map(|k| (-f64::from(k) * 0.4).exp()).collect();
        for bits in [0.01, 0.5, 2.0, 8.0] {
            let theta = level(&variances, 60, bits);
            assert!((rate(&variances, 60, theta) - bits).abs() < 1e-9, "{bits}");
        }
        assert_eq!(level(&[0.0, 0.0], 2, 1.0), 0.0);
        // Two equal variances: D = σ²·2^(−2R).
        assert!((distortion(&[4.0, 4.0], 2, level(&[4.0, 4.0], 2, 1.0)) - 1.0).abs() < 1e-12);
    }
}
