//! A picture with its blocks drawn in, and in each block where its prediction comes from.

use super::canvas::{Canvas, Colour, PAPER, grey};
use crate::intra::{Block, Kind, Picture};

/// Pixels of a sample.
const SCALE: usize = 4;
/// Samples shown each way, from the upper left.
const SHOWN: usize = 256;
const EDGE: Colour = [20, 110, 190];
const DIRECTION: Colour = [230, 120, 20];
const FLAT: Colour = [20, 150, 60];

/// What the marks mean.
pub(super) const LEGEND: &str =
    "blue: blocks - orange: direction of prediction - green cross: planar - green square: DC";

/// Draws the upper left of a picture.
pub(super) fn draw(picture: &Picture, blocks: &[Block]) -> Canvas {
    let (width, height) = (picture.width().min(SHOWN), picture.height().min(SHOWN));
    let mut out = Canvas::new(width * SCALE + 1, height * SCALE + 1, PAPER);
    let (low, high) = range(picture);
    for y in 0..height {
        for x in 0..width {
            // Half contrast leaves the marks to be seen.
            let colour = grey(f64::from(picture.at(x, y)), low, high).map(|c| 96 + c / 8 * 5);
            out.fill((x * SCALE, y * SCALE), (SCALE, SCALE), colour);
        }
    }
    for block in blocks {
        outline(&mut out, block);
        mark(&mut out, block);
    }
    out
}

/// The middle 98 % of the samples.
fn range(picture: &Picture) -> (f64, f64) {
    let mut samples = picture.samples().to_vec();
    samples.sort_unstable();
    let at = |part: f64| f64::from(samples[((samples.len() - 1) as f64 * part) as usize]);
    (at(0.01), at(0.99))
}

fn outline(out: &mut Canvas, block: &Block) {
    let (x, y, side) = (block.x * SCALE, block.y * SCALE, block.side * SCALE);
    out.fill((x, y), (side + 1, 1), EDGE);
    out.fill((x, y), (1, side + 1), EDGE);
}

fn mark(out: &mut Canvas, block: &Block) {
    let centre = |start: usize| (start * SCALE) as f64 + (block.side * SCALE) as f64 / 2.0;
    let (x, y) = (centre(block.x), centre(block.y));
    let reach = (block.side * SCALE) as f64 * 0.3;
    let width = if block.side > 4 { 3 } else { 2 };
    match block.kind {
        Kind::Intra(0) => {
            let r = reach / 2.0;
            out.line((x - r, y), (x + r, y), width, FLAT);
            out.line((x, y - r), (x, y + r), width, FLAT);
        }
        Kind::Intra(1) | Kind::Middle => {
            let size = (block.side * SCALE / 8).max(2);
            out.fill((x as usize - size / 2, y as usize - size / 2), (size, size), FLAT);
        }
        Kind::Intra(mode) => {
            // From lower left (2) over left (10), upper left (18) and above (26) to upper right (34).
            let mode = f64::from(mode);
            let (dx, dy) =
                if mode < 18.0 { (-1.0, (10.0 - mode) / 8.0) } else { ((mode - 26.0) / 8.0, -1.0) };
            let scale = reach / f64::hypot(dx, dy);
            out.line((x - dx * scale, y - dy * scale), (x + dx * scale, y + dy * scale), width, DIRECTION);
        }
        Kind::Inter(dx, dy) => {
            let to = (x + f64::from(dx) * SCALE as f64, y + f64::from(dy) * SCALE as f64);
            out.line((x, y), to, width, DIRECTION);
        }
    }
}
