//! From a goal to a step: statistics first, then a sample, then at most a few real encodings.
//!
//! `scan` looks at the whole tensor once; `encoding` guesses a step and makes a plan (classes, low bits, costs); `refine` settles
//! step and costs by `trial`s of a sample (`known` takes both from a plan that was made before), `pairing` whether levels are coded in pairs; `finish` makes `full` passes (`fed` ones where errors are fed back) and corrects the step while the goal is missed, with
//! `fallback` for goals that no step meets; `write` chooses tables and writes the blob. `aim` says what a goal asks of all of
//! them, and [`crate::engine::search`] which step to try next.

mod aim;
mod classes;
mod encoding;
mod fallback;
mod fed;
mod finish;
mod full;
mod known;
mod label;
mod low_bits;
mod nearest;
mod pairing;
mod refine;
mod sample;
mod scan;
mod trial;
mod write;

use std::f64::consts::PI;

use crate::engine::Outcome;
use crate::error::{Error, Result};
use crate::options::{Effort, EncodeOptions, Goal};
use crate::prepare::{Transform, group_of, width_of};
use crate::quant::cost::CostTable;
use crate::simd::Isa;
use crate::view::{TensorView, spacing, value};
use crate::workers::Workers;
use encoding::{Encoding, lambda};
pub(crate) use fed::encode_fed;
pub use known::EncodePlan;
pub(crate) use label::Label;
pub(crate) use nearest::{plain_goal, within};
use scan::scan;

/// What a step must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// About this many bytes.
    Bytes(f64),
    /// At most this many bytes.
    Cap(usize),
    /// Mean squared error at most this.
    Mse(f64),
    /// Mean squared error over variance at most this.
    Nmse(f64),
    /// This step.
    Step(f64),
    /// No error above this.
    Bound(f64),
}

impl Target {
    /// What a goal asks of a step; nothing if it is to be lossless.
    pub(crate) fn from_goal(goal: Goal, view: &TensorView<'_>) -> Option<Target> {
        Some(match goal {
            Goal::Bits(b) => Target::Bytes(b * view.len() as f64 / 8.0),
            Goal::Ratio(r) => Target::Bytes(view.data().len() as f64 / r),
            Goal::Mse(v) => Target::Mse(v),
            Goal::Nmse(v) => Target::Nmse(v),
            Goal::MaxError(v) => Target::Bound(v),
            Goal::Step(v) => Target::Step(v),
            Goal::MaxBytes(cap) => Target::Cap(cap),
            // What it rounds to is known once `nearest` has looked at the tensor.
            Goal::RoundToNearest { .. } | Goal::Lossless => return None,
        })
    }
}

/// The smallest mean squared error that is aimed at, in the scan's units.
const LEAST_MSE: f64 = 1e-36;

/// Encodes with the step that reaches the target.
pub(crate) fn encode(
    view: &TensorView<'_>,
    label: &Label<'_>,
    options: &EncodeOptions,
    workers: &Workers,
    target: Target,
) -> Result<Outcome> {
    let isa = Isa::detect();
    let scan = scan(view, isa, workers, matches!(target, Target::Nmse(_)))?;
    if scan.all_zero {
        return Encoding::new(view, label, options, workers, isa, scan).encode_trivial();
    }
    if scan.max == 0.0 || (matches!(target, Target::Nmse(_)) && !scan.variance.is_finite()) {
        return Ok(Outcome::Failed(None));
    }
    let encoding = Encoding::new(view, label, options, workers, isa, scan);
    let target = encoding.in_units(target);
    // Squares so small vanish where they are added up, and any error would seem to keep to the goal.
    if matches!(target, Target::Mse(v) if v < LEAST_MSE) {
        return Ok(Outcome::Failed(None));
    }
    encoding.run(target)
}

