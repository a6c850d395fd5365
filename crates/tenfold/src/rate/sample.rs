//! A sample of a tensor: windows of neighbouring values, spread evenly.

use crate::blob::{Geometry, TileRange};
use crate::simd::Isa;
use crate::simd::wide::WIDTH;
use crate::view::{TensorView, load_scaled};

/// Ticks of a window; a window is searched like a small tile of [`WIDTH`] lanes.
const TICKS: usize = 128;
/// Values of a window.
pub(crate) const WINDOW: usize = WIDTH * TICKS;

/// Windows of a tensor.
pub(crate) struct Sample {
    pub windows: Vec<TileRange>,
    pub values: usize,
}

impl Sample {
    /// How windows are dealt to lanes.
    pub(crate) const GEOMETRY: Geometry = Geometry { lanes: WIDTH, ticks: TICKS };

    /// About `want` values out of `n`, but all of a tensor that is not much larger.
    pub(crate) fn new(n: usize, want: usize) -> Sample {
        let windows = n.div_ceil(WINDOW);
        let take = if n <= want * 2 { windows } else { want.div_ceil(WINDOW).min(windows) };
        let windows: Vec<TileRange> = (0..take)
            .map(|i| {
                // The middle of the i-th of `take` equal parts, in whole windows.
                let start = (i * windows + windows / 2) / take * WINDOW;
                TileRange { start, len: WINDOW.min(n - start) }
            })
            .collect();
        let values = windows.iter().map(|w| w.len).sum();
        Sample { windows, values }
    }

    /// Every n-th window, about `want` values in all.
    pub(crate) fn thin(&self, want: usize) -> Sample {
        let stride = (self.values / want.max(1)).max(1);
        let windows: Vec<TileRange> = self.windows.iter().step_by(stride).copied().collect();
        let values = windows.iter().map(|w| w.len).sum();
        Sample { windows, values }
    }

    /// At most `most` of the sampled values, in units, with their positions; values that are not finite count as zero.
    pub(crate) fn load(&self, view: &TensorView<'_>, isa: Isa, unit: f64, most: usize) -> Vec<(usize, f32)> {
        let size = view.dtype().size();
        let stride = self.windows.len().div_ceil(most.div_ceil(WINDOW)).max(1);
        let mut out = Vec::new();
        let mut buffer = [0f32; WINDOW];
        for w in self.windows.iter().step_by(stride) {
            let buffer = &mut buffer[..w.len];
            load_scaled(isa, view.dtype(), &view.data()[w.start * size..][..w.len * size], unit, buffer);
            out.extend(
                buffer.iter().enumerate().map(|(i, &v)| (w.start + i, if v.is_finite() { v } else { 0.0 })),
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_and_small_tensors_are_taken_whole() {
        let all = Sample::new(10_000, 8192);
        assert_eq!(all.values, 10_000);
        let some = Sample::new(1 << 24, 1 << 17);
        assert_eq!(some.values, 1 << 17);
        let last = some.windows.last().unwrap();
        assert!(last.start + last.len <= 1 << 24 && last.start > (1 << 24) * 9 / 10);
        assert!(some.windows.windows(2).all(|w| w[0].start + w[0].len <= w[1].start));
        assert_eq!(Sample::new(0, 100).values, 0);
    }
}
