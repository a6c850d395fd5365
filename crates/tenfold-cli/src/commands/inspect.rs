//! `tenfold inspect`.

use std::io::IsTerminal;

use tenfold_archive::{Report, TensorRow, Totals};

use crate::args::InspectArgs;
use crate::exit;
use crate::print;
use crate::table::Table;

const HEADINGS: [&str; 10] =
    ["tensor", "dtype", "shape", "codec", "step", "states", "classes", "bytes", "bits/value", "ratio"];

pub fn run(args: InspectArgs) -> anyhow::Result<u8> {
    let report = tenfold_archive::inspect(&args.input)?;
    if args.json {
        print::json(&report)?;
    } else {
        print::out(&table(&report))?;
    }
    Ok(exit::SUCCESS)
}

fn table(report: &Report) -> String {
    let mut table = Table::new(&HEADINGS, std::io::stdout().is_terminal());
    for row in &report.tensors {
        table.row(cells(row));
    }
    table.footer(totals(&format!("compressed ({})", report.compressed.tensors), &report.compressed));
    table.footer(totals(&format!("total ({})", report.total.tensors), &report.total));
    table.render()
}

fn cells(row: &TensorRow) -> Vec<String> {
    vec![
        row.name.clone(),
        row.dtype.clone(),
        print::shape(&row.shape),
        codec(row),
        print::or_dash(row.step, print::scientific),
        print::or_dash(row.states, |n| n.to_string()),
        print::or_dash(row.classes, |n| n.to_string()),
        print::bytes(row.stored_bytes),
        format!("{:.3}", row.bits_per_value),
        format!("{:.2}", row.ratio),
    ]
}

fn codec(row: &TensorRow) -> String {
    match row.layers.len() {
        0 => row.codec.into(),
        layers => format!("{} ({layers})", row.codec),
    }
}

fn totals(name: &str, totals: &Totals) -> Vec<String> {
    let mut cells = vec![String::new(); HEADINGS.len()];
    cells[0] = name.into();
    cells[7] = print::bytes(totals.stored_bytes);
    cells[8] = format!("{:.3}", totals.bits_per_value);
    cells[9] = format!("{:.2}", totals.ratio);
    cells
}
