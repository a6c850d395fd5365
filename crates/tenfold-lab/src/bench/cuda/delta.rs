//! Deltas applied in place on a device: all of it there, decoded on the host meanwhile, and what one would do without.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use tenfold::delta::{self, DeltaOptions};
use tenfold::{Dtype, TensorView};
use tenfold_cuda::Device;

use super::nvcomp::{self, Nvcomp};
use super::rig::{Change, Deltas, Rig, Times};
use crate::bench::delta::cases::{self, Spread};
use crate::bench::delta::rivals::Rival;
use crate::bench::report::number;
use crate::bench::table::Table;
use crate::bench::{BenchArgs, Report, progress};

/// A matrix of 1024 × 4096 values of which a tenth changes; a model of which a hundredth does.
const MATRIX: ([usize; 2], f64) = ([1024, 4096], 0.1);
const MODEL: (usize, f64) = (1 << 30, 0.01);
/// Milliseconds for the matrix, from the host's delta to the device's tensor: all on the device, and decoded on the host.
const ALL: f64 = 0.25;
const HYBRID: f64 = 3.0;
/// Share of the slower of host and device that both together must reach.
const OVERLAP: f64 = 0.9;
/// TB/s of the model's bytes that are brought up to date, from a delta on the device.
const SPEED: f64 = 3.0;

#[derive(Serialize)]
struct Row {
    what: String,
    case: String,
    values: usize,
    changed: u64,
    tensor_bytes: usize,
    /// What is sent, or read, in place of the tensor.
    bytes: usize,
    /// Each call, and the median.
    times_ms: Vec<f64>,
    ms: f64,
    /// Bytes of the tensor that are brought up to date.
    gb_s: f64,
}

pub(in crate::bench) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    // First of all: a path that is wrong should not show after minutes.
    let nvcomp = args.nvcomp.as_deref().map(Nvcomp::open).transpose()?;
    let device = Device::open(args.asked.device.unwrap_or(0))?;
    measure(&Rig::new(device, args.repeats(), super::ROTATE)?, nvcomp.as_ref(), args, report, out)
}

/// Measures on a device, whichever that is.
pub(super) fn measure(
    rig: &Rig,
    nvcomp: Option<&Nvcomp>,
    args: &BenchArgs,
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<()> {
    report.origin.machine.device = Some(super::describe(&rig.device));
    let bar = progress::bar(2, args.quiet);
    let mut table = Table::new(&["", "bytes", "ms", "GB/s of the tensor"]);
    let (shape, share) = MATRIX;
    let rows = if args.quick { shape[0] / 64 } else { shape[0] };
    bar.set_message("a matrix");
    let matrix = make(Dtype::F32, &[rows, shape[1]], share)?;
    let mut run = Run { rig, nvcomp, args, report, table: &mut table };
    run.case("f32, a tenth changed", &matrix, !args.quick, false)?;
    bar.inc(1);
    bar.set_message("a model");
    let values = args.size_or(if args.quick { 1 << 18 } else { MODEL.0 });
    let model = make(Dtype::Bf16, &[values], MODEL.1)?;
    run.case("bf16, a hundredth changed", &model, false, values == MODEL.0)?;
    bar.finish_and_clear();
    table.print(out)?;
    if nvcomp.is_none() {
        writeln!(out, "{}", nvcomp::HOW)?;
    }
    Ok(())
}

struct Run<'a> {
    rig: &'a Rig,
    nvcomp: Option<&'a Nvcomp>,
    args: &'a BenchArgs,
    report: &'a mut Report,
    table: &'a mut Table,
}

impl Run<'_> {
    fn case(&mut self, name: &str, change: &Change, matrix: bool, model: bool) -> Result<()> {
        let threads = self.args.threads;
        let mut deltas = Deltas::new(self.rig, change)?;
        let changed = change.changed;
        let (all, blob) = (change.versions.old.len(), change.blob.len());
        self.table.row([format!("{name}: {all} bytes, {changed} values change")]);
        let there = deltas.on_device()?;
        let [again, refused] = deltas.parts()?;
        let host = deltas.sent()?;
        let hybrid = deltas.hybrid(threads)?;
        let (decode, lists) = (deltas.decode(threads)?, deltas.copy_lists()?);
        let (dense, in_turn) = (deltas.dense()?, deltas.in_turn(threads)?);
        let overlap = decode.median().max(lists.median()) / hybrid.median();
        let speed = all as f64 / there.median() / 1e9;
        let lists_bytes = (4 + change.versions.dtype.size()) * changed as usize;
        for (what, bytes, times) in [
            ("delta on the device", blob, there),
            ("  of that: places, if the tensor is new already", blob, again),
            ("  of that: all but writing, if the tensor is another", blob, refused),
            ("delta in pinned host memory, all on the device", blob, host.clone()),
            ("pipelined (hybrid): decoded on the host meanwhile", blob, hybrid.clone()),
            ("  the host's part alone", blob, decode),
            ("  the copies alone", lists_bytes, lists),
            ("plain copy of the new tensor", all, dense),
            ("synchronous: applied on the host, then copied", all, in_turn),
        ] {
            self.keep(what, name, change, bytes, &times)?;
        }
        if let Some(library) = self.nvcomp {
            for form in [Rival::Indices(0), Rival::Planes(0), Rival::Xor(0)] {
                let plain = form.plain(&change.versions);
                match nvcomp::fewest(self.rig, library, &plain)? {
                    Some((bytes, setting, times)) => {
                        let what = format!("nvCOMP ANS, {}: decompressed alone ({setting})", form.form());
                        self.keep(&what, name, change, bytes, &times)?;
                    }
                    None => self.report.notes.push(format!("{name}: nvCOMP takes no {}", form.form())),
                }
            }
        }
        if matrix {
            self.report.at_most(format!("ms, {name}, all on the device"), host.median(), ALL);
            self.report.at_most(format!("ms, {name}, hybrid"), hybrid.median(), HYBRID);
            self.report.at_least(format!("overlap of the hybrid, {name}"), overlap, OVERLAP);
        }
        if model {
            self.report.at_least(format!("TB/s of the tensor, {name}, delta on the device"), speed, SPEED);
        }
        Ok(())
    }

    fn keep(&mut self, what: &str, case: &str, change: &Change, bytes: usize, times: &Times) -> Result<()> {
        let ms = times.median();
        let gb_s = change.versions.old.len() as f64 / ms / 1e6;
        let changed = change.changed;
        self.table.row([what.to_string(), bytes.to_string(), number(ms), number(gb_s)]);
        self.report.row(&Row {
            what: what.trim_start().to_string(),
            case: case.to_string(),
            values: change.versions.values(),
            changed,
            tensor_bytes: change.versions.old.len(),
            bytes,
            times_ms: times.0.clone(),
            ms,
            gb_s,
        })
    }
}

/// A change that is made up, and its delta.
fn make(dtype: Dtype, shape: &[usize], share: f64) -> Result<Change> {
    let versions = cases::made(dtype, shape, share, Spread::Uniform)?;
    let view = |data| TensorView::new(dtype, shape, data);
    let blob = delta::make(&view(&versions.old)?, &view(&versions.new)?, &DeltaOptions::default())?;
    let changed = delta::inspect(&blob)?.changed;
    Ok(Change { versions, blob, changed })
}
