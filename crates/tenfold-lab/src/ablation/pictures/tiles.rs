//! A block taken apart: samples, prediction, residual, coefficients, levels.

use super::canvas::{Canvas, Colour, INK, PAPER, diverging, grey, text_width};
use super::{LINE, MARGIN};
use crate::intra::{self, Block, Kind, Picture};

/// Pixels of a tile each way.
const TILE: usize = 224;

/// The stages of one block.
pub(super) struct Anatomy<'a> {
    block: &'a Block,
    samples: Vec<i32>,
    predicted: Vec<i32>,
}

/// One stage as a picture.
pub(super) struct Tile {
    side: usize,
    label: String,
    colours: Vec<Colour>,
}

/// Blocks worth looking at with a title and a short name: the one whose prediction leaves the least of it,
/// and a typical one. Blocks of 8 and more that are not flat are taken if there are any: the rest shows nothing.
pub(super) fn choose<'a>(
    original: &Picture,
    predicted: &Picture,
    blocks: &'a [Block],
) -> Vec<(&'static str, &'static str, &'a Block)> {
    let inside = |b: &&Block| b.x + b.side <= original.width() && b.y + b.side <= original.height();
    let spread = |b: &Block| variance(Anatomy::new(original, predicted, b).samples.iter().copied());
    let flat = variance(original.samples().iter().map(|&s| i32::from(s))) / 4.0;
    let telling = |b: &&Block| b.side >= 8 && spread(b) > flat;
    let large: Vec<&Block> = blocks.iter().filter(inside).filter(telling).collect();
    let some: Vec<&Block> = if large.is_empty() { blocks.iter().filter(inside).collect() } else { large };
    let left = |b: &Block| {
        let residual = Anatomy::new(original, predicted, b).residual();
        let energy: f64 = residual.iter().map(|&r| f64::from(r).powi(2)).sum();
        energy / (spread(b) * residual.len() as f64).max(1.0)
    };
    let mut ranked: Vec<(f64, &Block)> = some.into_iter().map(|b| (left(b), b)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let pick = |at: usize| ranked.get(at).map(|r| r.1);
    let titled =
        [("best predicted block", "best", pick(0)), ("typical block", "typical", pick(ranked.len() / 2))];
    titled.into_iter().filter_map(|(title, name, block)| Some((title, name, block?))).collect()
}

fn variance(samples: impl Iterator<Item = i32> + Clone) -> f64 {
    let n = samples.clone().count().max(1) as f64;
    let mean = samples.clone().map(f64::from).sum::<f64>() / n;
    samples.map(|s| (f64::from(s) - mean).powi(2)).sum::<f64>() / n
}

impl<'a> Anatomy<'a> {
    pub fn new(original: &Picture, predicted: &Picture, block: &'a Block) -> Self {
        let of = |picture: &Picture| {
            let at = |i: usize| picture.at(block.x + i % block.side, block.y + i / block.side);
            (0..block.side * block.side).map(|i| i32::from(at(i))).collect::<Vec<i32>>()
        };
        Anatomy { block, samples: of(original), predicted: of(predicted) }
    }

    fn residual(&self) -> Vec<i32> {
        self.samples.iter().zip(&self.predicted).map(|(s, p)| s - p).collect()
    }

    /// Where it is and what predicts it.
    pub fn describe(&self) -> String {
        let kind = match self.block.kind {
            Kind::Middle => "no prediction".to_string(),
            Kind::Intra(0) => "planar".to_string(),
            Kind::Intra(1) => "DC".to_string(),
            Kind::Intra(10) => "horizontal".to_string(),
            Kind::Intra(26) => "vertical".to_string(),
            Kind::Intra(mode) => format!("angular {mode}"),
            Kind::Inter(dx, dy) => format!("motion {dx}, {dy}"),
        };
        let Block { x, y, side, .. } = self.block;
        format!("{side} by {side} at row {y}, column {x}, {kind}")
    }

    /// The five stages with short names. Samples and prediction share a scale of grey.
    pub fn tiles(&self) -> Vec<(&'static str, Tile)> {
        let residual = self.residual();
        let as_f64 = |v: &[i32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        let coefficients = intra::coefficients(&residual, self.block.side).unwrap_or_default();
        let both = || self.samples.iter().chain(&self.predicted).map(|&v| f64::from(v));
        let (low, high) = (both().fold(f64::INFINITY, f64::min), both().fold(f64::NEG_INFINITY, f64::max));
        let shade = |v: &[i32]| v.iter().map(|&v| grey(f64::from(v), low, high)).collect();
        let signed = |v: &[f64]| {
            let most = v.iter().fold(0f64, |m, v| m.max(v.abs()));
            v.iter().map(|&v| diverging(v, most)).collect::<Vec<Colour>>()
        };
        let span = |v: &[f64]| {
            let (low, high) =
                v.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
            format!("{low:.0} to {high:.0}")
        };
        let tile = |label: String, colours: Vec<Colour>| Tile { side: self.block.side, label, colours };
        let levels = as_f64(&self.block.levels);
        let zeros = self.block.levels.iter().filter(|&&l| l == 0).count() * 100 / levels.len().max(1);
        vec![
            ("samples", tile(format!("samples {}", span(&as_f64(&self.samples))), shade(&self.samples))),
            (
                "prediction",
                tile(format!("prediction {}", span(&as_f64(&self.predicted))), shade(&self.predicted)),
            ),
            ("residual", tile(format!("residual {}", span(&as_f64(&residual))), signed(&as_f64(&residual)))),
            ("coefficients", tile(format!("DCT {}", span(&coefficients)), signed(&coefficients))),
            ("levels", tile(format!("levels {}, {zeros}% 0", span(&levels)), signed(&levels))),
        ]
    }

    /// All tiles side by side, each with its label below.
    pub fn row(&self) -> Canvas {
        let tiles = self.tiles();
        let widths: Vec<usize> = tiles.iter().map(|(_, t)| t.width().max(text_width(&t.label, 2))).collect();
        let width = widths.iter().sum::<usize>() + MARGIN * (tiles.len() - 1);
        let mut out = Canvas::new(width, TILE + 2 + LINE, PAPER);
        let mut x = 0;
        for ((_, tile), width) in tiles.iter().zip(widths) {
            out.paste((x, 0), &tile.plain());
            out.text((x, TILE + 6), 2, &tile.label);
            x += width + MARGIN;
        }
        out
    }
}

impl Tile {
    fn width(&self) -> usize {
        TILE + 2
    }

    /// The tile in a thin frame.
    pub fn plain(&self) -> Canvas {
        let scale = TILE / self.side;
        let mut out = Canvas::new(TILE + 2, TILE + 2, INK);
        for (i, &colour) in self.colours.iter().enumerate() {
            out.fill((1 + i % self.side * scale, 1 + i / self.side * scale), (scale, scale), colour);
        }
        out
    }
}
