//! Rows × columns cut into frames of one size.

/// Widest frame; wider rows are folded.
const MAX_WIDTH: usize = 4096;
/// Highest frame.
const MAX_HEIGHT: usize = 2304;
/// Width of folded rows.
const FOLD: usize = 1024;
/// The encoder refuses smaller pictures than its coding blocks.
const MIN_SIDE: usize = 64;

/// Size and number of the frames that hold a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Samples of a row.
    pub width: usize,
    /// Rows of a frame.
    pub height: usize,
    /// Frames.
    pub count: usize,
}

impl Geometry {
    /// Frames for a tensor of rows × columns. Rows stay rows where their length allows; otherwise
    /// values flow on at a fixed width. Padding is less than one row a frame, except in tiny tensors.
    pub fn of(rows: usize, cols: usize) -> Self {
        let values = rows * cols;
        let (width, rows) = if (MIN_SIDE..=MAX_WIDTH).contains(&cols) && rows >= MIN_SIDE {
            (cols, rows)
        } else {
            let width = if values >= FOLD * MIN_SIDE { FOLD } else { MIN_SIDE };
            (width, values.div_ceil(width))
        };
        let count = rows.div_ceil(MAX_HEIGHT).max(1);
        Geometry { width, height: rows.div_ceil(count).max(MIN_SIDE), count }
    }

    /// Samples of all frames.
    pub fn samples(&self) -> usize {
        self.width * self.height * self.count
    }

    /// Fills the frames; what is left over at the end repeats the last row, which costs next to nothing.
    pub fn lay_out(&self, samples: &[u16]) -> Vec<u16> {
        let mut out = samples.to_vec();
        out.reserve(self.samples().saturating_sub(samples.len()));
        for i in samples.len()..self.samples() {
            out.push(if i >= self.width { out[i - self.width] } else { 0 });
        }
        out
    }

    /// Takes the `n` values back out.
    pub fn collect(&self, samples: &[u16], n: usize) -> Vec<u16> {
        samples[..n.min(samples.len())].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_small() {
        for (rows, cols) in [(2048, 384), (384, 1536), (1024, 576), (10_000, 200), (7, 100_000), (1, 1 << 20)]
        {
            let g = Geometry::of(rows, cols);
            let waste = g.samples() as f64 / (rows * cols) as f64 - 1.0;
            assert!((0.0..0.02).contains(&waste), "{rows}×{cols}: {g:?}");
            assert!(g.width <= MAX_WIDTH && g.height <= MAX_HEIGHT);
        }
    }

    #[test]
    fn values_come_back_in_order() {
        for (rows, cols) in [(70, 65), (3, 5), (5000, 64)] {
            let samples: Vec<u16> = (0..rows * cols).map(|i| i as u16).collect();
            let g = Geometry::of(rows, cols);
            let laid = g.lay_out(&samples);
            assert_eq!(laid.len(), g.samples());
            assert_eq!(g.collect(&laid, samples.len()), samples);
        }
    }
}
