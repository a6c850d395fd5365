//! Prediction of a block from its decoded neighbours: planar, DC and 33 directions, as in H.265.
//!
//! The neighbours stand in one array that runs from the lower left corner up the left side, over the
//! corner, and along the top to the upper right. A direction projects each sample onto the left or the top
//! with a precision of 1/32 sample. H.265's smoothing of the neighbours is there; its extra filters along
//! the edges of DC, horizontal and vertical blocks are not.

use super::transform::MAX_SIDE;

/// Prediction modes.
pub(super) const MODES: u8 = 35;
/// A plane through the neighbours.
pub(super) const PLANAR: u8 = 0;
/// Their mean.
pub(super) const DC: u8 = 1;
/// Straight from the left.
pub(super) const HORIZONTAL: u8 = 10;
/// Straight from above.
pub(super) const VERTICAL: u8 = 26;

/// Displacement in 1/32 sample over one row (or column) of the directions from 2 to 18; those from 18 to 34
/// mirror them.
const ANGLES: [i32; 17] = [32, 26, 21, 17, 13, 9, 5, 2, 0, -2, -5, -9, -13, -17, -21, -26, -32];

/// The neighbours of a block of side n: `[0]` is the lowest on the left, `[2n]` the corner, `[4n]` the
/// rightmost on the top.
#[derive(Clone)]
pub(super) struct References {
    line: [i32; 4 * MAX_SIDE + 1],
    smooth: [i32; 4 * MAX_SIDE + 1],
    log2: u32,
}

impl References {
    /// From the line of neighbours; those that are not decoded are `None` and take the value of the one
    /// before, as H.265 does.
    pub fn new(log2: u32, depth: u8, neighbour: impl Fn(usize) -> Option<u16>) -> Self {
        let count = 4 * (1usize << log2) + 1;
        let mut line = [0; 4 * MAX_SIDE + 1];
        let mut last = (0..count).find_map(&neighbour).map_or(1 << (depth - 1), i32::from);
        for (i, to) in line[..count].iter_mut().enumerate() {
            last = neighbour(i).map_or(last, i32::from);
            *to = last;
        }
        let mut smooth = line;
        for i in 1..count - 1 {
            smooth[i] = (line[i - 1] + 2 * line[i] + line[i + 1] + 2) >> 2;
        }
        References { line, smooth, log2 }
    }

    /// Writes the prediction of a mode.
    pub fn predict(&self, mode: u8, out: &mut [i32]) {
        match mode {
            PLANAR => self.planar(out),
            DC => self.dc(out),
            _ => self.angular(mode, out),
        }
    }

    /// The line a mode reads: smoothed for large blocks and for directions off the axes.
    fn line_of(&self, mode: u8) -> &[i32; 4 * MAX_SIDE + 1] {
        let off_axis =
            if mode == PLANAR { 8 } else { mode.abs_diff(HORIZONTAL).min(mode.abs_diff(VERTICAL)) };
        let threshold = match self.log2 {
            3 => 7,
            4 => 1,
            5 => 0,
            _ => u8::MAX,
        };
        if off_axis > threshold { &self.smooth } else { &self.line }
    }

    fn planar(&self, out: &mut [i32]) {
        let n = 1usize << self.log2;
        let line = self.line_of(PLANAR);
        let (left, top) = (|y: usize| line[2 * n - 1 - y], |x: usize| line[2 * n + 1 + x]);
        let (below, right) = (left(n), top(n));
        for (y, row) in out[..n * n].chunks_exact_mut(n).enumerate() {
            for (x, to) in row.iter_mut().enumerate() {
                let across = (n - 1 - x) as i32 * left(y) + (x + 1) as i32 * right;
                let down = (n - 1 - y) as i32 * top(x) + (y + 1) as i32 * below;
                *to = (across + down + n as i32) >> (self.log2 + 1);
            }
        }
    }

    fn dc(&self, out: &mut [i32]) {
        let n = 1usize << self.log2;
        let sum: i32 = self.line[n..3 * n + 1].iter().sum::<i32>() - self.line[2 * n];
        out[..n * n].fill((sum + n as i32) >> (self.log2 + 1));
    }

