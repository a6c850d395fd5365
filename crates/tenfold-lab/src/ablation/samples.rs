//! Values as samples of pictures and back.

/// Clips tried, as parts of the largest distance from the centre: 2^(−i/8).
const CLIPS: i32 = 65;

/// sample = (value − centre)·scale + middle, clipped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mapping {
    centre: f32,
    scale: f32,
    depth: u8,
}

impl Mapping {
    /// Bytes of a mapping.
    pub const BYTES: usize = 8;

    /// The mapping around the mean whose rounding and clipping together err least.
    pub fn choose(values: &[f64], depth: u8) -> Self {
        let centre = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let largest = values.iter().fold(0f64, |m, v| m.max((v - centre).abs()));
        let half = f64::from(1u16 << (depth - 1)) - 1.0;
        let mapping = |clip: f64| {
            // A constant tensor, or one below the range of f32, has no use for a scale.
            let scale = Some((half / clip) as f32).filter(|s| s.is_finite()).unwrap_or(1.0);
            Mapping { centre: centre as f32, scale, depth }
        };
        let clips = (0..CLIPS).map(|i| largest * 2f64.powf(-f64::from(i) / 8.0));
        let error = |m: &Mapping| values.iter().map(|&v| (v - m.value(m.sample(v))).powi(2)).sum::<f64>();
        let all = clips.map(mapping).map(|m| (error(&m), m));
        all.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(mapping(1.0), |best| best.1)
    }

    /// The sample of a value.
    pub fn sample(&self, value: f64) -> u16 {
        let top = f64::from((1u16 << self.depth) - 1);
        let scaled = (value - f64::from(self.centre)) * f64::from(self.scale) + self.middle();
        scaled.round().clamp(0.0, top) as u16
    }

    /// The value of a sample.
    pub fn value(&self, sample: u16) -> f64 {
        (f64::from(sample) - self.middle()) / f64::from(self.scale) + f64::from(self.centre)
    }

    fn middle(&self) -> f64 {
        f64::from(1u16 << (self.depth - 1))
    }

    /// As bytes.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.centre.to_le_bytes());
        out[4..].copy_from_slice(&self.scale.to_le_bytes());
        out
    }

    /// From bytes; the depth is the pictures'.
    pub fn from_bytes([a, b, c, d, e, f, g, h]: [u8; Self::BYTES], depth: u8) -> Self {
        Mapping { centre: f32::from_le_bytes([a, b, c, d]), scale: f32::from_le_bytes([e, f, g, h]), depth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use crate::synth::{self, Shape};

    #[test]
    fn samples_come_back_close() {
        let values: Vec<f64> =
            synth::values(Shape::Gaussian, 0.05, 1 << 14, 3).iter().map(|&v| f64::from(v) + 2.0).collect();
        for (depth, bound) in [(8, 1.5e-4), (12, 1e-6)] {
            let m = Mapping::choose(&values, depth);
            let back: Vec<f64> = values.iter().map(|&v| m.value(m.sample(v))).collect();
            let nmse = metrics::nmse(&values, &back);
            assert!(nmse < bound, "{depth}: {nmse}");
            assert_eq!(Mapping::from_bytes(m.to_bytes(), depth), m);
        }
    }

    #[test]
    fn an_outlier_is_clipped_only_where_that_is_cheaper() {
        let mut values: Vec<f64> =
            synth::values(Shape::Gaussian, 1.0, 1 << 16, 3).iter().map(|&v| f64::from(v)).collect();
        values[7] = 8.0;
        let mild = Mapping::choose(&values, 8);
        assert!(mild.value(255) < 7.0, "{}", mild.value(255));
        values[7] = 1e5;
        let harsh = Mapping::choose(&values, 8);
        assert!(harsh.value(255) > 5e4, "{}", harsh.value(255));
    }

    #[test]
    fn constants_are_harmless() {
        let m = Mapping::choose(&[3.0; 100], 8);
        assert_eq!(m.value(m.sample(3.0)), 3.0);
    }
}
