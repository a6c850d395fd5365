//! Where to clip: the range of samples that costs least squared error.

/// Size of a sample step such that rounding and clipping together cost least, for values of these
/// distances from the centre. 0 if all distances are 0. Reorders the distances.
pub(super) fn best_step(distances: &mut [f64], depth: u8) -> f64 {
    let half = half(depth);
    distances.sort_unstable_by(f64::total_cmp);
    let n = distances.len() as f64;
    let Some(&largest) = distances.last().filter(|&&m| m > 0.0) else {
        return 0.0;
    };
    // Candidates: the largest distance and what lies a geometric number of values below it.
    let mut best = (f64::INFINITY, largest / half);
    let (mut beyond, mut beyond_sq, mut next) = (0.0, 0.0, 0usize);
    for (above, &clip) in distances.iter().rev().enumerate() {
        if above >= next && clip > 0.0 {
            let clipped = beyond_sq - 2.0 * clip * beyond + above as f64 * clip * clip;
            let rounded = (clip / half).powi(2) / 12.0 * n;
            if clipped + rounded < best.0 {
                best = (clipped + rounded, clip / half);
            }
            next = next * 9 / 8 + 1;
        }
        if above as f64 > n / 8.0 {
            break;
        }
        beyond += clip;
        beyond_sq += clip * clip;
    }
    best.1
}

/// Size of a sample step that clips nothing.
pub(super) fn whole_step(distances: &[f64], depth: u8) -> f64 {
    distances.iter().fold(0.0, |a: f64, &b| a.max(b)) / half(depth)
}

/// Steps on either side of the middle.
fn half(depth: u8) -> f64 {
    f64::from(1u32 << (depth - 1)) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};

    #[test]
    fn one_outlier_is_clipped_when_that_is_cheaper() {
        let mut rng = rand::rngs::StdRng::seed_from_u64(3);
        let sizes: Vec<f64> =
            (0..1 << 16).map(|_| Distribution::<f64>::sample(&StandardNormal, &mut rng).abs()).collect();
        let plain = best_step(&mut sizes.clone(), 8);
        // ±4.3 σ over 256 levels or so.
        assert!((0.025..0.04).contains(&plain), "{plain}");
        let with = |outlier: f64| best_step(&mut [&sizes[..], &[outlier]].concat(), 8);
        assert!(with(6.0) < 1.25 * plain, "following it would cost more than clipping it");
        assert!(with(40_000.0) > 1000.0 * plain, "clipping this would cost everything");
        assert_eq!(best_step(&mut [0.0; 4], 8), 0.0);
        assert_eq!(whole_step(&[1.0, 254.0], 8), 2.0);
    }
}