    fn angular(&self, mode: u8, out: &mut [i32]) {
        let n = 1usize << self.log2;
        let line = self.line_of(mode);
        let from_top = mode >= 18;
        let angle = ANGLES[usize::from(if from_top { 34 - mode } else { mode - 2 })];
        // main[n + i] is the i-th neighbour along the side projected onto, the corner at i = 0.
        let mut main = [0i32; 3 * MAX_SIDE + 1];
        let along = |i: usize| if from_top { line[2 * n + i] } else { line[2 * n - i] };
        let other = |i: usize| if from_top { line[2 * n - i] } else { line[2 * n + i] };
        for i in 0..=2 * n {
            main[n + i] = along(i);
        }
        if angle < 0 {
            // Directions that pass the corner continue on the other side.
            let inverse = (8192 + angle.abs() / 2) / -angle;
            for i in 1..=(n as i32 * -angle) >> 5 {
                main[n - i as usize] = other(((i * inverse + 128) >> 8) as usize);
            }
        }
        for y in 0..n {
            let shift = (y as i32 + 1) * angle;
            let (whole, part) = (shift >> 5, shift & 31);
            let start = (n as i32 + 1 + whole) as usize;
            for x in 0..n {
                let a = main[start + x];
                // With no part to interpolate the sample beyond the last may lie outside the line.
                let value =
                    if part == 0 { a } else { ((32 - part) * a + part * main[start + x + 1] + 16) >> 5 };
                out[if from_top { y * n + x } else { x * n + y }] = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// References of a block at the origin of a plane that continues in all directions.
    fn from_plane(log2: u32, plane: impl Fn(i32, i32) -> i32) -> References {
        let n = 1i32 << log2;
        References::new(log2, 12, |i| {
            let i = i as i32;
            let (x, y) = if i <= 2 * n { (-1, 2 * n - 1 - i) } else { (i - 2 * n - 1, -1) };
            Some(plane(x, y) as u16)
        })
    }

    fn predicted(r: &References, mode: u8) -> Vec<i32> {
        let mut out = vec![0; 1 << (2 * r.log2)];
        r.predict(mode, &mut out);
        out
    }

    fn worst(r: &References, mode: u8, plane: impl Fn(i32, i32) -> i32) -> i32 {
        let n = 1usize << r.log2;
        let out = predicted(r, mode);
        let error = |i: usize| (out[i] - plane((i % n) as i32, (i / n) as i32)).abs();
        (0..n * n).map(error).max().unwrap_or(0)
    }

    #[test]
    fn every_mode_keeps_a_constant() {
        for log2 in 2..=5 {
            let r = from_plane(log2, |_, _| 77);
            for mode in 0..MODES {
                assert!(predicted(&r, mode).iter().all(|&v| v == 77), "{log2}: {mode}");
            }
        }
    }

    #[test]
    fn each_mode_is_exact_on_what_it_is_made_for() {
        for log2 in 2..=5 {
            let across = |x: i32, _: i32| 1000 + 10 * x;
            let down = |_: i32, y: i32| 1000 + 10 * y;
            assert_eq!(worst(&from_plane(log2, across), VERTICAL, across), 0);
            assert_eq!(worst(&from_plane(log2, down), HORIZONTAL, down), 0);
            // Constant along the diagonals: 34 looks up and right, 2 down and left, 18 up and left.
            let rising = |x: i32, y: i32| 1000 + 8 * (x + y);
            let falling = |x: i32, y: i32| 1000 + 8 * (x - y);
            // Smoothing rounds at the ends of the line, which a straight line is not otherwise changed by.
            for mode in [2, 34] {
                assert!(worst(&from_plane(log2, rising), mode, rising) <= 4, "{log2}: {mode}");
            }
            let corner = worst(&from_plane(log2, falling), 18, falling);
            assert!(corner <= 4, "{log2}: {corner}");
        }
    }

    #[test]
    fn shallow_directions_interpolate() {
        // 27 moves 2/32 of a sample to the right for each row down: constant along (2, −32).
        let slanted = |x: i32, y: i32| 1000 + 32 * x + 2 * y;
        for log2 in 2..=4 {
            assert_eq!(worst(&from_plane(log2, slanted), 27, slanted), 0, "{log2}");
            let mirrored = |x: i32, y: i32| slanted(y, x);
            assert_eq!(worst(&from_plane(log2, mirrored), 9, mirrored), 0, "{log2}");
        }
        // 25 leans the other way and reads past the corner.
        let leaning = |x: i32, y: i32| 2000 + 32 * x - 2 * y;
        assert!(worst(&from_plane(3, leaning), 25, leaning) <= 16);
    }

    #[test]
    fn planar_follows_a_slope_and_dc_the_mean() {
        let slope = |x: i32, y: i32| 1000 + 6 * x + 4 * y;
        for log2 in 2..=5 {
            let r = from_plane(log2, slope);
            let n = 1 << log2;
            // The lower right corner is the mean of the ends of both sides, the upper left nearly the plane.
            let planar = predicted(&r, PLANAR);
            let last = 1000 + 5 * n - 5;
            assert!(
                (planar[planar.len() - 1] - last).abs() <= 1,
                "{log2}: {} for {last}",
                planar[planar.len() - 1]
            );
            assert!((planar[0] - 1000).abs() <= 5, "{log2}: {}", planar[0]);
            let dc = predicted(&r, DC)[0];
            // Mean over the left column (x = −1) and the top row (y = −1).
            let mean = 1000.0 + 5.0 * f64::from(n - 1) / 2.0 - 5.0;
            assert!((f64::from(dc) - mean).abs() <= 1.0, "{log2}: {dc} for {mean}");
        }
    }

    #[test]
    fn missing_neighbours_take_the_one_before() {
        let none = References::new(3, 10, |_| None);
        assert!(none.line[..33].iter().all(|&v| v == 512));
        let some = References::new(2, 8, |i| (i == 5 || i == 9).then_some(10 * i as u16));
        assert_eq!(some.line[..17], [50, 50, 50, 50, 50, 50, 50, 50, 50, 90, 90, 90, 90, 90, 90, 90, 90]);
    }
}
