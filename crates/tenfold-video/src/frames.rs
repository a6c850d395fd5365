//! Rows × columns cut into pictures of one size.
//!
//! Values flow through the pictures in row-major order. Where the codec allows it a line of a picture is a
//! row of the tensor, so that columns stay columns; otherwise rows are cut or joined. What the last
//! picture has too much repeats the line above and costs next to nothing; it is at most 2 % of the samples
//! for tensors that are not tiny.

use crate::codec::{Abilities, Chroma};

/// Samples of a picture where there is a choice: enough that headers and adaptation cost nothing, few
/// enough that a tensor gives several pictures to code in parallel.
pub const TARGET_SAMPLES: usize = 1 << 20;
/// Share of the samples that may be padding before another width is looked for.
const MAX_PADDING: f64 = 0.02;

/// Size and number of the pictures that hold a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Samples of a line.
    pub width: usize,
    /// Lines of a picture.
    pub height: usize,
    /// Pictures.
    pub count: usize,
}

/// What sides a picture may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides {
    /// Smallest.
    pub min: usize,
    /// Largest.
    pub max: usize,
    /// Both are multiples of this.
    pub step: usize,
    /// Samples of a picture where there is a choice.
    pub target: usize,
}

impl Sides {
    /// What an encoder takes for a kind of picture.
    pub fn from_abilities(abilities: &Abilities, chroma: Chroma) -> Self {
        let step = if chroma == Chroma::Constant { 2 } else { 1 };
        Sides { min: abilities.min_side, max: abilities.max_side, step, target: TARGET_SAMPLES }
    }

    pub(crate) fn fits(self, side: usize) -> bool {
        (self.min..=self.max).contains(&side) && side.is_multiple_of(self.step)
    }

    /// The next side that fits, at or above `side`.
    fn round_up(self, side: usize) -> usize {
        side.max(self.min).next_multiple_of(self.step)
    }
}

impl Layout {
    /// Pictures for a tensor of rows × columns.
    pub fn new(rows: usize, cols: usize, sides: Sides) -> Layout {
        let values = rows.saturating_mul(cols).max(1);
        let natural = natural_width(cols.max(1), sides).map(|w| Layout::with_width(values, w, sides));
        if let Some(layout) = natural.filter(|l| l.padding(values) <= MAX_PADDING) {
            return layout;
        }
        // No line is a row: take the width that wastes least, the squarest of several.
        let target = sides.target.min(values).isqrt().max(sides.min);
        let widest = (2 * target).clamp(sides.min, sides.max);
        (sides.round_up(sides.min)..=widest)
            .filter(|&w| sides.fits(w))
            .map(|w| Layout::with_width(values, w, sides))
            .chain(natural)
            .min_by(|a, b| {
                let cost = |l: &Layout| (l.padding(values).max(0.002), l.width.abs_diff(target));
                cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal)
            })
            .unwrap_or(Layout {
                width: sides.round_up(sides.min),
                height: sides.round_up(sides.min),
                count: 1,
            })
    }

    fn with_width(values: usize, width: usize, sides: Sides) -> Layout {
        let lines = values.div_ceil(width);
        let most = (sides.target / width).clamp(sides.round_up(sides.min), sides.max & !1);
        let count = lines.div_ceil(most).max(1);
        Layout { width, height: sides.round_up(lines.div_ceil(count)), count: 1 }.repeat(values)
    }

    /// As many pictures as the values need.
    fn repeat(self, values: usize) -> Layout {
        Layout { count: values.div_ceil(self.width * self.height), ..self }
    }

    /// Samples of a picture.
    pub fn picture(&self) -> usize {
        self.width * self.height
    }

    /// Samples of all pictures.
    pub fn samples(&self) -> usize {
        self.picture() * self.count
    }

    /// Samples that hold no value, over the number of values.
    pub fn padding(&self, values: usize) -> f64 {
        self.samples() as f64 / values as f64 - 1.0
    }

    /// Picture `i`, cut out of the samples of the tensor and padded at its end.
    pub fn cut(&self, samples: &[u16], i: usize, middle: u16) -> Vec<u16> {
        let start = (i * self.picture()).min(samples.len());
        let end = (start + self.picture()).min(samples.len());
        let mut out = Vec::with_capacity(self.picture());
        out.extend_from_slice(&samples[start..end]);
        while out.len() < self.picture() {
            let above = out.len().checked_sub(self.width).map_or(middle, |at| out[at]);
            out.push(above);
        }
        out
    }
}

/// The width at which a line is a row, a whole part of one, or several of them.
fn natural_width(cols: usize, sides: Sides) -> Option<usize> {
    if sides.fits(cols) {
        return Some(cols);
    }
    if cols > sides.max {
        return (1..=cols.div_ceil(sides.min))
            .filter(|parts| cols.is_multiple_of(*parts))
            .map(|parts| cols / parts)
            .find(|&w| sides.fits(w));
    }
    let joined = sides.min.max(64).div_ceil(cols) * cols;
    (1..=sides.step.max(2)).map(|times| times * joined).find(|&w| sides.fits(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: [Sides; 4] = [
        Sides { min: 16, max: 8192, step: 1, target: TARGET_SAMPLES },
        Sides { min: 32, max: 8192, step: 1, target: TARGET_SAMPLES },
        Sides { min: 16, max: 4096, step: 2, target: TARGET_SAMPLES },
        Sides { min: 160, max: 4096, step: 2, target: TARGET_SAMPLES },
    ];

    #[test]
    fn padding_is_at_most_two_percent() {
        let shapes = [
            (2048, 384),
            (384, 1536),
            (1024, 576),
            (10_000, 200),
            (7, 100_000),
            (1, 1 << 20),
            (1 << 20, 1),
            (4097, 4099),
            (8, 4096),
            (65, 63),
            (30_522, 384),
            (1, 40_009),
            (128_256, 4096),
            (3, 14_336),
            (1_000_003, 1),
            (577, 577),
            (4096, 30_003),
            (50_257, 768),
        ];
        for (rows, cols) in shapes {
            for sides in SIDES {
                let l = Layout::new(rows, cols, sides);
                let values = rows * cols;
                assert!(sides.fits(l.width) && sides.fits(l.height), "{rows}×{cols}: {l:?}");
                assert!((l.count - 1) * l.picture() < values && l.samples() >= values, "{l:?}");
                let tiny = values < 8 * sides.min * sides.min;
                assert!(
                    tiny || l.padding(values) <= 0.02,
                    "{rows}×{cols} {sides:?}: {l:?} {}",
                    l.padding(values)
                );
            }
        }
    }

    #[test]
    fn rows_stay_lines_where_they_can() {
        for (rows, cols, width) in
            [(1024, 576, 576), (64, 14_336, 7168), (4096, 20, 80), (30_000, 8192, 8192)]
        {
            assert_eq!(Layout::new(rows, cols, SIDES[1]).width, width);
        }
    }

    #[test]
    fn values_come_back_in_order() {
        for (rows, cols) in [(70, 65), (3, 5), (5000, 64), (1, 1), (2000, 3000)] {
            let samples: Vec<u16> = (0..rows * cols).map(|i| i as u16).collect();
            let l = Layout::new(rows, cols, SIDES[1]);
            let pictures: Vec<u16> = (0..l.count).flat_map(|i| l.cut(&samples, i, 128)).collect();
            assert_eq!(pictures.len(), l.samples());
            assert_eq!(pictures[..samples.len()], samples);
        }
    }
}
