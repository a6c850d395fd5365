//! `tenfold-lab race`: chosen peers on chosen tensors at chosen rates, real bytes and real decodes, and what
//! came of it as a table, JSON, CSV, plots and one page.
//!
//! [`race`] is the recipe: `run` measures, `figures` draws conclusions, `show` writes them down.

mod args;
mod figures;
mod run;
mod show;

pub use args::RaceArgs;
pub use figures::{EqualCell, EqualRow, EqualTable, GapCell, GapRow, GapTable, Loss, Losses};
pub use run::{Absent, Entrant, Measured, Row, Speed, TensorKind};
pub use show::{Report, TensorInfo};

use std::io::Write;

use anyhow::Result;

use crate::peers::Family;

/// Races `families`, writes everything into the output folder and prints the tables.
pub fn race(args: &RaceArgs, families: &[Family], out: &mut dyn Write) -> Result<Report> {
    let outcome = run::race(args, families)?;
    let report = Report::new(args, &outcome);
    // Written first: a reader that closes the pipe early must not cost the files.
    show::write_files(args, &outcome, &report)?;
    show::print(args, &report, out)?;
    Ok(report)
}

#[cfg(test)]
mod tests;
