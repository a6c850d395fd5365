//! Pictures of what the stages do: a block, its prediction, residual, coefficients and levels, and how the
//! picture was cut. One sheet a tensor, and its parts as files of their own.

mod canvas;
mod font;
mod overview;
mod tiles;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::args::AblationArgs;
use super::cases::ORDER;
use super::measure::{Goal, Point, measure};
use super::source::{Source, Subject};
use crate::intra::{self, Settings, Stages};
use canvas::{Canvas, PAPER, text_width};
use tiles::Anatomy;

/// Space around things.
const MARGIN: usize = 16;
/// Height of a line of text, at two pixels a dot.
const LINE: usize = 20;

/// Draws the tensors of a file at the error of the arguments; returns the files written.
pub fn pictures(path: &Path, dir: &Path, args: &AblationArgs) -> Result<Vec<PathBuf>> {
    args.validate()?;
    let mut files = Vec::new();
    for subject in &Source::load(path, args)?.tensors {
        if let Some(point) = measure(subject, ORDER[ORDER.len() - 1], Goal::new(args))? {
            files.extend(draw(subject, &point, dir)?);
        }
    }
    Ok(files)
}

/// Draws a tensor coded with all stages at a step.
pub(super) fn draw(subject: &Subject, point: &Point, dir: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let encoded = intra::encode(&subject.pictures, &Settings::new(Stages::INTRA, point.step))?;
    let (original, predicted) = (&subject.pictures[0], &encoded.predicted[0]);
    let stem = file_name(&subject.name);
    let mut files = Vec::new();
    let mut save = |canvas: &Canvas, part: &str| -> Result<()> {
        let path = dir.join(format!("{stem}.{part}.png"));
        canvas.save(&path)?;
        files.push(path);
        Ok(())
    };
    let overview = overview::draw(original, &encoded.blocks[0]);
    save(&overview, "blocks")?;
    let mut rows = Vec::new();
    for (title, name, block) in tiles::choose(original, predicted, &encoded.blocks[0]) {
        let anatomy = Anatomy::new(original, predicted, block);
        for (part, tile) in anatomy.tiles() {
            save(&tile.plain(), &format!("{name}-{part}"))?;
        }
        rows.push((format!("{title}: {}", anatomy.describe()), anatomy.row()));
    }
    let title = format!(
        "{}, {} by {}: {:.3} bits a value at nmse {:.4}, step {:.2} samples",
        subject.name,
        original.height(),
        original.width(),
        point.bits(subject),
        point.nmse,
        point.step
    );
    save(&sheet(&title, &overview, &rows), "sheet")?;
    Ok(files)
}

/// Title, the cut picture, and below it a row of tiles for each block.
fn sheet(title: &str, overview: &Canvas, rows: &[(String, Canvas)]) -> Canvas {
    let widest = rows.iter().map(|r| r.1.width().max(text_width(&r.0, 2))).max().unwrap_or(0);
    let width = widest.max(overview.width()).max(text_width(title, 2)) + 2 * MARGIN;
    let tall: usize = rows.iter().map(|r| r.1.height() + LINE + MARGIN).sum();
    let mut out = Canvas::new(width, overview.height() + 3 * LINE + 3 * MARGIN + tall, PAPER);
    out.text((MARGIN, MARGIN), 2, title);
    let mut y = MARGIN + LINE;
    out.text((MARGIN, y), 2, overview::LEGEND);
    y += LINE;
    out.paste((MARGIN, y), overview);
    y += overview.height() + MARGIN;
    for (text, row) in rows {
        out.text((MARGIN, y), 2, text);
        out.paste((MARGIN, y + LINE), row);
        y += row.height() + LINE + MARGIN;
    }
    out
}

/// A tensor's name as a file's: nothing in it can leave the folder.
fn file_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    let text: String = name.chars().map(safe).take(120).collect();
    text.trim_start_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        assert_eq!(file_name("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(file_name("layers.8.k[0:256]"), "layers.8.k_0_256_");
    }
}
