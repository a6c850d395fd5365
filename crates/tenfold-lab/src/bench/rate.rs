//! Whether goals are obeyed: `bits` within its tolerance, `max_bytes` and `max_error` without exception,
//! over sizes, distributions and dtypes.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;
use tenfold::engine::Engine;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Error, Goal, Tensor};

use super::table::Table;
use super::{BenchArgs, Report, progress};
use crate::metrics::Fidelity;
use crate::synth::{self, Shape};

/// From this many values on the rate must be met within [`TIGHT`], below within [`LOOSE`].
const LARGE: usize = 1_000_000;
const TIGHT: f64 = 0.005;
const LOOSE: f64 = 0.02;
/// Sizes below [`LARGE`]; odd ones leave tiles and lanes unfilled.
const SMALL_SIZES: [usize; 6] = [4096, 4099, 9973, 40_000, 65_536, 262_144];
const DTYPES: [Dtype; 6] = [Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::F64, Dtype::F8E4M3, Dtype::F8E5M2];
const RATES: [f64; 5] = [1.0, 2.0, 2.5, 4.0, 8.0];
/// Scale of the values: that of weights, except in 8 bits, where files carry scales apart.
const SCALE: f32 = 0.02;
const SCALE_F8: f32 = 4.0;

#[derive(Serialize, Clone)]
struct Row {
    effort: &'static str,
    goal: String,
    distribution: &'static str,
    dtype: &'static str,
    values: usize,
    /// Signed miss for bits, as a share of the goal; for the hard goals what came out over what was allowed.
    figure: f64,
    pass: bool,
    why: &'static str,
}

/// One tensor to ask things of, and who is asked.
struct Case<'a> {
    engine: &'a dyn Engine,
    tensor: Tensor,
    distribution: Shape,
}

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let largest = args.size_or(4 << 20).max(LARGE);
    let large = if args.quick { vec![LARGE] } else { vec![LARGE, 1_234_567, largest] };
    let small = if args.quick { &SMALL_SIZES[..2] } else { &SMALL_SIZES };
    let rates = args.bits_or(&RATES);
    let sizes: Vec<usize> = small.iter().copied().chain(large).collect();
    let bar = progress::bar(sizes.len() * Shape::ALL.len() * DTYPES.len(), args.quiet);
    let mut rows = Vec::new();
    for &n in &sizes {
        for distribution in Shape::ALL {
            let values = synth::values(distribution, 1.0, n, n as u64);
            for dtype in DTYPES {
                bar.inc(1);
                bar.set_message(format!("{n} values, {}, {dtype}", distribution.name()));
                // Conversions are tested at small sizes; large ones take the two dtypes of real models.
                if n >= LARGE && !matches!(dtype, Dtype::F32 | Dtype::Bf16) {
                    continue;
                }
                let scale = if dtype.size() == 1 { SCALE_F8 } else { SCALE };
                let scaled: Vec<f32> = values.iter().map(|v| v * scale).collect();
                let tensor = synth::tensor(dtype, &shape_of(n), &scaled).context("a float dtype")?;
                let case = Case { engine: &*args.engine, tensor, distribution };
                for &effort in &args.efforts {
                    // The slow effort shares its rate control with the others: one large size is enough.
                    if effort == Effort::Best && n > LARGE {
                        continue;
                    }
                    let options =
                        |goal| EncodeOptions::new(goal).with_effort(effort).with_threads(args.threads);
                    for &bits in rates.iter().filter(|&&b| b < dtype.size() as f64 * 8.0) {
                        rows.push(case.bits(bits, &options(Goal::Bits(bits)))?);
                    }
                    for cap in [n / 16, n / 4, n * 5 / 8] {
                        rows.push(case.max_bytes(cap, &options(Goal::MaxBytes(cap)))?);
                    }
                    for bound in [0.003, 0.05, 0.7].map(|b| b * f64::from(scale)) {
                        rows.push(case.max_error(bound, &options(Goal::MaxError(bound)))?);
                    }
                }
            }
        }
    }
    bar.finish_and_clear();
    summarise(&rows, report, out)?;
    rows.iter().try_for_each(|row| report.row(row))
}

/// Rows of an odd but not tiny length where the size allows, so that class scales have both sides.
fn shape_of(n: usize) -> Vec<usize> {
    [1000, 256, 64]
        .into_iter()
        .find(|c| n.is_multiple_of(*c) && n > c * c / 8)
        .map_or(vec![n], |c| vec![n / c, c])
}

