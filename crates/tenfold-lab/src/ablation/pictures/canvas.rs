//! A canvas of colours, and PNG files.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};

use super::font;

/// Red, green, blue.
pub(super) type Colour = [u8; 3];

pub(super) const PAPER: Colour = [255, 255, 255];
pub(super) const INK: Colour = [30, 30, 36];

/// Pixels, row after row. What is drawn outside is lost.
#[derive(Clone)]
pub(super) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
}

impl Canvas {
    pub fn new(width: usize, height: usize, colour: Colour) -> Self {
        Canvas { width, height, pixels: vec![colour; width * height] }
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn height(&self) -> usize {
        self.height
    }

    pub fn set(&mut self, x: usize, y: usize, colour: Colour) {
        if x < self.width && y < self.height {
            self.pixels[y * self.width + x] = colour;
        }
    }

    /// A filled rectangle.
    pub fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: Colour) {
        for j in y..y + height {
            for i in x..x + width {
                self.set(i, j, colour);
            }
        }
    }

    /// A straight line between two points, so many pixels wide.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), width: usize, colour: Colour) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
        for i in 0..=steps as usize {
            let t = i as f64 / steps;
            let (x, y) = (from.0 + t * (to.0 - from.0), from.1 + t * (to.1 - from.1));
            if x >= 0.0 && y >= 0.0 {
                let corner = |v: f64| (v.round() as usize).saturating_sub(width / 2);
                self.fill((corner(x), corner(y)), (width, width), colour);
            }
        }
    }

    /// Text from its upper left corner, each dot so many pixels wide.
    pub fn text(&mut self, (x, y): (usize, usize), size: usize, text: &str) {
        for (i, c) in text.chars().enumerate() {
            for (j, row) in font::letter(c).into_iter().enumerate() {
                for dot in (0..5).filter(|dot| row >> (4 - dot) & 1 == 1) {
                    let at = (x + (i * font::ADVANCE + dot) * size, y + j * size);
                    self.fill(at, (size, size), INK);
                }
            }
        }
    }

    /// Another canvas, its upper left corner there.
    pub fn paste(&mut self, (x, y): (usize, usize), other: &Canvas) {
        for (j, row) in other.pixels.chunks_exact(other.width.max(1)).enumerate() {
            for (i, &colour) in row.iter().enumerate() {
                self.set(x + i, y + j, colour);
            }
        }
    }

    /// Writes a PNG file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let failed = || format!("cannot write {}", path.display());
        let file = BufWriter::new(File::create(path).with_context(failed)?);
        let (width, height) = (u32::try_from(self.width)?, u32::try_from(self.height)?);
        let mut encoder = png::Encoder::new(file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().with_context(failed)?;
        writer.write_image_data(self.pixels.as_flattened()).with_context(failed)?;
        writer.finish().with_context(failed)
    }
}

/// Width of a text in pixels.
pub(super) fn text_width(text: &str, size: usize) -> usize {
    text.chars().count() * font::ADVANCE * size
}

/// Black at `low`, white at `high`.
pub(super) fn grey(value: f64, low: f64, high: f64) -> Colour {
    let part = if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 };
    [(part * 255.0).round() as u8; 3]
}

/// Blue below zero, white at zero, red above; `most` is the full colour. By the root, so that small values
/// beside a large one are still seen.
pub(super) fn diverging(value: f64, most: f64) -> Colour {
    let part = if most > 0.0 { (value.abs() / most).min(1.0).sqrt() } else { 0.0 };
    let full = if value < 0.0 { [33.0, 84.0, 168.0] } else { [190.0, 30.0, 45.0] };
    full.map(|c: f64| (255.0 + part * (c - 255.0)).round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_values() {
        assert_eq!(grey(5.0, 0.0, 10.0), [128; 3]);
        assert_eq!(grey(5.0, 5.0, 5.0), [128; 3]);
        assert_eq!(diverging(0.0, 3.0), PAPER);
        assert_eq!(diverging(-9.0, 3.0), [33, 84, 168]);
        assert_eq!(diverging(1.0, 0.0), PAPER);
    }

    #[test]
    fn drawing_outside_is_harmless() {
        let mut canvas = Canvas::new(4, 3, PAPER);
        canvas.text((2, 2), 2, "xyz");
        canvas.line((-5.0, -5.0), (50.0, 50.0), 1, INK);
        canvas.paste((3, 2), &Canvas::new(9, 9, INK));
        assert_eq!(canvas.pixels[11], INK);
        assert_eq!(canvas.pixels[3], PAPER);
    }
}
