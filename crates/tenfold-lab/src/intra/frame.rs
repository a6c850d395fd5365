//! What of a picture is decoded, and how a block is added to it.
//!
//! A frame is the picture in whole units of 4 by 4 samples. The decoder has one; the encoder has one for
//! what it has written, which must come out the same, and one to try things in.

use super::block::{Beside, Kind, Place};
use super::motion;
use super::picture::Picture;
use super::predict::References;
use super::quantise::Step;
use super::settings::Stages;
use super::transform::{self, MAX_AREA};

/// A picture in the making.
#[derive(Clone)]
pub(super) struct Frame {
    width: usize,
    height: usize,
    depth: u8,
    samples: Vec<u16>,
    /// Kind of the block that covers each unit; `None` where nothing is decoded yet.
    units: Vec<Option<Kind>>,
}

impl Frame {
    /// A frame of nothing, for pictures of this size.
    pub fn empty(width: usize, height: usize, depth: u8) -> Self {
        let (width, height) = (width.next_multiple_of(4), height.next_multiple_of(4));
        let units = vec![None; width / 4 * (height / 4)];
        Frame { width, height, depth, samples: vec![0; width * height], units }
    }

    /// A frame with these samples, nothing decoded.
    pub fn from_fn(width: usize, height: usize, depth: u8, sample: impl Fn(usize, usize) -> u16) -> Self {
        let mut frame = Frame::empty(width, height, depth);
        for y in 0..frame.height {
            for x in 0..frame.width {
                frame.samples[y * frame.width + x] = sample(x, y);
            }
        }
        frame
    }

    /// The picture of this size at the upper left.
    pub fn to_picture(&self, width: usize, height: usize) -> Result<Picture, super::IntraError> {
        let rows = self.samples.chunks_exact(self.width).take(height);
        Picture::new(width, height, self.depth, rows.flat_map(|row| row[..width].iter().copied()).collect())
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn height(&self) -> usize {
        self.height
    }

    pub fn at(&self, x: usize, y: usize) -> u16 {
        self.samples[y * self.width + x]
    }

    /// Whether any of a square lies in the frame.
    pub fn touches(&self, place: Place) -> bool {
        place.x < self.width && place.y < self.height
    }

    /// Whether all of it does.
    pub fn holds(&self, place: Place) -> bool {
        place.x + place.side() <= self.width && place.y + place.side() <= self.height
    }

    fn unit(&self, x: usize, y: usize) -> usize {
        y / 4 * (self.width / 4) + x / 4
    }

    /// Kinds to the left of and above the upper left corner of a block.
    pub fn beside(&self, place: Place) -> Beside {
        let kind = |dx: usize, dy: usize| {
            let (x, y) = (place.x.checked_sub(dx)?, place.y.checked_sub(dy)?);
            self.units[self.unit(x, y)]
        };
        [kind(1, 0), kind(0, 1)].map(|k| k.unwrap_or(Kind::Middle))
    }

    /// The neighbours of a block, as far as they are decoded.
    pub fn references(&self, place: Place) -> References {
        let n = place.side();
        References::new(place.log2, self.depth, |i| {
            // See References: from the lower left up, the corner at 2n, then to the right.
            let (x, y) = if i <= 2 * n {
                (place.x.checked_sub(1)?, (place.y + 2 * n - i).checked_sub(1)?)
            } else {
                (place.x + i - 2 * n - 1, place.y.checked_sub(1)?)
            };
            let inside = x < self.width && y < self.height;
            (inside && self.units[self.unit(x, y)].is_some()).then(|| self.at(x, y))
        })
    }

    /// Writes the prediction of a block.
    pub fn predict(&self, kind: Kind, place: Place, previous: Option<&Frame>, out: &mut [i32]) {
        match (kind, previous) {
            (Kind::Intra(mode), _) => self.references(place).predict(mode, out),
            (Kind::Inter(dx, dy), Some(previous)) => motion::predict(previous, place, (dx, dy), out),
            _ => out[..place.area()].fill(1 << (self.depth - 1)),
        }
    }

    /// The j-th row of a block within the frame.
    pub fn row(&self, place: Place, j: usize) -> &[u16] {
        &self.samples[(place.y + j) * self.width + place.x..][..place.side()]
    }

    /// Copies a block out.
    pub fn block(&self, place: Place, out: &mut [i32]) {
        let n = place.side();
        for (j, row) in out[..n * n].chunks_exact_mut(n).enumerate() {
            for (to, from) in row.iter_mut().zip(self.row(place, j)) {
                *to = i32::from(*from);
            }
        }
    }

    /// Puts a block in; samples are clipped to the depth.
    pub fn put(&mut self, place: Place, samples: &[i32]) {
        let n = place.side();
        let top = (1 << self.depth) - 1;
        for (j, row) in samples[..n * n].chunks_exact(n).enumerate() {
            let start = (place.y + j) * self.width + place.x;
            for (to, from) in self.samples[start..start + n].iter_mut().zip(row) {
                *to = (*from).clamp(0, top) as u16;
            }
        }
    }

    /// Notes that a block is decoded, and from what.
    pub fn mark(&mut self, place: Place, kind: Kind) {
        for y in (place.y..place.y + place.side()).step_by(4) {
            for x in (place.x..place.x + place.side()).step_by(4) {
                let unit = self.unit(x, y);
                self.units[unit] = Some(kind);
            }
        }
    }

    /// Samples of the largest value.
    pub fn top(&self) -> i32 {
        (1 << self.depth) - 1
    }
}

/// Adds to a prediction what the levels say. With every level zero the prediction stays.
pub(super) fn add_residual(samples: &mut [i32], levels: &[i32], place: Place, step: Step, stages: Stages) {
    if levels.iter().all(|&l| l == 0) {
        return;
    }
    let (mut coefficients, mut residual) = ([0i32; MAX_AREA], [0i32; MAX_AREA]);
    for (c, &level) in coefficients.iter_mut().zip(levels) {
        *c = step.dequantise(level, place.log2);
    }
    if stages.transform {
        transform::inverse(&coefficients, place.log2, &mut residual);
    } else {
        let bits = transform::fraction(place.log2);
        for (r, c) in residual.iter_mut().zip(&coefficients[..place.area()]) {
            *r = (c + (1 << (bits - 1))) >> bits;
        }
    }
    for (sample, r) in samples.iter_mut().zip(&residual[..place.area()]) {
        *sample += r;
    }
}
