//! How far from the bound: N(0, 1) in f32, where the rate-distortion function is known exactly.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};

use super::clock::time;
use super::table::Table;
use super::{BenchArgs, Report, progress};
use crate::metrics::Fidelity;
use crate::synth;

/// Rates with bars: (bits, balanced, best).
const BARS: [(f64, f64, f64); 5] =
    [(1.5, 0.135, 0.075), (2.0, 0.125, 0.075), (2.5, 0.115, 0.075), (3.0, 0.11, 0.075), (4.0, 0.11, 0.075)];

#[derive(Serialize)]
struct Row {
    effort: &'static str,
    values: usize,
    asked_bits: f64,
    bytes: usize,
    bits: f64,
    nmse: f64,
    gap: f64,
    bar: Option<f64>,
    pass: Option<bool>,
    encode_seconds: f64,
    decode_seconds: f64,
}

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let side = args.size_or(if args.quick { 512 } else { 4096 });
    let tensor = synth::gaussian(Dtype::F32, &[side, side], 1.0, 1).context("f32 is a float")?;
    let view = tensor.view()?;
    let rates = args.bits_or(&BARS.map(|b| b.0));
    let bar = progress::bar(rates.len() * args.efforts.len(), args.quiet);
    let mut table = Table::new(&["effort", "asked", "bytes", "bits", "nmse", "gap", "bar", "", "encode s"]);
    for &effort in &args.efforts {
        for &asked in &rates {
            bar.set_message(format!("{} at {asked} bits", effort.name()));
            let options =
                EncodeOptions::new(Goal::Bits(asked)).with_effort(effort).with_threads(args.threads);
            let (encode_seconds, blob) = time(|| args.engine.encode(&view, &options));
            let blob = blob?;
            let decoding = DecodeOptions::default().with_threads(args.threads);
            let (decode_seconds, decoded) = time(|| args.engine.decode(&blob, &decoding));
            let fidelity = Fidelity::between(&view, &decoded?.view()?).context("shapes differ")?;
            let bits = blob.len() as f64 * 8.0 / view.len() as f64;
            let gap = fidelity.gap(bits);
            let limit = bar_of(effort, asked);
            let what = format!("gap of {} at {asked} bits, {side}×{side}", effort.name());
            let pass = limit.map(|l| report.at_most(what, gap, l));
            table.row([
                effort.name().to_string(),
                format!("{asked}"),
                blob.len().to_string(),
                format!("{bits:.4}"),
                format!("{:.6}", fidelity.nmse()),
                format!("{gap:.4}"),
                limit.map_or("-".to_string(), |l| format!("{l}")),
                pass.map_or("", |p| if p { "pass" } else { "MISS" }).to_string(),
                format!("{encode_seconds:.2}"),
            ]);
            report.row(&Row {
                effort: effort.name(),
                values: view.len(),
                asked_bits: asked,
                bytes: blob.len(),
                bits,
                nmse: fidelity.nmse(),
                gap,
                bar: limit,
                pass,
                encode_seconds,
                decode_seconds,
            })?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    table.print(out)?;
    Ok(())
}

fn bar_of(effort: Effort, bits: f64) -> Option<f64> {
    let (_, balanced, best) = BARS.into_iter().find(|b| (b.0 - bits).abs() < 1e-9)?;
    match effort {
        Effort::Fast => None,
        Effort::Balanced => Some(balanced),
        Effort::Best => Some(best),
    }
}
