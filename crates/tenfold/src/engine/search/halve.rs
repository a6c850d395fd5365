//! Halving an interval, for quantities so cheap that nothing cleverer pays.

/// Halvings that reduce any useful interval to the precision of a number.
pub const EXACT: usize = 100;

/// Where `falls` passes `want` between two ends; the nearer end if it does not.
///
/// ```
/// let root = tenfold::engine::search::halve(0.0, 10.0, tenfold::engine::search::EXACT, 2.0, |x| 5.0 - x);
/// assert!((root - 3.0).abs() < 1e-12);
/// ```
pub fn halve(mut low: f64, mut high: f64, times: usize, want: f64, falls: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..times {
        let middle = (low + high) / 2.0;
        if falls(middle) > want { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// log2 of the step at which Gaussians together meet a rate, each given by log2 of its root mean square and its weight:
/// the default start of a search.
pub fn gaussian_step(scales: &[(f64, f64)], bits: f64) -> f64 {
    // Entropy of a Gaussian in cells of two steps: log2(rms) + log2(2πe)/2 − 1 − log2(step).
    const OFFSET: f64 = 1.05;
    // Beyond any scale by more than a number has bits.
    const FAR: f64 = 64.0;
    let total: f64 = scales.iter().map(|(_, weight)| weight).sum();
    let mean = |x: f64| scales.iter().map(|(s, w)| w * (s - x + OFFSET).max(0.0)).sum::<f64>() / total;
    let ends = scales.iter().fold((0.0f64, 0.0f64), |(lo, hi), (s, _)| (lo.min(*s), hi.max(*s)));
    halve(ends.0 - FAR, ends.1 + FAR, EXACT, bits, mean)
}
