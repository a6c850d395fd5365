//! The tables on a terminal. Where ours loses stands first.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::Report;
use crate::bench::table::Table;
use crate::race::RaceArgs;
use crate::race::figures::{EqualCell, EqualTable, GapTable, Losses};

/// Prints everything that fits a terminal; the rest is in the files, whose folder is named last.
pub(crate) fn print(args: &RaceArgs, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", report.headline)?;
    print_losses(&report.losses, out)?;
    writeln!(out)?;
    for table in &report.gaps {
        print_gaps(table, out)?;
    }
    match report.equal_error.as_deref() {
        Some([all, ..]) => print_equal(all, &report.reference, out)?,
        _ => writeln!(out, "bits at equal NMSE: the reference {:?} has no points here\n", report.reference)?,
    }
    for absent in &report.not_available {
        writeln!(out, "not here: {} ({}): {}", absent.entrant.title, absent.entrant.id, absent.reason)?;
    }
    for line in failures(report) {
        writeln!(out, "failed: {line}")?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    writeln!(out, "all figures, plots and the page: {}", args.out.join("race.html").display())
}

/// A line for each tensor and family, with all rates at which ours loses.
fn print_losses(losses: &Losses, out: &mut dyn Write) -> io::Result<()> {
    let mut groups: Vec<(String, String)> = Vec::new();
    for loss in &losses.found {
        let who = format!("{} / {}: {}", loss.file, loss.tensor, loss.peer);
        let mut point = format!("{:.2} bits", loss.bits);
        let _ = write!(point, " (error {:.1} % below ours)", 100.0 * (1.0 - loss.nmse / loss.ours));
        match groups.iter_mut().find(|g| g.0 == who) {
            Some(group) => group.1 += &format!(", {point}"),
            None => groups.push((who, point)),
        }
    }
    for (who, points) in groups {
        writeln!(out, "  {who} at {points}")?;
    }
    Ok(())
}

fn print_gaps(table: &GapTable, out: &mut dyn Write) -> io::Result<()> {
    let first = format!("{}: bits above the Gaussian bound at", table.kind);
    let rates = table.rates.iter().map(|r| format!("{r} bits"));
    let headings: Vec<String> = std::iter::once(first).chain(rates).collect();
    let mut shown = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let mut partial = false;
    for row in &table.rows {
        let mut cells = vec![row.title.clone()];
        for cell in &row.cells {
            let star = cell.is_some_and(|c| c.tensors < table.tensors);
            partial |= star;
            cells.push(cell.map_or("-".into(), |c| format!("{:.3}{}", c.gap, if star { "*" } else { "" })));
        }
        shown.row(cells);
    }
    shown.print(out)?;
    if partial {
        writeln!(out, "* not on all {} tensors\n", table.tensors)?;
    }
    Ok(())
}

fn print_equal(table: &EqualTable, reference: &str, out: &mut dyn Write) -> io::Result<()> {
    let first = format!("bits at equal NMSE against {reference}, when that has");
    let rates = table.rates.iter().map(|r| format!("{r} bits"));
    let headings: Vec<String> =
        std::iter::once(first).chain(rates).chain(["at own points".to_string()]).collect();
    let mut shown = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let percent = |cell: &Option<EqualCell>| {
        cell.map_or("-".to_string(), |c| format!("{:+.1} % ({})", 100.0 * (c.ratio - 1.0), c.count))
    };
    for row in &table.rows {
        let mut cells = vec![row.title.clone()];
        cells.extend(row.cells.iter().map(percent));
        cells.push(percent(&row.own));
        shown.row(cells);
    }
    shown.print(out)?;
    writeln!(out, "In brackets: tensors (of {}) or points in the mean.\n", table.tensors)
}

/// Failures, those of one peer and one reason in a line.
fn failures(report: &Report) -> Vec<String> {
    let mut groups: Vec<(&str, &str, usize, &str)> = Vec::new();
    for (row, reason) in report.failures() {
        match groups.iter_mut().find(|g| (g.0, g.1) == (row.peer.as_str(), reason)) {
            Some(group) => group.2 += 1,
            None => groups.push((&row.peer, reason, 1, &row.tensor)),
        }
    }
    let line = |(peer, reason, count, tensor): (&str, &str, usize, &str)| match count {
        1 => format!("{peer} on {tensor}: {reason}"),
        n => format!("{peer} on {n} tensors or rates, such as {tensor}: {reason}"),
    };
    groups.into_iter().map(line).collect()
}