impl Case<'_> {
    fn bits(&self, asked: f64, options: &EncodeOptions) -> Result<Row> {
        let (bytes, fidelity) = self.code(options)?;
        let n = self.tensor.view()?.len();
        let miss = bytes as f64 * 8.0 / n as f64 / asked - 1.0;
        let tolerance = if n >= LARGE { TIGHT } else { LOOSE };
        // Nothing is left to spend bits on when every value is exact.
        let exact = fidelity.squared_error == 0.0 && miss < 0.0;
        let why = if exact { "exact below the rate" } else { "" };
        Ok(self.row(
            format!("bits {asked}"),
            options,
            if exact { 0.0 } else { miss },
            exact || miss.abs() <= tolerance,
            why,
        ))
    }

    fn max_bytes(&self, cap: usize, options: &EncodeOptions) -> Result<Row> {
        let goal = format!("max_bytes {cap}");
        match self.engine.encode(&self.tensor.view()?, options) {
            Ok(blob) => {
                let share = blob.len() as f64 / cap as f64;
                Ok(self.row(goal, options, share, blob.len() <= cap, ""))
            }
            // A typed refusal obeys the cap.
            Err(Error::DoesNotFit { .. }) => Ok(self.row(goal, options, 1.0, true, "does not fit")),
            Err(e) => Err(e.into()),
        }
    }

    fn max_error(&self, bound: f64, options: &EncodeOptions) -> Result<Row> {
        let (_, fidelity) = self.code(options)?;
        let share = fidelity.max_error / bound;
        Ok(self.row(format!("max_error {bound}"), options, share, fidelity.max_error <= bound, ""))
    }

    fn code(&self, options: &EncodeOptions) -> Result<(usize, Fidelity)> {
        let view = self.tensor.view()?;
        let blob = self
            .engine
            .encode(&view, options)
            .with_context(|| format!("{:?} on {} values of {}", options.goal, view.len(), view.dtype()))?;
        let back = self.engine.decode(&blob, &DecodeOptions::default().with_threads(options.threads))?;
        Ok((blob.len(), Fidelity::between(&view, &back.view()?).context("shapes differ")?))
    }

    fn row(&self, goal: String, options: &EncodeOptions, figure: f64, pass: bool, why: &'static str) -> Row {
        let dtype = self.tensor.dtype;
        Row {
            effort: options.effort.name(),
            goal,
            distribution: self.distribution.name(),
            dtype: dtype.name(),
            values: self.tensor.data.len() / dtype.size(),
            figure,
            pass,
            why,
        }
    }
}

fn summarise(rows: &[Row], report: &mut Report, out: &mut dyn Write) -> Result<()> {
    type Group = (&'static str, &'static str, fn(&Row) -> bool, f64);
    let groups: [Group; 4] = [
        (
            "bits, 1 M values and more",
            "worst miss",
            |r| r.goal.starts_with("bits") && r.values >= LARGE,
            TIGHT,
        ),
        (
            "bits, 4,096 values and more",
            "worst miss",
            |r| r.goal.starts_with("bits") && r.values < LARGE,
            LOOSE,
        ),
        ("max_bytes", "most, share of the cap", |r| r.goal.starts_with("max_bytes"), 1.0),
        ("max_error", "most, share of the bound", |r| r.goal.starts_with("max_error"), 1.0),
    ];
    let mut table = Table::new(&["goal", "cases", "missed", "worst", "bar"]);
    for (name, figure, belongs, bar) in groups {
        let group: Vec<&Row> = rows.iter().filter(|r| belongs(r)).collect();
        let worst = group.iter().map(|r| r.figure.abs()).fold(0.0, f64::max);
        let missed = group.iter().filter(|r| !r.pass).count();
        let digits = |v: f64| format!("{v:.5}");
        table.row([
            name.to_string(),
            group.len().to_string(),
            missed.to_string(),
            digits(worst),
            digits(bar),
        ]);
        report.at_most(format!("{name}: {figure}"), worst, bar);
    }
    table.print(out)?;
    list_misses(rows, out)
}

/// The worst miss of each kind of tensor and goal: a list of single cases would repeat one fault.
fn list_misses(rows: &[Row], out: &mut dyn Write) -> Result<()> {
    let mut kinds: BTreeMap<(&str, &str, &str), (usize, &Row)> = BTreeMap::new();
    for r in rows.iter().filter(|r| !r.pass) {
        let goal = r.goal.split(' ').next().unwrap_or_default();
        let kind = kinds.entry((goal, r.distribution, r.dtype)).or_insert((0, r));
        kind.0 += 1;
        if r.figure.abs() > kind.1.figure.abs() {
            kind.1 = r;
        }
    }
    for ((_, distribution, dtype), (count, r)) in kinds {
        let (effort, values) = (r.effort, r.values);
        let worst = format!("worst {:+.4} ({effort}, {}, {values} values)", r.figure, r.goal);
        writeln!(out, "missed: {distribution} {dtype}, {count} cases, {worst}")?;
    }
    Ok(())
}
