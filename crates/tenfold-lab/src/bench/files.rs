//! Real tensors: ours with the same rate for each tensor and with one step for all, beside an ideal
//! scalar quantiser on each tensor and H.265 over the whole file.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tenfold::{Effort, EncodeOptions};

use super::allocate::{Allocation, Coded};
use super::table::Table;
use super::{BenchArgs, Report, progress, x265_rival};
use crate::load::{self, Named};
use crate::metrics::Fidelity;
use crate::peers::PeerError;
use crate::peers::scalar_ideal::ScalarIdeal;
use crate::values::to_f64;

/// Smaller tensors stay as they are in a model file, and so out of the figures.
const MIN_VALUES: usize = 4096;

/// Bits by which H.265 may be ahead: it codes at the rate asked for plus this.
const HANDICAP: f64 = 0.35;

#[derive(Serialize)]
struct Row<'a> {
    file: &'a str,
    tensor: &'a str,
    coder: String,
    allocation: &'static str,
    values: u64,
    bits: f64,
    nmse: f64,
    gap: f64,
    max_error: f64,
    cosine: f64,
    /// An estimate: ideal order-0 entropy, no bytes.
    scalar_ideal_nmse: Option<f64>,
}

/// A file ready to be measured.
struct Subject<'a> {
    file: &'a str,
    tensors: &'a [Named],
    ideals: Vec<ScalarIdeal>,
}

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    ensure!(!args.files.is_empty(), "name at least one safetensors file");
    report.note("scalar ideal* is an estimate: order-0 entropy of the levels, no byte for tables or headers");
    for path in &args.files {
        let tensors = load::floats(path, MIN_VALUES)?;
        ensure!(!tensors.is_empty(), "{} has no float tensor of {MIN_VALUES} values", path.display());
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        one_file(args, &name, path, &tensors, report, out)?;
    }
    Ok(())
}

fn one_file(
    args: &BenchArgs,
    name: &str,
    path: &Path,
    tensors: &[Named],
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<()> {
    let ideal = |t: &Named| -> Result<ScalarIdeal> {
        let values =
            to_f64(&t.tensor.view()?).with_context(|| format!("{} in {}", t.name, path.display()))?;
        Ok(ScalarIdeal::new(&values))
    };
    let subject = Subject { file: name, tensors, ideals: tensors.iter().map(ideal).collect::<Result<_>>()? };
    let rates = args.bits_or(&[2.5]);
    let bar = progress::bar(rates.len() * (args.efforts.len() * 2 + 1), args.quiet);
    for bits in rates {
        let mut best_file = None;
        for &effort in &args.efforts {
            for allocation in [Allocation::Equal, Allocation::Step] {
                bar.set_message(format!("{name}: {}, {} at {bits} bits", effort.name(), allocation.name()));
                // The goal of the options is replaced by the allocation.
                let options = EncodeOptions::new(tenfold::Goal::Bits(bits))
                    .with_effort(effort)
                    .with_threads(args.threads);
                let coded = allocation.encode(&*args.engine, tensors, &options, bits)?;
                writeln!(out, "{name}, {}, {}, {bits} bits", effort.name(), allocation.name())?;
                let total = subject.show(&coded, effort, allocation, report, out)?;
                if (effort, allocation) == (Effort::Best, Allocation::Step) {
                    best_file = Some(total);
                }
                bar.inc(1);
            }
        }
        if args.peers {
            let asked = bits + HANDICAP;
            let found = x265_rival::over_file(tensors, asked, args.quick, |v| bar.set_message(v.to_string()));
            bar.inc(1);
            beside_x265(name, found, best_file, bits, report, out)?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

impl Subject<'_> {
    /// Prints and keeps a row a tensor and one for the file; returns the file's bits and error.
    fn show(
        &self,
        coded: &[Coded],
        effort: Effort,
        allocation: Allocation,
        report: &mut Report,
        out: &mut dyn Write,
    ) -> Result<(f64, Fidelity)> {
        let mut table =
            Table::new(&["tensor", "values", "bits", "nmse", "gap", "scalar ideal*", "ours/ideal"]);
        let mut keep = |tensor: &str, bits: f64, f: &Fidelity, ideal: Option<f64>| -> Result<()> {
            table.row([
                tensor.to_string(),
                f.values.to_string(),
                format!("{bits:.4}"),
                format!("{:.6}", f.nmse()),
                format!("{:.4}", f.gap(bits)),
                ideal.map_or(String::new(), |v| format!("{v:.6}")),
                ideal.map_or(String::new(), |v| format!("{:.3}", f.nmse() / v)),
            ]);
            report.row(&Row {
                file: self.file,
                tensor,
                coder: format!("tenfold {}", effort.name()),
                allocation: allocation.name(),
                values: f.values,
                bits,
                nmse: f.nmse(),
                gap: f.gap(bits),
                max_error: f.max_error,
                cosine: f.cosine(),
                scalar_ideal_nmse: ideal,
            })
        };
        let (mut total, mut bytes, mut worst) = (Fidelity::default(), 0usize, 0f64);
        for ((named, c), ideal) in self.tensors.iter().zip(coded).zip(&self.ideals) {
            let bits = c.bytes as f64 * 8.0 / (c.fidelity.values + c.fidelity.specials).max(1) as f64;
            let rival = ideal.at_bits(bits).map(|e| e.nmse);
            worst = rival.map_or(worst, |r| worst.max(c.fidelity.nmse() / r));
            keep(&named.name, bits, &c.fidelity, rival)?;
            total.add_tensor(c.fidelity);
            bytes += c.bytes;
        }
        let bits = bytes as f64 * 8.0 / (total.values + total.specials).max(1) as f64;
        keep("whole file", bits, &total, None)?;
        table.print(out)?;
        // The fast effort is a scalar quantiser itself and has no bar against one.
        if effort != Effort::Fast && allocation == Allocation::Equal {
            let what = format!(
                "{}, {} at {bits:.3} bits: nmse over that of a scalar quantiser with ideal entropy, worst tensor",
                self.file,
                effort.name()
            );
            report.at_most(what, worst, 1.0);
        }
        Ok((bits, total))
    }
}

fn beside_x265(
    name: &str,
    found: Result<Vec<x265_rival::Rival>, PeerError>,
    ours: Option<(f64, Fidelity)>,
    asked: f64,
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<()> {
    let rivals = match found {
        Ok(rivals) => rivals,
        Err(e) => {
            report.note(format!("x265 beside {name}: {e}"));
            return Ok(());
        }
    };
    let mut table = Table::new(&["over the file", "bits", "nmse", "gap"]);
    for r in &rivals {
        let gap = crate::metrics::gap_bits(r.bits, r.nmse);
        let cells = [format!("{:.4}", r.bits), format!("{:.6}", r.nmse), format!("{gap:.4}")];
        let [bits, nmse, gap] = cells;
        table.row([r.name.clone(), bits, nmse, gap]);
        report.row(r)?;
    }
    table.print(out)?;
    if let (Some((bits, f)), Some(best)) = (ours, rivals.first()) {
        let what = format!(
            "{name}, best at {bits:.3} bits ({asked} asked): nmse, bar is {} at {:.3}",
            best.name, best.bits
        );
        report.at_most(what, f.nmse(), best.nmse);
    }
    Ok(())
}
