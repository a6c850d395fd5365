//! Deltas applied in place on a device: all of it there, decoded on the host meanwhile, and what one would do without.

use std::io::Write;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use serde::Serialize;
use tenfold::delta::{self, DeltaOptions};
use tenfold::{Dtype, TensorView};
use tenfold_cuda::Device;

use super::rig::{Change, Deltas, Rig, Times};
use crate::bench::report::number;
use crate::bench::table::Table;
use crate::bench::{BenchArgs, Report, progress};
use crate::synth::{self, Shape};

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
/// Values that are made at a time.
const PIECE: usize = 1 << 22;

#[derive(Serialize)]
struct Row {
    what: &'static str,
    case: String,
    values: usize,
    changed: u64,
    tensor_bytes: usize,
    blob_bytes: usize,
    /// Each call, and the median.
    times_ms: Vec<f64>,
    ms: f64,
    /// Bytes of the tensor that are brought up to date.
    gb_s: f64,
}

pub(in crate::bench) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let device = Device::open(args.asked.device.unwrap_or(0))?;
    measure(&Rig::new(device, args.repeats(), super::ROTATE)?, args, report, out)
}

/// Measures on a device, whichever that is.
pub(super) fn measure(rig: &Rig, args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    report.origin.machine.device = Some(super::describe(&rig.device));
    let bar = progress::bar(2, args.quiet);
    let mut table = Table::new(&["", "ms", "GB/s of the tensor"]);
    let (shape, share) = MATRIX;
    let rows = if args.quick { shape[0] / 64 } else { shape[0] };
    bar.set_message("a matrix");
    let matrix = make(Dtype::F32, &[rows, shape[1]], share)?;
    let mut run = Run { rig, args, report, table: &mut table };
    run.case("f32, a tenth changed", &matrix, !args.quick, false)?;
    bar.inc(1);
    bar.set_message("a model");
    let values = args.size_or(if args.quick { 1 << 18 } else { MODEL.0 });
    let model = make(Dtype::Bf16, &[values], MODEL.1)?;
    run.case("bf16, a hundredth changed", &model, false, values == MODEL.0)?;
    bar.finish_and_clear();
    table.print(out)?;
    Ok(())
}

struct Run<'a> {
    rig: &'a Rig,
    args: &'a BenchArgs,
    report: &'a mut Report,
    table: &'a mut Table,
}

impl Run<'_> {
    fn case(&mut self, name: &str, change: &Change, matrix: bool, model: bool) -> Result<()> {
        let threads = self.args.threads;
        let mut deltas = Deltas::new(self.rig, change)?;
        let changed = deltas.plan.changed();
        let title = format!(
            "{name}: {} bytes, {changed} values change, {} bytes of delta",
            change.old.len(),
            change.blob.len()
        );
        self.table.row([title]);
        let there = deltas.on_device()?;
        let host = deltas.from_host()?;
        let hybrid = deltas.hybrid(threads)?;
        let (decode, lists) = (deltas.decode(threads)?, deltas.copy_lists()?);
        let (dense, in_turn) = (deltas.dense()?, deltas.in_turn(threads)?);
        let overlap = decode.median().max(lists.median()) / hybrid.median();
        let speed = change.old.len() as f64 / there.median() / 1e9;
        for (what, times) in [
            ("delta on the device", there),
            ("delta in pinned host memory, all on the device", host.clone()),
            ("hybrid: decoded on the host meanwhile", hybrid.clone()),
            ("  the host's part alone", decode),
            ("  the copies alone", lists),
            ("plain copy of the new tensor", dense),
            ("applied on the host, then copied", in_turn),
        ] {
            self.keep(what, name, change, changed, &times)?;
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

    fn keep(
        &mut self,
        what: &'static str,
        case: &str,
        change: &Change,
        changed: u64,
        times: &Times,
    ) -> Result<()> {
        let ms = times.median();
        let gb_s = change.old.len() as f64 / ms / 1e6;
        self.table.row([what.to_string(), number(ms), number(gb_s)]);
        self.report.row(&Row {
            what,
            case: case.to_string(),
            values: change.old.len() / change.dtype.size(),
            changed,
            tensor_bytes: change.old.len(),
            blob_bytes: change.blob.len(),
            times_ms: times.0.clone(),
            ms,
            gb_s,
        })
    }
}

/// Weights of N(0, 0.02), of which a share moves by about a hundredth of that, and by one step of its last place at least.
fn make(dtype: Dtype, shape: &[usize], share: f64) -> Result<Change> {
    let (values, size) = (shape.iter().product::<usize>(), dtype.size());
    let (mut old, mut new) = (Vec::with_capacity(values * size), Vec::with_capacity(values * size));
    for (piece, from) in (0..values).step_by(PIECE).enumerate() {
        let count = PIECE.min(values - from);
        let seed = 2 * piece as u64;
        let base = synth::values(Shape::Gaussian, 0.02, count, seed);
        let by = synth::values(Shape::Gaussian, 0.0002, count, seed + 1);
        let before = synth::tensor(dtype, &[count], &base).context("a float")?.data;
        let sums: Vec<f32> = base.par_iter().zip(&by).map(|(a, b)| a + b).collect();
        let mut after = synth::tensor(dtype, &[count], &sums).context("a float")?.data;
        let mut rng = StdRng::seed_from_u64(seed);
        for (old, new) in before.chunks_exact(size).zip(after.chunks_exact_mut(size)) {
            if rng.random_range(0.0..1.0) >= share {
                new.copy_from_slice(old);
            } else if old == new {
                new[0] ^= 1;
            }
        }
        old.extend_from_slice(&before);
        new.extend_from_slice(&after);
    }
    let view = |data| TensorView::new(dtype, shape, data);
    let blob = delta::make(&view(&old)?, &view(&new)?, &DeltaOptions::default())?;
    Ok(Change { dtype, shape: shape.to_vec(), old, new, blob })
}
