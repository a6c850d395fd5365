//! Weights of a linear layer with feedback: how long a matrix takes on a device, and what it costs the model, beside the CPU.
//!
//! The matrix is N(0, 0.02) in bf16 and its curvature made up: inputs of different sizes, of which neighbours go together, and all of
//! them a little.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Serialize;
use tenfold::calibrated::{self, Calibrated, Curvature};
use tenfold::{Dtype, Effort, EncodeOptions, Goal, Tensor};
use tenfold_cli::EngineArg;
use tenfold_cuda::{CudaEngine, Device};

use super::clock::time;
use super::report::number;
use super::table::Table;
use super::{BenchArgs, Report, progress};
use crate::metrics::median;
use crate::synth;

/// Outputs and inputs of the largest matrix of a model with 8 billion values, and of a first look.
const SHAPE: (usize, usize) = (4096, 14336);
const SMALL: (usize, usize) = (512, 768);
/// Seconds that a device may take for it, with 8 states.
const BAR: f64 = 3.0;
/// How much more a device's blob may cost the model than the CPU's, at the same size.
const LOSS: f64 = 1.02;
const BITS: f64 = 2.5;

#[derive(Serialize)]
struct Row {
    engine: String,
    effort: String,
    outputs: usize,
    inputs: usize,
    seconds: f64,
    bits: f64,
    /// Predicted rise of the model's loss, and what it would be by importance alone.
    loss: f64,
    plain: f64,
}

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let (outputs, own) = if args.quick { SMALL } else { SHAPE };
    let inputs = args.size_or(own);
    let engine = match args.asked.engine {
        EngineArg::Cuda => Some(CudaEngine::new(Device::open(args.asked.device.unwrap_or(0))?)?),
        _ => None,
    };
    if let Some(engine) = &engine {
        report.origin.machine.device = Some(engine.device().properties().name.clone());
    }
    let tensor = synth::gaussian(Dtype::Bf16, &[outputs, inputs], 0.02, 5).context("bf16 is a float")?;
    let moments = moments(inputs);
    let rates = args.bits_or(&[BITS]);
    let bar = progress::bar(rates.len() * args.efforts.len() * 2, args.quiet);
    let mut table = Table::new(&["engine", "effort", "seconds", "bits", "loss", "by importance"]);
    for (&bits, &effort) in rates.iter().flat_map(|bits| args.efforts.iter().map(move |e| (bits, e))) {
        let matrix = Matrix { tensor: &tensor, moments: &moments, bits, effort, threads: args.threads };
        let mut rows = Vec::new();
        bar.set_message(format!("{} at {bits} bits", effort.name()));
        if let Some(engine) = &engine {
            let repeats = args.repeats().min(3);
            rows.push(
                matrix.measure("cuda", repeats, |view, options| engine.encode_calibrated(view, options))?,
            );
        }
        bar.inc(1);
        if engine.is_none() || args.peers {
            rows.push(matrix.measure("cpu", 1, calibrated::encode)?);
        }
        bar.inc(1);
        judge(&rows, report);
        for row in &rows {
            let [seconds, bits, loss, plain] = [row.seconds, row.bits, row.loss, row.plain].map(number);
            table.row([row.engine.clone(), row.effort.clone(), seconds, bits, loss, plain]);
            report.row(row)?;
        }
    }
    bar.finish_and_clear();
    table.print(out)?;
    Ok(())
}

/// Holds a device's figures against bars.
fn judge(rows: &[Row], report: &mut Report) {
    let Some(device) = rows.iter().find(|row| row.engine == "cuda") else { return };
    let what = format!("{} × {}, {}", device.outputs, device.inputs, device.effort);
    if (device.outputs, device.inputs) == SHAPE && device.effort == Effort::Balanced.name() {
        report.at_most(format!("seconds, {what}"), device.seconds, BAR);
    }
    if let Some(cpu) = rows.iter().find(|row| row.engine == "cpu") {
        // A bit a value more is a quarter of the loss.
        let ratio = device.loss / cpu.loss * 4f64.powf(device.bits - cpu.bits);
        report.at_most(format!("loss over the CPU's at the same size, {what}"), ratio, LOSS);
    }
}

struct Matrix<'a> {
    tensor: &'a Tensor,
    moments: &'a [f32],
    bits: f64,
    effort: Effort,
    threads: usize,
}

impl Matrix<'_> {
    /// The median time of some calls, each with a curvature that is not factored yet.
    fn measure(
        &self,
        engine: &str,
        repeats: usize,
        encode: impl Fn(&tenfold::TensorView<'_>, &EncodeOptions) -> tenfold::engine::Result<Calibrated>,
    ) -> Result<Row> {
        let (view, inputs) = (self.tensor.view()?, self.moments.len().isqrt());
        let mut seconds = Vec::new();
        let mut last = None;
        for _ in 0..repeats.max(1) {
            let of = Arc::new(Curvature::new(self.moments.to_vec(), inputs)?);
            let options = EncodeOptions::new(Goal::Bits(self.bits)).with_effort(self.effort);
            let options = options.with_threads(self.threads).with_curvature(of.clone());
            let (took, coded) = time(|| encode(&view, &options));
            seconds.push(took);
            last = Some((of, coded?));
        }
        let (of, coded) = last.context("no call")?;
        // The same rows for every engine, where that is not all of them.
        let decoded = tenfold::decode(&coded.blob, &Default::default())?;
        Ok(Row {
            engine: engine.into(),
            effort: self.effort.name().into(),
            outputs: view.rows(),
            inputs,
            seconds: median(&seconds),
            bits: coded.blob.len() as f64 * 8.0 / view.len() as f64,
            loss: of.loss(&view, &decoded.view()?)?,
            plain: coded.plain,
        })
    }
}

/// E[x·xᵀ] of inputs whose sizes differ by octaves, of which neighbours go together, and all of them a little.
fn moments(inputs: usize) -> Vec<f32> {
    let size = |j: usize| ((j * 7919 % 1013) as f32 / 1013.0 * 3.0 - 1.5).exp2();
    let sizes: Vec<f32> = (0..inputs).map(size).collect();
    let near: Vec<f32> = (0..inputs).map(|by| 0.85 * 0.95f32.powi(by as i32) + 0.1).collect();
    let at =
        |r: usize, c: usize| (near[r.abs_diff(c)] + if r == c { 0.05 } else { 0.0 }) * sizes[r] * sizes[c];
    (0..inputs * inputs).map(|i| at(i / inputs, i % inputs)).collect()
}
