//! What a race found, for people and for programs.

mod csv;
mod page;
mod plot;
mod report;
mod terminal;

pub use report::{Report, TensorInfo};
pub(crate) use terminal::print;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::RaceArgs;
use super::figures::{points, styles};
use super::run::Outcome;

/// Writes `race.json`, `race.csv`, the plots and `race.html`.
pub(crate) fn write_files(args: &RaceArgs, outcome: &Outcome, report: &Report) -> Result<()> {
    let families: Vec<&str> = outcome.entrants.iter().map(|e| e.id.as_str()).collect();
    let mut all = points(&families, &outcome.rows, |_| true);
    all.retain(|p| p.bits <= args.drawn_bits());
    let styles = styles(&outcome.entrants, &all, &args.reference);
    let json = serde_json::to_string_pretty(report).context("the report does not serialise")?;
    keep(&args.out.join("race.json"), (json + "\n").as_bytes())?;
    keep(&args.out.join("race.csv"), csv::write_csv(report).as_bytes())?;
    for figure in plot::figures(args, outcome, &styles)? {
        keep(&args.out.join(format!("{}.svg", figure.name)), figure.svg.as_bytes())?;
        keep(&args.out.join(format!("{}.png", figure.name)), &figure.png)?;
    }
    keep(&args.out.join("race.html"), page::page(args, outcome, report, &styles)?.as_bytes())
}

/// Writes beside the target first, so that a full disk leaves the old file.
fn keep(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, bytes)
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}
