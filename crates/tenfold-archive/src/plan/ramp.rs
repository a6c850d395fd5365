//! Bits by layer: `bits = slope · layer + base`, with the base that meets the average.

use tenfold::Goal;
use tenfold::engine::search::{EXACT, halve};

use super::Action;
use crate::model::Item;
use crate::safetensors::codec_dtype;

/// Fewest bits that a ramp asks of a tensor.
const MIN_BITS: f64 = 0.1;

/// Number of a tensor's layer: the first part of its dotted name that is all digits.
pub(crate) fn layer(name: &str) -> Option<u32> {
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    name.split('.').find(digits).and_then(|part| part.parse().ok())
}

/// Sets the goals of the tensors that share the budget. Those without a layer get the average itself.
pub(crate) fn apply(items: &[Item], actions: &mut [Action], slope: f64, target: f64) {
    let shared: Vec<(usize, Point)> = (0..items.len())
        .filter(|&i| actions[i].is_shared())
        .filter_map(|i| {
            let most = codec_dtype(items[i].dtype).map_or(64.0, |dtype| dtype.size() as f64 * 8.0);
            let layer = f64::from(layer(&items[i].name)?);
            Some((i, Point { layer, weight: items[i].values() as f64, most }))
        })
        .collect();
    let points: Vec<Point> = shared.iter().map(|(_, point)| *point).collect();
    let base = solve(&points, slope, target);
    for (i, point) in shared {
        if let Action::Encode { goal, .. } = &mut actions[i] {
            *goal = Goal::Bits(point.bits(slope, base));
        }
    }
}

#[derive(Clone, Copy)]
struct Point {
    layer: f64,
    /// Values of the tensor.
    weight: f64,
    /// Bits of its dtype.
    most: f64,
}

impl Point {
    fn bits(&self, slope: f64, base: f64) -> f64 {
        (slope * self.layer + base).clamp(MIN_BITS, self.most)
    }
}

/// The base at which the weighted mean is `target`; the mean rises with the base, clamped or not. A target out of reach gives
/// the nearest mean there is.
fn solve(points: &[Point], slope: f64, target: f64) -> f64 {
    let total: f64 = points.iter().map(|p| p.weight).sum();
    let mean = |base: f64| points.iter().map(|p| p.weight * p.bits(slope, base)).sum::<f64>() / total;
    let reach = points.iter().map(|p| (slope * p.layer).abs()).fold(0.0, f64::max) + 128.0;
    halve(-reach, reach, EXACT, -target, |base| -mean(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_found_in_names() {
        assert_eq!(layer("model.layers.12.mlp.down_proj.weight"), Some(12));
        assert_eq!(layer("h.0.attn.weight"), Some(0));
        assert_eq!(layer("blk.7.experts.3.w1"), Some(7));
        assert_eq!(layer("lm_head.weight"), None);
        assert_eq!(layer("conv1.weight"), None);
        assert_eq!(layer("a.99999999999999999999.b"), None);
    }

    fn mean(points: &[Point], slope: f64, base: f64) -> f64 {
        let total: f64 = points.iter().map(|p| p.weight).sum();
        points.iter().map(|p| p.weight * p.bits(slope, base)).sum::<f64>() / total
    }

    #[test]
    fn the_average_is_met_with_and_without_clamping() {
        let points: Vec<Point> = (0..24)
            .map(|l| Point { layer: f64::from(l), weight: 1e6 + 1e5 * f64::from(l % 5), most: 16.0 })
            .collect();
        for (slope, target) in [(0.05, 3.0), (-0.05, 3.0), (0.5, 2.0), (-1.0, 2.0), (0.0, 4.0), (3.0, 1.0)] {
            let base = solve(&points, slope, target);
            assert!((mean(&points, slope, base) - target).abs() < 1e-9, "slope {slope}, target {target}");
            assert!(points.iter().all(|p| p.bits(slope, base) >= MIN_BITS));
        }
    }
}