/// What a lossy goal for a tensor with this many rows and columns asks of its transformed values; nothing if the
/// transforms alone lose more (`lost`, a squared error) than the goal allows. `look` looks at the tensor, if needed.
/// Without a look, goals relative to the variance are refused, and the error of rounding to the dtype is left out.
///
/// Transforms preserve squared errors, except weights and bases that are not orthonormal, whose errors count as
/// weighted, and differences, whose errors add up.
pub fn goal_behind(
    transforms: &[Transform],
    goal: Goal,
    (rows, cols): (usize, usize),
    lost: f64,
    look: impl FnOnce() -> Result<Option<Look>>,
) -> Result<Option<Goal>> {
    let weighted = transforms.iter().any(|s| match s {
        Transform::Weights(_) => true,
        Transform::Basis(b) => b.basis().is_some_and(|b| !b.is_orthonormal()),
        _ => false,
    });
    let growth = growth(transforms, rows);
    let (mse, look) = match goal {
        Goal::Nmse(v) if weighted => return Ok(Some(Goal::Nmse(v / growth))),
        Goal::Mse(v) if weighted => return Ok(Some(Goal::Mse(v / growth))),
        Goal::Nmse(v) => match look()? {
            Some(look) => (v * look.variance, Some(look)),
            None => {
                let why = "what an error is relative to is not known without a look at the tensor: ask for Goal::Mse";
                return Err(Error::InvalidArgument(why.into()));
            }
        },
        Goal::Mse(v) => (v, look()?),
        goal => return Ok(Some(goal)),
    };
    // Both errors are about independent: four deviations of twice their product.
    let rounding = look.map_or(0.0, |look| look.rounding + 8.0 * (look.rounding * mse).sqrt());
    // The squared error of all values, shared out among those that are coded.
    let (values, coded) = ((rows * cols) as f64, (rows * width_of(transforms, cols)) as f64);
    let mse = (mse / growth * values - rounding / growth - lost) / coded;
    Ok((mse > 0.0).then_some(Goal::Mse(mse)))
}

/// What goals that are errors need to know of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Look {
    /// Variance of the finite values about their mean.
    pub variance: f64,
    /// Squared error that rounding to the dtype adds, and hardly ever more: a codec behind transforms does not see it.
    pub rounding: f64,
}

impl Look {
    /// Looks at a tensor of floats.
    pub fn new(view: &TensorView<'_>) -> Result<Look> {
        Look::with(view, &Workers::current_thread())
    }

    pub(crate) fn with(view: &TensorView<'_>, workers: &Workers) -> Result<Look> {
        const BLOCK: usize = 1 << 16;
        let (dtype, size) = (view.dtype(), view.dtype().size());
        let of_block = |_: &mut (), i: usize| {
            let data = &view.data()[i * BLOCK * size..view.data().len().min((i + 1) * BLOCK * size)];
            let values = data.chunks_exact(size).map(|b| value(dtype, b)).filter(|v| v.is_finite());
            values.map(|v| spacing(dtype, v).powi(2) / 12.0).sum::<f64>()
        };
        let rounding = workers.map(view.len().div_ceil(BLOCK), || (), of_block)?.iter().sum();
        Ok(Look { variance: variance(view, workers)?, rounding })
    }
}

/// How much larger the mean squared error of a tensor is than that of the values that a chain makes of it: errors of
/// differences add up.
pub(crate) fn growth(transforms: &[Transform], rows: usize) -> f64 {
    (group_of(transforms).min(rows.max(1)) + 1) as f64 / 2.0
}

/// Variance of the finite values about their mean.
pub(crate) fn variance(view: &TensorView<'_>, workers: &Workers) -> Result<f64> {
    let scan = scan(view, Isa::detect(), workers, true)?;
    Ok(scan.variance * scan.unit * scan.unit)
}

/// log2 of the deviation that each column would have if it were Gaussian; of all values where there are no columns to tell apart.
pub(crate) fn column_scales(view: &TensorView<'_>, workers: &Workers) -> Result<Vec<f64>> {
    let scan = scan(view, Isa::detect(), workers, false)?;
    let lines = if scan.cols.is_empty() { &scan.rows } else { &scan.cols };
    // A Gaussian's mean magnitude is its deviation times √(2/π). What is zero is far below anything that is not.
    let scale = |mean: &f32| (f64::from(mean.max(1e-30)) * scan.unit * (PI / 2.0).sqrt()).log2();
    Ok(lines.iter().map(scale).collect())
}

/// Bits a value at a step, from a sample.
pub(crate) fn estimate(view: &TensorView<'_>, label: &Label<'_>, step: f64, effort: Effort) -> Result<f64> {
    let options = EncodeOptions::new(Goal::Step(step)).with_effort(effort);
    let isa = Isa::detect();
    let workers = Workers::current_thread();
    let scan = scan(view, isa, &workers, false)?;
    if scan.max == 0.0 {
        return Ok(0.0);
    }
    let encoding = Encoding::new(view, label, &options, &workers, isa, scan);
    let Some(mut plan) = encoding.plan(step) else { return Ok(0.0) };
    let mut bytes = 0.0;
    for _ in 0..2 {
        let t = encoding.trial(&plan, &encoding.sample)?;
        bytes = t.bytes;
        plan.costs = CostTable::from_counts(&t.counts, &plan.low, lambda(plan.machine));
    }
    Ok(bytes * 8.0 / view.len() as f64)
}
